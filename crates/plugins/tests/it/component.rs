//! Components made from text: the same directories, limits and records as plain modules.

use std::{sync::Arc, time::Duration};

use helve_contract::Effects;
use helve_plugins::wasm::{self, CapabilityProfile, WasmConfig};
use serde_json::json;

use crate::wasm::{Desk, definition};

/// Time enough on any machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// What every component below asks for, in the types of WASI 0.2, and the memory it has.
const WORLD: &str = r#"
  (import "wasi:io/error@0.2.3" (instance $error (export "error" (type (sub resource)))))
  (alias export $error "error" (type $e))
  (import "wasi:io/streams@0.2.3" (instance $streams
    (alias outer 1 $e (type $e0))
    (export "error" (type $err (eq $e0)))
    (export "input-stream" (type $in (sub resource)))
    (export "output-stream" (type $out (sub resource)))
    (type $se (variant (case "last-operation-failed" (own $err)) (case "closed")))
    (export "stream-error" (type $stream-error (eq $se)))
    (export "[method]input-stream.blocking-read"
      (func (param "self" (borrow $in)) (param "len" u64) (result (result (list u8) (error $stream-error)))))
    (export "[method]output-stream.blocking-write-and-flush"
      (func (param "self" (borrow $out)) (param "contents" (list u8)) (result (result (error $stream-error)))))))
  (alias export $streams "input-stream" (type $in))
  (alias export $streams "output-stream" (type $out))
  (import "wasi:cli/exit@0.2.3" (instance $exit (export "exit" (func (param "status" (result))))))
  (import "wasi:cli/stdin@0.2.3" (instance $stdin
    (alias outer 1 $in (type $i)) (export "input-stream" (type $in' (eq $i)))
    (export "get-stdin" (func (result (own $in'))))))
  (import "wasi:cli/stdout@0.2.3" (instance $stdout
    (alias outer 1 $out (type $o)) (export "output-stream" (type $out' (eq $o)))
    (export "get-stdout" (func (result (own $out'))))))
  (import "wasi:random/random@0.2.3" (instance $random
    (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
  (import "wasi:filesystem/types@0.2.3" (instance $types
    (alias outer 1 $in (type $i)) (alias outer 1 $out (type $o))
    (export "input-stream" (type $in' (eq $i))) (export "output-stream" (type $out' (eq $o)))
    (export "descriptor" (type $descriptor (sub resource)))
    (type $ec (enum "access" "would-block" "already" "bad-descriptor" "busy" "deadlock" "quota" "exist"
      "file-too-large" "illegal-byte-sequence" "in-progress" "interrupted" "invalid" "io" "is-directory" "loop"
      "too-many-links" "message-size" "name-too-long" "no-device" "no-entry" "no-lock" "insufficient-memory"
      "insufficient-space" "not-directory" "not-empty" "not-recoverable" "unsupported" "no-tty" "no-such-device"
      "overflow" "not-permitted" "pipe" "read-only" "invalid-seek" "text-file-busy" "cross-device"))
    (export "error-code" (type $error-code (eq $ec)))
    (type $pf (flags "symlink-follow"))
    (export "path-flags" (type $path-flags (eq $pf)))
    (type $of (flags "create" "directory" "exclusive" "truncate"))
    (export "open-flags" (type $open-flags (eq $of)))
    (type $df (flags "read" "write" "file-integrity-sync" "data-integrity-sync" "requested-write-sync"
      "mutate-directory"))
    (export "descriptor-flags" (type $descriptor-flags (eq $df)))
    (export "[method]descriptor.open-at"
      (func (param "self" (borrow $descriptor)) (param "path-flags" $path-flags) (param "path" string)
        (param "open-flags" $open-flags) (param "flags" $descriptor-flags)
        (result (result (own $descriptor) (error $error-code)))))
    (export "[method]descriptor.read-via-stream"
      (func (param "self" (borrow $descriptor)) (param "offset" u64)
        (result (result (own $in') (error $error-code)))))
    (export "[method]descriptor.write-via-stream"
      (func (param "self" (borrow $descriptor)) (param "offset" u64)
        (result (result (own $out') (error $error-code)))))))
  (alias export $types "descriptor" (type $descriptor))
  (import "wasi:filesystem/preopens@0.2.3" (instance $preopens
    (alias outer 1 $descriptor (type $d)) (export "descriptor" (type $d' (eq $d)))
    (export "get-directories" (func (result (list (tuple (own $d') string)))))))
"#;

/// Room for what the host brings, from 131072 on.
const PLAIN: &str = r#"
  (core module $Libc
    (memory (export "memory") 16)
    (global $next (mut i32) (i32.const 131072))
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $next) (i32.const 7)) (i32.const -8)))
      (global.set $next (i32.add (local.get $at) (local.get 3)))
      (local.get $at)))
  (core instance $libc (instantiate $Libc))
"#;

const LOWERED: &str = r#"
  (alias core export $libc "memory" (core memory $m))
  (alias core export $libc "cabi_realloc" (core func $realloc))
  (core func $read (canon lower (func $streams "[method]input-stream.blocking-read") (memory $m) (realloc $realloc)))
  (core func $write
    (canon lower (func $streams "[method]output-stream.blocking-write-and-flush") (memory $m) (realloc $realloc)))
  (core func $exit' (canon lower (func $exit "exit")))
  (core func $stdin' (canon lower (func $stdin "get-stdin")))
  (core func $stdout' (canon lower (func $stdout "get-stdout")))
  (core func $random' (canon lower (func $random "get-random-bytes") (memory $m) (realloc $realloc)))
  (core func $folders (canon lower (func $preopens "get-directories") (memory $m) (realloc $realloc)))
  (core func $open (canon lower (func $types "[method]descriptor.open-at") (memory $m) (realloc $realloc)))
  (core func $reads (canon lower (func $types "[method]descriptor.read-via-stream") (memory $m)))
  (core func $writes (canon lower (func $types "[method]descriptor.write-via-stream") (memory $m)))
  (core func $close (canon resource.drop $descriptor))
  (core func $close-out (canon resource.drop $out))
  (core instance $host
    (export "read" (func $read)) (export "write" (func $write)) (export "exit" (func $exit'))
    (export "stdin" (func $stdin')) (export "stdout" (func $stdout')) (export "random" (func $random'))
    (export "folders" (func $folders)) (export "open" (func $open)) (export "reads" (func $reads))
    (export "writes" (func $writes)) (export "close" (func $close)) (export "close-out" (func $close-out)))
"#;

/// Memory: results at 32, data from 1024.
const MAIN: &str = r#"
    (import "libc" "memory" (memory 16))
    (import "host" "read" (func $read (param i32 i64 i32)))
    (import "host" "write" (func $write (param i32 i32 i32 i32)))
    (import "host" "exit" (func $exit (param i32)))
    (import "host" "stdin" (func $stdin (result i32)))
    (import "host" "stdout" (func $stdout (result i32)))
    (import "host" "random" (func $random (param i64 i32)))
    (import "host" "folders" (func $folders (param i32)))
    (import "host" "open" (func $open (param i32 i32 i32 i32 i32 i32 i32)))
    (import "host" "reads" (func $reads (param i32 i64 i32)))
    (import "host" "writes" (func $writes (param i32 i64 i32)))
    (import "host" "close" (func $close (param i32)))
    (import "host" "close-out" (func $close-out (param i32)))
    (data (i32.const 512) "{\"ok\":\"") (data (i32.const 528) "\"}") (data (i32.const 544) "{\"err\":\"code ")
    (func $put (param $at i32) (param $len i32)
      (call $write (call $stdout) (local.get $at) (local.get $len) (i32.const 32)))
    (func $say (param $at i32) (param $len i32)
      (call $put (i32.const 512) (i32.const 7)) (call $put (local.get $at) (local.get $len))
      (call $put (i32.const 528) (i32.const 2)))
    (func $check (param $at i32) (local $code i32)
      (local.set $code (i32.load8_u offset=4 (local.get $at)))
      (if (i32.load8_u (local.get $at)) (then
        (call $put (i32.const 544) (i32.const 13))
        (i32.store8 (i32.const 16) (i32.add (i32.const 48) (i32.div_u (local.get $code) (i32.const 10))))
        (i32.store8 (i32.const 17) (i32.add (i32.const 48) (i32.rem_u (local.get $code) (i32.const 10))))
        (call $put (i32.const 16) (i32.const 2))
        (call $put (i32.const 528) (i32.const 2))
        (call $exit (i32.const 1)))))
    (func $file (param $at i32) (param $len i32) (param $how i32) (param $flags i32) (result i32)
      (call $folders (i32.const 40))
      (call $open (i32.load (i32.load (i32.const 40))) (i32.const 1) (local.get $at) (local.get $len)
        (local.get $how) (local.get $flags) (i32.const 48))
      (call $check (i32.const 48))
      (i32.load (i32.const 52)))
    (func $say-stream (param $stream i32)
      (call $read (local.get $stream) (i64.const 60000) (i32.const 56))
      (call $check (i32.const 56))
      (call $say (i32.load (i32.const 60)) (i32.load (i32.const 64))))
"#;

/// A program whose `run` is in `body`.
fn component(libc: &str, body: &str) -> String {
    format!(
        r#"(component {WORLD} {libc} {LOWERED}
          (core module $Main {MAIN} {body})
          (core instance $main (instantiate $Main (with "libc" (instance $libc)) (with "host" (instance $host))))
          (func $run (result (result)) (canon lift (core func $main "run")))
          (instance $runs (export "run" (func $run)))
          (export "wasi:cli/run@0.2.3" (instance $runs)))"#
    )
}

fn plain(body: &str) -> String {
    component(PLAIN, body)
}

fn reader(path: &str) -> String {
    let len = path.len();
    plain(&format!(
        r#"(data (i32.const 1024) "{path}")
        (func (export "run") (result i32)
          (call $reads (call $file (i32.const 1024) (i32.const {len}) (i32.const 0) (i32.const 1)) (i64.const 0) (i32.const 72))
          (call $check (i32.const 72))
          (call $say-stream (i32.load (i32.const 76)))
          (i32.const 0))"#
    ))
}

/// Writes `new` to a path, made or emptied first.
fn writer(path: &str) -> String {
    let len = path.len();
    plain(&format!(
        r#"(data (i32.const 1024) "{path}") (data (i32.const 2048) "new")
        (func (export "run") (result i32) (local $file i32)
          (local.set $file (call $file (i32.const 1024) (i32.const {len}) (i32.const 9) (i32.const 2)))
          (call $writes (local.get $file) (i64.const 0) (i32.const 72))
          (call $check (i32.const 72))
          (call $close (local.get $file))
          (call $write (i32.load (i32.const 76)) (i32.const 2048) (i32.const 3) (i32.const 32))
          (call $close-out (i32.load (i32.const 76)))
          (call $say (i32.const 2048) (i32.const 3))
          (i32.const 0))"#
    ))
}

#[tokio::test]
async fn a_component_is_called_as_a_module_is() {
    let desk = Desk::new();
    // Says its input, with the quotes made single.
    let echo = plain(
        r#"(func (export "run") (result i32) (local $at i32) (local $end i32)
          (call $read (call $stdin) (i64.const 60000) (i32.const 56))
          (local.set $at (i32.load (i32.const 60)))
          (local.set $end (i32.add (local.get $at) (i32.load (i32.const 64))))
          (loop $next
            (if (i32.eq (i32.load8_u (local.get $at)) (i32.const 34)) (then (i32.store8 (local.get $at) (i32.const 39))))
            (local.set $at (i32.add (local.get $at) (i32.const 1)))
            (br_if $next (i32.lt_u (local.get $at) (local.get $end))))
          (call $say (i32.load (i32.const 60)) (i32.load (i32.const 64)))
          (i32.const 0))"#,
    );
    let tool = desk.made(CapabilityProfile::FileReadOnly, &echo, |_| ()).unwrap();
    assert_eq!(tool.spec.effects, Effects::READS);
    assert_eq!(desk.says_of(&tool).await, "{'op':'count','args':{'n':1}}");
    // Nothing of the first call is left for the second.
    assert_eq!(desk.says_of(&tool).await, "{'op':'count','args':{'n':1}}");
    let mounts = json!([
        {"path": "/shared", "access": "ro"}, {"path": "/tmp", "access": "ro"}, {"path": "/vault", "access": "ro"}
    ]);
    let record = |id: &str| json!({"request_id": id, "operation": "count", "tool_name": "count", "profile": "FileReadOnly", "mounts": mounts});
    assert_eq!(*desk.audit.lock().unwrap(), [record("count-1"), record("count-2")]);
}

#[tokio::test]
async fn reads_what_the_rules_allow_and_nothing_outside() {
    let desk = Desk::new();
    let mut said = Vec::new();
    for path in ["a.txt", "./b/../a.txt", "../outside.txt", "/etc/passwd", "link", ".env", "none", "a.txt/b"] {
        let tool = desk.made(CapabilityProfile::FileReadOnly, &reader(path), |_| ()).unwrap();
        said.push(format!("{path}: {}", desk.says_of(&tool).await));
    }
    assert_eq!(
        said,
        [
            "a.txt: apple",
            "./b/../a.txt: apple",
            "../outside.txt: [code 31]",
            "/etc/passwd: [code 31]",
            "link: [code 31]",
            ".env: [code 00]",
            "none: [code 20]",
            "a.txt/b: [code 24]",
        ]
    );
}

#[tokio::test]
async fn writes_only_with_a_profile_for_it() {
    let desk = Desk::new();
    let mut said = Vec::new();
    for (profile, path) in [
        (CapabilityProfile::FileReadOnly, "a.txt"),
        (CapabilityProfile::FileReadWrite, "a.txt"),
        (CapabilityProfile::FileReadWrite, "b.txt"),
        (CapabilityProfile::FileReadWrite, "../b.txt"),
        (CapabilityProfile::FileReadWrite, ".env"),
    ] {
        let tool = desk.made(profile, &writer(path), |_| ()).unwrap();
        said.push(desk.says_of(&tool).await);
    }
    assert_eq!(said, ["[code 33]", "new", "new", "[code 31]", "[code 00]"]);
    let files = ["shared/a.txt", "shared/b.txt", "b.txt", "shared/.env"].map(|it| desk.file(it));
    assert_eq!(files, [Some("new".into()), Some("new".into()), None, Some("secret".into())]);
}

#[tokio::test]
async fn a_change_by_somebody_else_is_not_overwritten() {
    let desk = Desk::new();
    // Two that have the file open; letting go of one writes it, and the other cannot be told.
    let tool = plain(
        r#"(data (i32.const 1024) "a.txt")
        (func $half (result i32) (local $file i32)
          (local.set $file (call $file (i32.const 1024) (i32.const 5) (i32.const 0) (i32.const 3)))
          (call $writes (local.get $file) (i64.const 0) (i32.const 72))
          (call $close (local.get $file))
          (call $write (i32.load (i32.const 76)) (i32.const 512) (i32.const 1) (i32.const 32))
          (i32.load (i32.const 76)))
        (func (export "run") (result i32) (local $one i32) (local $file i32)
          (local.set $file (call $file (i32.const 1024) (i32.const 5) (i32.const 0) (i32.const 3)))
          (call $writes (local.get $file) (i64.const 1) (i32.const 72))
          (local.set $one (i32.load (i32.const 76)))
          (call $write (call $half) (i32.const 1024) (i32.const 1) (i32.const 32))
          (call $close-out (i32.load (i32.const 76)))
          (call $write (local.get $one) (i32.const 528) (i32.const 1) (i32.const 32))
          (call $close-out (local.get $one))
          (call $close (local.get $file))
          (call $say (i32.const 1024) (i32.const 1))
          (i32.const 0))"#,
    );
    let tool = desk.made(CapabilityProfile::FileReadWrite, &tool, |_| ()).unwrap();
    let said = desk.says_of(&tool).await;
    assert_eq!(said, "[the module of count ended with a file that could not be written (error 72).]");
    assert_eq!(desk.file("shared/a.txt").unwrap(), "{aple");
}

#[tokio::test]
async fn steps_time_memory_and_output_have_limits() {
    let desk = Desk::new();
    let run = |body: &str| plain(&format!(r#"(func (export "run") (result i32) {body} (i32.const 0))"#));
    let endless = run("(loop $again (br $again))");
    let grows = run("(loop $again (drop (memory.grow (i32.const 16))) (br $again))");
    let floods = run("(local $out i32) (local.set $out (call $stdout))
        (loop $again (call $write (local.get $out) (i32.const 0) (i32.const 262144) (i32.const 32)) (br $again))");
    let holds = run("(loop $again (drop (call $stdout)) (br $again))");
    let mut said = Vec::new();
    for (text, fuel) in [(&endless, 100_000), (&grows, u64::MAX), (&floods, u64::MAX), (&holds, u64::MAX)] {
        let tool = desk.made(CapabilityProfile::Web, text, |it| (it.fuel, it.deadline) = (fuel, PATIENCE)).unwrap();
        said.push(desk.says_of(&tool).await);
    }
    let tool = desk.made(CapabilityProfile::Web, &endless, |it| it.deadline = Duration::from_millis(50)).unwrap();
    said.push(desk.says_of(&tool).await);
    assert_eq!(
        said,
        [
            "[the module of count was ended after 100000 steps; give it less to do.]",
            "[the module of count wanted more than 67108864 bytes of memory and was ended.]",
            "[the module of count wrote more than 16777216 bytes and was ended.]",
            "[the module of count broke off: it holds too many things at once.]",
            "[timed out after 50 ms]",
        ]
    );
}

#[tokio::test]
async fn what_breaks_the_rules_is_ended() {
    let desk = Desk::new();
    let run = |body: &str| plain(&format!(r#"(func (export "run") (result i32) {body} (i32.const 0))"#));
    let mut said = Vec::new();
    for text in [
        run("(call $close (i32.const 7))"),
        run("(call $read (call $stdout) (i64.const 1) (i32.const 32))"),
        run("(call $write (call $stdout) (i32.const -4) (i32.const 8) (i32.const 32))"),
        run("(call $random (i64.const 5) (i32.const -1))"),
        run("(call $random (i64.const -1) (i32.const 32))"),
        run("unreachable"),
        plain(r#"(func (export "run") (result i32) (i32.const 1))"#),
        component(&PLAIN.replace("(local.get $at)))", "(i32.const -8)))"), &say_random()),
        component(&PLAIN.replace("(local.get $at)))", "unreachable))"), &say_random()),
        component(&PLAIN.replace("(local.get $at)))", "(loop $again (br $again)) (local.get $at)))"), &say_random()),
    ] {
        let tool = desk.made(CapabilityProfile::Web, &text, |it| (it.fuel, it.deadline) = (100_000, PATIENCE)).unwrap();
        said.push(desk.says_of(&tool).await.replace("the module of count ", ""));
    }
    assert_eq!(
        said,
        [
            "[broke off: it names something that it does not hold.]",
            "[broke off: it takes one thing for another.]",
            "[broke off: a place of it is outside of its memory.]",
            "[broke off: a place of it is outside of its memory.]",
            "[broke off: it wants too many random bytes at once.]",
            "[broke off: wasm `unreachable` instruction executed.]",
            "[ended with code 1 and without an error of its own.]",
            "[broke off: a place of it is outside of its memory.]",
            "[broke off: wasm `unreachable` instruction executed.]",
            "[broke off: it takes too long to find room.]",
        ]
    );
}

fn say_random() -> String {
    r#"(func (export "run") (result i32) (call $random (i64.const 5) (i32.const 32)) (i32.const 0))"#.into()
}

/// A module that gives room by calling the host, which asks it for room, and so on.
#[tokio::test]
async fn asking_for_room_leads_to_no_endless_calls() {
    let desk = Desk::new();
    let text = format!(
        r#"(component {WORLD}
          (core module $Table (table (export "t") 1 funcref) (memory (export "memory") 1)
            (type $random (func (param i64 i32)))
            (func (export "random") (param i64 i32)
              (call_indirect (type $random) (local.get 0) (local.get 1) (i32.const 0)))
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
              (call_indirect (type $random) (i64.const 8) (i32.const 64) (i32.const 0)) (i32.const 128)))
          (core instance $table (instantiate $Table))
          (alias core export $table "memory" (core memory $m))
          (alias core export $table "t" (core table $t))
          (alias core export $table "cabi_realloc" (core func $realloc))
          (core func $random' (canon lower (func $random "get-random-bytes") (memory $m) (realloc $realloc)))
          (core module $Fill (import "" "t" (table 1 funcref)) (import "" "f" (func $f (param i64 i32)))
            (elem (i32.const 0) func $f)
            (func $start (call $f (i64.const 0) (i32.const 64))) (start $start))
          (core instance (instantiate $Fill (with "" (instance (export "t" (table $t)) (export "f" (func $random'))))))
          (core module $Main (import "" "random" (func $random (param i64 i32)))
            (func (export "run") (result i32) (call $random (i64.const 8) (i32.const 64)) (i32.const 0)))
          (core instance $main (instantiate $Main (with "" (instance $table))))
          (func $run (result (result)) (canon lift (core func $main "run")))
          (component $Shell (import "run" (func $f (result (result)))) (export "run" (func $f)))
          (instance $runs (instantiate $Shell (with "run" (func $run))))
          (export "wasi:cli/run@0.2.3" (instance $runs)))"#
    );
    let tool = desk.made(CapabilityProfile::Web, &text, |_| ()).unwrap();
    let said = desk.says_of(&tool).await;
    assert_eq!(said, "[the module of count broke off: it calls the host while the host waits for room.]");
}

#[test]
fn what_is_not_offered_is_named() {
    let desk = Desk::new();
    let refused = |text: &str| {
        let module = desk.dir.join("bad.wasm");
        std::fs::write(&module, wat::parse_str(text).unwrap()).unwrap();
        let settings = WasmConfig::new(&module, definition(CapabilityProfile::Web));
        let error = wasm::load(settings, Arc::new(|_| ())).err().unwrap().to_string();
        error.replace(module.to_str().unwrap(), "M")
    };
    let asks = |interface: &str, name: &str| {
        format!(
            r#"(component (import "{interface}" (instance $i (export "{name}" (func))))
              (core func (canon lower (func $i "{name}"))))"#
        )
    };
    let offered = "which is not offered; a tool may use wasi:cli, wasi:io, wasi:clocks, wasi:random and \
                   wasi:filesystem, version 0.2";
    assert_eq!(
        [
            refused("(component)"),
            refused(&asks("wasi:http/outgoing-handler@0.2.3", "handle")),
            refused(&asks("wasi:cli/exit@0.3.0", "exit")),
            refused("(component (core module (memory 1)) (core module (memory 1)))"),
            refused(
                r#"(component (core module (func (export "f"))) (core instance $i (instantiate 0))
                (func $f (canon lift (core func $i "f"))) (core func (canon lower (func $f))))"#
            ),
        ],
        [
            "the module M: it exports no `wasi:cli/run`; build it as a program, not as a library".to_owned(),
            format!("the module M: it needs `handle` of `wasi:http/outgoing-handler@0.2.3`, {offered}"),
            format!("the module M: it needs `exit` of `wasi:cli/exit@0.3.0`, {offered}"),
            "the module M: it has more than one memory: components that were joined into one do not run here".into(),
            "the module M: a part of it calls another: such components do not run here".into(),
        ]
    );
}
