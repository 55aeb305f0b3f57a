//! The captain's draft: kept with its run, taken up when planning goes on, written out on request.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use helve_contract::{
    Access, PathRules, Reading, Root, Workspace,
    ports::{Expect, ExpectedVersion, MAX_ARTIFACT},
};
use helve_hosts::{
    Local,
    memory::{HOME, Memory},
};
use helve_tools::artifacts::Room;

use super::{Choice, home, known, visitor};
use crate::{
    fault::{Fault, Outcome},
    say, setup,
};

/// Where it is kept among the artifacts of its run.
const PLACE: &str = "draft";
/// The largest one that is kept: what is larger could not be read back as an artifact.
const LARGEST: usize = MAX_ARTIFACT as usize;

/// Puts back what an earlier captain of the run had drafted.
pub(super) async fn load(room: &Room<'_>, memory: &Memory) -> Result<(), Fault> {
    match room.bytes(PLACE).await? {
        Some(kept) => Ok(memory.restore(&kept).await?),
        None => Ok(()),
    }
}

/// Keeps the draft, if it is not what was kept before.
pub(super) async fn save(room: &Room<'_>, memory: &Memory, before: &mut Vec<u8>) -> Result<(), Fault> {
    let bytes = memory.snapshot()?;
    if bytes == *before {
        return Ok(());
    }
    if bytes.len() > LARGEST {
        let (size, most) = (bytes.len() >> 20, LARGEST >> 20);
        return Err(Fault::failed(format!(
            "the draft has {size} MiB and is not kept: {most} MiB is the most; remove files that the plan does not need"
        )));
    }
    room.keep(PLACE, &bytes, ExpectedVersion::Any).await?;
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
    choice: Choice,
}

impl Export {
    pub(super) fn run(self) -> Outcome {
        let home = home(&self.choice.settings()?)?;
        let run = known(&home, &self.run)?;
        let visitor = visitor(&home, &run);
        setup::runtime()?.block_on(async {
            let room = Room::of(&visitor)?;
            let kept = room.bytes(PLACE).await?;
            let kept =
                kept.ok_or_else(|| Fault::failed(format!("the captain of {} has drafted nothing", run.label)))?;
            let memory = Memory::new();
            memory.restore(&kept).await?;
            let written =
                written(&memory, &self.to, if self.force { Expect::Anything } else { Expect::Absent }).await?;
            say!("{written} files in {}", self.to.display());
            Ok(ExitCode::SUCCESS)
        })
    }
}

/// Writes the draft's files beneath a folder: all of them or none, and nowhere else, whatever links are there.
async fn written(memory: &Memory, to: &Path, expect: Expect) -> Result<usize, Fault> {
    fs::create_dir_all(to)?;
    let workspace = Workspace::new([Root::writable(fs::canonicalize(to)?)], PathRules::default(), Reading::Relative);
    let top = workspace.top(Access::Write)?;
    memory.export(Path::new(HOME), &Local::new(), &top, expect).await.map_err(|error| match error {
        helve_contract::Error::File { path, fault: helve_contract::FileFault::Exists } => Fault::failed(format!(
            "{path} is there already, and nothing was written; choose another folder, or replace with --force"
        )),
        error => error.into(),
    })
}
