//! The far end of a remote host, for tests: serves the local files over standard input and output.

use std::{io, sync::Arc};

use helve_hosts::{Local, serve};

fn main() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(Arc::new(Local::new()), tokio::io::stdin(), tokio::io::stdout()))
}
