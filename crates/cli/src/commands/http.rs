//! `helve mcp --http`: the MCP server over HTTP.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use helve_contract::async_trait;
use helve_mcp::{HttpConfig, McpServerConfig, McpService, McpSessionFactory, is_loopback, serve_http};
use helve_runtime::{OpenSession, session::sibling};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{net::TcpListener, runtime::Runtime};

use crate::{
    config::Settings,
    fault::{CliError, CommandResult},
    remark, setup, state,
    workshop::HelveRuntime,
};

/// The variable with a token that stays the same across runs.
const TOKEN_ENV: &str = "HELVE_MCP_TOKEN";

/// How a server over HTTP is reached, and by whom.
#[derive(clap::Args)]
pub(crate) struct HttpArgs {
    /// Serve over HTTP at this address instead, such as 127.0.0.1:8123; the path is /mcp.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) http: Option<String>,
    /// Ask for no token: only on an address of this machine alone.
    #[arg(long, requires = "http")]
    no_auth: bool,
    /// A further name that the server answers to.
    #[arg(long, value_name = "NAME", requires = "http")]
    allow_host: Vec<String>,
    /// A web page that may ask, such as <https://desk.example>.
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    allow_origin: Vec<String>,
    /// The largest message, in MiB.
    #[arg(long, value_name = "MIB", requires = "http", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    max_body: u16,
}

impl HttpArgs {
    /// Serves until somebody wants us to end.
    pub(crate) fn serve(
        &self,
        address: &str,
        bench: &HelveRuntime,
        rooms: EngineSessionFactory,
        runtime: Runtime,
    ) -> CommandResult {
        let wrong = |why: String| CliError::usage(format!("--http {address}: {why}"));
        let at: SocketAddr = address
            .to_socket_addrs()
            .map_err(|error| wrong(error.to_string()))?
            .next()
            .ok_or_else(|| wrong("no such address".into()))?;
        if self.no_auth && !is_loopback(at.ip()) {
            return Err(wrong("other machines can reach it; leave --no-auth out".into()));
        }
        raise_descriptor_limit();
        let listener = runtime.block_on(TcpListener::bind(at)).map_err(|error| wrong(error.to_string()))?;
        let at = listener.local_addr()?;
        let token = if self.no_auth { None } else { Some(ServerToken::create(bench.settings(), at)?) };
        remark!("helve: MCP at http://{}/mcp", local_address(at));
        if let Some(token) = &token {
            token.print();
        }
        let options = HttpConfig {
            tokens: token.iter().map(|it| it.text.clone()).collect(),
            hosts: self.allow_host.clone(),
            origins: self.allow_origin.clone(),
            max_body_bytes: usize::from(self.max_body) << 20,
            max_connections: max_connections(),
            ..HttpConfig::default()
        };
        let served =
            runtime.block_on(serve_http(listener, Arc::new(rooms), options, setup::wait_for_shutdown_signal()));
        // Does not wait for work that hangs in the kernel.
        runtime.shutdown_background();
        served?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The address for clients on this machine. A server that listens on all interfaces is reached at the loopback address.
pub(super) fn local_address(at: SocketAddr) -> SocketAddr {
    let own: IpAddr = match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(own, at.port())
}

/// The maximum number of file descriptors to request.
const MAX_DESCRIPTORS: u64 = 8192;

/// Raises the limit of file descriptors: each connection needs one, and calls need some.
pub(super) fn raise_descriptor_limit() {
    let now = getrlimit(Resource::Nofile);
    let wanted = now.maximum.unwrap_or(MAX_DESCRIPTORS).min(MAX_DESCRIPTORS);
    if now.current.is_some_and(|it| it < wanted) {
        _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: now.maximum });
    }
}

/// The maximum number of connections: half of the file descriptors, so that calls get the others.
pub(super) fn max_connections() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(MAX_DESCRIPTORS);
    usize::try_from(descriptors / 2).unwrap_or(usize::MAX).min(HttpConfig::default().max_connections)
}

/// The token that clients must send.
struct ServerToken {
    text: String,
    /// The temporary file with the token, if this process created it.
    file: Option<PathBuf>,
}

impl ServerToken {
    fn create(settings: &Settings, at: SocketAddr) -> Result<Self, CliError> {
        if let Some(text) = std::env::var(TOKEN_ENV).ok().filter(|it| !it.is_empty()) {
            if text.len() < 16 || !text.chars().all(|it| it.is_ascii_graphic()) {
                return Err(CliError::usage(format!("{TOKEN_ENV}: at least 16 letters and digits are needed")));
            }
            return Ok(Self { text, file: None });
        }
        let text = format!("{}{}", state::random_id()?, state::random_id()?);
        let (folder, _) = state::open(settings)?;
        let name: String = at.to_string().chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '-' }).collect();
        let file = folder.join(format!("mcp-{name}.token"));
        write_private_file(&file, &text)?;
        Ok(Self { text, file: Some(file) })
    }

    fn print(&self) {
        match &self.file {
            Some(file) => remark!("helve: Authorization: Bearer {} (also in {})", self.text, file.display()),
            None => remark!("helve: the token is the one in {TOKEN_ENV}"),
        }
    }
}

impl Drop for ServerToken {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            _ = fs::remove_file(file);
        }
    }
}

/// Creates a new file that only its owner can read. Replaces an existing one.
pub(super) fn write_private_file(file: &Path, text: &str) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    writeln!(file, "{text}")
}

/// Opens a session for each MCP client; all share one engine and one workspace.
pub(crate) struct EngineSessionFactory {
    bench: Arc<HelveRuntime>,
    pub(crate) template: OpenSession,
    options: McpServerConfig,
    fixtures: bool,
}

#[async_trait]
impl McpSessionFactory for EngineSessionFactory {
    async fn open(&self) -> io::Result<Arc<McpService>> {
        let session = sibling(&self.bench, &self.template).map_err(|fault| io::Error::other(fault.to_string()))?;
        let server = McpService::new(self.template.engine.clone(), session, self.options.clone());
        Ok(Arc::new(if self.fixtures { server.with_fixtures() } else { server }))
    }

    async fn close(&self, server: Arc<McpService>) {
        setup::stop_tasks(server.session().clone()).await;
        self.bench.end_agents(server.session()).await;
    }
}

/// Sessions for clients, beside the one that is open.
pub(crate) fn engine_session_factory(
    bench: &Arc<HelveRuntime>,
    first: OpenSession,
    options: McpServerConfig,
    fixtures: bool,
) -> EngineSessionFactory {
    EngineSessionFactory { bench: bench.clone(), template: first, options, fixtures }
}
