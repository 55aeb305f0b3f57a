//! How the binaries are linked: position independent, with relocations in the short form where this machine's loader
//! knows it (glibc 2.36 or later), and with what every start and most calls need in one place.
//! `HELVE_BUILD_OLD_GLIBC=1` makes a binary that runs on older systems, too.
//!
//! What is needed lies in three megabytes of forty. `hot.txt` names it, and the linker puts it together: it is read from
//! the disk in fewer pieces, and half of the memory that it takes at a start is not taken. `bench/hot` writes that file
//! anew. The names hold for one version of the compiler and of each dependency; a name that is no longer there changes
//! nothing, and with another linker than rustc's own there is no such order.

use std::{env, fs, path::Path, process::Command};

const PACKED: &str = "-Wl,-z,pack-relative-relocs";
const HOT: &str = "hot.txt";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is_wished = |name: &str| {
        println!("cargo:rerun-if-env-changed={name}");
        env::var_os(name).is_some_and(|it| it != "0")
    };
    let old = is_wished("HELVE_BUILD_OLD_GLIBC");
    let names = is_wished("HELVE_BUILD_NAMES");
    let is_release = env::var("PROFILE").is_ok_and(|it| it == "release");
    if is_release && !names {
        println!("cargo:rustc-link-arg-bins=-s");
    }
    if !is_for_this_machine() {
        return;
    }
    println!("cargo:rerun-if-changed={HOT}");
    let order = is_release.then(ordered).flatten();
    for it in order.iter().flatten() {
        println!("cargo:rustc-link-arg-bins={it}");
    }
    if !old && works(&["-fPIE", "-pie", PACKED]) == Some(true) {
        println!("cargo:rustc-link-arg-bins={PACKED}");
    }
}

/// Whether what is built can be tried here.
fn is_for_this_machine() -> bool {
    let is = |name: &str, wanted: &str| env::var(name).is_ok_and(|it| it == wanted);
    is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") && env::var("HOST") == env::var("TARGET")
}

/// Links a program in that way and starts it.
fn works(how: &[&str]) -> Option<bool> {
    let out = env::var_os("OUT_DIR")?;
    let (source, program) = (Path::new(&out).join("probe.c"), Path::new(&out).join("probe"));
    fs::write(&source, "int zero; int *at = &zero; int main(void) { return *at; }\n").ok()?;
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let linked = Command::new(linker).args(how).arg("-o").arg(&program).arg(&source).status().ok()?;
    Some(linked.success() && Command::new(&program).status().ok()?.success())
}

/// What tells the linker of the order, where it understands that.
fn ordered() -> Option<[String; 2]> {
    let (out, hot) = (env::var_os("OUT_DIR")?, Path::new(&env::var_os("CARGO_MANIFEST_DIR")?).join(HOT));
    let how = [
        format!("-Wl,--symbol-ordering-file={}", hot.to_str().filter(|it| !it.contains(','))?),
        "-Wl,--no-warn-symbol-ordering".to_owned(),
    ];
    let (source, program) = (Path::new(&out).join("probe.rs"), Path::new(&out).join("probe-order"));
    fs::write(&source, "fn main() {}\n").ok()?;
    let mut rustc = Command::new(env::var_os("RUSTC")?);
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    rustc.args(flags.split('\x1f').filter(|it| !it.is_empty())).arg("-o").arg(&program).arg(&source);
    rustc.args(how.iter().map(|it| format!("-Clink-arg={it}")));
    rustc.output().is_ok_and(|it| it.status.success()).then_some(how)
}
