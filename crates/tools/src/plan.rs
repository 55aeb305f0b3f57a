//! Planning: any tool, run on the in-memory session for drafts. Nothing changes outside it.

use std::time::Duration;

use helve_contract::{
    AccessRequest, Call, CommandLine, Effects, Port, PortSet, Result, Tool, schemars, schemars::JsonSchema,
};
use serde::Deserialize;

/// A tool that works on the draft instead of the workspace.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Draft<T>(pub T);

impl<T: Tool> Tool for Draft<T> {
    const NAME: &'static str = T::NAME;
    /// All effects are limited to the draft.
    const EFFECTS: Effects =
        if T::EFFECTS.is_read_only() { Effects::READS } else { Effects::READS.union(Effects::WRITES) };
    const NEEDS: PortSet = PortSet::of(&[Port::Draft]);
    const TIMEOUT: Duration = T::TIMEOUT;
    type Output = T::Output;

    /// Reports only the command, for deny rules: paths of the draft are not in the workspace, and the memory host
    /// applies the path rules.
    fn access(&self) -> Option<AccessRequest> {
        Some(match self.0.access()?.command.map(|it| it.line) {
            Some(CommandLine::Script(script)) => AccessRequest::command(CommandLine::OneOf(vec![script]), None),
            _ => AccessRequest::default(),
        })
    }

    async fn run(self, call: &Call) -> Result<Self::Output> {
        self.0.run(&call.in_draft_session()?).await
    }
}
