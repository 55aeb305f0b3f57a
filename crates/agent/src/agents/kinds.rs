//! Agent definitions: built in, from Markdown files with front matter, or configured.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use helve_contract::ports::AgentKind;
use helve_engine::Mode;
use serde::Deserialize;

/// The largest file that is read, and the most files of a directory.
const MAX_FILE_BYTES: u64 = 256 << 10;
const MAX_FILES: usize = 200;

/// What an agent of some name is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentDefinition {
    /// Its name: `Explore`, `researcher`.
    pub name: String,
    /// Its purpose, for whoever chooses it.
    pub description: String,
    /// What it is told about itself.
    pub prompt: String,
    /// Which of its parent's tools it gets.
    pub tools: ToolAccess,
    /// Its role, where the dialect has roles.
    pub role: Option<String>,
    /// Its model; without it, its parent's.
    pub model: Option<String>,
    /// Turns of the model at most.
    pub max_turns: Option<u32>,
    /// US dollars at most.
    pub max_cost: Option<f64>,
    /// Its approval mode; never looser than its parent's.
    pub mode: Option<Mode>,
}

/// Which of its parent's tools an agent gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolAccess {
    /// All.
    #[default]
    All,
    /// Those that change nothing here.
    ReadOnly,
    /// Those of these names or aliases.
    Only(Vec<String>),
}

/// The agents that can be started, by name. A later one replaces an earlier one of the same name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentDefinitions {
    definitions: Vec<AgentDefinition>,
    plain: Option<String>,
}

const GENERAL_PROMPT: &str = "You do one task for another agent, on your own. Do all of it and nothing more. \
    Your last message is your report: what you did, what you found, and the files it is about.";
const EXPLORE_PROMPT: &str = "You look for things in files for another agent, and change nothing. Search broadly, then read \
    what matters. Your last message is your report: short, with paths and lines.";
const PLAN_PROMPT: &str = "You plan work for another agent, and change nothing. Look at what is there, then write the plan: \
    steps in order, the files each one touches, and what could go wrong. Your last message is the plan.";
const SUBAGENT_PROMPT: &str =
    "You answer a question for another agent with tools that only look. Your last message is the answer.";

/// The role of sub-agents, where a dialect has one: its agents have no other kind.
const SUB_ROLE: &str = "sub";

impl AgentDefinitions {
    /// The built-in ones of a dialect. The first is the plain one.
    #[must_use]
    pub fn builtin(dialect: &str) -> Self {
        let kind = |name: &str, about: &str, system: &str, hands| AgentDefinition {
            name: name.to_owned(),
            description: about.to_owned(),
            prompt: system.to_owned(),
            tools: hands,
            ..AgentDefinition::default()
        };
        let roles = helve_dialects::by_name(dialect).map(|it| it.roles).unwrap_or_default();
        if let Some(role) = roles.iter().find(|role| role.name == SUB_ROLE) {
            let tools = role.tools.iter().map(|&name| name.to_owned()).collect();
            let sub = kind(
                SUB_ROLE,
                "answers a question with tools that only look",
                SUBAGENT_PROMPT,
                ToolAccess::Only(tools),
            );
            return Self {
                plain: Some(sub.name.clone()),
                definitions: vec![AgentDefinition { role: Some(SUB_ROLE.to_owned()), ..sub }],
            };
        }
        let kinds = vec![
            kind("general-purpose", "any task of several steps, with all tools", GENERAL_PROMPT, ToolAccess::All),
            kind("Explore", "finds things in files; changes nothing", EXPLORE_PROMPT, ToolAccess::ReadOnly),
            kind("Plan", "looks around and writes a plan; changes nothing", PLAN_PROMPT, ToolAccess::ReadOnly),
        ];
        Self { plain: Some("general-purpose".to_owned()), definitions: kinds }
    }

    /// One more.
    pub fn add(&mut self, kind: AgentDefinition) {
        self.definitions.retain(|old| old.name != kind.name);
        self.definitions.push(kind);
    }

    /// The Markdown files of a directory, in the order of their names.
    #[must_use]
    pub fn files(folder: &Path) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
        let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|path| path.extension().is_some_and(|it| it == "md"));
        files.sort();
        files
    }

    /// Adds the definition in a Markdown file. Problems are added to `remarks`.
    pub fn text(&mut self, path: &Path, text: &str, remarks: &mut Vec<String>) {
        match parse_definition(text) {
            Ok(kind) => self.add(kind),
            Err(why) => remarks.push(format!("{} describes no agent: {why}", path.display())),
        }
    }

    /// Adds the definitions in the Markdown files of a directory. Problems are added to `remarks`.
    pub fn load_dir(&mut self, folder: &Path, remarks: &mut Vec<String>) {
        let files = Self::files(folder);
        for path in files.iter().take(MAX_FILES) {
            match read_limited_file(path) {
                Ok(text) => self.text(path, &text, remarks),
                Err(why) => remarks.push(format!("{} describes no agent: {why}", path.display())),
            }
        }
        if files.len() > MAX_FILES {
            remarks.push(format!("{} has more than {MAX_FILES} agents; the rest is left out", folder.display()));
        }
    }

    /// The one of this name; `None`: the plain one.
    pub(super) fn get(&self, name: Option<&str>) -> Option<&AgentDefinition> {
        let name = name.or(self.plain.as_deref())?;
        self.definitions.iter().find(|kind| kind.name == name)
    }

    /// All of them, by name and with what they are for.
    #[must_use]
    pub fn list(&self) -> Vec<AgentKind> {
        self.definitions
            .iter()
            .map(|kind| AgentKind { name: kind.name.clone(), description: kind.description.clone() })
            .collect()
    }
}

fn read_limited_file(path: &Path) -> Result<String, String> {
    let told = |error: std::io::Error| error.to_string();
    let what = fs::metadata(path).map_err(told)?;
    if !what.is_file() || what.len() > MAX_FILE_BYTES {
        return Err(format!("it is not a file of at most {MAX_FILE_BYTES} bytes"));
    }
    let mut text = String::new();
    let file = fs::File::open(path).map_err(told)?;
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(told)?;
    Ok(text)
}

/// What stands between the two lines of `---`.
#[derive(Deserialize)]
struct FrontMatter {
    name: String,
    #[serde(default)]
    description: String,
    tools: Option<StringList>,
    model: Option<String>,
    #[serde(rename = "maxTurns", alias = "max_turns")]
    max_turns: Option<u32>,
    #[serde(rename = "maxCost", alias = "max_cost")]
    max_cost: Option<f64>,
    #[serde(rename = "permissionMode", alias = "permission_mode")]
    mode: Option<String>,
}

/// A list, or a text with commas.
#[derive(Deserialize)]
#[serde(untagged)]
enum StringList {
    Items(Vec<String>),
    Text(String),
}

/// A kind from a Markdown file: front matter, and then what the agent is told.
pub(super) fn parse_definition(text: &str) -> Result<AgentDefinition, String> {
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let rest = text.strip_prefix("---\n").ok_or("it does not begin with front matter between two lines of ---")?;
    let (front, body) = rest.split_once("\n---").ok_or("the front matter is not closed by a line of ---")?;
    let front: FrontMatter = serde_norway::from_str(front).map_err(|error| format!("the front matter: {error}"))?;
    let named = |it: char| it.is_ascii_alphanumeric() || "-_".contains(it);
    if front.name.is_empty() || front.name.len() > 64 || !front.name.chars().all(named) {
        return Err("its name must be 1 to 64 letters, digits, - and _".to_owned());
    }
    let tools: Option<Vec<String>> = front.tools.map(|tools| match tools {
        StringList::Items(items) => items,
        StringList::Text(text) => text.split(',').map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).collect(),
    });
    if let Some(tool) = tools.iter().flatten().find(|tool| tool.contains('(')) {
        return Err(format!(
            "`{tool}`: tools are named whole; what part of them is allowed is for the settings to say"
        ));
    }
    let everything = tools.as_ref().is_none_or(|tools| tools.iter().any(|tool| tool == "*"));
    Ok(AgentDefinition {
        name: front.name,
        description: front.description.trim().to_owned(),
        prompt: body.trim_start_matches('-').trim().to_owned(),
        tools: if everything { ToolAccess::All } else { ToolAccess::Only(tools.unwrap_or_default()) },
        role: None,
        model: front.model.filter(|model| model != "inherit"),
        max_turns: front.max_turns.filter(|turns| *turns > 0),
        max_cost: front.max_cost.filter(|cost| *cost > 0.0),
        mode: front.mode.map(|mode| mode.parse()).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_describes_an_agent() {
        let text = "---\nname: reviewer\ndescription: Reads a change\ntools: Read, Grep\nmodel: inherit\nmaxTurns: 7\npermissionMode: plan\n---\n\nYou review.\n";
        assert_eq!(
            parse_definition(text),
            Ok(AgentDefinition {
                name: "reviewer".into(),
                description: "Reads a change".into(),
                prompt: "You review.".into(),
                tools: ToolAccess::Only(vec!["Read".into(), "Grep".into()]),
                max_turns: Some(7),
                mode: Some(Mode::Plan),
                ..AgentDefinition::default()
            })
        );
        assert_eq!(parse_definition("---\nname: x\ntools: [\"*\"]\n---\n").map(|it| it.tools), Ok(ToolAccess::All));
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        let told = |text: &str| parse_definition(text).unwrap_err();
        assert_eq!(told("You review."), "it does not begin with front matter between two lines of ---");
        assert_eq!(told("---\nname: x\n"), "the front matter is not closed by a line of ---");
        assert_eq!(told("---\nname: a b\n---\n"), "its name must be 1 to 64 letters, digits, - and _");
        assert!(told("---\nname: x\npermissionMode: yolo\n---\n").starts_with("`yolo` is not a mode"));
        assert!(told("---\nname: x\ntools: Bash(git:*)\n---\n").starts_with("`Bash(git:*)`: tools are named whole"));
        assert!(told("---\n- 1\n---\n").starts_with("the front matter: "));
    }

    #[test]
    fn files_of_a_folder_join_and_replace() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.md"), "---\nname: Plan\ndescription: Mine\n---\nPlan.").unwrap();
        fs::write(folder.path().join("b.md"), "nothing").unwrap();
        fs::write(folder.path().join("c.txt"), "---\nname: c\n---\n").unwrap();
        let (mut kinds, mut remarks) = (AgentDefinitions::builtin("claude"), Vec::new());
        kinds.load_dir(folder.path(), &mut remarks);
        let names: Vec<_> = kinds.list().into_iter().map(|kind| kind.name).collect();
        assert_eq!(names, ["general-purpose", "Explore", "Plan"]);
        assert_eq!(kinds.get(Some("Plan")).map(|kind| kind.description.as_str()), Some("Mine"));
        assert_eq!(kinds.get(None).map(|kind| kind.name.as_str()), Some("general-purpose"));
        assert_eq!(remarks.len(), 1);
    }
}
