//! Slash commands of `helve chat`: `/help`, `/undo` and others.

use std::fmt::Write as _;

use helve_agent::model;
use helve_contract::{
    Error, closest_names,
    ports::{InboxItem, SessionFilter},
};

use super::Chat;
use crate::{
    attach,
    commands::sessions,
    fault::CliError,
    print::{escape_for_terminal, first_sentence},
    talk::{self, How, Wanted},
    terminal::{format_todos, format_usage},
    workshop::parse_mode,
};

/// Every command: its name, what may follow it, what it does.
const COMMANDS: [(&str, &str, &str); 14] = [
    ("help", "", "this list"),
    ("attach", "[FILE]", "sends a file with the next message; without a name, lists what is attached"),
    ("dialect", "[NAME]", "which dialect; with a name, a new conversation in that one"),
    ("model", "[NAME]", "which model answers, and which others there are; with a name, that one from now on"),
    ("tools", "", "what the model can call"),
    ("mode", "[NAME]", "what is asked before a call; with a name, that mode from now on"),
    ("sessions", "", "the conversations of this workspace"),
    ("resume", "ID", "another conversation; the beginning of its id is enough"),
    ("new", "", "a new conversation"),
    ("undo", "", "takes the last turn back: its messages, and its changes of files"),
    ("compact", "", "sums older messages up, so that more fits"),
    ("todos", "", "the to-do list"),
    ("cost", "", "what it took so far"),
    ("quit", "", "the end"),
];

impl Chat {
    /// Runs a command. Returns whether to continue.
    pub(super) async fn run_slash_command(&mut self, line: &str) -> Result<bool, CliError> {
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        match name {
            "help" | "" | "?" => self.help(),
            "attach" => self.attach(rest)?,
            "dialect" => self.dialect(rest).await?,
            "model" => self.model(rest).await?,
            "tools" => self.tools(),
            "mode" => self.mode(rest)?,
            "sessions" => self.sessions().await?,
            "resume" => {
                let record =
                    talk::named(&**self.runtime.store(), rest, &crate::setup::user(self.runtime.settings())).await?;
                self.switch(Wanted::Existing(Box::new(record)), How::default()).await?;
            }
            "new" => {
                let how = How { dialect: Some(self.agent.engine.dialect().name.to_owned()), model: None, inbox: None };
                self.switch(Wanted::New, how).await?;
                self.screen.line("a new conversation");
            }
            "undo" => self.undo().await?,
            "compact" => self.compact().await?,
            "todos" => self.todos(),
            "cost" => self.cost().await?,
            "quit" | "exit" | "q" => return Ok(false),
            other => {
                let names = COMMANDS.iter().map(|(name, ..)| *name);
                let near =
                    closest_names(other, names).first().map(|it| format!("; did you mean /{it}?")).unwrap_or_default();
                let other = escape_for_terminal(other);
                self.screen
                    .line(&format!("there is no command /{other}{near} (/help lists them, // begins a message)"));
            }
        }
        Ok(true)
    }

    fn help(&self) {
        let look = self.screen.capabilities;
        for (name, more, about) in COMMANDS {
            let command = format!("/{name} {more}");
            self.screen.line(&format!("  {}  {}", look.bold(&format!("{command:16}")), look.dim(about)));
        }
    }

    fn attach(&mut self, path: &str) -> Result<(), CliError> {
        if !path.is_empty() {
            let read = attach::read(&[attach::typed_path(path)], &self.files)?;
            self.files.extend(read);
        }
        if self.files.is_empty() {
            self.screen.line("no files are attached; write /attach FILE");
        }
        for (index, file) in self.files.iter().enumerate() {
            self.screen
                .line(&format!("{index}: {}; sent with your next message", escape_for_terminal(&file.describe())));
        }
        Ok(())
    }

    async fn dialect(&mut self, name: &str) -> Result<(), CliError> {
        let now = self.agent.engine.dialect().name;
        if name.is_empty() {
            let all: Vec<_> = helve_dialects::all().iter().map(|it| it.name).collect();
            self.screen.line(&format!("{now}; there are {}", all.join(", ")));
            return Ok(());
        }
        let how = How { dialect: Some(name.to_owned()), model: None, inbox: None };
        self.switch(Wanted::New, how).await?;
        self.screen.line(&format!("a new conversation in {name}"));
        Ok(())
    }

    async fn model(&mut self, name: &str) -> Result<(), CliError> {
        if !name.is_empty() {
            self.choose_model(name).await?;
            self.screen.line(&format!("{} answers from now on", escape_for_terminal(name)));
            return Ok(());
        }
        self.screen.line(&escape_for_terminal(&self.agent.model.name()));
        let Some(endpoint) = self.runtime.endpoint() else { return Ok(()) };
        let listed = model::list_models(endpoint).await.map_err(|error| CliError::failed(error.to_string()))?;
        for one in listed.iter().take(50) {
            self.screen.line(&format!("  {}", self.screen.capabilities.dim(&escape_for_terminal(&one.id))));
        }
        Ok(())
    }

    fn tools(&self) {
        let look = self.screen.capabilities;
        for spec in self.agent.engine.specs() {
            let about = first_sentence(&spec.description);
            self.screen.line(&format!(
                "  {:20}  {}",
                escape_for_terminal(&spec.name),
                look.dim(&escape_for_terminal(&about))
            ));
        }
    }

    fn mode(&self, name: &str) -> Result<(), CliError> {
        if !name.is_empty() {
            self.runtime.mode().set(parse_mode(name)?);
        }
        self.screen.line(self.runtime.mode().get().name());
        Ok(())
    }

    async fn sessions(&self) -> Result<(), CliError> {
        let workspace = self.runtime.settings().workspace.to_string_lossy().into_owned();
        let user = Some(crate::setup::user(self.runtime.settings()));
        let which = SessionFilter {
            user,
            workspace: Some(workspace),
            top_level_only: true,
            limit: 20,
            ..SessionFilter::default()
        };
        let (records, _) = self.runtime.store().list_sessions(&which).await?;
        self.screen.line(&self.screen.capabilities.bold(sessions::TABLE_HEADER));
        for record in &records {
            self.screen.line(&sessions::format_row(record));
        }
        Ok(())
    }

    /// Undoes the last turn.
    async fn undo(&mut self) -> Result<(), CliError> {
        let Some(before) = self.undo_points.pop() else {
            self.screen.line("there is no turn to take back; only those of this run of the program can be");
            return Ok(());
        };
        let session = self.agent.session.clone();
        let undone = self.runtime.undo_log().undo(&*session.ports.host, &session.workspace).await.unwrap_or_default();
        let mut text = match session.hold().await {
            Ok(held) => {
                let gone = self.runtime.store().truncate_messages(&held.get(), before + 1).await;
                session.release(held).await?;
                format!("took back {} messages", gone?)
            }
            // The process that holds the session removes them at its next step.
            Err(error @ Error::SessionHeld(_)) => {
                self.runtime.store().post(&session.id, &InboxItem::Undo { from: before + 1 }).await?;
                format!("messages from number {} on are taken back later: {error}", before + 1)
            }
            Err(error) => return Err(error.into()),
        };
        for file in &undone.restored {
            _ = write!(text, "\n  restored {}", escape_for_terminal(file));
        }
        for file in &undone.skipped {
            _ = write!(text, "\n  not restored: {}", escape_for_terminal(file));
        }
        if !undone.changed_elsewhere.is_empty() {
            text.push_str("\n  changed meanwhile, by a command or by somebody else, and not taken back:");
            for file in undone.changed_elsewhere.iter().take(20) {
                _ = write!(text, "\n    {}", escape_for_terminal(file));
            }
        }
        self.screen.line(&text);
        Ok(())
    }

    async fn compact(&mut self) -> Result<(), CliError> {
        self.screen.set_status(Some("summing up"));
        let done = self.agent.compact().await;
        self.screen.set_status(None);
        if !done? {
            self.screen.line("there is nothing to sum up yet");
        }
        Ok(())
    }

    fn todos(&self) {
        let list = self.user.todos();
        if list.is_empty() {
            self.screen.line("the to-do list is empty");
        } else {
            self.screen.write(&format_todos(self.screen.capabilities, &list));
        }
    }

    async fn cost(&mut self) -> Result<(), CliError> {
        // Agents in the background may have ended since the last turn.
        let charged = self.agent.handle.take_charges().spent;
        self.usage.prompt_tokens += charged.prompt_tokens;
        self.usage.completion_tokens += charged.completion_tokens;
        self.usage.cost += charged.cost;
        self.screen.line(&format!("since the start: {}", format_usage(&self.usage)));
        if let Some(record) = self.runtime.store().get_session(&self.agent.session.id).await? {
            self.screen.line(&format!(
                "this conversation: {} messages, {}",
                record.messages,
                format_usage(&record.spent)
            ));
        }
        Ok(())
    }
}
