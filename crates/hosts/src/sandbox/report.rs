//! The result of probing the sandbox levels, for `helve doctor`.

use std::fmt;

use helve_contract::ports::SandboxLevel;

/// The results of all probes, best level first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxReport {
    /// The level in use; `None` if commands are refused.
    pub level: Option<SandboxLevel>,
    /// Every probed level, in order.
    pub probes: Vec<LevelProbe>,
    /// The path of bubblewrap, if it was found in a trusted directory.
    pub bwrap: Option<String>,
    /// Whether cgroups enforce the limits of commands.
    pub has_cgroups: bool,
    /// Notes about the network and other facts.
    pub notes: Vec<String>,
}

/// One level that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelProbe {
    /// The level.
    pub level: SandboxLevel,
    /// Why it does not work here; `None` if it works.
    pub failure: Option<String>,
}

impl fmt::Display for SandboxReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level {
            Some(level) => writeln!(f, "sandbox: {}", level.name())?,
            None => writeln!(f, "sandbox: none works here; commands are refused")?,
        }
        writeln!(f, "  bwrap: {}", self.bwrap.as_deref().unwrap_or("not found in a trusted folder"))?;
        for trial in &self.probes {
            let verdict = trial.failure.as_deref().unwrap_or("works");
            writeln!(f, "  {}: {}", trial.level.name(), verdict.replace('\n', "; "))?;
        }
        let groups = if self.has_cgroups { "limits of processes hold for all" } else { "cannot be made by this user" };
        writeln!(f, "  control groups: {groups}")?;
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        Ok(())
    }
}
