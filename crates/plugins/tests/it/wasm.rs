//! Modules made from text: what they see, what they may change, and how they are ended.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use helve_contract::{
    Access, Call, Effects, Entry, Error, PathGlob, PathRule, PathRules, PathStyle, Ports, Root, Session, Workspace,
};
use helve_hosts::LocalHost;
use helve_plugins::wasm::{self, CapabilityProfile, ModuleManifest, WasmConfig};
use serde_json::{Value, json};

/// What every module below begins with. Memory: buffers at 0, data from 1024, what is read from 65536.
const PRELUDE: &str = r#"
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $fd_close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_readdir" (func $fd_readdir (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_get" (func $fd_prestat_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_prestat_dir_name" (func $fd_prestat_dir_name (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_create_directory" (func $mkdir (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_unlink_file" (func $unlink (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_rename" (func $rename (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sock_shutdown" (func $sock_shutdown (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 4)
  (data (i32.const 512) "{\"ok\":\"") (data (i32.const 528) "\"}") (data (i32.const 544) "{\"err\":\"errno ")
  (func $put (param $fd i32) (param $at i32) (param $len i32)
    (i32.store (i32.const 0) (local.get $at)) (i32.store (i32.const 4) (local.get $len))
    (call $check (call $fd_write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8))))
  (func $say (param $at i32) (param $len i32)
    (call $put (i32.const 1) (i32.const 512) (i32.const 7))
    (call $put (i32.const 1) (local.get $at) (local.get $len))
    (call $put (i32.const 1) (i32.const 528) (i32.const 2)))
  (func $check (param $errno i32)
    (if (local.get $errno) (then
      (call $put (i32.const 1) (i32.const 544) (i32.const 14))
      (i32.store8 (i32.const 16) (i32.add (i32.const 48) (i32.div_u (local.get $errno) (i32.const 10))))
      (i32.store8 (i32.const 17) (i32.add (i32.const 48) (i32.rem_u (local.get $errno) (i32.const 10))))
      (call $put (i32.const 1) (i32.const 16) (i32.const 2))
      (call $put (i32.const 1) (i32.const 528) (i32.const 2))
      (call $exit (i32.const 1)))))
  (func $open (param $at i32) (param $len i32) (param $how i32) (param $rights i64) (result i32)
    (call $check (call $path_open (i32.const 3) (i32.const 1) (local.get $at) (local.get $len) (local.get $how)
      (local.get $rights) (i64.const 0) (i32.const 0) (i32.const 20)))
    (i32.load (i32.const 20)))
  (func $read (param $fd i32) (result i32)
    (i32.store (i32.const 0) (i32.const 65536)) (i32.store (i32.const 4) (i32.const 65536))
    (call $check (call $fd_read (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8)))
    (i32.load (i32.const 8)))
"#;
const READS: &str = "(i64.const 2)";
const WRITES: &str = "(i64.const 64)";

/// Opens the path at 1024 and says what is in it.
fn reader(path: &str) -> String {
    let len = path.len();
    format!(
        r#"(data (i32.const 1024) "{path}")
        (func (export "_start")
          (call $say (i32.const 65536) (call $read (call $open (i32.const 1024) (i32.const {len}) (i32.const 0) {READS}))))"#
    )
}

/// Writes `new` to the path at 1024, made or emptied first, and says `new`.
fn writer(path: &str) -> String {
    let len = path.len();
    format!(
        r#"(data (i32.const 1024) "{path}") (data (i32.const 2048) "new")
        (func (export "_start") (local $fd i32)
          (local.set $fd (call $open (i32.const 1024) (i32.const {len}) (i32.const 9) {WRITES}))
          (call $put (local.get $fd) (i32.const 2048) (i32.const 3))
          (call $check (call $fd_close (local.get $fd)))
          (call $say (i32.const 2048) (i32.const 3)))"#
    )
}

/// A session with the three directories, and the records of its calls.
pub(crate) struct Desk {
    pub(crate) dir: PathBuf,
    session: Arc<Session>,
    pub(crate) audit: Arc<Mutex<Vec<Value>>>,
}

impl Desk {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("wasm-{}-{number}", std::process::id()));
        for name in ["shared", "tmp", "vault"] {
            fs::create_dir_all(dir.join(name)).unwrap();
        }
        let dir = dir.canonicalize().unwrap();
        fs::write(dir.join("shared/a.txt"), "apple").unwrap();
        fs::write(dir.join("shared/.env"), "secret").unwrap();
        fs::write(dir.join("vault/v.txt"), "vault").unwrap();
        fs::write(dir.join("outside.txt"), "outside").unwrap();
        std::os::unix::fs::symlink(dir.join("outside.txt"), dir.join("shared/link")).unwrap();
        let rule = PathRule::new(PathGlob::new(".env"), Access::Read, "is secret");
        let workspace = Workspace::new(
            [
                Root::writable(dir.join("shared")).with_name("shared"),
                Root::writable(dir.join("tmp")).with_name("tmp"),
                Root::readable(dir.join("vault")).with_name("vault"),
            ],
            PathRules::new([rule]),
            PathStyle::Virtual,
        );
        let ports = Ports::new(Arc::new(LocalHost::new()));
        Self { dir, session: Arc::new(Session::new("s", workspace, ports)), audit: Arc::default() }
    }

    fn tool(
        &self,
        profile: CapabilityProfile,
        body: &str,
        change: impl FnOnce(&mut WasmConfig),
    ) -> Result<Entry, Error> {
        self.made(profile, &format!("(module {PRELUDE} {body})"), change)
    }

    /// A tool from a whole text.
    pub(crate) fn made(
        &self,
        profile: CapabilityProfile,
        text: &str,
        change: impl FnOnce(&mut WasmConfig),
    ) -> Result<Entry, Error> {
        let module = self.dir.join("tool.wasm");
        fs::write(&module, wat::parse_str(text).unwrap()).unwrap();
        let mut settings = WasmConfig::new(module, definition(profile));
        change(&mut settings);
        let audit = self.audit.clone();
        wasm::load(settings, Arc::new(move |record| audit.lock().unwrap().push(serde_json::to_value(record).unwrap())))
    }

    /// What one call of a module with the usual limits says; an error in brackets.
    async fn says(&self, profile: CapabilityProfile, body: &str) -> String {
        self.says_of(&self.tool(profile, body, |_| ()).unwrap()).await
    }

    pub(crate) async fn says_of(&self, tool: &Entry) -> String {
        match tool.run(json!({"n": 1}), Call::new("1", self.session.clone())).await {
            Ok(reply) if reply.is_error => format!("[{}]", reply.text),
            Ok(reply) => reply.text,
            Err(error) => format!("[{error}]"),
        }
    }

    pub(crate) fn file(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.dir.join(path)).ok()
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.dir);
    }
}

pub(crate) fn definition(profile: CapabilityProfile) -> ModuleManifest {
    serde_json::from_value(json!({"name": "count", "description": "Counts.\u{202e}", "profile": profile})).unwrap()
}

#[tokio::test]
async fn a_call_is_one_object_in_and_one_out_and_leaves_a_record() {
    let desk = Desk::new();
    // Says its input, with the quotes made single.
    let echo = r#"(func (export "_start") (local $at i32) (local $end i32)
        (local.set $end (i32.add (i32.const 65536) (call $read (i32.const 0))))
        (local.set $at (i32.const 65536))
        (loop $next
          (if (i32.eq (i32.load8_u (local.get $at)) (i32.const 34)) (then (i32.store8 (local.get $at) (i32.const 39))))
          (local.set $at (i32.add (local.get $at) (i32.const 1)))
          (br_if $next (i32.lt_u (local.get $at) (local.get $end))))
        (call $say (i32.const 65536) (i32.sub (local.get $end) (i32.const 65536))))"#;
    let tool = desk.tool(CapabilityProfile::FileReadOnly, echo, |_| ()).unwrap();
    assert_eq!(tool.spec.description, "Counts.");
    assert_eq!(tool.spec.effects, Effects::READS);
    assert_eq!(desk.says_of(&tool).await, "{'op':'count','args':{'n':1}}");
    // Nothing of the first call is left for the second.
    assert_eq!(desk.says_of(&tool).await, "{'op':'count','args':{'n':1}}");
    let mounts = json!([
        {"path": "/shared", "access": "ro"}, {"path": "/tmp", "access": "ro"}, {"path": "/vault", "access": "ro"}
    ]);
    let record = |id: &str| json!({"request_id": id, "operation": "count", "tool_name": "count", "profile": "FileReadOnly", "mounts": mounts});
    assert_eq!(*desk.audit.lock().unwrap(), [record("count-1"), record("count-2")]);
    let reply = tool.run(json!({}), Call::new("1", desk.session.clone())).await.unwrap();
    assert_eq!(reply.notes, [format!("audit {}", record("count-3"))]);
}

#[tokio::test]
async fn reads_what_the_rules_allow_and_nothing_outside() {
    let desk = Desk::new();
    let mut said = Vec::new();
    for path in ["a.txt", "./b/../a.txt", "../outside.txt", "/etc/passwd", "link", ".env", "none", "a.txt/b"] {
        said.push(format!("{path}: {}", desk.says(CapabilityProfile::FileReadOnly, &reader(path)).await));
    }
    assert_eq!(
        said,
        [
            "a.txt: apple",
            "./b/../a.txt: apple",
            "../outside.txt: [errno 76]",
            "/etc/passwd: [errno 76]",
            "link: [errno 76]",
            ".env: [errno 02]",
            "none: [errno 44]",
            "a.txt/b: [errno 54]",
        ]
    );
}

#[tokio::test]
async fn each_profile_sees_its_own_folders() {
    let desk = Desk::new();
    // Says the names of all directories that are open at the start.
    let names = r#"(func (export "_start") (local $fd i32) (local $at i32)
        (local.set $fd (i32.const 3)) (local.set $at (i32.const 65536))
        (block $end (loop $next
          (br_if $end (call $fd_prestat_get (local.get $fd) (i32.const 32)))
          (call $check (call $fd_prestat_dir_name (local.get $fd) (local.get $at) (i32.load (i32.const 36))))
          (local.set $at (i32.add (local.get $at) (i32.load (i32.const 36))))
          (local.set $fd (i32.add (local.get $fd) (i32.const 1)))
          (br $next)))
        (call $say (i32.const 65536) (i32.sub (local.get $at) (i32.const 65536))))"#;
    let mut said = Vec::new();
    for profile in [
        CapabilityProfile::FileReadOnly,
        CapabilityProfile::FileReadWrite,
        CapabilityProfile::Web,
        CapabilityProfile::VaultReadStep,
        CapabilityProfile::VaultWriteStep,
    ] {
        said.push(format!("{profile} {}", desk.says(profile, names).await));
    }
    assert_eq!(
        said,
        [
            "FileReadOnly /shared/tmp/vault",
            "FileReadWrite /shared/tmp",
            "Web ",
            "VaultReadStep /vault",
            "VaultWriteStep /shared/tmp",
        ]
    );
    assert_eq!(desk.says(CapabilityProfile::VaultReadStep, &reader("v.txt")).await, "vault");
    assert_eq!(desk.says(CapabilityProfile::Web, &reader("a.txt")).await, "[errno 08]");
}

#[tokio::test]
async fn writes_only_with_a_profile_for_it() {
    let desk = Desk::new();
    assert_eq!(desk.says(CapabilityProfile::FileReadOnly, &writer("a.txt")).await, "[errno 69]");
    assert_eq!(desk.file("shared/a.txt").unwrap(), "apple");
    assert_eq!(desk.says(CapabilityProfile::FileReadWrite, &writer("a.txt")).await, "new");
    assert_eq!(desk.says(CapabilityProfile::FileReadWrite, &writer("b.txt")).await, "new");
    assert_eq!(desk.says(CapabilityProfile::FileReadWrite, &writer("none/b.txt")).await, "[errno 44]");
    assert_eq!(desk.says(CapabilityProfile::FileReadWrite, &writer("../b.txt")).await, "[errno 76]");
    assert_eq!(desk.says(CapabilityProfile::FileReadWrite, &writer(".env")).await, "[errno 02]");
    let files = ["shared/a.txt", "shared/b.txt", "b.txt", "shared/.env"].map(|it| desk.file(it));
    assert_eq!(files, [Some("new".into()), Some("new".into()), None, Some("secret".into())]);
}

#[tokio::test]
async fn makes_moves_lists_and_removes() {
    let desk = Desk::new();
    let body = r#"(data (i32.const 1024) "d") (data (i32.const 1032) "d/f") (data (i32.const 1040) "d/g")
        (data (i32.const 1048) "a.txt")
        (func (export "_start") (local $fd i32)
          (call $check (call $mkdir (i32.const 3) (i32.const 1024) (i32.const 1)))
          (local.set $fd (call $open (i32.const 1032) (i32.const 3) (i32.const 5) (i64.const 66)))
          (call $put (local.get $fd) (i32.const 1048) (i32.const 5))
          (call $check (call $rename (i32.const 3) (i32.const 1032) (i32.const 3) (i32.const 3) (i32.const 1040) (i32.const 3)))
          (call $put (local.get $fd) (i32.const 1048) (i32.const 1))
          (call $check (call $unlink (i32.const 3) (i32.const 1048) (i32.const 5)))
          (call $check (call $fd_readdir (call $open (i32.const 1024) (i32.const 1) (i32.const 2) (i64.const 2))
            (i32.const 65536) (i32.const 4096) (i64.const 0) (i32.const 40)))
          (call $say (i32.const 65560) (i32.sub (i32.load (i32.const 40)) (i32.const 24))))"#;
    assert_eq!(desk.says(CapabilityProfile::FileReadWrite, body).await, "g");
    let files = ["shared/d/f", "shared/d/g", "shared/a.txt"].map(|it| desk.file(it));
    // What was written last is kept, though the module never closed the file.
    assert_eq!(files, [None, Some("a.txta".into()), None]);
}

#[tokio::test]
async fn a_module_that_breaks_off_leaves_its_files_as_they_were() {
    let desk = Desk::new();
    let body = format!(
        r#"(data (i32.const 1024) "a.txt")
        (func (export "_start")
          (call $put (call $open (i32.const 1024) (i32.const 5) (i32.const 9) {WRITES}) (i32.const 512) (i32.const 7))
          (call $put (i32.const 2) (i32.const 1024) (i32.const 5))
          unreachable)"#
    );
    assert_eq!(
        desk.says(CapabilityProfile::FileReadWrite, &body).await,
        "[the module of count broke off: wasm `unreachable` instruction executed. It said: a.txt]"
    );
    assert_eq!(desk.file("shared/a.txt").unwrap(), "apple");
}

#[tokio::test]
async fn a_change_by_somebody_else_is_not_overwritten() {
    let desk = Desk::new();
    let body = r#"(data (i32.const 1024) "a.txt")
        (func (export "_start") (local $one i32) (local $two i32)
          (local.set $one (call $open (i32.const 1024) (i32.const 5) (i32.const 0) (i64.const 66)))
          (local.set $two (call $open (i32.const 1024) (i32.const 5) (i32.const 0) (i64.const 66)))
          (call $put (local.get $one) (i32.const 512) (i32.const 1))
          (call $put (local.get $two) (i32.const 1024) (i32.const 1))
          (call $check (call $fd_close (local.get $one)))
          (call $check (call $fd_close (local.get $two)))
          (call $say (i32.const 1024) (i32.const 1)))"#;
    assert_eq!(desk.says(CapabilityProfile::FileReadWrite, body).await, "[errno 72]");
    assert_eq!(desk.file("shared/a.txt").unwrap(), "{pple");
}

#[tokio::test]
async fn an_endless_loop_ends_by_steps_by_time_and_with_its_caller() {
    let desk = Desk::new();
    let body = r#"(func (export "_start") (loop $again (br $again)))"#;
    let tool = desk.tool(CapabilityProfile::Web, body, |it| it.fuel = 100_000).unwrap();
    assert_eq!(desk.says_of(&tool).await, "[the module of count was ended after 100000 steps; give it less to do.]");
    let tool = desk.tool(CapabilityProfile::Web, body, |it| it.deadline = Duration::from_millis(50)).unwrap();
    assert_eq!(desk.says_of(&tool).await, "[timed out after 50 ms]");
    let call = Call::new("1", desk.session.clone());
    call.cancel.cancel();
    let ended = desk.tool(CapabilityProfile::Web, body, |_| ()).unwrap().run(json!({}), call).await;
    assert!(matches!(ended, Err(Error::Cancelled)));
}

#[tokio::test]
async fn a_sleeping_module_ends_in_time() {
    let desk = Desk::new();
    let body = r#"(data (i32.const 1048) "\ff\ff\ff\ff\ff\ff\ff\0f")
        (func (export "_start")
          (call $check (call $poll (i32.const 1024) (i32.const 2048) (i32.const 1) (i32.const 8))))"#;
    let tool = desk.tool(CapabilityProfile::Web, body, |it| it.deadline = Duration::from_millis(50)).unwrap();
    assert_eq!(desk.says_of(&tool).await, "[timed out after 50 ms]");
}

#[tokio::test]
async fn memory_output_and_depth_have_limits() {
    let desk = Desk::new();
    let grow = r#"(func (export "_start") (loop $again (drop (memory.grow (i32.const 16))) (br $again)))"#;
    let flood = r#"(func (export "_start") (loop $again (call $put (i32.const 1) (i32.const 0) (i32.const 262144)) (br $again)))"#;
    let deep = r#"(func $deep (export "_start") (call $deep) (call $exit (i32.const 0)))"#;
    let mut said = Vec::new();
    for body in [grow, flood, deep] {
        said.push(desk.says(CapabilityProfile::Web, body).await);
    }
    assert_eq!(
        said,
        [
            "[the module of count wanted more than 67108864 bytes of memory and was ended.]",
            "[the module of count wrote more than 16777216 bytes and was ended.]",
            "[the module of count broke off: its functions call each other too deeply.]",
        ]
    );
}

#[tokio::test]
async fn more_than_its_memory_is_neither_begun_with_nor_read() {
    let desk = Desk::new();
    let tool = desk.tool(CapabilityProfile::FileReadOnly, &reader("big"), |it| it.memory = 4 * 65536).unwrap();
    fs::write(desk.dir.join("shared/big"), vec![b'x'; 300_000]).unwrap();
    assert_eq!(desk.says_of(&tool).await, "[errno 22]");
    let tool = desk.tool(CapabilityProfile::FileReadOnly, &reader("a.txt"), |it| it.memory = 3 * 65536).unwrap();
    let said = desk.says_of(&tool).await;
    assert_eq!(said, "[the module of count wanted more than 196608 bytes of memory and was ended.]");
}

#[tokio::test]
async fn no_argument_brings_it_down() {
    const CALLS: &[(&str, &[&str])] = &[
        ("args_sizes_get", &["i32", "i32"]),
        ("args_get", &["i32", "i32"]),
        ("environ_sizes_get", &["i32", "i32"]),
        ("clock_res_get", &["i32", "i32"]),
        ("clock_time_get", &["i32", "i64", "i32"]),
        ("random_get", &["i32", "i32"]),
        ("fd_read", &["i32", "i32", "i32", "i32"]),
        ("fd_pread", &["i32", "i32", "i32", "i64", "i32"]),
        ("fd_write", &["i32", "i32", "i32", "i32"]),
        ("fd_pwrite", &["i32", "i32", "i32", "i64", "i32"]),
        ("fd_seek", &["i32", "i64", "i32", "i32"]),
        ("fd_tell", &["i32", "i32"]),
        ("fd_sync", &["i32"]),
        ("fd_fdstat_get", &["i32", "i32"]),
        ("fd_fdstat_set_flags", &["i32", "i32"]),
        ("fd_filestat_get", &["i32", "i32"]),
        ("fd_filestat_set_size", &["i32", "i64"]),
        ("fd_prestat_get", &["i32", "i32"]),
        ("fd_prestat_dir_name", &["i32", "i32", "i32"]),
        ("fd_readdir", &["i32", "i32", "i32", "i64", "i32"]),
        ("path_open", &["i32", "i32", "i32", "i32", "i32", "i64", "i64", "i32", "i32"]),
        ("path_filestat_get", &["i32", "i32", "i32", "i32", "i32"]),
        ("path_create_directory", &["i32", "i32", "i32"]),
        ("path_remove_directory", &["i32", "i32", "i32"]),
        ("path_unlink_file", &["i32", "i32", "i32"]),
        ("path_rename", &["i32", "i32", "i32", "i32", "i32", "i32"]),
        ("fd_close", &["i32"]),
        ("poll_oneoff", &["i32", "i32", "i32", "i32"]),
    ];
    const VALUES: [i64; 12] = [0, 1, 2, 3, 4, 5, 64, 1024, 65535, 65536, i64::MAX, -1];
    let desk = Desk::new();
    let mut seed = 7_u64;
    let mut pick = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        VALUES[(seed >> 33) as usize % VALUES.len()]
    };
    let mut imports = String::new();
    let mut calls = String::new();
    for (name, params) in CALLS {
        let kinds = params.join(" ");
        imports +=
            &format!(r#"(import "wasi_snapshot_preview1" "{name}" (func $x_{name} (param {kinds}) (result i32)))"#);
        for _ in 0..60 {
            let args = params.iter().map(|kind| match *kind {
                "i32" => format!("(i32.const {})", pick() as i32),
                _ => format!("(i64.const {})", pick()),
            });
            calls += &format!("(drop (call $x_{name} {}))", args.collect::<String>());
        }
    }
    let text = format!(
        r#"(module {imports} (memory (export "memory") 1) (data (i32.const 1024) "a.txt")
        (data (i32.const 64) "\00\04\00\00\05\00\00\00") (func (export "_start") {calls}))"#
    );
    let module = desk.dir.join("wild.wasm");
    fs::write(&module, wat::parse_str(text).unwrap()).unwrap();
    let mut settings = WasmConfig::new(module, definition(CapabilityProfile::FileReadWrite));
    settings.deadline = Duration::from_secs(2);
    let tool = wasm::load(settings, Arc::new(|_| ())).unwrap();
    let ended = tool.run(json!({}), Call::new("1", desk.session.clone())).await;
    assert!(matches!(ended, Err(Error::Failed(_) | Error::Timeout(_))), "{ended:?}");
    assert_eq!(desk.file("vault/v.txt").unwrap(), "vault");
    assert_eq!(desk.file("outside.txt").unwrap(), "outside");
}

#[tokio::test]
async fn what_is_no_answer_is_told() {
    let desk = Desk::new();
    let noise = r#"(func (export "_start") (call $put (i32.const 1) (i32.const 512) (i32.const 5)))"#;
    let silent = r#"(func (export "_start") (call $exit (i32.const 3)))"#;
    let lie = r#"(func (export "_start") (call $say (i32.const 512) (i32.const 0)) (call $exit (i32.const 1)))"#;
    let missing = r#"(func (export "_start") (call $check (call $sock_shutdown (i32.const 3) (i32.const 0))))"#;
    let wild = r#"(func (export "_start")
        (call $check (call $fd_read (i32.const 0) (i32.const -4) (i32.const 1) (i32.const -1))))"#;
    let mut said = Vec::new();
    for body in [noise, silent, lie, missing, wild] {
        said.push(desk.says(CapabilityProfile::Web, body).await);
    }
    assert_eq!(
        said,
        [
            "[the module of count did not answer with one JSON object {\"ok\": text} or {\"err\": text}.]",
            "[the module of count ended with code 3 and without an error of its own.]",
            "[the module of count ended with code 1 and without an error of its own.]",
            "[errno 52]",
            "[errno 21]",
        ]
    );
}

#[tokio::test]
async fn a_session_with_one_unnamed_root_calls_it_shared() {
    let desk = Desk::new();
    let ports = desk.session.ports.clone();
    let workspace =
        Workspace::new([Root::writable(desk.dir.join("shared"))], PathRules::default(), PathStyle::Absolute);
    let call = Call::new("1", Arc::new(Session::new("t", workspace, ports)));
    let tool = desk.tool(CapabilityProfile::FileReadOnly, &reader("a.txt"), |_| ()).unwrap();
    assert_eq!(tool.run(json!({}), call).await.unwrap().text, "apple");
}

#[test]
fn what_cannot_be_a_tool_is_refused_at_once() {
    let desk = Desk::new();
    let refused = |bytes: &[u8], change: &dyn Fn(&mut WasmConfig)| {
        let module = desk.dir.join("bad.wasm");
        fs::write(&module, bytes).unwrap();
        let mut settings = WasmConfig::new(&module, definition(CapabilityProfile::Web));
        change(&mut settings);
        let error = wasm::load(settings, Arc::new(|_| ())).err().unwrap().to_string();
        error.replace(module.to_str().unwrap(), "M")
    };
    let import =
        wat::parse_str(r#"(module (import "env" "f" (func)) (memory (export "memory") 1) (func (export "_start")))"#)
            .unwrap();
    let seen = [
        refused(b"\0asm\x0d\0\x01\0", &|_| ()),
        refused(b"\0asm\x01\0\0\0", &|_| ()),
        refused(&import, &|_| ()),
        refused(&import, &|it| it.definition.name = "a b".into()),
        refused(&import, &|it| it.definition.parameters = json!({ "type": "string" })),
        refused(&import, &|it| it.definition.operation = Some("file_read".into())),
        refused(&import, &|it| it.definition.effects = vec!["eats".into()]),
    ];
    assert_eq!(
        seen,
        [
            "the module M: it exports no `wasi:cli/run`; build it as a program, not as a library",
            "the module M: it exports no `_start` and `memory`; build it as a program, not as a library",
            "the module M: it needs `f` of `env`, which is not offered; a tool may only import functions of wasi_snapshot_preview1",
            "the module M: the tool \"a b\" cannot be called: a tool's name has 1 to 64 letters, digits, `_` and `-`",
            "the module M: the tool \"count\" cannot be called: its schema does not describe an object; write \"type\": \"object\"",
            "the module M: file_read runs with the profile FileReadOnly, not Web",
            "the module M: \"eats\" is no effect; there are reads, writes, network, executes, spawns, blocks, destroys, notes, sends",
        ]
    );
}

#[tokio::test]
async fn a_definition_may_lie_beside_the_module() {
    let desk = Desk::new();
    let module = desk.dir.join("count.wasm");
    let body = r#"(data (i32.const 1024) "hi") (func (export "_start") (call $say (i32.const 1024) (i32.const 2)))"#;
    fs::write(&module, wat::parse_str(format!("(module {PRELUDE} {body})")).unwrap()).unwrap();
    let sidecar = json!({"name": "hi", "description": "Says hi.", "profile": "web", "effects": ["network"],
        "parameters": {"properties": {"to": {"type": "string"}}}});
    fs::write(desk.dir.join("count.json"), sidecar.to_string()).unwrap();
    let tool = wasm::load(WasmConfig::from_module(&module).unwrap(), Arc::new(|_| ())).unwrap();
    assert_eq!((tool.spec.name.as_str(), tool.spec.effects), ("hi", Effects::NETWORK));
    assert_eq!(tool.spec.input_schema, json!({"properties": {"to": {"type": "string"}}, "type": "object"}));
    assert_eq!(desk.says_of(&tool).await, "hi");
}
