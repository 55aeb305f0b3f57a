//! `read_spec`: a specification of the plan.

use helve_contract::{Call, Effects, Port, PortSet, Result, Tool, schemars, schemars::JsonSchema};
use serde::Deserialize;
use serde_json::{Value, json};

use super::room::{self, CallArtifacts};

/// Reads a spec document of the plan.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ReadSpec {
    /// A file name such as "api-design.md"
    pub filename: String,
}

impl Tool for ReadSpec {
    const NAME: &'static str = "read_spec";
    const EFFECTS: Effects = Effects::READS;
    const NEEDS: PortSet = PortSet::of(&[Port::ForgeRun]);
    type Output = Value;

    async fn run(self, call: &Call) -> Result<Value> {
        let name = room::check_file_name("spec", &self.filename)?;
        Ok(json!({ "content": CallArtifacts::for_call(call)?.read_text(&format!("specs/{name}")).await? }))
    }
}
