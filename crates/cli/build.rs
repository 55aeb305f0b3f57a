//! Link options of the binaries: stripped in release builds, position independent, with compact relocations if this
//! machine's loader supports them (glibc 2.36 or later).
//!
//! `HELVE_BUILD_OLD_GLIBC=1` makes a binary that also runs on older systems. `HELVE_BUILD_NAMES=1` keeps symbol names
//! for a profiler.

use std::{env, fs, path::Path, process::Command};

const PACKED: &str = "-Wl,-z,pack-relative-relocs";

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
    if !old && works(&["-fPIE", "-pie", PACKED]) == Some(true) {
        println!("cargo:rustc-link-arg-bins={PACKED}");
    }
}

/// Whether the target can run on this machine.
fn is_for_this_machine() -> bool {
    let is = |name: &str, wanted: &str| env::var(name).is_ok_and(|it| it == wanted);
    is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") && env::var("HOST") == env::var("TARGET")
}

/// Links a program with these options and starts it.
fn works(how: &[&str]) -> Option<bool> {
    let out = env::var_os("OUT_DIR")?;
    let (source, program) = (Path::new(&out).join("probe.c"), Path::new(&out).join("probe"));
    fs::write(&source, "int zero; int *at = &zero; int main(void) { return *at; }\n").ok()?;
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let linked = Command::new(linker).args(how).arg("-o").arg(&program).arg(&source).status().ok()?;
    Some(linked.success() && Command::new(&program).status().ok()?.success())
}
