//! A rule: which calls it speaks of.

/// Which calls an allow, ask or deny speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    text: String,
}

impl Rule {
    /// Reads `Tool`, `Tool(content)`, `mcp__server__*`.
    pub fn parse(text: &str) -> Result<Self, String> {
        Ok(Self { text: text.to_owned() })
    }
}
