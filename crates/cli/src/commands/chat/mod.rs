//! `helve chat`: a session at the terminal.

mod due;
mod show;
mod slash;

use std::{
    collections::VecDeque,
    io,
    process::ExitCode,
    sync::{Arc, OnceLock},
    time::Duration,
};

use helve_agent::{Agent, AgentEvent, AgentHandle, AgentListener, Registration, TurnStopReason};
use helve_contract::{
    Error,
    ports::{Attachment, InboxItem, MessagePart, MessageRole, SessionUpdate, TokenUsage},
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::Notify,
};

use super::{SettingsArgs, run::ModelArgs};
use crate::{
    fault::{CliError, CommandResult},
    print::escape_for_terminal,
    remark, setup,
    talk::{self, How, Wanted},
    terminal::{LineEvent, LineInput, Screen, TerminalCapabilities, TerminalUser, format_usage, one_line},
    workshop::{HelveRuntime, Reach, UserInterface},
};
use due::ScheduledMessages;
use show::EventView;

/// Talk to a model that has the tools.
///
/// What is typed while it works waits until it is done. Ctrl-C stops the turn; at an empty prompt it ends the program
/// when pressed twice. `/help` lists the commands. From a pipe, each line is a message.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  helve chat
  helve chat --dialect solo --model qwen3 --mode acceptEdits
  helve chat --continue
  printf 'list the tests\\nrun them\\n' | helve chat --mode bypassPermissions")]
pub(crate) struct Args {
    #[command(flatten)]
    flags: ChatArgs,
    /// Go on with this conversation; the beginning of its id is enough.
    #[arg(long, value_name = "ID", conflicts_with = "go_on")]
    session: Option<String>,
    /// Go on with the last conversation of this workspace.
    #[arg(long = "continue")]
    go_on: bool,
}

/// The flags of a conversation at the terminal.
#[derive(clap::Args)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    choice: SettingsArgs,
    #[command(flatten)]
    limits: ModelArgs,
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> CommandResult {
        self.flags.start(self.session, self.go_on)
    }
}

impl ChatArgs {
    /// Goes on with a session.
    pub(crate) fn run(self, session: Option<String>) -> CommandResult {
        self.start(session, false)
    }

    fn start(self, session: Option<String>, go_on: bool) -> CommandResult {
        let settings = self.choice.load(self.limits.overrides())?;
        for text in &settings.warnings {
            remark!("helve: {text}");
        }
        let dialect = super::configured_dialect(&settings)?;
        let runtime = setup::runtime()?;
        let bench = HelveRuntime::new(settings, &dialect, &runtime)?;
        let code = runtime.block_on(async {
            let told = bench.resolve_model(None).await?;
            let wanted = match &session {
                Some(id) => {
                    let user = setup::user(bench.settings());
                    Wanted::Existing(Box::new(talk::named(&**bench.store(), id, &user).await?))
                }
                None if go_on => Wanted::Last,
                None => Wanted::New,
            };
            let (mut chat, resumed) = Chat::open(bench.clone(), wanted, self.choice.dialect.clone()).await?;
            chat.greet(&told);
            if resumed {
                chat.show_recent().await?;
            }
            let driving = chat.start_scheduler()?;
            let code = chat.run_loop().await;
            driving.stop().await;
            setup::stop_tasks(chat.agent.session.clone()).await;
            setup::shutdown_servers(bench.servers()).await;
            code
        })?;
        // The thread that reads standard input may still wait for a line.
        runtime.shutdown_background();
        Ok(code)
    }
}

/// A session at the terminal.
struct Chat {
    runtime: Arc<HelveRuntime>,
    screen: Screen,
    input: LineInput,
    user: Arc<TerminalUser>,
    listener: AgentListener,
    agent: Agent,
    /// Its agents end with it.
    registration: Registration,
    /// Set when the user cancels the turn from inside a prompt.
    stop_requested: Arc<Notify>,
    /// The number of the last message before each turn that can be undone.
    undo_points: Vec<u64>,
    /// The usage of this process.
    usage: TokenUsage,
    /// Input that was typed while the agent worked, to be sent later.
    queued_lines: VecDeque<String>,
    /// Files for the next message.
    files: Vec<Attachment>,
    /// Events of schedules for this session.
    scheduled_messages: ScheduledMessages,
    signals: Signals,
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

/// What the user wants next.
enum NextInput {
    Line(String),
    Nothing,
    Quit(u8),
}

impl Chat {
    /// Opens the session; whether it was there before.
    async fn open(bench: Arc<HelveRuntime>, wanted: Wanted, dialect: Option<String>) -> Result<(Self, bool), CliError> {
        let screen = Screen::new(TerminalCapabilities::detect(&io::stdout()), io::stdout());
        let input = LineInput::new(screen.clone(), Some(bench.tenant_dir().join("chat.history")));
        let stop = Arc::new(Notify::new());
        let knobs = bench.knobs().clone();
        let person = Arc::new(TerminalUser::new(
            screen.clone(),
            input.clone(),
            knobs.clone(),
            bench.mode().clone(),
            stop.clone(),
        ));
        bench.set_user_interface(UserInterface {
            user: person.clone(),
            approver: Some(person.clone()),
            scope: Reach::Foreground,
        });
        let show = EventView::new(screen.clone(), bench.undo_log().clone(), knobs);
        let watcher: AgentListener = Arc::new(move |event: &AgentEvent| show.show_event(event));
        if bench.settings().config.schedule.in_chat {
            bench.drive_schedules();
        }
        let dues = ScheduledMessages::new();
        let handle: Arc<OnceLock<AgentHandle>> = Arc::default();
        let how = How { dialect, model: None, inbox: Some(dues.inbox(handle.clone())) };
        let talk = talk::open(&bench, wanted, how, watcher.clone()).await?;
        _ = handle.set(talk.agent.handle.clone());
        dues.set_session(&talk.agent.session.id);
        let signals = Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        };
        let chat = Self {
            runtime: bench,
            screen,
            input,
            user: person,
            listener: watcher,
            agent: talk.agent,
            registration: talk.registration,
            stop_requested: stop,
            undo_points: Vec::new(),
            usage: TokenUsage::default(),
            queued_lines: VecDeque::new(),
            files: Vec::new(),
            scheduled_messages: dues,
            signals,
        };
        Ok((chat, talk.is_resumed))
    }

    fn greet(&self, model: &str) {
        let look = self.screen.capabilities;
        let (mode, dialect) = (self.runtime.mode().get().name(), self.agent.engine.dialect().name);
        self.screen.line(&format!("{} {}", look.bold("helve"), escape_for_terminal(model)));
        let line = format!("{dialect} · {mode} · {} · /help", self.runtime.settings().workspace.display());
        self.screen.line(&look.dim(&escape_for_terminal(&line)));
    }

    /// Runs until the user quits.
    async fn run_loop(&mut self) -> Result<ExitCode, CliError> {
        let mut interrupted = false;
        loop {
            let line = match self.queued_lines.pop_front() {
                Some(line) => line,
                None => match self.next_input(interrupted).await {
                    NextInput::Line(line) => line,
                    NextInput::Nothing => {
                        interrupted = true;
                        continue;
                    }
                    NextInput::Quit(code) => return Ok(ExitCode::from(code)),
                },
            };
            interrupted = false;
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            if let Some(command) = line.strip_prefix('/').filter(|it| !it.starts_with('/')) {
                match self.run_slash_command(command).await {
                    Ok(true) => {}
                    Ok(false) => return Ok(ExitCode::SUCCESS),
                    Err(fault) => self
                        .screen
                        .line(&self.screen.capabilities.style("31", &escape_for_terminal(&fault.to_string()))),
                }
                continue;
            }
            // Two slashes start a message with one slash.
            let words = line.strip_prefix('/').filter(|it| it.starts_with('/')).unwrap_or(line).to_owned();
            if !self.run_turn(&words).await? {
                return Ok(ExitCode::from(143));
            }
        }
    }

    /// Asks for the next message.
    async fn next_input(&mut self, interrupted: bool) -> NextInput {
        let words = if self.input.is_interactive { self.screen.capabilities.symbol("› ", "> ") } else { "" };
        let input = self.input.clone();
        let line = input.read_line(words, true);
        tokio::pin!(line);
        // A partially typed line stays while a schedule has its turn.
        let typed = loop {
            tokio::select! {
                typed = &mut line => break typed,
                come = self.scheduled_messages.next() => {
                    if let Err(fault) = self.run_scheduled(come).await {
                        self.screen.line(&self.screen.capabilities.style("31", &escape_for_terminal(&fault.to_string())));
                    }
                    self.screen.flush_above();
                }
                _ = self.signals.interrupt.recv() => return NextInput::Quit(130),
                _ = self.signals.terminate.recv() => return NextInput::Quit(143),
                _ = self.signals.hangup.recv() => return NextInput::Quit(129),
            }
        };
        match typed {
            LineEvent::Line(line) => NextInput::Line(line),
            LineEvent::End => NextInput::Quit(0),
            LineEvent::Interrupt if interrupted => NextInput::Quit(0),
            LineEvent::Interrupt => {
                self.screen.line(&self.screen.capabilities.dim("Ctrl-C again ends the program; so does /quit"));
                NextInput::Nothing
            }
        }
    }

    /// Sends one message and runs the turn. Returns whether to continue.
    async fn run_turn(&mut self, words: &str) -> Result<bool, CliError> {
        let store = self.runtime.store().clone();
        let before = store.messages(&self.agent.session.id, None, 1).await?.last().map_or(0, |it| it.seq);
        self.runtime.undo_log().begin_turn();
        self.undo_points.push(before);
        self.screen.set_status(Some("thinking"));
        let mut watching = self.input.capture_lines();
        let spinning = tokio::spawn(redraw_loop(self.screen.clone()));
        let agent = self.agent.clone();
        // Reports of background agents come first.
        let mut said = agent.handle.take_follow_ups();
        said.push(words.to_owned());
        let files = std::mem::take(&mut self.files);
        let work = agent.turn_with(said.into_iter().map(|text| MessagePart::Text { text }).collect(), files);
        tokio::pin!(work);
        let mut goes_on = true;
        let outcome = loop {
            let typed = async {
                match &mut watching {
                    Some(watching) => watching.lines.recv().await,
                    None => None,
                }
            };
            tokio::select! {
                outcome = &mut work => break outcome,
                Some(line) = typed => self.queue(line),
                () = self.stop_requested.notified() => self.agent.handle.cancel(),
                _ = self.signals.interrupt.recv() => self.agent.handle.cancel(),
                _ = self.signals.terminate.recv() => { goes_on = false; self.agent.handle.cancel(); }
                _ = self.signals.hangup.recv() => { goes_on = false; self.agent.handle.cancel(); }
            }
        };
        spinning.abort();
        let is_cancelled = matches!(&outcome, Ok(it) if it.stop_reason == TurnStopReason::Cancelled);
        while let Some(line) = watching.as_mut().and_then(|it| it.lines.try_recv().ok()) {
            // Typed in the last moment of the turn.
            if is_cancelled {
                self.queue(line);
            } else {
                self.queued_lines.push_back(line);
            }
        }
        drop(watching);
        self.screen.set_status(None);
        self.screen.end_line();
        if let Err(error @ Error::SessionHeld(_)) = &outcome {
            // The process that holds the session reads the message at its next step.
            agent.leave(&InboxItem::text(MessageRole::User, words)).await?;
            self.undo_points.pop();
            self.screen
                .line(&self.screen.capabilities.dim(&escape_for_terminal(&format!("left in the inbox: {error}"))));
            return Ok(goes_on);
        }
        let outcome = outcome?;
        self.print_outcome(&outcome);
        Ok(goes_on)
    }

    /// Something was typed while the agent works.
    fn queue(&mut self, line: String) {
        let look = self.screen.capabilities;
        if line.trim_start().starts_with('/') {
            self.screen.line(&look.dim(&format!("after this turn: {}", one_line(&line, 80))));
            self.queued_lines.push_back(line);
        } else {
            self.screen.line(&look.dim(&format!("queued: {}", one_line(&line, 80))));
            self.agent.handle.follow_up(line);
        }
    }

    /// How a turn ended.
    fn print_outcome(&mut self, outcome: &helve_agent::TurnOutcome) {
        let look = self.screen.capabilities;
        let spent = &outcome.usage;
        self.usage.prompt_tokens += spent.prompt_tokens;
        self.usage.completion_tokens += spent.completion_tokens;
        self.usage.cost += spent.cost;
        match &outcome.stop_reason {
            TurnStopReason::Completed => {}
            TurnStopReason::Cancelled => {
                self.screen.line(&look.style("33", "stopped"));
                // Typed input was meant for the turn that ended.
                for text in self.agent.handle.take_follow_ups() {
                    self.screen.line(&look.dim(&format!("not sent: {}", one_line(&text, 80))));
                }
            }
            TurnStopReason::BudgetExhausted(why)
            | TurnStopReason::LoopDetected(why)
            | TurnStopReason::ModelFailed(why) => {
                self.screen.line(&look.style("31", &escape_for_terminal(why)));
            }
        }
        if self.input.is_interactive {
            let calls =
                if outcome.tool_calls == 1 { "1 call".to_owned() } else { format!("{} calls", outcome.tool_calls) };
            self.screen.line(&look.dim(&format!("{calls} · {}", format_usage(spent))));
        }
    }

    /// Shows the last messages of a resumed session.
    async fn show_recent(&mut self) -> Result<(), CliError> {
        let look = self.screen.capabilities;
        let messages = self.runtime.store().messages(&self.agent.session.id, None, 6).await?;
        self.screen.line(&look.dim(&format!("conversation {} goes on:", self.agent.session.id)));
        for message in messages {
            for line in show::summarize_message(&message) {
                self.screen.line(&look.dim(&line));
            }
        }
        let slate = self.runtime.store().get_state(&self.agent.session.id, helve_tools::user::TODOS).await?;
        let todos = slate.and_then(|slate| serde_json::from_value(slate.value).ok()).unwrap_or_default();
        self.user.recall_todos(todos);
        Ok(())
    }

    /// Opens another session in place of this one.
    async fn switch(&mut self, wanted: Wanted, how: How) -> Result<(), CliError> {
        let handle: Arc<OnceLock<AgentHandle>> = Arc::default();
        let how = How { inbox: Some(self.scheduled_messages.inbox(handle.clone())), ..how };
        let talk = talk::open(&self.runtime, wanted, how, self.listener.clone()).await?;
        _ = handle.set(talk.agent.handle.clone());
        setup::stop_tasks(self.agent.session.clone()).await;
        self.agent = talk.agent;
        self.registration = talk.registration;
        self.scheduled_messages.set_session(&self.agent.session.id);
        self.undo_points.clear();
        self.runtime.undo_log().clear();
        self.user.clear_todos();
        if talk.is_resumed {
            self.show_recent().await?;
        }
        Ok(())
    }

    /// Changes the model.
    async fn choose_model(&mut self, name: &str) -> Result<(), CliError> {
        // The session's model follows this setting.
        self.runtime.knobs().set_for_all("model.name", name.into())?;
        let change = SessionUpdate { model: Some(name.to_owned()), ..SessionUpdate::default() };
        // A session without messages is not stored yet.
        let session = &self.agent.session;
        if let Ok(held) = session.hold().await {
            _ = self.runtime.store().update_session(&held.get(), &change).await;
            session.release(held).await?;
        }
        Ok(())
    }
}

/// Redraws the status line periodically.
async fn redraw_loop(screen: Screen) {
    let mut ticks = tokio::time::interval(Duration::from_millis(120));
    loop {
        ticks.tick().await;
        screen.redraw_status();
    }
}
