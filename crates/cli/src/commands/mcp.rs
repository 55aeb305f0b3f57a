//! `helve mcp`: the tools of a dialect for any program that speaks MCP.

use std::{process::ExitCode, sync::Arc, thread};

use helve_contract::{Effects, Reading};
use helve_engine::Engine;
use helve_mcp::{ElicitApprover, ElicitUser, Options, Server, serve_stdio};

use super::{Choice, http, install};
use crate::{
    config::{Flag, Settings},
    fault::Outcome,
    remark,
    setup::{self, Purpose},
};

/// Serve the tools over MCP, on standard input and output or over HTTP.
///
/// What would be asked is put to the client's user where the client can do that, and denied where it cannot.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  helve mcp --workspace ~/project
  helve mcp --dialect solo --tools 'read,grep,mem*'
  helve mcp --http 127.0.0.1:8123          over HTTP, with a token that is shown at the start
  helve mcp install codex                  into the settings of a client
  claude mcp add helve -- helve mcp --workspace \"$PWD\""
)]
pub(crate) struct Args {
    #[command(flatten)]
    choice: Choice,
    /// Only these tools; `*` stands for any letters.
    #[arg(long, value_name = "A,B,C*")]
    tools: Option<String>,
    #[command(flatten)]
    http: http::Flags,
    /// Offer what the protocol's conformance suite asks for.
    #[arg(long, hide = true)]
    fixtures: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    Install(install::Args),
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        if let Some(Command::Install(args)) = self.command {
            return args.run();
        }
        let only = self.tools.map(|text| Flag { key: "tools.only".to_owned(), text, shown: "--tools" });
        let settings = self.choice.settings_quietly(only.into_iter().collect())?;
        for text in &settings.remarks {
            remark!("helve: {text}");
        }
        let dialect = super::dialect(&settings)?;
        let approver = Arc::new(ElicitApprover::default());
        let runtime = setup::runtime()?;
        let mut place = setup::open(&settings, dialect, Purpose::Serve(approver.clone()), &runtime)?;
        // Nobody else holds the session yet.
        if let Some(session) = Arc::get_mut(&mut place.session) {
            session.ports.user = Arc::new(ElicitUser::new(approver.clone(), place.engine.mode().clone()));
        }
        let options = Options {
            instructions: Some(instructions(&settings, &place.engine)),
            without_resources: !may_read(&settings, &place.engine),
            elicit: Some(approver),
            // Where it cannot be done, nothing is lost but memory.
            let_go: Some(|most| _ = helve_hosts::let_go_beyond(most)),
        };
        if let Some(address) = &self.http.http {
            let house = http::house(&place, options, self.fixtures);
            return self.http.serve(address, &settings, place, house, runtime);
        }
        let server = Server::new(place.engine.clone(), place.session.clone(), options);
        let server = Arc::new(if self.fixtures { server.with_fixtures() } else { server });

        // The server reads on this thread; calls that have to wait are driven on another.
        let handle = runtime.handle().clone();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (session, servers) = (place.session.clone(), place.servers.clone());
        let driver = thread::spawn(move || {
            let asked = runtime.block_on(async {
                let asked = tokio::select! {
                    _ = stopped => false,
                    () = setup::asked_to_stop() => true,
                };
                setup::end_tasks(session).await;
                setup::end_servers(servers.as_ref()).await;
                asked
            });
            if asked {
                // The other thread still waits for the client's next word.
                std::process::exit(0);
            }
            // Work that hangs in the kernel is not waited for.
            runtime.shutdown_background();
        });
        let served = serve_stdio(server, &handle);
        drop(stop);
        _ = driver.join();
        drop(place);
        served?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What a model should know before its first call.
pub(super) fn instructions(settings: &Settings, engine: &Engine) -> String {
    let top = settings.workspace.display();
    match engine.dialect().reading {
        Reading::Absolute => format!("The workspace is {top}. Paths are absolute and beneath it."),
        Reading::Relative => format!("The workspace is {top}. Paths are relative to it, or absolute and beneath it."),
        Reading::Virtual => "Files are in /shared (the workspace), /tmp and /vault (read-only).".to_owned(),
    }
}

/// Whether files may be offered as resources: they are read past rules that name tools.
pub(super) fn may_read(settings: &Settings, engine: &Engine) -> bool {
    let ruled = ["approval.deny", "approval.ask"].iter().any(|key| !settings.list(key).is_empty());
    !ruled && engine.specs().any(|spec| spec.effects == Effects::READS)
}
