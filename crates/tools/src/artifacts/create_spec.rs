//! `create_spec`: a document that the plan rests on.

use helve_contract::{
    Call, Effects, Error, Port, PortSet, Result, Tool, ports::ExpectedVersion, schemars, schemars::JsonSchema,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    front::LARGEST,
    room::{self, Room},
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
    const EFFECTS: Effects = Effects::READS.and(Effects::WRITES);
    const NEEDS: PortSet = PortSet::of(&[Port::ForgeRun]);
    type Output = Value;

    async fn run(self, call: &Call) -> Result<Value> {
        let room = Room::of(call)?;
        let name = room::name("spec", &self.filename)?;
        if self.content.len() > LARGEST {
            return Err(Error::failed(format!(
                "a spec of {} bytes is more than the {LARGEST} that are taken",
                self.content.len()
            )));
        }
        room.still_planning().await?;
        let path = room.keep(&format!("specs/{name}"), self.content.as_bytes(), ExpectedVersion::Any).await?;
        Ok(json!({ "path": path }))
    }
}
