//! What was tried on this machine, what worked, and why the rest did not: for `helve doctor`.

use std::fmt;

use helve_contract::ports::SandboxLevel;

/// What was tried, best level first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxReport {
    /// The level in use; `None` when commands are refused.
    pub level: Option<SandboxLevel>,
    /// Every level that was tried, in order.
    pub probes: Vec<LevelProbe>,
    /// The outer sandbox program, if one was found in a folder that can be trusted.
    pub bwrap: Option<String>,
    /// Whether control groups hold commands to their limits.
    pub has_cgroups: bool,
    /// What commands may reach of the network, and what else is worth knowing.
    pub notes: Vec<String>,
}

/// One level that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelProbe {
    /// Which.
    pub level: SandboxLevel,
    /// Why it does not work here; `None` when it does.
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
