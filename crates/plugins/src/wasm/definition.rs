//! The manifest of a module, in a file beside it or in the configuration.

use std::{fs::File, io::Read, path::Path};

use helve_contract::{Effects, Error, Result};
use serde::Deserialize;
use serde_json::Value;

use super::{CapabilityProfile, profile::ModuleProfile};

/// The largest definition that is read.
const MAX_MANIFEST_BYTES: u64 = 256 * 1024;

/// The description of a module for the model, and its capabilities.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModuleManifest {
    /// What the model calls.
    pub name: String,
    /// What it does.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments.
    #[serde(default)]
    pub parameters: Value,
    /// What it may reach.
    pub profile: CapabilityProfile,
    /// Effects besides those of the profile, by name. Omitting one removes nothing.
    #[serde(default)]
    pub effects: Vec<String>,
    /// What the module knows the operation as, where that is not the tool's name.
    #[serde(default)]
    pub operation: Option<String>,
}

impl ModuleManifest {
    /// Reads the JSON file of the same name beside a module.
    pub fn read_beside(module: &Path) -> Result<Self> {
        let path = module.with_extension("json");
        let told = |why: String| Error::failed(format!("{}: {why}", path.display()));
        let file = File::open(&path).map_err(|error| told(error.to_string()))?;
        let mut text = Vec::new();
        file.take(MAX_MANIFEST_BYTES + 1).read_to_end(&mut text).map_err(|error| told(error.to_string()))?;
        if text.len() as u64 > MAX_MANIFEST_BYTES {
            return Err(told(format!("more than {MAX_MANIFEST_BYTES} bytes for a definition")));
        }
        serde_json::from_slice(&text).map_err(|error| told(error.to_string()))
    }

    /// What the module is asked for.
    pub(super) fn operation(&self) -> &str {
        self.operation.as_deref().unwrap_or(&self.name)
    }

    /// Everything that a call can do: by the profile, and by the author's own word.
    pub(super) fn effects(&self) -> Effects {
        let more = self.effects.iter().filter_map(|name| effect(name));
        more.fold(self.profile.effects(), Effects::union)
    }

    /// The same, cleaned; or what is wrong with it.
    pub(super) fn validated(&self, module: &Path) -> Result<Self> {
        let module = format!("the module {}", module.display());
        let wrong = |why: String| Err(Error::failed(format!("{module}: {why}")));
        if let Some(why) = crate::schema::name_error(&self.name) {
            return wrong(format!("the tool {:?} cannot be called: {why}", self.name));
        }
        let parameters = match crate::schema::checked(self.parameters.clone()) {
            Ok(parameters) => parameters,
            Err(why) => return wrong(format!("the tool {:?} cannot be called: {why}", self.name)),
        };
        if let Some(name) = self.effects.iter().find(|name| effect(name).is_none()) {
            let known: Vec<_> = ALL_EFFECTS.names().collect();
            return wrong(format!("{name:?} is no effect; there are {}", known.join(", ")));
        }
        match CapabilityProfile::of_operation(self.operation()) {
            Some(legal) if legal != self.profile => {
                wrong(format!("{} runs with the profile {legal}, not {}", self.operation(), self.profile))
            }
            _ => Ok(Self { description: crate::clean_description(&self.description), parameters, ..self.clone() }),
        }
    }
}

const ALL_EFFECTS: Effects = Effects::READS
    .union(Effects::WRITES)
    .union(Effects::NETWORK)
    .union(Effects::EXECUTES)
    .union(Effects::SPAWNS)
    .union(Effects::BLOCKS)
    .union(Effects::DESTROYS)
    .union(Effects::SESSION_STATE)
    .union(Effects::SENDS);

fn effect(name: &str) -> Option<Effects> {
    let all = [
        Effects::READS,
        Effects::WRITES,
        Effects::NETWORK,
        Effects::EXECUTES,
        Effects::SPAWNS,
        Effects::BLOCKS,
        Effects::DESTROYS,
        Effects::SESSION_STATE,
        Effects::SENDS,
    ];
    all.into_iter().find(|effect| effect.names().eq([name]))
}
