//! Sub-agents: never more rights than their parent, and ended with it.

use std::{
    collections::BTreeMap,
    fs,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use helve_agent::{
    Agent, AgentDefinition, AgentDefinitions, AgentEvent, AgentLimits, Budget, Engine, Registration, SessionFactory,
    SessionSpec, Supervisor, ToolAccess, TurnStopReason, Wake,
    model::{Model, ModelError, ModelRequest, ModelResponse, StreamChunk, ToolCall},
};
use helve_contract::{
    Call, PathRules, Ports, Result, Root, Session, Workspace,
    ports::{
        Activity, AgentOrder, AgentReport, AgentStatus, Agents, Delivery, MessagePart, MessageRole, Sessions,
        TimeLimit, TokenUsage, WaitUntil,
    },
};
use helve_dialects::by_name;
use helve_engine::{Gate, Mode, protected_path_rules};
use helve_hosts::LocalHost;
use helve_store::SqliteStore;
use serde_json::json;
use tokio::sync::Barrier;

/// Where two agents meet, if both work at the same time.
static MEETING: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(2));

/// A model that follows the user's last message.
struct Puppet(&'static str);

#[async_trait]
impl Model for Puppet {
    fn name(&self) -> String {
        self.0.to_owned()
    }
    fn context_window(&self) -> Option<u64> {
        None
    }
    async fn complete(
        &self,
        ask: &ModelRequest<'_>,
        ear: &(dyn Fn(StreamChunk<'_>) + Send + Sync),
    ) -> Result<ModelResponse, ModelError> {
        let spent = TokenUsage { prompt_tokens: 30, completion_tokens: 10, cost: 0.25, ..TokenUsage::default() };
        let text = |text: String| Ok(ModelResponse { text, usage: spent, ..ModelResponse::default() });
        let said: Vec<&str> = ask
            .messages
            .iter()
            .filter(|message| message.role == MessageRole::User)
            .flat_map(|message| &message.parts)
            .filter_map(|part| if let MessagePart::Text { text } = part { Some(text.as_str()) } else { None })
            .collect();
        let order = said.last().copied().unwrap_or_default();
        let result = ask.messages.last().and_then(|last| last.parts.first());
        if let Some(MessagePart::ToolResult { content, .. }) = result
            && order != "again"
        {
            return text(content.clone());
        }
        match order.split_once(' ').unwrap_or((order, "")) {
            ("tools", _) => {
                let names: Vec<&str> = ask.tools.iter().filter_map(|it| it["function"]["name"].as_str()).collect();
                text(names.join(" "))
            }
            ("wait", _) => {
                ear(StreamChunk::Text("half"));
                ask.cancel.cancelled().await;
                Err(ModelError::Cancelled { said: "half".into() })
            }
            ("both", _) => {
                let input = json!({ "description": "d", "prompt": "meet", "subagent_type": "general-purpose" });
                let order =
                    |id: &str| ToolCall { id: id.into(), name: "Agent".into(), input: input.to_string(), opaque: None };
                Ok(ModelResponse { calls: vec![order("c1"), order("c2")], usage: spent, ..ModelResponse::default() })
            }
            ("meet", _) => {
                MEETING.wait().await;
                text("met".to_owned())
            }
            ("call", rest) => {
                let (name, input) = rest.split_once(' ').unwrap();
                let calls = vec![ToolCall { id: "c1".into(), name: name.into(), input: input.into(), opaque: None }];
                Ok(ModelResponse { calls, usage: spent, ..ModelResponse::default() })
            }
            ("again", _) => {
                let input = format!("{{\"pattern\": \"{}\"}}", ask.messages.len());
                let calls =
                    vec![ToolCall { id: format!("c{}", ask.messages.len()), name: "Glob".into(), input, opaque: None }];
                Ok(ModelResponse { calls, usage: spent, ..ModelResponse::default() })
            }
            ("all", _) => text(said.join(" | ")),
            _ => text(order.to_owned()),
        }
    }
}

/// Makes children in the directory of the stories, and remembers what was needed.
struct Shop {
    folder: tempfile::TempDir,
    store: SqliteStore,
    needs: Mutex<Vec<SessionSpec>>,
    /// What it gives beyond what was asked for.
    generous: bool,
}

impl SessionFactory for Shop {
    fn create_session(&self, need: &SessionSpec) -> Result<(Arc<Engine>, Arc<Session>)> {
        self.needs.lock().unwrap().push(need.clone());
        let top = fs::canonicalize(self.folder.path()).unwrap();
        let dialect = by_name("claude").unwrap();
        let roots = [Root::writable(top.join("w")), Root::readable(top.join("spill")).with_name("spill")];
        let workspace = Workspace::new(roots, PathRules::new(protected_path_rules()), dialect.path_style);
        let mut ports = Ports { store: Arc::new(self.store.clone()), ..Ports::new(Arc::new(LocalHost::new())) };
        if let Some(agents) = &need.agents {
            ports.agents = agents.clone();
        }
        let mut session = Session::new(&need.id, workspace, ports);
        session.agent = need.agent.clone().unwrap_or_else(|| "main".into());
        let mut builder = Engine::builder(dialect).gate(Gate::new(need.mode.unwrap_or(Mode::Open)));
        if let Some(tools) = need.tools.clone().filter(|_| !self.generous) {
            builder = builder.only(tools);
        }
        Ok((Arc::new(builder.build().unwrap()), Arc::new(session)))
    }
    fn model(&self, name: Option<&str>) -> Result<Arc<dyn Model>> {
        Ok(Arc::new(Puppet(if name == Some("tiny-1") { "small" } else { "other" })))
    }
}

struct Story {
    shop: Arc<Shop>,
    supervisor: Arc<Supervisor>,
    agent: Agent,
    seat: Option<Registration>,
    events: Arc<Mutex<Vec<String>>>,
    call: Call,
}

impl Story {
    fn new() -> Self {
        Self::with(AgentLimits::default(), Mode::Open, Budget::default(), false)
    }

    fn with(limits: AgentLimits, mode: Mode, budget: Budget, generous: bool) -> Self {
        let folder = tempfile::Builder::new().prefix("agents").tempdir().unwrap();
        for name in ["w", "spill"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let store = SqliteStore::open(folder.path().join("store.db")).unwrap();
        let shop = Arc::new(Shop { folder, store: store.clone(), needs: Mutex::default(), generous });
        let mut kinds = AgentDefinitions::builtin("claude");
        kinds.add(AgentDefinition {
            name: "reader".into(),
            tools: ToolAccess::Only(vec!["Read".into()]),
            ..AgentDefinition::default()
        });
        kinds.add(AgentDefinition {
            name: "loose".into(),
            mode: Some(Mode::BypassPermissions),
            ..AgentDefinition::default()
        });
        let models = BTreeMap::from([("haiku".to_owned(), "tiny-1".to_owned())]);
        let waker = Some(Arc::new(Waker) as Arc<dyn Wake>);
        let supervisor = Supervisor::configured(shop.clone(), Arc::new(store), kinds, limits, models, waker);
        let need = SessionSpec {
            id: "main".into(),
            mode: Some(mode),
            tools: Some(["Agent", "Bash", "TaskOutput", "Read", "Write", "Glob", "Grep"].map(str::to_owned).to_vec()),
            agents: Some(supervisor.clone()),
            ..SessionSpec::default()
        };
        let (engine, session) = shop.create_session(&need).unwrap();
        shop.needs.lock().unwrap().clear();
        let events = Arc::new(Mutex::new(Vec::new()));
        let heard = events.clone();
        let mut agent = Agent {
            budget,
            listener: Arc::new(move |event: &AgentEvent| {
                if let AgentEvent::SubAgent { title, ended, .. } = event {
                    heard.lock().unwrap().push(format!("{title} {}", if *ended { "ended" } else { "began" }));
                }
            }),
            ..Agent::new(engine, session.clone(), Arc::new(Puppet("large")))
        };
        let seat = Some(supervisor.register(&mut agent));
        Self { shop, supervisor, agent, seat, events, call: Call::new("c", session) }
    }

    async fn start(&self, order: AgentOrder) -> Result<AgentReport> {
        self.supervisor.start(&self.call, order).await
    }

    async fn background(&self, prompt: &str) -> AgentReport {
        self.start(AgentOrder { background: true, ..order(prompt) }).await.unwrap()
    }

    async fn ended(&self, id: &str) -> AgentReport {
        self.supervisor.report(&self.call, id, WaitUntil::Exit).await.unwrap().unwrap()
    }
}

fn order(prompt: &str) -> AgentOrder {
    AgentOrder { prompt: prompt.into(), title: "Work".into(), ..AgentOrder::default() }
}

fn kind(name: &str, prompt: &str) -> AgentOrder {
    AgentOrder { kind: Some(name.into()), ..order(prompt) }
}

#[tokio::test]
async fn a_child_has_a_part_of_its_parents_tools() {
    let story = Story::new();
    let tools = async |order| story.start(order).await.unwrap().text;
    // No child starts another one.
    assert_eq!(tools(kind("general-purpose", "tools")).await, "Bash TaskOutput FileRead FileWrite Glob Grep");
    assert_eq!(tools(kind("Explore", "tools")).await, "TaskOutput FileRead Glob Grep");
    assert_eq!(tools(kind("reader", "tools")).await, "FileRead");
    let fewer = AgentOrder { tools: Some(vec!["Grep".into(), "WebFetch".into()]), ..order("tools") };
    assert_eq!(tools(fewer).await, "Grep");
    let unknown = story.start(kind("Explorer", "tools")).await.unwrap_err().to_string();
    assert_eq!(
        unknown,
        "no agent is called `Explorer`; there are general-purpose, Explore, Plan, reader, loose. Did you mean Explore?"
    );
}

#[tokio::test]
async fn agents_of_one_answer_work_side_by_side() {
    let story = Story::new();
    let outcome = tokio::time::timeout(Duration::from_secs(20), story.agent.send_text("both")).await;
    let outcome = outcome.expect("one waits for the other, and never meets it").unwrap();
    assert!(outcome.text.contains("met"), "{}", outcome.text);
    let events = story.events.lock().unwrap();
    assert_eq!(events.iter().take(2).filter(|it| it.ends_with("began")).count(), 2, "{events:?}");
}

#[tokio::test]
async fn agents_beyond_the_limit_wait_for_their_turn() {
    let story =
        Story::with(AgentLimits { max_concurrent: 2, ..AgentLimits::default() }, Mode::Open, Budget::default(), false);
    let all = futures::future::join_all((0..5).map(|_| story.start(order("hi")))).await;
    assert!(all.iter().all(|it| it.as_ref().is_ok_and(|it| it.status == AgentStatus::Done)), "{all:?}");
    // Those in the background end when they like, and nobody waits for that.
    for _ in 0..2 {
        story.background("wait").await;
    }
    assert!(story.start(order("hi")).await.unwrap_err().to_string().starts_with("2 agents run already"));
}

#[tokio::test]
async fn what_the_workshop_gives_beyond_the_rights_is_refused() {
    let story = Story::with(AgentLimits::default(), Mode::Open, Budget::default(), true);
    let error = story.start(order("tools")).await.unwrap_err().to_string();
    assert!(error.contains("beyond its rights"), "{error}");
}

#[tokio::test]
async fn a_childs_mode_is_never_looser() {
    let story = Story::with(AgentLimits::default(), Mode::Default, Budget::default(), false);
    let mode = |asked: Option<&str>| AgentOrder { mode: asked.map(str::to_owned), ..order("hi") };
    for order in [mode(None), mode(Some("bypassPermissions")), mode(Some("plan")), kind("loose", "hi")] {
        story.start(order).await.unwrap();
    }
    let modes: Vec<_> = story.shop.needs.lock().unwrap().iter().map(|need| need.mode.unwrap()).collect();
    assert_eq!(modes, [Mode::Default, Mode::Default, Mode::Plan, Mode::Default]);
    assert!(story.start(mode(Some("yolo"))).await.unwrap_err().to_string().starts_with("`yolo` is not a mode"));
    // In the background nobody approves anything.
    let path = story.shop.folder.path().join("w/a.txt");
    let write = format!("call Write {}", json!({ "file_path": path, "content": "x" }));
    let report = story.background(&write).await;
    let report = story.ended(&report.id).await;
    assert!(report.text.contains("there is nobody to ask here"), "{}", report.text);
    assert!(!path.exists());
}

#[tokio::test]
async fn budgets_are_what_is_left_and_hold() {
    let budget = Budget { max_cost: Some(1.0), ..Budget::default() };
    let story = Story::with(AgentLimits::default(), Mode::Open, budget, false);
    let two = story.start(AgentOrder { max_turns: Some(2), ..order("again") }).await.unwrap();
    assert!(matches!(&two.status, AgentStatus::Failed(why) if why.contains('2')), "{two:?}");
    assert_eq!((two.turns, two.usage.cost), (2, 0.5));
    // Half is left; the third answer is one too many.
    let rest = story.start(order("again")).await.unwrap();
    assert!(matches!(rest.status, AgentStatus::Failed(_)), "{rest:?}");
    assert!(rest.usage.cost <= 0.75, "{rest:?}");
    let none = story.start(order("hi")).await.unwrap_err().to_string();
    assert_eq!(none, "no agent can be started: the cost limit of the conversation is reached; end your turn");
}

#[tokio::test]
async fn depth_is_limited() {
    let agent = r#"call Agent {"description": "d", "prompt": "hi", "subagent_type": "general-purpose"}"#;
    let shallow = Story::new().start(order(agent)).await.unwrap();
    assert!(shallow.text.contains("Agent"), "{}", shallow.text);
    assert!(!shallow.text.contains("<agent_result"), "{}", shallow.text);
    let story =
        Story::with(AgentLimits { max_depth: 2, ..AgentLimits::default() }, Mode::Open, Budget::default(), false);
    let deep = story.start(order(agent)).await.unwrap();
    assert!(deep.text.contains("<agent_result"), "{}", deep.text);
    let nested = story.shop.needs.lock().unwrap()[1].tools.clone().unwrap();
    assert!(!nested.contains(&"Agent".to_owned()), "{nested:?}");
}

#[tokio::test]
async fn a_cancelled_call_ends_its_agent() {
    let story = Story::new();
    let cancel = story.call.cancel.clone();
    let (report, ()) = tokio::join!(story.start(order("wait")), async {
        while story.supervisor.running(&story.call).await.first().is_none_or(|report| report.text.is_empty()) {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    });
    let report = report.unwrap();
    assert_eq!((report.status, report.text.as_str()), (AgentStatus::Stopped, "half"));
    assert!(story.supervisor.running(&story.call).await.is_empty());
}

#[tokio::test]
async fn an_agent_that_takes_too_long_is_ended() {
    let late = AgentOrder { timeout: Some(Duration::from_millis(10)), ..order("wait") };
    let report = Story::new().start(late).await.unwrap();
    assert_eq!(report.status, AgentStatus::Failed("it had no answer within 0 s".into()));
}

#[tokio::test]
async fn the_end_of_a_conversation_ends_its_agents() {
    let mut story = Story::new();
    let report = story.background("wait").await;
    assert_eq!(report.status, AgentStatus::Running);
    drop(story.seat.take());
    assert_eq!(story.ended(&report.id).await.status, AgentStatus::Stopped);
    assert!(story.start(order("hi")).await.unwrap_err().to_string().contains("no model drives this session"));
}

#[tokio::test]
async fn the_seventeenth_is_refused() {
    let story = Story::new();
    for _ in 0..16 {
        story.background("wait").await;
    }
    let error = story.start(order("hi")).await.unwrap_err().to_string();
    assert_eq!(
        error,
        "16 agents run already, and no more may run at once; wait for one to end, stop one, or do it yourself"
    );
    let one = story.supervisor.running(&story.call).await[0].id.clone();
    assert_eq!(story.supervisor.stop(&story.call, &one).await.unwrap().unwrap().status, AgentStatus::Stopped);
    assert_eq!(story.start(order("hi")).await.unwrap().status, AgentStatus::Done);
    story.supervisor.stop_all("main").await;
    assert!(story.supervisor.running(&story.call).await.is_empty());
}

#[tokio::test]
async fn a_result_from_the_background_arrives() {
    let story = Story::new();
    let report = story.background("It is done").await;
    let done = story.ended(&report.id).await;
    assert_eq!((done.status, done.text.as_str()), (AgentStatus::Done, "It is done"));
    // By the time its end is told, or soon after, the message waits for the session.
    while story.events.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(*story.events.lock().unwrap(), ["Work began", "Work ended"]);
    let outcome = story.agent.send_text("all").await.unwrap();
    let wanted = format!(
        "[agent general-purpose {0} finished: Work]\n<agent_result id=\"{0}\">\nIt is done\n</agent_result>",
        done.id
    );
    assert!(outcome.text.ends_with(&wanted), "{}", outcome.text);
    let file = fs::read_to_string(done.transcript_file.unwrap()).unwrap();
    assert!(file.contains("[ended: completed]"), "{file}");
    // Its whole history is kept, with its parent.
    let record = story.shop.store.get_session(&done.id).await.unwrap().unwrap();
    assert_eq!((record.parent.as_deref(), record.agent.as_str()), (Some("main"), "general-purpose"));
}

#[tokio::test]
async fn an_agent_goes_on_by_its_id() {
    let story = Story::new();
    let first = story.start(kind("reader", "first")).await.unwrap();
    let again = AgentOrder { resume: Some(first.id.clone()), ..kind("general-purpose", "all") };
    let second = story.start(again).await.unwrap();
    // It remembers, and it stays what it was.
    assert_eq!((second.text.as_str(), second.kind.as_str()), ("first | all", "reader"));
    let other = AgentOrder { resume: Some("nobody".into()), ..order("all") };
    assert_eq!(
        story.start(other).await.unwrap_err().to_string(),
        "no agent `nobody` was started here; start a new one"
    );
    let small = story.start(AgentOrder { model: Some("haiku".into()), ..order("hi") }).await.unwrap();
    assert_eq!(small.model, "small");
    // A name that no setting explains is the parent's model, and is never sent to an endpoint.
    let main = story.start(AgentOrder { model: Some("sonnet".into()), ..order("hi") }).await.unwrap();
    assert_eq!(main.model, "large");
    let named = story.start(AgentOrder { model: Some("gpt-x".into()), ..order("hi") }).await.unwrap();
    assert_eq!(named.model, "other");
}

#[tokio::test]
async fn other_sessions_do_not_see_it() {
    let story = Story::new();
    let report = story.background("wait").await;
    let need = SessionSpec { id: "other".into(), agents: Some(story.supervisor.clone()), ..SessionSpec::default() };
    let other = Call::new("c", story.shop.create_session(&need).unwrap().1);
    assert_eq!(story.supervisor.report(&other, &report.id, WaitUntil::Now).await.unwrap(), None);
    assert_eq!(story.supervisor.stop(&other, &report.id).await.unwrap(), None);
    assert_eq!(story.words_of(&report.id).await.text, "half");
    assert_eq!(story.supervisor.send_message(&other, "main", "hello").await.unwrap(), Some(Delivery::Waiting));
    let outcome = story.agent.send_text("all").await.unwrap();
    assert!(outcome.text.ends_with("hello"), "{}", outcome.text);
    assert_eq!(story.supervisor.send_message(&other, "nowhere", "hello").await.unwrap(), None);
    assert_eq!(story.supervisor.send_message(&other, "asleep", "hello").await.unwrap(), Some(Delivery::Woken));
    story.supervisor.stop_all("main").await;
}

/// Runs one session that is not open.
struct Waker;

#[async_trait]
impl Wake for Waker {
    async fn deliver_agent_result(&self, session: &str, _: &str) -> Option<Delivery> {
        (session == "asleep").then_some(Delivery::Woken)
    }
}

const START: &str = r#"{"description": "d", "prompt": "hi", "subagent_type": "general-purpose"}"#;

#[tokio::test]
async fn what_agents_use_is_on_their_parents_bill() {
    let story = Story::new();
    let outcome = story.agent.send_text(&format!("call Agent {START}")).await.unwrap();
    // Two answers of its own, and one of the agent.
    assert_eq!((outcome.turns, outcome.usage.prompt_tokens, outcome.usage.cost), (2, 90, 0.75));
    let record = story.shop.store.get_session("main").await.unwrap().unwrap();
    assert_eq!((record.spent.prompt_tokens, record.spent.cost), (90, 0.75));

    let background = story.background("hi").await;
    story.ended(&background.id).await;
    assert_eq!(story.agent.handle.take_charges().spent.prompt_tokens, 30);
    let record = story.shop.store.get_session("main").await.unwrap().unwrap();
    assert_eq!(record.spent.prompt_tokens, 120);
}

#[tokio::test]
async fn refused_calls_are_counted_with_those_of_agents() {
    let story = Story::with(AgentLimits::default(), Mode::AcceptEdits, Budget::default(), false);
    let outcome = story.agent.send_text(r#"call Bash {"command": "rm a"}"#).await.unwrap();
    assert_eq!((outcome.stop_reason, outcome.refused), (TurnStopReason::Completed, 1));
    let child = story.start(order(r#"call Bash {"command": "rm a"}"#)).await.unwrap();
    assert!(child.text.contains("nobody to ask"), "{child:?}");
    assert_eq!(story.agent.handle.take_charges().refused, 1);
    let outcome = story.agent.send_text("hi").await.unwrap();
    assert_eq!(outcome.refused, 0);
}

#[tokio::test]
async fn a_configured_limit_ends_an_agent_whose_order_names_none() {
    let limits = AgentLimits { delegate_time: Duration::from_millis(20), ..AgentLimits::default() };
    let story = Story::with(limits, Mode::Open, Budget::default(), false);
    let late = story.start(AgentOrder { limit: TimeLimit::Delegate, ..order("wait") }).await.unwrap();
    assert!(matches!(&late.status, AgentStatus::Failed(why) if why.contains("no answer within")), "{late:?}");
}

#[tokio::test]
async fn an_agent_knows_whether_it_works() {
    let story = Story::new();
    let own = story.supervisor.current(&story.call).await.unwrap();
    assert_eq!((own.model.as_deref(), own.activity), (Some("large"), Activity::Idle));
    let agent = story.agent.clone();
    let working = tokio::spawn(async move { agent.send_text("wait").await });
    while !story.agent.handle.is_busy() {
        tokio::task::yield_now().await;
    }
    assert_eq!(story.supervisor.current(&story.call).await.unwrap().activity, Activity::Active);
    story.agent.handle.cancel();
    working.abort();
}

#[tokio::test]
async fn a_session_that_another_program_drives_may_start_agents() {
    let story = Story::new();
    let need = SessionSpec { id: "mcp-1".into(), agents: Some(story.supervisor.clone()), ..SessionSpec::default() };
    let (engine, session) = story.shop.create_session(&need).unwrap();
    let call = Call::new("c", session.clone());
    let budget = Budget { max_cost: Some(0.2), ..Budget::default() };
    let _seat = story.supervisor.seat_external(engine, session, Arc::new(Puppet("large")), budget);
    for _ in 0..2 {
        // A budget is for agents that run together: the second one is not refused for what the first one used.
        let report = story.supervisor.start(&call, order("hi")).await.unwrap();
        assert_eq!(report.status, AgentStatus::Done, "{report:?}");
    }
    let own = story.supervisor.current(&call).await.unwrap();
    assert_eq!((own.model, own.activity), (None, Activity::Unknown));
}

#[tokio::test]
async fn the_model_is_told_when_plan_mode_begins_and_ends() {
    let story = Story::with(AgentLimits::default(), Mode::Plan, Budget::default(), false);
    let notes = async || {
        let messages = story.agent.history().await.unwrap();
        let notes = messages.into_iter().filter(|it| it.role == MessageRole::System).flat_map(|it| it.parts);
        notes.filter_map(|it| if let MessagePart::Text { text } = it { Some(text) } else { None }).collect::<Vec<_>>()
    };
    story.agent.send_text("hi").await.unwrap();
    story.agent.send_text("hi again").await.unwrap();
    let first = notes().await;
    assert_eq!(first.len(), 1, "{first:?}");
    assert!(first[0].starts_with("Plan mode is on.") && first[0].ends_with("end your turn with it."), "{first:?}");
    story.agent.engine.mode().set(Mode::Default);
    story.agent.send_text("and now").await.unwrap();
    assert_eq!(notes().await[1], "Plan mode has ended. You may carry out the work.");
    story.agent.engine.mode().set(Mode::Plan);
    story.agent.send_text("plan again").await.unwrap();
    assert_eq!(notes().await.len(), 3);
}

impl Story {
    /// What an agent that runs has said, once it has said something.
    async fn words_of(&self, id: &str) -> AgentReport {
        loop {
            let report = self.supervisor.report(&self.call, id, WaitUntil::Now).await.unwrap().unwrap();
            if !report.text.is_empty() {
                return report;
            }
            tokio::task::yield_now().await;
        }
    }
}
