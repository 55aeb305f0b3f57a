//! The captain's draft: stored with its run, restored when planning continues, exported on request.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use helve_contract::{
    Access, PathRules, PathStyle, Root, Workspace,
    ports::{Expect, ExpectedVersion, MAX_ARTIFACT},
};
use helve_hosts::{
    LocalHost,
    memory::{HOME_DIR, MemoryHost},
};
use helve_tools::artifacts::CallArtifacts;

use super::{SettingsArgs, artifacts_call, forge_dir, require_run};
use crate::{
    fault::{CliError, CommandResult},
    say, setup,
};

/// Its path among the artifacts of the run.
const DRAFT_ARTIFACT: &str = "draft";
/// The maximum size; a larger draft could not be read back as an artifact.
const MAX_DRAFT_BYTES: usize = MAX_ARTIFACT as usize;

/// Restores the draft of an earlier captain of the run.
pub(super) async fn load_draft(room: &CallArtifacts<'_>, memory: &MemoryHost) -> Result<(), CliError> {
    match room.read_bytes(DRAFT_ARTIFACT).await? {
        Some(kept) => Ok(memory.restore(&kept).await?),
        None => Ok(()),
    }
}

/// Stores the draft if it changed.
pub(super) async fn save_draft(
    room: &CallArtifacts<'_>,
    memory: &MemoryHost,
    before: &mut Vec<u8>,
) -> Result<(), CliError> {
    let bytes = memory.snapshot()?;
    if bytes == *before {
        return Ok(());
    }
    if bytes.len() > MAX_DRAFT_BYTES {
        let (size, most) = (bytes.len() >> 20, MAX_DRAFT_BYTES >> 20);
        return Err(CliError::failed(format!(
            "the draft has {size} MiB and is not kept: {most} MiB is the most; remove files that the plan does not need"
        )));
    }
    room.write(DRAFT_ARTIFACT, &bytes, ExpectedVersion::Any).await?;
    *before = bytes;
    Ok(())
}

#[derive(clap::Args)]
pub(super) struct Export {
    /// The run.
    #[arg(value_name = "RUN")]
    run: String,
    /// The folder to write to; it is made if it is not there.
    #[arg(value_name = "FOLDER")]
    to: PathBuf,
    /// Replace files that are there.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    choice: SettingsArgs,
}

impl Export {
    pub(super) fn run(self) -> CommandResult {
        let home = forge_dir(&self.choice.load_and_warn()?)?;
        let run = require_run(&home, &self.run)?;
        let visitor = artifacts_call(&home, &run);
        setup::runtime()?.block_on(async {
            let room = CallArtifacts::for_call(&visitor)?;
            let kept = room.read_bytes(DRAFT_ARTIFACT).await?;
            let kept =
                kept.ok_or_else(|| CliError::failed(format!("the captain of {} has drafted nothing", run.label)))?;
            let memory = MemoryHost::new();
            memory.restore(&kept).await?;
            let written =
                write_files(&memory, &self.to, if self.force { Expect::Anything } else { Expect::Absent }).await?;
            say!("{written} files in {}", self.to.display());
            Ok(ExitCode::SUCCESS)
        })
    }
}

/// Writes the draft's files beneath a directory: all or none. Does not follow links out of it.
async fn write_files(memory: &MemoryHost, to: &Path, expect: Expect) -> Result<usize, CliError> {
    fs::create_dir_all(to)?;
    let workspace = Workspace::new([Root::writable(fs::canonicalize(to)?)], PathRules::default(), PathStyle::Relative);
    let top = workspace.primary_root(Access::Write)?;
    memory.export(Path::new(HOME_DIR), &LocalHost::new(), &top, expect).await.map_err(|error| match error {
        helve_contract::Error::File { path, fault: helve_contract::FileErrorKind::Exists } => CliError::failed(
            format!("{path} is there already, and nothing was written; choose another folder, or replace with --force"),
        ),
        error => error.into(),
    })
}
