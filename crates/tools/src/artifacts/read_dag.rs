//! `read_dag`: the current graph with its overlays.

use helve_contract::{Call, Effects, Error, Port, PortSet, Result, Tool, schemars, schemars::JsonSchema};
use serde::Deserialize;
use serde_json::{Value, json};

use super::room::CallArtifacts;

/// Reads the graph of tasks with everything that change requests added, and where each task stands now.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ReadDag {}

impl Tool for ReadDag {
    const NAME: &'static str = "read_dag";
    const EFFECTS: Effects = Effects::READS;
    const NEEDS: PortSet = PortSet::of(&[Port::ForgeRun]);
    type Output = Value;

    async fn run(self, call: &Call) -> Result<Value> {
        let room = CallArtifacts::for_call(call)?;
        let mut dag = room.dag().await?;
        let status = room.status(&dag).await?;
        for node in &mut dag.nodes {
            node.status = status.node(&node.id)?.status;
        }
        let dag = serde_json::to_value(&dag).map_err(|error| Error::Internal(error.into()))?;
        Ok(json!({ "dag": dag }))
    }
}
