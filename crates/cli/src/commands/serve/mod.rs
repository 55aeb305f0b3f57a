//! `helve serve`: a web UI, an API, MCP and the scheduler in one process.

mod api;
mod board;
mod calls;
mod forge;
mod guests;
mod hooks;
mod hub;
mod jobs;
mod memory;
mod page;
mod pass;
mod policy;
mod routes;
mod say;
mod schedules;
mod sessions;
mod site;
mod stream;
mod talks;
mod tasks;
mod turns;

use std::{
    net::{SocketAddr, ToSocketAddrs as _},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use helve_contract::CancellationToken;
use helve_mcp::{ElicitApprover, HttpConfig, McpServerConfig, is_loopback, serve_http_with_routes};
use tokio::net::TcpListener;

use super::{
    SettingsArgs,
    http::{self, EngineSessionFactory},
    mcp,
};
use crate::{
    fault::{CliError, CommandResult},
    notify::Told,
    remark, setup,
    workshop::{HelveRuntime, Reach, UserInterface},
};
use board::ApprovalQueue;
use guests::TrackingSessionFactory;
pub(crate) use hooks::users as job_users;
use hub::EventBus;
use pass::Auth;
use site::AppState;
use turns::ActiveTurns;

/// How long running requests may take at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// Serve a page, an API and MCP over HTTP, and run what is scheduled.
///
/// The address with its token is printed at the start; the token is also in `serve.token` in the state folder, and
/// stays the same. Stop it with Ctrl-C: calls under way get ten seconds.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  helve serve
  helve serve --http 127.0.0.1:0 --workspace ~/project
  curl -H \"Authorization: Bearer $(cat ~/.local/state/helve/serve.token)\" http://127.0.0.1:7717/api/sessions")]
pub(crate) struct Args {
    #[command(flatten)]
    choice: SettingsArgs,
    /// Where to listen; port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7717")]
    http: String,
    /// A further name that the server answers to.
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> CommandResult {
        let settings = self.choice.load_and_warn()?;
        let dialect = super::configured_dialect(&settings)?;
        let at = self.address()?;
        let runtime = setup::runtime()?;
        http::raise_descriptor_limit();
        let bench = HelveRuntime::new(settings, &dialect, &runtime)?;
        let served = runtime.block_on(self.serve(&bench, at));
        // Does not wait for work that hangs in the kernel.
        runtime.shutdown_background();
        drop(bench);
        served?;
        Ok(ExitCode::SUCCESS)
    }

    fn address(&self) -> Result<SocketAddr, CliError> {
        let all = self.http.to_socket_addrs().map_err(|error| self.address_error(&error))?;
        all.into_iter().next().ok_or_else(|| self.address_error("no such address"))
    }

    fn address_error(&self, why: impl std::fmt::Display) -> CliError {
        CliError::usage(format!("--http {}: {why}", self.http))
    }

    async fn serve(&self, bench: &Arc<HelveRuntime>, at: SocketAddr) -> Result<(), CliError> {
        let listener = TcpListener::bind(at).await.map_err(|error| self.address_error(&error))?;
        let at = listener.local_addr()?;
        let pass = Auth::open(&bench.tenant_dir().join("serve.token"), at.port())?;
        let closing = CancellationToken::new();
        let hub = Arc::new(EventBus::new());
        let ear = hub.clone();
        bench.set_event_listener(Arc::new(move |dialect, event| ear.publish_call_event(dialect, event)));
        let turns = ActiveTurns::new(hub.clone());
        let heard = turns.clone();
        bench.set_message_listener(Arc::new(move |session, messages| heard.messages_stored(session, messages)));
        let board = ApprovalQueue::new(hub.clone(), bench);
        let everywhere = Reach::AllSessions;
        bench.set_user_interface(UserInterface {
            user: board.clone(),
            approver: Some(board.clone()),
            scope: everywhere,
        });
        bench.drive_schedules();
        let house = mcp_session_factory(bench, &board)?;
        let first = house.template.session.clone();
        let options = HttpConfig {
            tokens: vec![pass.token().to_owned()],
            hosts: self.allow_host.clone(),
            drain_timeout: SHUTDOWN_TIMEOUT,
            max_connections: http::max_connections(),
            ..HttpConfig::default()
        };
        let hooks = hooks::open(bench)?;
        // Signals are handled before the address is printed, because a reader may stop the server at once.
        let mut stopping = std::pin::pin!(setup::wait_for_shutdown_signal());
        tokio::select! {
            biased;
            () = &mut stopping => return Ok(()),
            () = std::future::ready(()) => {}
        }
        remark!("helve: http://{}/?token={}", http::local_address(at), pass.token());
        if !is_loopback(at.ip()) {
            remark!("helve: other machines can reach {at}; the token goes there unencrypted");
        }
        if at.ip().is_unspecified() && self.allow_host.is_empty() {
            remark!("helve: they are answered under the names that --allow-host gives; there are none");
        }
        let site = AppState::new(bench.clone(), board.clone(), turns, hub.clone(), (pass, hooks), closing.clone());
        let site = Arc::new(site);
        bench.wake_with(site.sessions.clone());
        let hall = TrackingSessionFactory { inner: house, event_bus: hub, sessions: site.mcp_sessions.clone() };
        let stop = async {
            stopping.await;
            remark!("helve: ends; what runs has {} s (again: at once)", SHUTDOWN_TIMEOUT.as_secs());
            closing.cancel();
            board.close();
            tokio::spawn(async {
                setup::wait_for_shutdown_signal().await;
                std::process::exit(130);
            });
        };
        let serving = serve_http_with_routes(listener, Arc::new(hall), Some(site.clone()), options, stop);
        let (served, ()) = tokio::join!(serving, start_background(bench, &site));
        site.shut_down().await;
        setup::stop_tasks(first).await;
        setup::shutdown_servers(bench.servers()).await;
        Ok(served?)
    }
}

/// Starts what needs a model: schedules and webhooks. Without one they wait, which is reported once.
async fn start_background(bench: &Arc<HelveRuntime>, site: &AppState) {
    let closing = &site.shutdown;
    let found = tokio::select! {
        found = bench.resolve_model(None) => found,
        () = closing.cancelled() => return,
    };
    let driver = match found {
        Ok(model) => {
            crate::schedules::driver_beside(bench, Arc::new(Told::new(bench.settings())), Some(site.sessions.clone()))
                .map(|driver| (model, driver))
        }
        Err(error) => Err(CliError::failed(format!("no model: schedules and webhooks wait ({error})"))),
    };
    match driver {
        Ok((model, driver)) => {
            let driver = driver.with_listener(schedules::scheduler_listener(
                bench,
                site.active_turns.clone(),
                bench.settings().dialect(),
            ));
            _ = site.scheduler.set(driver.clone());
            site.on_model_found();
            remark!("helve: schedules run with {model}");
            tokio::join!(driver.run_loop(closing.clone()), hooks::work(bench, &site.sessions, closing));
        }
        Err(fault) => remark!("helve: {fault}"),
    }
}

/// The MCP endpoint. Prompts go to the web UI if a client does not support elicitation.
fn mcp_session_factory(
    bench: &Arc<HelveRuntime>,
    board: &Arc<ApprovalQueue>,
) -> Result<EngineSessionFactory, CliError> {
    let approver = Arc::new(ElicitApprover::with_fallback(board.clone()).timeout(bench.approval_timeout()));
    let opened = mcp::client_session(bench, &approver, Some(board.clone()))?;
    let settings = bench.settings();
    let options = McpServerConfig {
        instructions: Some(mcp::instructions(&opened)),
        without_resources: !mcp::resources_allowed(settings, &opened.engine),
        elicit: Some(approver),
    };
    Ok(http::engine_session_factory(bench, opened, options, false))
}
