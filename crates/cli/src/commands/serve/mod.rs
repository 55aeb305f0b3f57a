//! `helve serve`: a page, an API, MCP and the scheduler in one process.

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
use helve_mcp::{ElicitApprover, HttpOptions, Options, is_loopback, serve_http_beside};
use tokio::net::TcpListener;

use super::{
    Choice,
    http::{self, House},
    mcp,
};
use crate::{
    fault::{Fault, Outcome},
    notify::Told,
    remark, setup,
    workshop::{Bench, Reach, Somebody},
};
use board::Board;
use guests::Hall;
pub(crate) use hooks::users as job_users;
use hub::Hub;
use pass::Pass;
use site::Site;
use turns::Turns;

/// How long requests under way may take when the server is to end.
const DRAIN: Duration = Duration::from_secs(10);

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
    choice: Choice,
    /// Where to listen; port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7717")]
    http: String,
    /// A further name that the server answers to.
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        let settings = self.choice.settings()?;
        let dialect = super::dialect(&settings)?;
        let at = self.address()?;
        let runtime = setup::runtime()?;
        http::raise_descriptor_limit();
        let bench = Bench::new(settings, &dialect, &runtime)?;
        let served = runtime.block_on(self.serve(&bench, at));
        // Work that hangs in the kernel is not waited for.
        runtime.shutdown_background();
        drop(bench);
        served?;
        Ok(ExitCode::SUCCESS)
    }

    fn address(&self) -> Result<SocketAddr, Fault> {
        let all = self.http.to_socket_addrs().map_err(|error| self.wrong(&error))?;
        all.into_iter().next().ok_or_else(|| self.wrong("no such address"))
    }

    fn wrong(&self, why: impl std::fmt::Display) -> Fault {
        Fault::usage(format!("--http {}: {why}", self.http))
    }

    async fn serve(&self, bench: &Arc<Bench>, at: SocketAddr) -> Result<(), Fault> {
        let listener = TcpListener::bind(at).await.map_err(|error| self.wrong(&error))?;
        let at = listener.local_addr()?;
        let pass = Pass::open(&bench.tenant_dir().join("serve.token"), at.port())?;
        let closing = CancellationToken::new();
        let hub = Arc::new(Hub::new());
        let ear = hub.clone();
        bench.listen(Arc::new(move |dialect, event| ear.hear(dialect, event)));
        let turns = Turns::new(hub.clone());
        let heard = turns.clone();
        bench.overhear(Arc::new(move |session, messages| heard.said(session, messages)));
        let board = Board::new(hub.clone(), bench);
        let everywhere = Reach::Everywhere;
        bench.meet(Somebody { user: board.clone(), approver: Some(board.clone()), reach: everywhere });
        bench.drive_schedules();
        let house = house(bench, &board)?;
        let first = house.first.session.clone();
        let options = HttpOptions {
            tokens: vec![pass.token().to_owned()],
            hosts: self.allow_host.clone(),
            drain: DRAIN,
            connections: http::max_connections(),
            ..HttpOptions::default()
        };
        let hooks = hooks::open(bench)?;
        // Whoever reads the address may want us to end at once: signals are heard from here on.
        let mut stopping = std::pin::pin!(setup::asked_to_stop());
        tokio::select! {
            biased;
            () = &mut stopping => return Ok(()),
            () = std::future::ready(()) => {}
        }
        remark!("helve: http://{}/?token={}", http::near(at), pass.token());
        if !is_loopback(at.ip()) {
            remark!("helve: other machines can reach {at}; the token goes there unencrypted");
        }
        if at.ip().is_unspecified() && self.allow_host.is_empty() {
            remark!("helve: they are answered under the names that --allow-host gives; there are none");
        }
        let site = Site::new(bench.clone(), board.clone(), turns, hub.clone(), (pass, hooks), closing.clone());
        let site = Arc::new(site);
        bench.wake_with(site.talks.clone());
        let hall = Hall { house, hub, guests: site.guests.clone() };
        let stop = async {
            stopping.await;
            remark!("helve: ends; what runs has {} s (again: at once)", DRAIN.as_secs());
            closing.cancel();
            board.close();
            tokio::spawn(async {
                setup::asked_to_stop().await;
                std::process::exit(130);
            });
        };
        let serving = serve_http_beside(listener, Arc::new(hall), Some(site.clone()), options, stop);
        let (served, ()) = tokio::join!(serving, background(bench, &site));
        site.end().await;
        setup::end_tasks(first).await;
        setup::end_servers(bench.servers()).await;
        Ok(served?)
    }
}

/// What needs a model: schedules and webhooks. Without one they wait, and that is said once.
async fn background(bench: &Arc<Bench>, site: &Site) {
    let closing = &site.closing;
    let found = tokio::select! {
        found = bench.find_model(None) => found,
        () = closing.cancelled() => return,
    };
    let driver = match found {
        Ok(model) => {
            crate::schedules::driver_beside(bench, Arc::new(Told::new(bench.settings())), Some(site.talks.clone()))
                .map(|driver| (model, driver))
        }
        Err(error) => Err(Fault::failed(format!("no model: schedules and webhooks wait ({error})"))),
    };
    match driver {
        Ok((model, driver)) => {
            let driver = driver.observed(schedules::observer(bench, site.turns.clone(), bench.settings().dialect()));
            _ = site.driver.set(driver.clone());
            site.found_model();
            remark!("helve: schedules run with {model}");
            tokio::join!(driver.drive(closing.clone()), hooks::work(bench, &site.talks, closing));
        }
        Err(fault) => remark!("helve: {fault}"),
    }
}

/// The tools for clients that speak MCP. Where a client cannot ask its user, the page is asked.
fn house(bench: &Arc<Bench>, board: &Arc<Board>) -> Result<House, Fault> {
    let approver = Arc::new(ElicitApprover::or(board.clone()).timeout(bench.patience()));
    let opened = mcp::client_session(bench, &approver, Some(board.clone()))?;
    let settings = bench.settings();
    let options = Options {
        instructions: Some(mcp::instructions(&opened)),
        without_resources: !mcp::may_read(settings, &opened.engine),
        elicit: Some(approver),
    };
    Ok(http::house(bench, opened, options, false))
}
