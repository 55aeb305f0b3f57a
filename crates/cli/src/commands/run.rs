//! `helve run`: one task for a model with tools.

use std::{
    collections::{BTreeMap, HashMap},
    io::{self, IsTerminal as _, Read as _},
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use helve_agent::{AgentEvent, AgentListener, TurnOutcome as Turned, TurnStopReason};
use helve_contract::{
    Call, Error, Refusal, Reply, Result, async_trait,
    ports::{Attachment, MessagePart, NoUser, PlanDecision, Question, Todo, TokenUsage, User},
};
use helve_engine::{Mode, ModeSwitch};
use serde_json::{Value, json};

use super::SettingsArgs;
use crate::{
    attach,
    config::CliOverride,
    fault::{CliError, CommandResult, EXIT_FAILURE},
    knobs::SessionKnobs,
    print, remark, say, setup,
    talk::{self, How, Wanted},
    terminal::{MarkdownRenderer, TerminalCapabilities, format_call, format_diffs, format_duration, format_result},
    undo::UndoLog,
    workshop::{HelveRuntime, Reach, UserInterface},
};

/// The exit code when a budget is exhausted.
const EXIT_BUDGET: u8 = 3;
/// The exit code when the model repeated itself.
const EXIT_LOOP: u8 = 4;
/// The exit code when the model finished but at least one call was refused.
pub(crate) const REFUSED: u8 = 5;
/// The exit code of an interrupt.
const EXIT_INTERRUPTED: u8 = 130;
/// The maximum length of a task.
const MAX_PROMPT_BYTES: u64 = 16 << 20;

/// Give a model a task and the tools for it, and wait until it is done.
///
/// The answer goes to standard output, a line for each call of a tool to standard error. Nobody is asked: what needs an
/// approval is refused, and the model is told how it can be allowed. The exit code is 0 when the model is done, 1 when
/// it could not be asked, 2 when the command line makes no sense, 3 when a budget is used up, 4 when it went round in
/// circles, 5 when it is done but a call was refused, 130 when it was interrupted.
///
/// With --json every event is a line of JSON on standard output. Each has a `type`: `session` (id, model, dialect,
/// workspace, resumed), `asking` (turn), `text`, `reasoning` and `notice` (text), `calling` (id, name, input),
/// `progress` (id, text), `called` (id, name, is_error, text, exit, wall, took_ms, data, media, notes), `todos`
/// (todos), `retrying` (why, after_ms), `compacted` (before, after), `child` (id, title, ended), `spent`
/// (prompt_tokens, completion_tokens, cost), and last `ended` (session, ended, why, text, turns, calls, refused, usage,
/// exit). `usage` includes what agents took that the model started.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  helve run \"fix the failing test\" --mode acceptEdits
  git diff | helve run - --model qwen3 --dialect solo < review.txt
  helve run \"what changed here?\" --json | jq -r 'select(.type==\"text\").text'
  helve run \"what is wrong here?\" --attach screenshot.png --attach build.log
  helve run --continue \"and now the docs\"")]
pub(crate) struct Args {
    /// What to do; `-`, or nothing with a pipe, reads it from standard input.
    #[arg(value_name = "PROMPT")]
    prompt: Option<String>,
    /// Send this file with the task; may be repeated. Images and texts are shown to the model.
    #[arg(long, value_name = "FILE")]
    attach: Vec<PathBuf>,
    #[command(flatten)]
    choice: SettingsArgs,
    #[command(flatten)]
    limits: ModelArgs,
    /// Print every event as a line of JSON.
    #[arg(long)]
    json: bool,
    /// Go on with this conversation; the beginning of its id is enough.
    #[arg(long, value_name = "ID", conflicts_with = "go_on")]
    session: Option<String>,
    /// Go on with the last conversation of this workspace.
    #[arg(long = "continue")]
    go_on: bool,
}

/// The flags about models and budgets, of every command that talks to one.
#[derive(clap::Args)]
pub(crate) struct ModelArgs {
    /// The model; without it, the configured one or the first that is found.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// What is asked before a call; `bypassPermissions` asks nothing.
    #[arg(long, value_name = "MODE", value_parser = ["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions", "open"])]
    mode: Option<String>,
    /// How often the model may answer.
    #[arg(long, value_name = "N")]
    max_turns: Option<String>,
    /// US dollars at most.
    #[arg(long, value_name = "USD")]
    max_cost: Option<String>,
    /// Seconds at most.
    #[arg(long, value_name = "SECONDS")]
    max_time: Option<String>,
}

impl ModelArgs {
    /// The same as settings.
    pub(crate) fn overrides(&self) -> Vec<CliOverride> {
        let named = [
            ("model.name", "--model", &self.model),
            ("approval.mode", "--mode", &self.mode),
            ("agent.max_turns", "--max-turns", &self.max_turns),
            ("agent.max_cost", "--max-cost", &self.max_cost),
            ("agent.max_time_secs", "--max-time", &self.max_time),
        ];
        let given = named.into_iter().filter_map(|(key, shown, text)| Some((key, shown, text.clone()?)));
        given.map(|(key, shown, text)| CliOverride { key: key.to_owned(), text, flag: shown }).collect()
    }
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> CommandResult {
        let settings = self.choice.load(self.limits.overrides())?;
        for text in &settings.warnings {
            remark!("helve: {text}");
        }
        let resumes = self.go_on || self.session.is_some();
        let prompt = read_prompt(self.prompt.as_deref(), resumes)?;
        let files = attach::read(&self.attach, &[])?;
        let dialect = super::configured_dialect(&settings)?;
        let runtime = setup::runtime()?;
        let bench = HelveRuntime::new(settings, &dialect, &runtime)?;
        let teller = Arc::new(EventPrinter::new(self.json, bench.undo_log().clone()));
        let user = HeadlessUser {
            teller: teller.clone(),
            runtime_settings: bench.knobs().clone(),
            mode: bench.mode().clone(),
        };
        bench.set_user_interface(UserInterface { user: Arc::new(user), approver: None, scope: Reach::Foreground });
        let code = runtime.block_on(async {
            bench.resolve_model(None).await?;
            let watcher: AgentListener = {
                let teller = teller.clone();
                Arc::new(move |event| teller.print_event(event))
            };
            let wanted = match &self.session {
                Some(id) => {
                    let user = setup::user(bench.settings());
                    Wanted::Existing(Box::new(talk::named(&**bench.store(), id, &user).await?))
                }
                None if self.go_on => Wanted::Last,
                None => Wanted::New,
            };
            let how = How { dialect: self.choice.dialect.clone(), model: None, inbox: None };
            let talk = talk::open(&bench, wanted, how, watcher).await?;
            teller.print_start(&talk);
            bench.undo_log().begin_turn();
            let turned = run_turn(&talk, prompt, files).await;
            setup::stop_tasks(talk.agent.session.clone()).await;
            setup::shutdown_servers(bench.servers()).await;
            Ok::<_, CliError>(teller.print_end(&talk, turned?))
        })?;
        // Does not wait for work that hangs in the kernel.
        runtime.shutdown_background();
        Ok(ExitCode::from(code))
    }
}

/// Runs until the model is done; the first interrupt stops the turn, the second one the program.
async fn run_turn(
    talk: &talk::OpenConversation,
    prompt: Option<String>,
    files: Vec<Attachment>,
) -> Result<Turned, CliError> {
    let work = async {
        let mut turned = if prompt.is_none() && files.is_empty() {
            talk.agent.continue_turn().await?
        } else {
            let words = prompt.into_iter().map(|text| MessagePart::Text { text }).collect();
            talk.agent.turn_with(words, files).await?
        };
        // Reports of background agents are part of the answer.
        while turned.stop_reason == TurnStopReason::Completed {
            talk.supervisor.wait_idle(&talk.agent.session.id).await;
            let told = talk.agent.handle.take_follow_ups();
            if told.is_empty() {
                break;
            }
            turned = turned.merge(talk.agent.send_text(&told.join("\n\n")).await?);
        }
        Ok::<_, Error>(turned)
    };
    tokio::pin!(work);
    tokio::select! {
        done = &mut work => return Ok(done?),
        () = setup::wait_for_shutdown_signal() => talk.agent.handle.cancel(),
    }
    tokio::select! {
        done = &mut work => Ok(done?),
        () = setup::wait_for_shutdown_signal() => std::process::exit(EXIT_INTERRUPTED.into()),
    }
}

/// The task for the model. `None` to continue only.
fn read_prompt(given: Option<&str>, resumes: bool) -> Result<Option<String>, CliError> {
    let piped = given == Some("-") || (given.is_none() && !io::stdin().is_terminal());
    let text = match given {
        Some(text) if !piped => text.to_owned(),
        _ if piped => {
            let mut bytes = Vec::new();
            io::stdin().take(MAX_PROMPT_BYTES + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > MAX_PROMPT_BYTES {
                return Err(CliError::usage(format!(
                    "a task of more than {MAX_PROMPT_BYTES} bytes; put it into a file and name that"
                )));
            }
            String::from_utf8(bytes).map_err(|_| CliError::usage("the task on standard input is not UTF-8"))?
        }
        _ => String::new(),
    };
    match text.trim() {
        "" if resumes => Ok(None),
        "" => Err(CliError::usage("there is no task; write it behind `helve run`, or into its standard input")),
        text => Ok(Some(text.to_owned())),
    }
}

/// Prints events: for people on two streams, or as JSON on one.
struct EventPrinter {
    json: bool,
    memory: Arc<UndoLog>,
    out: TerminalCapabilities,
    err: TerminalCapabilities,
    inner: Mutex<PrinterState>,
}

struct PrinterState {
    markdown: MarkdownRenderer,
    /// Whether standard output ends inside a line.
    mid_line: bool,
    calls: HashMap<String, String>,
    refused: Vec<RefusedCall>,
}

/// A call that the gate refused.
struct RefusedCall {
    why: Refusal,
    /// The text that the model got.
    text: String,
}

impl EventPrinter {
    fn new(json: bool, memory: Arc<UndoLog>) -> Self {
        let out = TerminalCapabilities::detect(&io::stdout());
        let inner = PrinterState {
            markdown: MarkdownRenderer::new(out),
            mid_line: false,
            calls: HashMap::new(),
            refused: Vec::new(),
        };
        Self { json, memory, out, err: TerminalCapabilities::detect(&io::stderr()), inner: Mutex::new(inner) }
    }

    fn print_start(&self, talk: &talk::OpenConversation) {
        let (agent, session) = (&talk.agent, &talk.agent.session);
        if self.json {
            say!(
                "{}",
                json!({
                    "type": "session",
                    "id": session.id,
                    "model": agent.model.name(),
                    "dialect": agent.engine.dialect().name,
                    "workspace": session.workspace.roots().first().map(|it| it.dir.to_string_lossy()),
                    "resumed": talk.is_resumed,
                })
            );
        }
    }

    fn print_event(&self, event: &AgentEvent) {
        let mut told = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let AgentEvent::ToolCallFinished { reply: Reply { refusal: Some(why), text, .. }, .. } = event {
            told.refused.push(RefusedCall { why: *why, text: text.clone() });
        }
        if self.json {
            if let Some(line) = event_json(event) {
                say!("{line}");
            }
            return;
        }
        match event {
            AgentEvent::Text(text) => {
                // A terminal gets it rendered and escaped, other outputs unchanged.
                let shown = if io::stdout().is_terminal() { told.markdown.push(text) } else { text.clone() };
                if let Some(last) = shown.chars().last() {
                    told.mid_line = last != '\n';
                }
                print::write_stdout(shown.as_bytes());
            }
            AgentEvent::ToolCallStarted { id, name, input } => {
                self.end_line(&mut told);
                told.calls.insert(id.clone(), format_call(name, input));
            }
            AgentEvent::ToolCallFinished { id, name, reply, took } => {
                let call = told.calls.remove(id).unwrap_or_else(|| name.clone());
                print::eprint_styled(&format_result(self.err, &call, reply, *took));
                let diff = format_diffs(self.err, &self.memory.take_diffs());
                print::eprint_styled(diff.trim_end());
            }
            AgentEvent::Retrying { why, after } => remark!("helve: {why}; asked again in {}", format_duration(*after)),
            AgentEvent::Compacted { before, after } => {
                remark!("helve: older messages were shortened: about {before} tokens are now {after}");
            }
            AgentEvent::SubAgent { title, ended, .. } => {
                remark!("helve: the agent \"{title}\" {}", if *ended { "has ended" } else { "works" });
            }
            AgentEvent::Notice(text) => remark!("helve: {text}"),
            AgentEvent::ModelRequested { .. }
            | AgentEvent::Reasoning(_)
            | AgentEvent::Progress { .. }
            | AgentEvent::TodosChanged(_)
            | AgentEvent::Usage(_)
            | AgentEvent::TurnEnded(_) => {}
        }
    }

    fn end_line(&self, told: &mut PrinterState) {
        let rest = if self.out.color { told.markdown.finish() } else { String::new() };
        print::write_stdout(rest.as_bytes());
        if told.mid_line || !rest.is_empty() {
            print::write_stdout(b"\n");
        }
        told.mid_line = false;
    }

    fn print_todos(&self, todos: &[Todo]) {
        if self.json {
            say!("{}", json!({ "type": "todos", "todos": todos }));
        } else {
            print::eprint_styled(crate::terminal::format_todos(self.err, todos).trim_end());
        }
    }

    /// Prints how it ended; returns the exit code.
    fn print_end(&self, talk: &talk::OpenConversation, turned: Turned) -> u8 {
        let refused = std::mem::take(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner).refused);
        let mut why = turned.stop_reason.why().map(str::to_owned);
        let code = match &turned.stop_reason {
            TurnStopReason::Completed if turned.refused > 0 => {
                why = Some(refusal_hint(turned.refused, &refused));
                REFUSED
            }
            TurnStopReason::Completed => 0,
            TurnStopReason::Cancelled => EXIT_INTERRUPTED,
            TurnStopReason::BudgetExhausted(_) => EXIT_BUDGET,
            TurnStopReason::LoopDetected(_) => EXIT_LOOP,
            TurnStopReason::ModelFailed(_) => EXIT_FAILURE,
        };
        let id = &talk.agent.session.id;
        if self.json {
            say!(
                "{}",
                json!({
                    "type": "ended",
                    "session": id,
                    "ended": turned.stop_reason.turn_end(),
                    "why": why,
                    "text": turned.text,
                    "turns": turned.turns,
                    "calls": turned.tool_calls,
                    "refused": turned.refused,
                    "usage": usage_json(&turned.usage),
                    "exit": code,
                })
            );
            return code;
        }
        self.end_line(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner));
        match (&turned.stop_reason, why) {
            (TurnStopReason::Cancelled, _) => remark!("helve: stopped; `helve run --session {id}` goes on"),
            (TurnStopReason::Completed, Some(why)) => remark!("helve: {why}"),
            (_, Some(why)) => remark!("error: {why}"),
            _ => {}
        }
        code
    }
}

/// What a caller can do about refused calls, for each reason.
fn refusal_hint(count: u32, refused: &[RefusedCall]) -> String {
    let calls = if count == 1 { "1 call was refused".to_owned() } else { format!("{count} calls were refused") };
    let mut lines = vec![format!("{calls}, so the work may be incomplete.")];
    let mut reasons: Vec<&RefusedCall> = Vec::new();
    let counts = refused.iter().filter(|it| it.why.leaves_work());
    for call in counts.clone().filter(|it| it.is_by_rule()) {
        if reasons.len() < MAX_REASONS && !reasons.iter().any(|it| it.text == call.text) {
            reasons.push(call);
        }
    }
    lines.extend(reasons.iter().map(|call| format!("A rule refused one: {}.", call.shown())));
    if !reasons.is_empty() {
        lines.push("No mode changes that. Change the rule in the settings (`helve config`), or do it yourself.".into());
    }
    // Calls of agents are counted, but their reasons are unknown here.
    let asked = counts.clone().any(|it| !it.is_by_rule());
    let of_agents = (counts.count() as u32) < count;
    if asked || of_agents {
        lines.push(
            "For what needed an approval, allow changes of files with --mode acceptEdits, single tools with --set \
             approval.allow=TOOL, or everything that no rule refuses with --mode bypassPermissions."
                .into(),
        );
    }
    lines.join(" ")
}

/// The most reasons that are named.
const MAX_REASONS: usize = 3;

impl RefusedCall {
    /// Whether a deny or ask rule refused the call, which no mode changes.
    fn is_by_rule(&self) -> bool {
        matches!(self.why, Refusal::Rule | Refusal::AskRule)
    }

    /// The reason in one line.
    fn shown(&self) -> String {
        let line = self.text.lines().next().unwrap_or_default().trim_end_matches('.');
        let line = line.strip_prefix("Error: ").unwrap_or(line);
        line.chars().take(300).collect()
    }
}

/// An event as one line of JSON. The end has a separate event.
fn event_json(event: &AgentEvent) -> Option<Value> {
    Some(match event {
        AgentEvent::ModelRequested { turn } => json!({ "type": "asking", "turn": turn }),
        AgentEvent::Text(text) => json!({ "type": "text", "text": text }),
        AgentEvent::Reasoning(text) => json!({ "type": "reasoning", "text": text }),
        AgentEvent::ToolCallStarted { id, name, input } => {
            json!({ "type": "calling", "id": id, "name": name, "input": input })
        }
        AgentEvent::Progress { id, text } => json!({ "type": "progress", "id": id, "text": text }),
        AgentEvent::ToolCallFinished { id, name, reply, took } => {
            let media: Vec<_> =
                reply.media.iter().map(|it| json!({ "mime": it.mime, "base64": STANDARD.encode(&it.bytes) })).collect();
            json!({
                "type": "called", "id": id, "name": name, "is_error": reply.is_error, "text": reply.text,
                "exit": reply.exit_code, "wall": reply.sandbox, "took_ms": took.as_millis() as u64, "data": reply.data,
                "media": media, "notes": super::call::notes(reply).collect::<Vec<_>>(),
            })
        }
        AgentEvent::Retrying { why, after } => {
            json!({ "type": "retrying", "why": why, "after_ms": after.as_millis() as u64 })
        }
        AgentEvent::Compacted { before, after } => json!({ "type": "compacted", "before": before, "after": after }),
        AgentEvent::SubAgent { id, title, ended } => {
            json!({ "type": "child", "id": id, "title": title, "ended": ended })
        }
        AgentEvent::Notice(text) => json!({ "type": "notice", "text": text }),
        AgentEvent::Usage(it) => {
            let mut line = usage_json(it);
            line["type"] = "spent".into();
            line
        }
        AgentEvent::TodosChanged(_) | AgentEvent::TurnEnded(_) => return None,
    })
}

fn usage_json(spent: &TokenUsage) -> Value {
    json!({
        "prompt_tokens": spent.prompt_tokens, "completion_tokens": spent.completion_tokens, "cost": spent.cost,
    })
}

/// A user who does not answer but may read.
struct HeadlessUser {
    teller: Arc<EventPrinter>,
    runtime_settings: Arc<SessionKnobs>,
    mode: ModeSwitch,
}

#[async_trait]
impl User for HeadlessUser {
    async fn ask(&self, call: &Call, questions: &[Question]) -> Result<BTreeMap<String, String>> {
        NoUser.ask(call, questions).await
    }
    async fn show_todos(&self, _: &Call, todos: &[Todo]) {
        self.teller.print_todos(todos);
    }
    async fn is_planning(&self, _: &Call) -> bool {
        self.mode.get() == Mode::Plan
    }
    async fn approve_plan(&self, call: &Call, plan: &str) -> Result<PlanDecision> {
        NoUser.approve_plan(call, plan).await
    }
    async fn setting(&self, call: &Call, name: &str) -> Result<Option<Value>> {
        Ok(self.runtime_settings.get(&call.session.id, name))
    }
    async fn set_setting(&self, call: &Call, name: &str, value: Value) -> Result<Value> {
        self.runtime_settings.set(&call.session.id, name, value).map(|(before, _)| before)
    }
}
