//! The rule matrix: rule × tool × dialect × spelling. The tools, parameters and classes come from the dialect tables,
//! so new tools are included automatically.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
};

use helve_contract::{
    AccessRequest, Call, Entry, PathRules, PathStyle, Ports, Reply, Root, Session, Workspace, ports::Attachment,
};
use helve_dialects::all;
use helve_engine::{Dialect, Engine, Gate, Mode, Rule, RuleClass};
use helve_hosts::{LocalHost, TaskRunner, memory::MemoryHost};
use helve_web::channels::{Attachments, ChannelRegistry, Settings, StdoutUse};
use serde_json::{Map, Value, json};

use crate::bare::Bare;

/// Text that no reply may show while a rule denies reading it.
const SECRET: &str = "TOPSECRET";
/// A probe value, to find the parameters that take a path or command.
const PROBE: &str = "probe-f3a1";

const NOTEBOOK: &str = r#"{"cells":[{"id":"c1","cell_type":"code","source":"TOPSECRET","metadata":{},"outputs":[],"execution_count":null}],"metadata":{},"nbformat":4,"nbformat_minor":5}"#;

/// A workspace with a secret file and links to it.
struct Ground {
    folder: tempfile::TempDir,
}

impl Ground {
    fn new() -> Self {
        let ground = Self { folder: tempfile::Builder::new().prefix("rules").tempdir().unwrap() };
        for dir in ["w/a", "tmp", "vault", "tasks"] {
            fs::create_dir_all(ground.top().join(dir)).unwrap();
        }
        ground.reset();
        ground
    }

    fn top(&self) -> PathBuf {
        fs::canonicalize(self.folder.path()).unwrap()
    }

    fn root(&self) -> PathBuf {
        self.top().join("w")
    }

    /// Resets the workspace before each call of the matrix.
    fn reset(&self) {
        let root = self.root();
        fs::remove_dir_all(&root).unwrap();
        fs::create_dir_all(root.join("a")).unwrap();
        fs::write(root.join("a/key.pem"), format!("{SECRET}\n")).unwrap();
        fs::write(root.join("a/key.ipynb"), NOTEBOOK).unwrap();
        fs::write(root.join("other.txt"), "other\n").unwrap();
        fs::write(self.top().join("vault/key.pem"), format!("{SECRET}\n")).unwrap();
        for ext in ["pem", "ipynb"] {
            symlink(format!("a/key.{ext}"), root.join(format!("link-{ext}"))).unwrap();
            symlink(format!("link-{ext}"), root.join(format!("chain-{ext}"))).unwrap();
            symlink(root.join(format!("a/key.{ext}")), root.join(format!("far-{ext}"))).unwrap();
        }
        symlink("a", root.join("dir")).unwrap();
    }

    /// Every file of the workspace with its content; links with their targets.
    fn tree(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut tree = BTreeMap::new();
        let mut queue = vec![self.root()];
        while let Some(dir) = queue.pop() {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                let (path, kind) = (entry.path(), entry.file_type().unwrap());
                if kind.is_dir() {
                    queue.push(path);
                } else if kind.is_symlink() {
                    tree.insert(path.clone(), fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes());
                } else {
                    tree.insert(path.clone(), fs::read(&path).unwrap());
                }
            }
        }
        tree
    }

    /// An engine and a session built as from settings: path rules for the host, all rules for the gate.
    fn open(&self, dialect: Dialect, mode: Mode, rules: &[(Sign, &str)]) -> (Engine, Arc<Session>) {
        let reading = dialect.path_style;
        let parsed: Vec<(Sign, Rule)> =
            rules.iter().map(|(sign, text)| (*sign, Rule::parse(text).unwrap_or_else(|why| panic!("{why}")))).collect();
        let path_rules = parsed.iter().filter_map(|(sign, rule)| match sign {
            Sign::Deny => rule.path_rule(),
            Sign::Ask => rule.search_rule(),
            Sign::Allow => None,
        });
        let mut roots = vec![Root::writable(self.root()).with_name("shared")];
        if reading == PathStyle::Virtual {
            roots.push(Root::writable(self.top().join("tmp")).with_name("tmp"));
            roots.push(Root::readable(self.top().join("vault")).with_name("vault"));
        }
        let workspace = Workspace::new(roots, PathRules::new(path_rules), reading);
        let host = Arc::new(LocalHost::with_spawner(Arc::new(Bare)));
        let ports = Ports {
            tasks: Arc::new(TaskRunner::new(host.clone(), self.top().join("tasks"))),
            channels: Arc::new(self.channels()),
            ..Ports::new(host)
        };
        let mut session = Session::new("matrix", workspace.clone(), ports.clone());
        let memory = MemoryHost::over_workspace(ports.host.clone(), workspace);
        session.draft_session = Some(Arc::new(memory.session("draft")));
        let gate = parsed.into_iter().fold(Gate::new(mode), |gate, (sign, rule)| match sign {
            Sign::Deny => gate.deny(rule),
            Sign::Ask => gate.ask(rule),
            Sign::Allow => gate.allow(rule),
        });
        let role = (dialect.name == "preset").then_some("all");
        let mut builder = Engine::builder(dialect).gate(gate);
        if let Some(role) = role {
            builder = builder.role(role);
        }
        (builder.build().unwrap(), Arc::new(session))
    }

    fn channels(&self) -> ChannelRegistry {
        let log = json!({"signal": {"kind": "log", "to": self.top().join("sent.ndjson"), "allow": ["user"]}});
        let outlets = ChannelRegistry::open(&Settings::read_all(&log).unwrap(), StdoutUse::Taken, |_| None).unwrap();
        let attachments = Attachments::default();
        attachments.set("matrix", vec![Attachment::new("note.txt", b"changed\n".to_vec())]);
        outlets.with_default_recipient("signal:user").unwrap().with_attachments(attachments)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sign {
    Deny,
    Ask,
    Allow,
}

/// A position in a tool's arguments that takes a path or a command, in one form.
#[derive(Clone)]
struct Slot {
    args: Map<String, Value>,
    property: String,
    form: Form,
    class: RuleClass,
}

impl Slot {
    fn args(&self, text: &str) -> Value {
        let mut args = self.args.clone();
        args.insert(self.property.clone(), (self.form.write)(text).into());
        args.into()
    }
}

/// The form of a path in a parameter: plain, or in the header of a patch.
#[derive(Clone, Copy)]
struct Form {
    name: &'static str,
    write: fn(&str) -> String,
}

fn envelope(body: &str) -> String {
    format!("*** Begin Patch\n{body}\n*** End Patch")
}

fn octal(path: &str) -> String {
    path.bytes().map(|byte| format!("\\{byte:03o}")).collect::<Vec<_>>().concat()
}

const FORMS: &[Form] = &[
    Form { name: "plain", write: |path| path.to_owned() },
    Form { name: "update", write: |path| envelope(&format!("*** Update File: {path}\n@@\n-{SECRET}\n+x")) },
    Form { name: "update, no blank", write: |path| envelope(&format!("*** Update File:{path}\n@@\n-{SECRET}\n+x")) },
    Form { name: "update, tab", write: |path| envelope(&format!("*** Update File:\t{path}\n@@\n-{SECRET}\n+x")) },
    Form {
        name: "update, indented",
        write: |path| envelope(&format!("  *** Update File: {path} \n@@\n-{SECRET}\n+x")),
    },
    Form { name: "delete", write: |path| envelope(&format!("*** Delete File: {path}")) },
    Form { name: "delete, no blank", write: |path| envelope(&format!("*** Delete File:{path}")) },
    Form { name: "add", write: |path| envelope(&format!("*** Add File: {path}\n+x")) },
    Form { name: "add, no blank", write: |path| envelope(&format!("*** Add File:{path}\n+x")) },
    Form {
        name: "move",
        write: |path| envelope(&format!("*** Update File: other.txt\n*** Move to: {path}\n@@\n-other\n+x")),
    },
    Form {
        name: "move, no blank",
        write: |path| envelope(&format!("*** Update File: other.txt\n*** Move to:{path}\n@@\n-other\n+x")),
    },
    Form {
        name: "behind another",
        write: |path| envelope(&format!("*** Add File: new.txt\n+x\n*** Update File:{path}\n@@\n-{SECRET}\n+x")),
    },
    Form { name: "unified", write: |path| format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{SECRET}\n+x\n") },
    Form { name: "unified, bare", write: |path| format!("--- {path}\n+++ {path}\n@@ -1 +1 @@\n-{SECRET}\n+x\n") },
    Form {
        name: "unified, octal",
        write: |path| format!("--- \"a/{0}\"\n+++ \"b/{0}\"\n@@ -1 +1 @@\n-{SECRET}\n+x\n", octal(path)),
    },
    Form {
        name: "git rename",
        write: |path| {
            format!("diff --git a/other.txt b/{path}\nsimilarity index 100%\nrename from other.txt\nrename to {path}\n")
        },
    },
    Form {
        name: "git rename away",
        write: |path| {
            format!("diff --git a/{path} b/new.txt\nsimilarity index 100%\nrename from {path}\nrename to new.txt\n")
        },
    },
    Form {
        name: "git delete",
        write: |path| format!("diff --git a/{path} b/{path}\ndeleted file mode 100644\nindex 111..000\n"),
    },
];

/// A value for a parameter that the matrix does not vary.
fn filler(name: &str, schema: &Value) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|it| it.first()) {
        return first.clone();
    }
    let name = name.to_lowercase();
    match schema["type"].as_str().unwrap_or("string") {
        "integer" | "number" if name == "index" => 0.into(),
        "integer" | "number" => 1.into(),
        "boolean" => true.into(),
        "array" => json!([]),
        "object" => json!({}),
        _ if name.contains("old") || name.contains("pattern") || name.contains("query") => SECRET.into(),
        _ if name.contains("cell_id") => "c1".into(),
        _ if name.contains("path") => "other.txt".into(),
        _ => "changed".into(),
    }
}

/// Finds where a tool takes paths and commands, by probing its access request.
fn slots(entry: &Entry) -> Vec<Slot> {
    let Some(access) = entry.spec.access else { return Vec::new() };
    let properties = entry.spec.input_schema["properties"].as_object().cloned().unwrap_or_default();
    let required: Vec<&str> =
        entry.spec.input_schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut bases = vec![Map::new()];
    for (name, schema) in &properties {
        let values = match schema["enum"].as_array() {
            // Only some enum values use a parameter.
            Some(values) => values.clone(),
            // Values needed to act on an existing file.
            None if name == "cell_id" || name == "overwrite" => vec![filler(name, schema)],
            None if required.contains(&name.as_str()) => vec![filler(name, schema)],
            None => continue,
        };
        bases = bases
            .iter()
            .flat_map(|base| {
                values.iter().map(move |value| {
                    let mut base: Map<String, Value> = base.clone();
                    base.insert(name.clone(), value.clone());
                    base
                })
            })
            .collect();
    }
    let mut slots: Vec<Slot> = Vec::new();
    for (property, schema) in &properties {
        if schema["enum"].is_array() || schema["type"] != "string" {
            continue;
        }
        for form in FORMS {
            for base in &bases {
                let mut slot =
                    Slot { args: base.clone(), property: property.clone(), form: *form, class: RuleClass::NONE };
                let Some(request) = access(&slot.args(PROBE)) else { continue };
                slot.class = class_of_probe(&request);
                if slot.class != RuleClass::NONE {
                    slots.push(slot);
                    break;
                }
            }
        }
    }
    slots
}

/// The classes of a request that contain the probe.
fn class_of_probe(request: &AccessRequest) -> RuleClass {
    let here = |paths: &[String]| paths.iter().filter(|it| *it == PROBE).cloned().collect::<Vec<_>>();
    let command = request.command.clone().filter(|it| format!("{:?}", it.line).contains(PROBE));
    let url = request.url.clone().filter(|it| it.contains(PROBE));
    RuleClass::of_request(&AccessRequest { reads: here(&request.reads), writes: here(&request.writes), command, url })
}

/// The spellings of a file, for a dialect. The rule is about `a/key.EXT`.
fn spellings(root: &Path, reading: PathStyle, ext: &str) -> Vec<(&'static str, String)> {
    let key = format!("a/key.{ext}");
    let inside = [
        ("plain", key.clone()),
        ("dot", format!("./{key}")),
        ("inner dot", format!("a/./key.{ext}")),
        ("double slash", format!("a//key.{ext}")),
        ("up and down", format!("a/../{key}")),
        ("case", key.to_uppercase()),
        ("trailing dot", format!("{key}.")),
        ("trailing slash", format!("{key}/")),
        ("link", format!("link-{ext}")),
        ("chain of links", format!("chain-{ext}")),
        ("absolute link", format!("far-{ext}")),
        ("link to the folder", format!("dir/key.{ext}")),
        ("beneath", format!("{key}/x")),
    ];
    let from = |top: &str| inside.clone().map(|(name, path)| (name, format!("{top}{path}"))).to_vec();
    match reading {
        PathStyle::Relative => {
            let mut all = from("");
            all.extend(from(&format!("{}/", root.display())));
            all
        }
        PathStyle::Absolute => from(&format!("{}/", root.display())),
        PathStyle::Virtual => {
            let mut all = from("/shared/");
            all.extend(from(""));
            all
        }
    }
}

const READ_RULES: &[&str] = &[
    "Read(**/*.EXT)",
    "Read(a/**)",
    "Read(ROOT/a/**)",
    "READ(A/KEY.EXT)",
    "FileRead(*.EXT)",
    "file_read(a/key.EXT)",
    "Grep(**/key.EXT)",
    "ls(a)",
];
const WRITE_RULES: &[&str] = &[
    "Edit(a/**)",
    "Write(*.EXT)",
    "MultiEdit(a/key.EXT)",
    "apply_patch(**/*.EXT)",
    "file_delete(a/key.EXT)",
    "NotebookEdit(ROOT/a/**)",
];

/// Tools that a matrix call cannot exercise even without a rule, with the reason.
const NEVER_ACT: &[(&str, &str)] = &[
    ("memory_get", "reads memory files only"),
    ("plan_read", "reads the draft"),
    ("ls", "shows names, not content"),
    ("file_list", "shows names, not content"),
    ("glob", "shows names, not content"),
    ("Glob", "shows names, not content"),
    ("find", "shows names, not content"),
    ("send_media", "sends the file elsewhere"),
    ("vault_copyto", "reads the vault and writes elsewhere"),
];

#[tokio::test]
async fn path_rules_hold_for_every_tool_of_solo() {
    assert!(path_matrix("solo").await > 1000);
}

#[tokio::test]
async fn path_rules_hold_for_every_tool_of_forge() {
    assert!(path_matrix("forge").await > 300);
}

#[tokio::test]
async fn path_rules_hold_for_every_tool_of_preset() {
    assert!(path_matrix("preset").await > 500);
}

#[tokio::test]
async fn path_rules_hold_for_every_tool_of_oxydra() {
    assert!(path_matrix("oxydra").await > 500);
}

#[tokio::test]
async fn path_rules_hold_for_every_tool_of_claude() {
    assert!(path_matrix("claude").await > 500);
}

/// Calls every tool that reads or writes files, in every spelling, with every rule. Returns the number of calls.
async fn path_matrix(dialect: &str) -> usize {
    let ground = Ground::new();
    let dialect = all().into_iter().find(|it| it.name == dialect).unwrap();
    let is_of_files = |slot: &Slot| slot.class.has(RuleClass::READ) || slot.class.has(RuleClass::WRITE);
    let slots: Vec<(Entry, Slot)> = dialect
        .tools
        .iter()
        .flat_map(|entry| slots(entry).into_iter().map(|slot| (entry.clone(), slot)))
        .filter(|(_, slot)| is_of_files(slot))
        .collect();
    let mut count = 0;
    for ext in ["pem", "ipynb"] {
        let of_ext = |name: &str| (ext == "ipynb") == name.contains("Notebook");
        let slots: Vec<_> = slots.iter().filter(|(entry, _)| of_ext(&entry.spec.name)).collect();
        acts_without_rules(&ground, &dialect, &slots, ext).await;
        let root = ground.root().display().to_string();
        let written = |rule: &&str| rule.replace("EXT", ext).replace("ROOT", &root);
        for (rules, is_read) in [(READ_RULES, true), (WRITE_RULES, false)] {
            for (rule, sign) in
                rules.iter().map(written).flat_map(|rule| [(rule.clone(), Sign::Deny), (rule, Sign::Ask)])
            {
                let (engine, session) = ground.open(dialect.clone(), Mode::Open, &[(sign, &rule)]);
                for (entry, slot) in slots.iter().filter(|(_, slot)| is_read || slot.class.has(RuleClass::WRITE)) {
                    let told = format!("{sign:?} {rule}, {} {}", dialect.name, entry.spec.name);
                    count +=
                        every_spelling(&ground, (&engine, &session), (entry, slot), (ext, sign, is_read), &told).await;
                    count += searched(&ground, &engine, &session, entry, slot, is_read).await;
                }
            }
        }
    }
    let tools: std::collections::BTreeSet<_> = slots.iter().map(|(entry, _)| &entry.spec.name).collect();
    println!("{}: {count} calls of {} tools were denied or asked about", dialect.name, tools.len());
    count
}

/// Without a rule the calls have the effects that the rules must prevent.
async fn acts_without_rules(ground: &Ground, dialect: &Dialect, slots: &[&(Entry, Slot)], ext: &str) {
    let mut acted: BTreeMap<&str, bool> = BTreeMap::new();
    let (engine, session) = ground.open(dialect.clone(), Mode::Open, &[]);
    for (entry, slot) in slots {
        let (_, path) = spellings(&ground.root(), dialect.path_style, ext).swap_remove(0);
        let before = ground.tree();
        let reply = run(&engine, &session, entry, slot, &path).await;
        *acted.entry(&entry.spec.name).or_default() |= shows(&reply) || ground.tree() != before;
        ground.reset();
    }
    for (tool, did) in acted {
        let is_known = NEVER_ACT.iter().any(|(name, _)| *name == tool);
        assert!(did || is_known, "{} {tool} does nothing without a rule either", dialect.name);
    }
}

/// One tool with one rule: the file is neither shown nor changed, in any spelling.
async fn every_spelling(
    ground: &Ground,
    (engine, session): (&Engine, &Arc<Session>),
    (entry, slot): (&Entry, &Slot),
    (ext, sign, is_read): (&str, Sign, bool),
    told: &str,
) -> usize {
    let mut count = 0;
    let before = ground.tree();
    for (spelling, path) in spellings(&ground.root(), session.workspace.path_style(), ext) {
        // Removing a link removes the link.
        if spelling.contains("link") && removes(entry, slot) {
            continue;
        }
        // All spellings with all deny rules; of the rest of the product the spellings that differ most.
        let is_short = sign == Sign::Ask || slot.form.name != "plain";
        if is_short && !["plain", "case", "link"].contains(&spelling) {
            continue;
        }
        let reply = run(engine, session, entry, slot, &path).await;
        let told = format!("{told} {} ({}), {spelling} {path}: {}", slot.property, slot.form.name, reply.text);
        assert!(!is_read || !shows(&reply), "it was shown: {told}");
        assert_eq!(ground.tree(), before, "it was changed: {told}");
        count += 1;
    }
    count
}

/// A search from a parent directory shows nothing of a denied file.
async fn searched(
    ground: &Ground,
    engine: &Engine,
    session: &Arc<Session>,
    entry: &Entry,
    slot: &Slot,
    is_read: bool,
) -> usize {
    if !is_read || slot.class.has(RuleClass::WRITE) || slot.form.name != "plain" {
        return 0;
    }
    let folders = match session.workspace.path_style() {
        PathStyle::Virtual => vec!["/shared".to_owned(), "/shared/a".to_owned()],
        PathStyle::Absolute => vec![ground.root().display().to_string(), ground.root().join("a").display().to_string()],
        PathStyle::Relative => vec![".".to_owned(), "a".to_owned()],
    };
    for folder in &folders {
        let reply = run(engine, session, entry, slot, folder).await;
        assert!(!shows(&reply), "{} found it from {folder}: {}", entry.spec.name, reply.text);
    }
    folders.len()
}

async fn run(engine: &Engine, session: &Arc<Session>, entry: &Entry, slot: &Slot, text: &str) -> Reply {
    engine.run(&entry.spec.name, slot.args(text), Call::new("1", session.clone())).await
}

/// Whether a reply shows the content. A search reply repeats its query.
fn shows(reply: &Reply) -> bool {
    let quoted = [format!("\"{SECRET}\""), format!("`{SECRET}`"), format!("'{SECRET}'"), format!("for {SECRET}")];
    let text = quoted.iter().fold(reply.text.clone(), |text, quote| text.replace(quote, ""));
    !reply.is_error && text.contains(SECRET)
}

fn removes(entry: &Entry, slot: &Slot) -> bool {
    entry.spec.name == "file_delete" || slot.form.name.contains("delete") || slot.form.name.contains("away")
}

const COMMAND_RULES: &[&str] = &[
    "Bash(touch:*)",
    "bash(touch B)",
    "exec(touch *)",
    "shell_exec(touch:*)",
    "run_tests(touch:*)",
    "BASH(/bin/touch:*)",
];
const COMMANDS: &[&str] = &[
    "touch B",
    "  touch   B",
    "'touch' B",
    "t\"ou\"ch B",
    "\\touch B",
    "/usr/bin/touch B",
    "true; touch B",
    "true && (touch B)",
    "env touch B",
    "timeout 5 touch B",
    "sh -c 'touch B'",
    "bash -c \"touch B\"",
    "eval touch B",
    "echo $(touch B)",
    "$(echo touch) B",
    "X=touch; $X B",
    "ls | xargs -I{} touch B",
];

#[tokio::test]
async fn a_command_rule_holds_for_every_tool_in_every_dialect() {
    let ground = Ground::new();
    let (mut count, mut tools) = (0, Vec::new());
    for dialect in all() {
        let slots: Vec<(Entry, Slot)> = dialect
            .tools
            .iter()
            .flat_map(|entry| slots(entry).into_iter().map(|slot| (entry.clone(), slot)))
            .filter(|(_, slot)| slot.class.has(RuleClass::COMMAND) && slot.form.name == "plain")
            .collect();
        assert!(dialect.tools.iter().any(|it| it.spec.effects.names().any(|it| it == "executes")));
        assert!(!slots.is_empty(), "{} runs commands", dialect.name);
        tools.extend(slots.iter().map(|(entry, _)| entry.spec.name.clone()));
        for (rule, sign) in COMMAND_RULES.iter().flat_map(|rule| [(rule, Sign::Deny), (rule, Sign::Ask)]) {
            let (engine, session) = ground.open(dialect.clone(), Mode::Open, &[(sign, rule)]);
            for (entry, slot) in &slots {
                for line in COMMANDS {
                    let before = ground.tree();
                    for slot in [slot.clone(), in_background(entry, slot)] {
                        let reply = run(&engine, &session, entry, &slot, line).await;
                        let told = format!("{sign:?} {rule}, {} {}: {line}", dialect.name, entry.spec.name);
                        assert!(reply.is_error, "it ran: {told}: {}", reply.text);
                        assert_eq!(ground.tree(), before, "it changed something: {told}");
                        count += 1;
                    }
                }
            }
        }
    }
    println!("{count} calls of {} tools were denied or asked about: {}", tools.len(), tools.join(", "));
    for name in ["exec", "process", "bash", "run_tests", "shell_exec", "Bash", "plan_bash"] {
        assert!(tools.iter().any(|it| it == name), "{name} is in the matrix");
    }
    assert!(count > 1000, "{count}");
}

/// The same call with every switch of the tool on, such as the one for the background.
fn in_background(entry: &Entry, slot: &Slot) -> Slot {
    let mut slot = slot.clone();
    for (name, schema) in entry.spec.input_schema["properties"].as_object().unwrap() {
        if schema["type"] == "boolean" {
            slot.args.insert(name.clone(), true.into());
        }
    }
    slot
}

#[test]
fn the_classes_of_rules_are_those_of_the_tables() {
    for dialect in all() {
        for entry in &dialect.tools {
            let told = slots(entry).iter().fold(RuleClass::NONE, |set, slot| set | slot.class);
            for name in std::iter::once(&entry.spec.name).chain(&entry.spec.aliases) {
                // Paths of the draft do not belong to the workspace.
                let expected = if name.starts_with("plan_") && name != "plan_bash" { RuleClass::NONE } else { told };
                assert_eq!(RuleClass::of_name(name), expected, "{} {name}", dialect.name);
            }
        }
    }
}

#[tokio::test]
async fn an_allow_rule_covers_no_other_file_of_a_patch_and_no_link() {
    let ground = Ground::new();
    let solo = all().into_iter().find(|it| it.name == "solo").unwrap();
    let patch = solo.tools.iter().find(|it| it.spec.name == "apply_patch").unwrap().clone();
    let (engine, session) = ground.open(solo.clone(), Mode::Default, &[(Sign::Allow, "Edit(src/**)")]);
    let mut count = 0;
    for slot in slots(&patch) {
        for path in ["a/key.pem", "./a/key.pem", "src/../a/key.pem", "src/l", "src/d/key.pem"] {
            fs::create_dir(ground.root().join("src")).unwrap();
            symlink("../a/key.pem", ground.root().join("src/l")).unwrap();
            symlink("../a", ground.root().join("src/d")).unwrap();
            let before = ground.tree();
            let reply = run(&engine, &session, &patch, &slot, path).await;
            assert!(reply.is_error, "{} {path}: {}", slot.form.name, reply.text);
            assert_eq!(ground.tree(), before, "{} {path}: {}", slot.form.name, reply.text);
            ground.reset();
            count += 1;
        }
    }
    let allowed =
        engine.run("write", json!({"path": "src/new", "content": "x"}), Call::new("1", session.clone())).await;
    assert!(!allowed.is_error, "{}", allowed.text);
    println!("{count} patches were asked about");
    assert!(count > 50);
}

#[tokio::test]
async fn a_folder_named_b_is_itself() {
    let ground = Ground::new();
    let solo = all().into_iter().find(|it| it.name == "solo").unwrap();
    for (sign, rule, mode) in [(Sign::Deny, "Edit(b/**)", Mode::Open), (Sign::Allow, "Edit(src/**)", Mode::Default)] {
        fs::create_dir_all(ground.root().join("b/src")).unwrap();
        fs::write(ground.root().join("b/src/x"), "orig\n").unwrap();
        let (engine, session) = ground.open(solo.clone(), mode, &[(sign, rule)]);
        for patch in [
            "--- b/src/x\n+++ b/src/x\n@@ -1 +1 @@\n-orig\n+EVIL\n",
            "--- a/b/src/x\n+++ b/b/src/x\n@@ -1 +1 @@\n-orig\n+EVIL\n",
            "*** Begin Patch\n*** Update File: b/src/x\n@@\n-orig\n+EVIL\n*** End Patch",
        ] {
            let reply = engine.run("apply_patch", json!({ "patch": patch }), Call::new("1", session.clone())).await;
            assert!(reply.is_error, "{rule} {patch}: {}", reply.text);
            assert_eq!(fs::read_to_string(ground.root().join("b/src/x")).unwrap(), "orig\n");
        }
        ground.reset();
    }
}

#[tokio::test]
async fn a_yes_and_an_allow_rule_hold_for_the_folder_and_the_script() {
    let ground = Ground::new();
    let package = |script: &str| json!({"scripts": {"test": script}}).to_string();
    fs::create_dir(ground.root().join("evil")).unwrap();
    fs::write(ground.root().join("package.json"), package("true")).unwrap();
    fs::write(ground.root().join("evil/package.json"), package("touch ../PWNED")).unwrap();
    for (name, tool, dir) in [("claude", "Bash", None), ("solo", "exec", Some("workdir"))] {
        let dialect = all().into_iter().find(|it| it.name == name).unwrap();
        let rule = format!("{tool}(npm test:*)");
        let (engine, session) = ground.open(dialect, Mode::Default, &[(Sign::Allow, &rule)]);
        let decide = |command: &str, folder: Option<&str>| {
            let mut args = json!({ "command": command });
            if let (Some(dir), Some(folder)) = (dir, folder) {
                args[dir] = folder.into();
            }
            engine.decide(tool, args, &Call::new("1", session.clone()))
        };
        let allowed = helve_engine::Decision::Allowed;
        assert_eq!(decide("npm test", None), allowed, "{name}");
        assert_eq!(decide("npm test --watch", None), allowed, "{name}");
        assert_ne!(decide("npm test --prefix evil", None), allowed, "{name}");
        assert_ne!(decide("cd evil && npm test", None), allowed, "{name}");
        if dir.is_some() {
            assert_ne!(decide("npm test", Some("evil")), allowed, "{name}");
            assert_eq!(decide("npm test", Some(".")), allowed, "{name}");
        }
        session
            .set_cwd(session.workspace.resolve_in_root(&ground.root(), "evil", helve_contract::Access::Read).unwrap());
        assert_ne!(decide("npm test", None), allowed, "{name}");
        session.set_cwd(session.workspace.primary_root(helve_contract::Access::Read).unwrap());
        assert_eq!(decide("npm test", None), allowed, "{name}");
        fs::write(ground.root().join("package.json"), package("touch PWNED")).unwrap();
        assert_ne!(decide("npm test", None), allowed, "{name}: another script");
        fs::write(ground.root().join("package.json"), package("true")).unwrap();
        assert_eq!(decide("npm test", None), allowed, "{name}: the same script again");
    }
}
