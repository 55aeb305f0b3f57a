//! `scratchpad_write`: replaces the session's scratchpad.

use std::time::Duration;

use helve_contract::{Call, Effects, Error, Port, PortSet, Reply, Result, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Items at most.
const MAX_ITEMS: usize = 32;
/// Characters of an item at most.
const MAX_ITEM_CHARS: usize = 240;

/// Replaces what stands on the session's scratchpad.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ScratchpadWriteTool {
    /// What to write.
    pub items: Vec<String>,
}

/// The written scratchpad.
#[derive(Clone, Debug)]
pub struct ScratchpadWriteOutput {
    /// The number of items.
    pub items: usize,
}

impl Tool for ScratchpadWriteTool {
    const NAME: &'static str = "scratchpad_write";
    const EFFECTS: Effects = Effects::SESSION_STATE;
    const NEEDS: PortSet = PortSet::of(&[Port::Slates]);
    const TIMEOUT: Duration = Duration::from_secs(10);
    type Output = ScratchpadWriteOutput;

    async fn run(self, call: &Call) -> Result<ScratchpadWriteOutput> {
        let items = normalize_items(self.items)?;
        let written = ScratchpadWriteOutput { items: items.len() };
        call.session.write_slate(super::STATE_KEY, json!(items)).await?;
        Ok(written)
    }
}

/// The items, trimmed and without empty ones, if they fit.
fn normalize_items(items: Vec<String>) -> Result<Vec<String>> {
    let items: Vec<String> = items.iter().map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).collect();
    if items.is_empty() {
        return Err(Error::failed(
            "there is nothing to write: give at least one item with words, or clear the scratchpad",
        ));
    }
    if items.len() > MAX_ITEMS {
        return Err(Error::failed(format!("{} items are more than {MAX_ITEMS}; join or drop some", items.len())));
    }
    if let Some((at, item)) = items.iter().enumerate().find(|(_, it)| it.chars().count() > MAX_ITEM_CHARS) {
        let long = item.chars().count();
        return Err(Error::failed(format!("item {} has {long} characters; at most {MAX_ITEM_CHARS} fit", at + 1)));
    }
    Ok(items)
}

impl From<ScratchpadWriteOutput> for Reply {
    fn from(ScratchpadWriteOutput { items }: ScratchpadWriteOutput) -> Self {
        let message = format!("Scratchpad replaced: {items} item{}.", if items == 1 { "" } else { "s" });
        Self::json(json!({ "updated": true, "item_count": items, "message": message }))
    }
}

#[cfg(test)]
mod tests {
    use super::normalize_items;

    fn told(items: Vec<String>) -> String {
        normalize_items(items).map_or_else(|error| error.to_string(), |items| format!("{} fit", items.len()))
    }

    #[test]
    fn counts_characters_and_not_bytes() {
        assert_eq!(told(vec!["é".repeat(240)]), "1 fit");
        assert_eq!(told(vec!["one".into(), "é".repeat(241)]), "item 2 has 241 characters; at most 240 fit");
    }

    #[test]
    fn holds_thirty_two_items_of_any_script() {
        assert_eq!(told(vec!["x".into(); 32]), "32 fit");
        assert_eq!(told(vec!["x".into(); 33]), "33 items are more than 32; join or drop some");
        assert_eq!(told(vec!["😀".repeat(240); 32]), "32 fit");
    }

    #[test]
    fn blank_items_do_not_count() {
        assert_eq!(told(vec!["  ".into(), " a ".into()]), "1 fit");
        assert!(told(vec![" ".into()]).starts_with("there is nothing to write"));
    }
}
