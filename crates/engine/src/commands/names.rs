//! Which programs a command line may name (seed 003's allowlist).

/// Which programs a command line may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameList {
    allow: Vec<String>,
    deny: Vec<String>,
    defaults: bool,
    operators: bool,
}

impl NameList {
    /// The default names and `allow`, without `deny`.
    pub fn new(allow: Vec<String>, deny: Vec<String>) -> Result<Self, String> {
        Ok(Self { allow, deny, defaults: true, operators: true })
    }
}
