//! `helve mcp`: the tools of a dialect for MCP clients.

use std::{path::Path, process::ExitCode, sync::Arc, thread};

use helve_agent::{SessionSpec, prompt};
use helve_contract::{
    Effects, PathStyle,
    ports::{NoUser, User},
};
use helve_engine::{Engine, Mode, ModeSwitch};
use helve_mcp::{ElicitApprover, ElicitUser, McpServerConfig, McpService, serve_stdio};
use helve_runtime::{Caller, OpenSession};

use super::{SettingsArgs, http, install};
use crate::{
    config::{CliOverride, Settings},
    fault::{CliError, CommandResult},
    knobs::SettingsUser,
    remark, setup,
    workshop::{HelveRuntime, Reach, UserInterface},
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
    choice: SettingsArgs,
    /// Only these tools; `*` stands for any letters.
    #[arg(long, value_name = "A,B,C*")]
    tools: Option<String>,
    #[command(flatten)]
    http: http::HttpArgs,
    /// Offer what the protocol's conformance suite asks for.
    #[arg(long, hide = true)]
    fixtures: bool,
    #[command(subcommand)]
    command: Option<McpCommand>,
}

#[derive(clap::Subcommand)]
enum McpCommand {
    Install(install::Args),
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> CommandResult {
        if let Some(McpCommand::Install(args)) = self.command {
            return args.run();
        }
        let only = self.tools.map(|text| CliOverride { key: "tools.only".to_owned(), text, flag: "--tools" });
        let settings = self.choice.load(only.into_iter().collect())?;
        for text in &settings.warnings {
            remark!("helve: {text}");
        }
        let dialect = super::configured_dialect(&settings)?;
        let approver = Arc::new(ElicitApprover::new().timeout(settings.config.approval.patience_secs.duration()));
        let runtime = setup::runtime()?;
        let bench = HelveRuntime::new(settings, &dialect, &runtime)?;
        let opened = client_session(&bench, &approver, None)?;
        let settings = bench.settings();
        let options = McpServerConfig {
            instructions: Some(instructions(&opened)),
            without_resources: !resources_allowed(settings, &opened.engine),
            elicit: Some(approver),
            // A failure only costs memory.
        };
        if let Some(address) = &self.http.http {
            let house = http::engine_session_factory(&bench, opened, options, self.fixtures);
            return self.http.serve(address, &bench, house, runtime);
        }
        let server = McpService::new(opened.engine.clone(), opened.session.clone(), options);
        let server = Arc::new(if self.fixtures { server.with_fixtures() } else { server });

        // The server reads on this thread; calls that have to wait run on another.
        let handle = runtime.handle().clone();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (session, servers) = (opened.session.clone(), bench.servers().cloned());
        let driver = thread::spawn(move || {
            let asked = runtime.block_on(async {
                let asked = tokio::select! {
                    _ = stopped => false,
                    () = setup::wait_for_shutdown_signal() => true,
                };
                setup::stop_tasks(session).await;
                setup::shutdown_servers(servers.as_ref()).await;
                asked
            });
            if asked {
                // The other thread still waits for the client's next message.
                std::process::exit(0);
            }
            // Does not wait for work that hangs in the kernel.
            runtime.shutdown_background();
        });
        let served = serve_stdio(server, &handle);
        drop(stop);
        _ = driver.join();
        drop((opened, bench));
        served?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A session for an MCP client. Prompts go to the client's user by elicitation; without it, to `fallback`.
pub(super) fn client_session(
    bench: &Arc<HelveRuntime>,
    approver: &Arc<ElicitApprover>,
    fallback: Option<Arc<dyn User>>,
) -> Result<OpenSession, CliError> {
    let need = SessionSpec { dialect: Some(bench.settings().dialect().to_owned()), ..SessionSpec::default() };
    // The client asks its user itself. Deny rules, path rules and the sandbox apply in every mode.
    let mode = ModeSwitch::new(setup::mode(bench.settings()).unwrap_or(Mode::Open));
    let user = ElicitUser::new(approver.clone(), mode.clone());
    let settings = || Arc::new(SettingsUser::new(Arc::new(NoUser), bench.knobs().clone()));
    let user = user.with_fallback(fallback.unwrap_or_else(|| settings()));
    let client = UserInterface { user: Arc::new(user), approver: Some(approver.clone()), scope: Reach::AllSessions };
    bench.session(need).caller(Caller::Client(client, mode)).build()
}

/// Instructions for the model before its first call.
pub(super) fn instructions(opened: &OpenSession) -> String {
    let top = opened.session.workspace.roots().first().map_or(Path::new("/"), |root| &root.dir).display();
    let mut text = match opened.engine.dialect().path_style {
        PathStyle::Absolute => format!("The workspace is {top}. Paths are absolute and beneath it."),
        PathStyle::Relative => format!("The workspace is {top}. Paths are relative to it, or absolute and beneath it."),
        PathStyle::Virtual => "Files are in /shared (the workspace), /tmp and /vault (read-only).".to_owned(),
    };
    if opened.engine.mode().get() == Mode::Plan {
        text.push_str("\n\n");
        text.push_str(&prompt::plan_mode(&opened.engine));
    }
    text
}

/// Whether files may be offered as resources: reading them bypasses rules that name tools.
pub(super) fn resources_allowed(settings: &Settings, engine: &Engine) -> bool {
    let approval = &settings.config.approval;
    let ruled = !approval.deny.is_empty() || !approval.ask.is_empty();
    !ruled && engine.specs().any(|spec| spec.effects == Effects::READS)
}
