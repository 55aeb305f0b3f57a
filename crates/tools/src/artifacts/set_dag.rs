//! `set_dag`: writes the whole task graph.

use helve_contract::{
    Call, Effects, Error, Port, PortSet, Result, Tool, ports::ExpectedVersion, schemars, schemars::JsonSchema,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    dag::{Dag, dag_error},
    room::{self, CallArtifacts},
    status::TaskStatus,
};

/// Writes the graph of tasks: `{"nodes": [{"id", "type": "task"|"refinery", "agentType": 1|2|3|"refinery", "dependencies": [ids]}]}`. It is checked as a whole; everything wrong is named with its code. Returns its path.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct SetDag {
    /// The graph
    pub dag: Map<String, Value>,
}

impl Tool for SetDag {
    const NAME: &'static str = "set_dag";
    const EFFECTS: Effects = Effects::READS.union(Effects::WRITES);
    const NEEDS: PortSet = PortSet::of(&[Port::ForgeRun]);
    type Output = Value;

    async fn run(self, call: &Call) -> Result<Value> {
        let room = CallArtifacts::for_call(call)?;
        let dag = fill_defaults(self.dag, &room, call)?;
        if dag.run_id != room.run_id() {
            return Err(Error::failed(format!("the graph is of run `{}`, and this is `{}`", dag.run_id, room.label())));
        }
        for node in &dag.nodes {
            room::check_task_id(&node.id)?;
            if node.status != TaskStatus::Pending {
                return Err(Error::failed(format!(
                    "`{}` is {} in the plan; every task begins as PENDING",
                    node.id, node.status
                )));
            }
        }
        let issues = dag.validate();
        if !issues.is_empty() {
            return Err(dag_error(&issues));
        }
        room.require_planning().await?;
        let path = room.write_record("dag.json", &dag, ExpectedVersion::Any).await?;
        Ok(json!({ "path": path }))
    }
}

/// Fills in the version, run, creator and counts.
fn fill_defaults(mut dag: Map<String, Value>, room: &CallArtifacts<'_>, call: &Call) -> Result<Dag> {
    let nodes = dag
        .get("nodes")
        .and_then(Value::as_array)
        .ok_or_else(|| Error::invalid_argument("dag.nodes", "a list of tasks is missing"))?;
    let refineries = nodes.iter().filter(|node| node["type"] == "refinery" || node["type"] == "Refinery").count();
    let counted = (nodes.len() - refineries, refineries);
    dag.entry("version").or_insert(json!(1));
    if dag.get("runId").is_none_or(|it| *it == room.label()) {
        dag.insert("runId".into(), json!(room.run_id()));
    }
    let metadata = dag.entry("metadata").or_insert_with(|| json!({}));
    let metadata =
        metadata.as_object_mut().ok_or_else(|| Error::invalid_argument("dag.metadata", "must be an object"))?;
    metadata.entry("createdAt").or_insert(json!(call.now()));
    metadata.entry("createdBy").or_insert(json!("captain"));
    metadata.entry("totalTasks").or_insert(json!(counted.0));
    metadata.entry("totalRefineries").or_insert(json!(counted.1));
    let dag: Dag = serde_json::from_value(Value::Object(dag))
        .map_err(|error| Error::invalid_argument("dag", error.to_string()))?;
    if dag.version != 1 {
        return Err(Error::invalid_argument("dag.version", format!("is {}; this is about version 1", dag.version)));
    }
    Ok(dag)
}
