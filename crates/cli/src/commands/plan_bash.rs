//! `helve plan-bash`: runs scripts in the in-memory shell for plans, each with separate files.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use helve_contract::{
    Access,
    ports::{Expect, Host as _, StdinSource},
};
use helve_hosts::memory::{MemoryHost, Script, ScriptOutput};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    fault::{CliError, CommandResult},
    print, say, setup,
};

/// The maximum length of a line.
const MAX_LINE_BYTES: u64 = 64 << 20;
/// The timeout of a script.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(8);

/// Run scripts in the shell in memory: no process, no network, no file of this machine.
///
/// With --batch, a line {"id", "command", "files", "stdin", "cwd", "env"} is answered with {"id", "stdout", "stderr",
/// "exitCode"}.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  helve plan-bash 'seq 3 | tac'")]
pub(crate) struct Args {
    /// Read scripts as JSON lines and answer each with a line; every one has files of its own.
    #[arg(long)]
    batch: bool,
    /// The script, where there is only one.
    script: Option<String>,
}

/// One script and what is there when it starts.
#[derive(Deserialize)]
struct ScriptRequest {
    #[serde(default)]
    id: Value,
    command: String,
    #[serde(default)]
    files: BTreeMap<String, ScriptFile>,
    #[serde(default)]
    stdin: Option<String>,
    #[serde(default)]
    cwd: Option<PathBuf>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// What is in a file.
#[derive(Deserialize)]
#[serde(untagged)]
enum ScriptFile {
    Text(String),
    Inside {
        #[serde(default)]
        content: String,
    },
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> CommandResult {
        let runtime = setup::runtime()?;
        if !self.batch {
            let script = self.script.ok_or_else(|| CliError::usage("give a script, or --batch"))?;
            let ended = runtime.block_on(MemoryHost::new().run(Script::new(script)));
            let ended = ended.map_err(|error| CliError::failed(error.to_string()))?;
            print::write_stdout(&ended.stdout);
            io::stderr().write_all(&ended.stderr)?;
            return Ok(ExitCode::from(ended.code.clamp(0, 255) as u8));
        }
        let mut input = io::stdin().lock();
        loop {
            let mut bytes = Vec::new();
            if input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes)? == 0 {
                return Ok(ExitCode::SUCCESS);
            }
            if bytes.trim_ascii().is_empty() {
                continue;
            }
            let answer = match serde_json::from_slice::<ScriptRequest>(&bytes) {
                Ok(line) => runtime.block_on(line.run_to_json()),
                Err(error) => json!({"id": null, "stdout": "", "stderr": error.to_string(), "exitCode": -1}),
            };
            say!("{answer}");
        }
    }
}

impl ScriptRequest {
    async fn run_to_json(self) -> Value {
        let id = self.id.clone();
        let ended = self.run().await.unwrap_or_else(|error| ScriptOutput {
            stderr: format!("{error}\n").into_bytes(),
            code: -1,
            ..ScriptOutput::default()
        });
        json!({
            "id": id,
            "stdout": String::from_utf8_lossy(&ended.stdout),
            "stderr": String::from_utf8_lossy(&ended.stderr),
            "exitCode": ended.code,
        })
    }

    async fn run(self) -> helve_contract::Result<ScriptOutput> {
        let memory = MemoryHost::new();
        let workspace = MemoryHost::workspace();
        let dir = self.cwd.unwrap_or_else(|| PathBuf::from(helve_hosts::memory::HOME_DIR));
        for (path, content) in self.files {
            let (ScriptFile::Text(text) | ScriptFile::Inside { content: text }) = content;
            let path = workspace.check(&dir.join(Path::new(&path)), Access::Write, None)?;
            memory.write(&path, text.as_bytes(), Expect::Anything).await?;
        }
        memory.create_dir_all(&dir).await?;
        let input = StdinSource::Bytes(self.stdin.unwrap_or_default().into_bytes());
        let env = self.env.into_iter().collect();
        memory.run(Script { dir, env, input, limit: SCRIPT_TIMEOUT, ..Script::new(self.command) }).await
    }
}
