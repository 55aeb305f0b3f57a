//! Serves a script from a file: `helve-script FILE.json` prints its URL and serves until it is stopped. If
//! `HELVE_SCRIPT_LOG` names a file, every request and every problem is logged there, one per line.

use std::{io::Write, process::ExitCode};

use helve_script::ModelScript;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("helve-script: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), String> {
    let path = std::env::args().nth(1).ok_or("which script? helve-script FILE.json")?;
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let mut script: ModelScript = serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
    script.log = std::env::var_os("HELVE_SCRIPT_LOG").map(Into::into);
    let server = script.serve().await.map_err(|error| error.to_string())?;
    println!("{}", server.url());
    _ = std::io::stdout().flush();
    server.run().await;
    Ok(())
}
