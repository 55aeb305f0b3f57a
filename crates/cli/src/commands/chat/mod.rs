//! `helve chat`: a conversation at the terminal.

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

use helve_agent::{Agent, Ended, Event, Handle, Seat, Watcher};
use helve_contract::{
    Error,
    ports::{Attachment, InboxItem, Part, Retitle, Speaker, Spent},
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::Notify,
};

use super::{Choice, run::Limits};
use crate::{
    fault::{Fault, Outcome},
    print::harmless,
    remark, setup,
    talk::{self, How, Wanted},
    terminal::{Input, Look, Person, Screen, Typed, money, short},
    workshop::{Bench, Reach, Somebody},
};
use due::Dues;
use show::Show;

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
    flags: Flags,
    /// Go on with this conversation; the beginning of its id is enough.
    #[arg(long, value_name = "ID", conflicts_with = "go_on")]
    session: Option<String>,
    /// Go on with the last conversation of this workspace.
    #[arg(long = "continue")]
    go_on: bool,
}

/// The flags of a conversation at the terminal.
#[derive(clap::Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    limits: Limits,
}

impl Args {
    /// Runs the command.
    pub(crate) fn run(self) -> Outcome {
        self.flags.start(self.session, self.go_on)
    }
}

impl Flags {
    /// Goes on with a conversation.
    pub(crate) fn run(self, session: Option<String>) -> Outcome {
        self.start(session, false)
    }

    fn start(self, session: Option<String>, go_on: bool) -> Outcome {
        let settings = self.choice.settings_quietly(self.limits.flags())?;
        for text in &settings.remarks {
            remark!("helve: {text}");
        }
        let dialect = super::dialect(&settings)?;
        let runtime = setup::runtime()?;
        let bench = Bench::new(settings, &dialect, &runtime)?;
        let code = runtime.block_on(async {
            let told = bench.find_model(None).await?;
            let wanted = match &session {
                Some(id) => {
                    let user = setup::user(bench.settings());
                    Wanted::Of(Box::new(talk::named(&**bench.store(), id, &user).await?))
                }
                None if go_on => Wanted::Last,
                None => Wanted::New,
            };
            let (mut chat, resumed) = Chat::open(bench.clone(), wanted, self.choice.dialect.clone()).await?;
            chat.greet(&told);
            if resumed {
                chat.recall().await?;
            }
            let driving = chat.drive()?;
            let code = chat.go().await;
            driving.end().await;
            setup::end_tasks(chat.agent.session.clone()).await;
            setup::end_servers(bench.servers()).await;
            code
        })?;
        // The thread that reads standard input may still wait for a line.
        runtime.shutdown_background();
        Ok(code)
    }
}

/// A conversation at the terminal.
struct Chat {
    bench: Arc<Bench>,
    screen: Screen,
    input: Input,
    person: Arc<Person>,
    watcher: Watcher,
    agent: Agent,
    /// Its agents end with it.
    seat: Seat,
    /// Set when the user wants the turn to stop, in the middle of a question.
    stop: Arc<Notify>,
    /// The number of the last message before each turn that can be undone.
    marks: Vec<u64>,
    /// What this run of the program has taken.
    spent: Spent,
    /// What was typed while the agent worked and has to wait.
    waiting: VecDeque<String>,
    /// Files for the next message.
    files: Vec<Attachment>,
    /// What schedules have to say here.
    dues: Dues,
    signals: Signals,
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

/// What the user wants next.
enum Next {
    Line(String),
    Nothing,
    Quit(u8),
}

impl Chat {
    /// Opens the conversation; whether it was there before.
    async fn open(bench: Arc<Bench>, wanted: Wanted, dialect: Option<String>) -> Result<(Self, bool), Fault> {
        let screen = Screen::new(Look::of(&io::stdout()), io::stdout());
        let input = Input::new(screen.clone(), Some(bench.tenant_dir().join("chat.history")));
        let stop = Arc::new(Notify::new());
        let knobs = bench.knobs().clone();
        let person =
            Arc::new(Person::new(screen.clone(), input.clone(), knobs.clone(), bench.mode().clone(), stop.clone()));
        bench.meet(Somebody { user: person.clone(), approver: Some(person.clone()), reach: Reach::Seated });
        let show = Show::new(screen.clone(), bench.memory().clone(), knobs);
        let watcher: Watcher = Arc::new(move |event: &Event| show.hear(event));
        if bench.settings().config.schedule.in_chat {
            bench.drive_schedules();
        }
        let dues = Dues::new();
        let handle: Arc<OnceLock<Handle>> = Arc::default();
        let how = How { dialect, model: None, inbox: Some(dues.inbox(handle.clone())) };
        let talk = talk::open(&bench, wanted, how, watcher.clone()).await?;
        _ = handle.set(talk.agent.handle.clone());
        dues.moved(&talk.agent.session.id);
        let signals = Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        };
        let chat = Self {
            bench,
            screen,
            input,
            person,
            watcher,
            agent: talk.agent,
            seat: talk.seat,
            stop,
            marks: Vec::new(),
            spent: Spent::default(),
            waiting: VecDeque::new(),
            files: Vec::new(),
            dues,
            signals,
        };
        Ok((chat, talk.resumed))
    }

    fn greet(&self, model: &str) {
        let look = self.screen.look;
        let (mode, dialect) = (self.bench.mode().get().name(), self.agent.engine.dialect().name);
        self.screen.line(&format!("{} {}", look.bold("helve"), harmless(model)));
        let line = format!("{dialect} · {mode} · {} · /help", self.bench.settings().workspace.display());
        self.screen.line(&look.dim(&harmless(&line)));
    }

    /// Talks until the user has had enough.
    async fn go(&mut self) -> Result<ExitCode, Fault> {
        let mut interrupted = false;
        loop {
            let line = match self.waiting.pop_front() {
                Some(line) => line,
                None => match self.ask(interrupted).await {
                    Next::Line(line) => line,
                    Next::Nothing => {
                        interrupted = true;
                        continue;
                    }
                    Next::Quit(code) => return Ok(ExitCode::from(code)),
                },
            };
            interrupted = false;
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            if let Some(command) = line.strip_prefix('/').filter(|it| !it.starts_with('/')) {
                match self.obey(command).await {
                    Ok(true) => {}
                    Ok(false) => return Ok(ExitCode::SUCCESS),
                    Err(fault) => self.screen.line(&self.screen.look.ink("31", &harmless(&fault.to_string()))),
                }
                continue;
            }
            // Two slashes are one that begins a message.
            let words = line.strip_prefix('/').filter(|it| it.starts_with('/')).unwrap_or(line).to_owned();
            if !self.turn(&words).await? {
                return Ok(ExitCode::from(143));
            }
        }
    }

    /// Asks for the next message.
    async fn ask(&mut self, interrupted: bool) -> Next {
        let words = if self.input.live { self.screen.look.mark("› ", "> ") } else { "" };
        let input = self.input.clone();
        let line = input.line(words, true);
        tokio::pin!(line);
        // A line that was begun stays where it is while a schedule has its turn.
        let typed = loop {
            tokio::select! {
                typed = &mut line => break typed,
                come = self.dues.next() => {
                    if let Err(fault) = self.attend(come).await {
                        self.screen.line(&self.screen.look.ink("31", &harmless(&fault.to_string())));
                    }
                    self.screen.surface();
                }
                _ = self.signals.interrupt.recv() => return Next::Quit(130),
                _ = self.signals.terminate.recv() => return Next::Quit(143),
                _ = self.signals.hangup.recv() => return Next::Quit(129),
            }
        };
        match typed {
            Typed::Line(line) => Next::Line(line),
            Typed::End => Next::Quit(0),
            Typed::Interrupt if interrupted => Next::Quit(0),
            Typed::Interrupt => {
                self.screen.line(&self.screen.look.dim("Ctrl-C again ends the program; so does /quit"));
                Next::Nothing
            }
        }
    }

    /// One message of the user, until the model is done with it. Whether to go on.
    async fn turn(&mut self, words: &str) -> Result<bool, Fault> {
        let store = self.bench.store().clone();
        let before = store.messages(&self.agent.session.id, None, 1).await?.last().map_or(0, |it| it.seq);
        self.bench.memory().begin();
        self.marks.push(before);
        self.screen.status(Some("thinking"));
        let mut watching = self.input.watch();
        let spinning = tokio::spawn(spin(self.screen.clone()));
        let agent = self.agent.clone();
        // What agents in the background found out since comes first.
        let mut said = agent.handle.take_follow_ups();
        said.push(words.to_owned());
        let files = std::mem::take(&mut self.files);
        let work = agent.turn_with(said.into_iter().map(|text| Part::Text { text }).collect(), files);
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
                () = self.stop.notified() => self.agent.handle.cancel(),
                _ = self.signals.interrupt.recv() => self.agent.handle.cancel(),
                _ = self.signals.terminate.recv() => { goes_on = false; self.agent.handle.cancel(); }
                _ = self.signals.hangup.recv() => { goes_on = false; self.agent.handle.cancel(); }
            }
        };
        spinning.abort();
        let is_cancelled = matches!(&outcome, Ok(it) if it.ended == Ended::Cancelled);
        while let Some(line) = watching.as_mut().and_then(|it| it.lines.try_recv().ok()) {
            // Typed in the last moment of the turn.
            if is_cancelled {
                self.queue(line);
            } else {
                self.waiting.push_back(line);
            }
        }
        drop(watching);
        self.screen.status(None);
        self.screen.end_line();
        if let Err(error @ Error::SessionHeld(_)) = &outcome {
            // The process that works in it reads the message at its next step.
            agent.leave(&InboxItem::text(Speaker::User, words)).await?;
            self.marks.pop();
            self.screen.line(&self.screen.look.dim(&harmless(&format!("left in the inbox: {error}"))));
            return Ok(goes_on);
        }
        let outcome = outcome?;
        self.tell(&outcome);
        Ok(goes_on)
    }

    /// Something was typed while the agent works.
    fn queue(&mut self, line: String) {
        let look = self.screen.look;
        if line.trim_start().starts_with('/') {
            self.screen.line(&look.dim(&format!("after this turn: {}", short(&line, 80))));
            self.waiting.push_back(line);
        } else {
            self.screen.line(&look.dim(&format!("queued: {}", short(&line, 80))));
            self.agent.handle.follow_up(line);
        }
    }

    /// How a turn ended.
    fn tell(&mut self, outcome: &helve_agent::Outcome) {
        let look = self.screen.look;
        let spent = &outcome.spent;
        self.spent.prompt_tokens += spent.prompt_tokens;
        self.spent.completion_tokens += spent.completion_tokens;
        self.spent.cost += spent.cost;
        match &outcome.ended {
            Ended::Done => {}
            Ended::Cancelled => {
                self.screen.line(&look.ink("33", "stopped"));
                // What was typed ahead was meant for the turn that is over.
                for text in self.agent.handle.take_follow_ups() {
                    self.screen.line(&look.dim(&format!("not sent: {}", short(&text, 80))));
                }
            }
            Ended::Budget(why) | Ended::Circles(why) | Ended::Model(why) => {
                self.screen.line(&look.ink("31", &harmless(why)));
            }
        }
        if self.input.live {
            let calls = if outcome.calls == 1 { "1 call".to_owned() } else { format!("{} calls", outcome.calls) };
            self.screen.line(&look.dim(&format!("{calls} · {}", money(spent))));
        }
    }

    /// Shows the end of a conversation that is taken up again.
    async fn recall(&mut self) -> Result<(), Fault> {
        let look = self.screen.look;
        let messages = self.bench.store().messages(&self.agent.session.id, None, 6).await?;
        self.screen.line(&look.dim(&format!("conversation {} goes on:", self.agent.session.id)));
        for message in messages {
            for line in show::in_short(&message) {
                self.screen.line(&look.dim(&line));
            }
        }
        let slate = self.bench.store().slate(&self.agent.session.id, helve_tools::user::TODOS).await?;
        let todos = slate.and_then(|slate| serde_json::from_value(slate.value).ok()).unwrap_or_default();
        self.person.recall_todos(todos);
        Ok(())
    }

    /// Opens another conversation in place of this one.
    async fn switch(&mut self, wanted: Wanted, how: How) -> Result<(), Fault> {
        let handle: Arc<OnceLock<Handle>> = Arc::default();
        let how = How { inbox: Some(self.dues.inbox(handle.clone())), ..how };
        let talk = talk::open(&self.bench, wanted, how, self.watcher.clone()).await?;
        _ = handle.set(talk.agent.handle.clone());
        setup::end_tasks(self.agent.session.clone()).await;
        self.agent = talk.agent;
        self.seat = talk.seat;
        self.dues.moved(&self.agent.session.id);
        self.marks.clear();
        self.bench.memory().forget();
        self.person.forget();
        if talk.resumed {
            self.recall().await?;
        }
        Ok(())
    }

    /// Lets another model answer from now on.
    async fn choose_model(&mut self, name: &str) -> Result<(), Fault> {
        // The conversation's model follows this setting.
        self.bench.knobs().set_for_all("model.name", name.into())?;
        let change = Retitle { model: Some(name.to_owned()), ..Retitle::default() };
        // A conversation that nothing was said in yet is not kept yet.
        let session = &self.agent.session;
        if let Ok(held) = session.hold().await {
            _ = self.bench.store().retitle(&held.get(), &change).await;
            session.release(held).await?;
        }
        Ok(())
    }
}

/// Draws the line at the bottom again and again.
async fn spin(screen: Screen) {
    let mut ticks = tokio::time::interval(Duration::from_millis(120));
    loop {
        ticks.tick().await;
        screen.tick();
    }
}
