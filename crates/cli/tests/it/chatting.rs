//! `helve chat`: from a plain pipe, and at a real terminal that tmux drives.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use helve_script::{ModelScript, ScriptStep};
use serde_json::json;

use crate::{desk::Desk, model::Model};

/// A text without what differs from run to run.
fn steady(text: &str) -> String {
    let times = regex::Regex::new(r"\d+(\.\d+)? (ms|s)\b").unwrap();
    let ids = regex::Regex::new(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b").unwrap();
    ids.replace_all(&times.replace_all(text, "TIME"), "ID").into_owned()
}

#[test]
fn a_pipe_is_read_line_by_line() {
    let desk = Desk::new();
    desk.put("work/a.txt", "old\n");
    let file = desk.path("work/a.txt");
    let edit = json!({ "file_path": file, "old_string": "old", "new_string": "new" });
    let model = Model::new([
        ScriptStep::call("Read", json!({ "file_path": file })),
        ScriptStep::call("Edit", edit),
        ScriptStep::text("**Done.**"),
        ScriptStep::call("Edit", json!({ "file_path": file, "old_string": "new", "new_string": "newer" })),
        ScriptStep::text("As you wish."),
    ]);
    let desk = model.at(desk);
    let ran = desk.fed(&["chat"], "change it\ny\nonce more\nn not again\n/cost\n/nonsense\n");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(
        steady(&ran.out),
        "\
helve scripted (the settings)
claude · default · DESK/work · /help
✓ Read DESK/work/a.txt  TIME
? FileEdit DESK/work/a.txt
    -old
    +new
  asked because FileEdit can change things (writes)
  y: once · a: every call of FileEdit · n: no, with a reason
  allow? [y/a/n] 
✓ Edit DESK/work/a.txt  6 lines · TIME
  DESK/work/a.txt (+1 -1)
    -old
    +new
**Done.**
? FileEdit DESK/work/a.txt
    -new
    +newer
  asked because FileEdit can change things (writes)
  y: once · a: every call of FileEdit · n: no, with a reason
  allow? [y/a/n] 
✗ Edit DESK/work/a.txt  TIME
  Error: the user refused this call: not again
As you wish.
since the start: 50 in, 25 out
this conversation: 10 messages, 50 in, 25 out
there is no command /nonsense (/help lists them, // begins a message)
"
    );
    assert_eq!(desk.get("work/a.txt"), "new\n");
    assert_eq!(model.violations(), Vec::<String>::new());
}

#[test]
fn a_sub_agent_cannot_end_plan_mode() {
    let desk = Desk::new();
    let file = desk.path("work/new.txt");
    let order = json!({ "description": "plan", "prompt": "ORDER: plan", "subagent_type": "general-purpose" });
    let write = || ScriptStep::call("Write", json!({ "file_path": file, "content": "x" }));
    let model = Model::new([
        ScriptStep::call("Task", order),
        ScriptStep::call("ExitPlanMode", json!({ "plan": "1. write" })),
        write(),
        ScriptStep::text("CHILD DONE"),
        write(),
        ScriptStep::text("I could not."),
    ]);
    let desk = model.at(desk);
    let ran = desk.fed(&["chat", "--mode", "plan"], "plan it\ny\ny\ny\n");
    let results = model.results();
    assert!(results.last().is_some_and(|it| it.contains("this session is in plan mode")), "{results:?} {}", ran.out);
    assert!(!file.exists() && !ran.out.contains("go on with this plan?"), "{}", ran.out);
}

#[test]
fn a_turn_is_taken_back() {
    let desk = Desk::new();
    desk.put("work/a.txt", "old\n");
    let [a, b] = ["work/a.txt", "work/b.txt"].map(|it| desk.path(it));
    let model = Model::new([
        ScriptStep::call("Read", json!({ "file_path": a })),
        ScriptStep::call("Edit", json!({ "file_path": a, "old_string": "old", "new_string": "new" })),
        ScriptStep::call("Write", json!({ "file_path": b, "content": "made\n" })),
        ScriptStep::text("Done."),
        ScriptStep::text("Again."),
    ]);
    let desk = model.at(desk);
    let ran = desk.fed(&["chat", "--mode", "acceptEdits"], "change things\n/undo\nhello\n/undo\n/undo\n");
    let undone: Vec<&str> = ran.out.lines().skip_while(|it| !it.starts_with("took back")).collect();
    assert_eq!(
        undone,
        [
            "took back 8 messages",
            "  restored DESK/work/b.txt",
            "  restored DESK/work/a.txt",
            "Again.",
            "took back 2 messages",
            "there is no turn to take back; only those of this run of the program can be",
        ]
    );
    assert_eq!((desk.get("work/a.txt").as_str(), b.exists()), ("old\n", false));
    let last = model.requests().pop().unwrap();
    assert!(!last.to_string().contains("change things"), "the model does not see it either");
}

#[test]
fn commands_answer() {
    let model = Model::new([ScriptStep::text("Hi.")]);
    let desk = model.desk();
    let ran = desk.fed(&["chat"], "hello\n/mode plan\n/todos\n/sessions\n/dialect solo\n/tools\n/resume zzz\n//x\n");
    let out = steady(&ran.out);
    for part in [
        "Hi.\nplan\nthe to-do list is empty\n",
        "  hello\n",
        "a new conversation in solo\n",
        "  read  ",
        "there is no conversation `zzz`",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
}

#[test]
fn a_model_cannot_drive_the_terminal() {
    let model = Model::new([ScriptStep::text("a\x1b]0;title\x07b\x1b[2J")]);
    let ran = model.desk().fed(&["chat"], "hi\n");
    assert!(ran.out.contains("a\\x1b]0;title\\x07b\\x1b[2J"), "{}", ran.out);
}

/// A terminal of 100 columns in a tmux of its own.
struct Tmux {
    socket: String,
}

impl Tmux {
    /// `None`: there is no tmux here, and nobody insists.
    fn new(name: &str) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            assert!(std::env::var_os("HELVE_CI").is_none(), "tmux is missing");
            eprintln!("SKIPPED: tmux is not installed, so {name} was not tried");
            return None;
        }
        Some(Self { socket: format!("helve-{name}-{}", std::process::id()) })
    }

    fn tmux(&self, args: &[&str]) -> String {
        let out = Command::new("tmux").args(["-L", &self.socket, "-f", "/dev/null"]).args(args).output().unwrap();
        assert!(out.status.success(), "tmux {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Starts the binary in a desk.
    fn start(&self, desk: &Desk, args: &[&str]) {
        let command = desk.command(args);
        let mut line = vec!["env".to_owned(), "-i".into(), "TERM=screen".into()];
        for (name, value) in command.get_envs() {
            let value = value.unwrap_or_default().to_string_lossy();
            line.push(format!("'{}={value}'", name.to_string_lossy()));
        }
        line.push(command.get_program().to_string_lossy().into_owned());
        line.extend(command.get_args().map(|it| it.to_string_lossy().into_owned()));
        let work = desk.path("work");
        self.tmux(&["new-session", "-d", "-x", "100", "-y", "40", "-c", work.to_str().unwrap(), &line.join(" ")]);
        self.tmux(&["set-option", "-g", "remain-on-exit", "on"]);
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Waits until the program has ended.
    fn until_ended(&self) {
        let began = Instant::now();
        while self.tmux(&["list-panes", "-F", "#{pane_dead}"]).trim() != "1" {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "the program goes on:\n{}",
                self.tmux(&["capture-pane", "-p"])
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The screen once it holds these words, with what differs from run to run taken out.
    fn until(&self, desk: &Desk, words: &str) -> String {
        let began = Instant::now();
        loop {
            let screen = self.tmux(&["capture-pane", "-p"]);
            let screen = screen.replace(desk.path("").to_str().unwrap().trim_end_matches('/'), "DESK");
            let screen = steady(screen.trim_end());
            if screen.contains(words) {
                return screen;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "no `{words}` on the screen:\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        _ = Command::new("tmux").args(["-L", &self.socket, "kill-server"]).output();
    }
}

#[test]
fn a_terminal_approves_interrupts_and_resumes() {
    let Some(tmux) = Tmux::new("terminal") else { return };
    let desk = Desk::new();
    let file = desk.path("work/new.txt");
    let model = Model::new([
        ScriptStep::call("Write", json!({ "file_path": file, "content": "made\n" }))
            .with_text("I **write** it.\n\n- one\n- `two`"),
        ScriptStep::text("Written."),
        ScriptStep::call("Bash", json!({ "command": "sleep 100" })),
        ScriptStep::text("Here again."),
    ]);
    let desk = model.at(desk);
    tmux.start(&desk, &["chat", "--set", "approval.allow=Bash"]);
    tmux.until(&desk, "›");
    tmux.keys(&["write it", "Enter"]);
    tmux.until(&desk, "allow? [y/a/n]");
    tmux.keys(&["y", "Enter"]);
    let screen = tmux.until(&desk, "1 call ·");
    assert_eq!(
        screen,
        "\
helve scripted (the settings)
claude · default · DESK/work · /help
› write it
I write it.

• one
• two
? FileWrite DESK/work/new.txt
    +made
  asked because FileWrite can change things (writes, destroys)
  y: once · a: every call of FileWrite · n: no, with a reason
  allow? [y/a/n] y
✓ Write DESK/work/new.txt  TIME
  DESK/work/new.txt (+1 -0)
    +made
Written.
1 call · 20 in, 10 out
›"
    );
    assert_eq!(desk.get("work/new.txt"), "made\n");

    tmux.keys(&["sleep", "Enter"]);
    tmux.until(&desk, "Bash sleep 100");
    tmux.keys(&["typed ahead"]);
    tmux.until(&desk, "› typed ahead");
    tmux.keys(&["C-c"]);
    let screen = tmux.until(&desk, "stopped");
    assert!(screen.contains("✗ Bash sleep 100"), "{screen}");
    tmux.until(&desk, "› typed ahead");
    tmux.keys(&["C-u"]);
    tmux.keys(&["/quit", "Enter"]);
    tmux.until_ended();

    let tmux = Tmux::new("resumed").unwrap();
    tmux.start(&desk, &["chat", "--continue"]);
    tmux.until(&desk, "conversation ID goes on:");
    tmux.keys(&["and now", "Enter"]);
    let screen = tmux.until(&desk, "0 calls");
    assert!(screen.contains("Here again."), "{screen}");
    assert_eq!(model.violations(), Vec::<String>::new());
    tmux.keys(&["C-c"]);
    tmux.until(&desk, "Ctrl-C again ends the program");
    tmux.keys(&["C-c"]);
    tmux.until_ended();
}

#[test]
fn a_message_typed_ahead_is_not_sent_after_an_interrupt() {
    let Some(tmux) = Tmux::new("typed-ahead") else { return };
    let model = Model::new([
        ScriptStep::call("Bash", json!({ "command": "sleep 100" })),
        ScriptStep::text("A fresh start.").expect("now this"),
    ]);
    let desk = model.desk();
    tmux.start(&desk, &["chat", "--set", "approval.allow=Bash"]);
    tmux.until(&desk, "›");
    tmux.keys(&["wait", "Enter"]);
    tmux.until(&desk, "Bash sleep 100");
    tmux.keys(&["remove all files", "Enter"]);
    tmux.until(&desk, "queued: remove all files");
    tmux.keys(&["C-c"]);
    tmux.until(&desk, "not sent: remove all files");
    tmux.keys(&["now this", "Enter"]);
    tmux.until(&desk, "A fresh start.");
    tmux.until(&desk, "0 calls ·");
    assert_eq!(model.violations(), Vec::<String>::new());
    let requests = model.requests();
    assert_eq!(requests.len(), 2);
    assert!(!requests[1].to_string().contains("remove all files"), "{}", requests[1]);
    tmux.keys(&["/quit", "Enter"]);
    tmux.until_ended();
}

#[test]
fn an_agent_that_ends_while_the_prompt_waits_is_heard_at_once() {
    let Some(tmux) = Tmux::new("background-agent") else { return };
    let order = json!({
        "description": "Count", "prompt": "ORDER: count", "subagent_type": "general-purpose", "run_in_background": true,
    });
    let wait = json!({ "command": "while [ ! -e go ]; do sleep 0.1; done" });
    let script = ModelScript::new([
        ScriptStep::call("Agent", order),
        ScriptStep::text("It counts."),
        ScriptStep::text("It found three.").expect("Three files."),
    ]);
    let model = Model::of(script.branch("ORDER", [ScriptStep::call("Bash", wait), ScriptStep::text("Three files.")]));
    let desk = model.desk();
    tmux.start(&desk, &["chat", "--mode", "bypassPermissions"]);
    tmux.until(&desk, "›");
    tmux.keys(&["count", "Enter"]);
    // The turn is over and the prompt waits: only then the agent may end.
    tmux.until(&desk, "1 call ·");
    desk.put("work/go", "");
    tmux.until(&desk, "It found three.");
    assert_eq!(model.violations(), Vec::<String>::new());
    tmux.keys(&["/quit", "Enter"]);
    tmux.until_ended();
}

#[test]
fn the_to_do_list_is_there_when_a_conversation_goes_on() {
    let todo = json!({ "content": "Water the ferns", "status": "pending", "activeForm": "Watering the ferns" });
    let model = Model::new([ScriptStep::call("TodoWrite", json!({ "todos": [todo] })), ScriptStep::text("Noted.")]);
    let desk = model.desk();
    assert_eq!(desk.run(&["run", "note it"]).code, 0);
    let ran = desk.fed(&["chat", "--continue"], "/todos\n");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(!ran.out.contains("the to-do list is empty") && ran.out.contains("Water the ferns"), "{}", ran.out);
}
