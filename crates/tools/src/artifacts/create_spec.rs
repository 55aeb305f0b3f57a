//! `create_spec`: writes a specification document of the plan.

use helve_contract::{
    Call, Effects, Error, Port, PortSet, Result, Tool, ports::ExpectedVersion, schemars, schemars::JsonSchema,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    front::MAX_DOCUMENT_BYTES,
    room::{self, CallArtifacts},
};

/// Writes a spec document of the plan. Possible until the run is executed. Returns its path.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct CreateSpec {
    /// A file name such as "api-design.md"
    pub filename: String,
    /// Markdown
    pub content: String,
}

impl Tool for CreateSpec {
    const NAME: &'static str = "create_spec";
    const EFFECTS: Effects = Effects::READS.union(Effects::WRITES);
    const NEEDS: PortSet = PortSet::of(&[Port::ForgeRun]);
    type Output = Value;

    async fn run(self, call: &Call) -> Result<Value> {
        let room = CallArtifacts::for_call(call)?;
        let name = room::check_file_name("spec", &self.filename)?;
        if self.content.len() > MAX_DOCUMENT_BYTES {
            return Err(Error::failed(format!(
                "a spec of {} bytes is more than the {MAX_DOCUMENT_BYTES} that are taken",
                self.content.len()
            )));
        }
        room.require_planning().await?;
        let path = room.write(&format!("specs/{name}"), self.content.as_bytes(), ExpectedVersion::Any).await?;
        Ok(json!({ "path": path }))
    }
}
