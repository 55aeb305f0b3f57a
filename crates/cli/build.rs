//! How the binaries are linked: at a fixed address, so that nothing has to be relocated at a start.
//!
//! A program that may lie anywhere writes its own address into two megabytes of tables before it does anything else, at
//! every start and for every command; that took longer than all the rest. The heap, the stack and the libraries lie
//! anywhere all the same, as with programs written in Go. `HELVE_BUILD_PIE=1` makes a binary that may lie anywhere
//! itself, with its relocations in the short form where this machine's loader knows it (glibc 2.36 or later);
//! `HELVE_BUILD_OLD_GLIBC=1` makes that run on older systems, too.

use std::{env, fs, path::Path, process::Command};

const FIXED: &str = "-no-pie";
const PACKED: &str = "-Wl,-z,pack-relative-relocs";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is_wished = |name: &str| {
        println!("cargo:rerun-if-env-changed={name}");
        env::var_os(name).is_some_and(|it| it != "0")
    };
    let (pie, old) = (is_wished("HELVE_BUILD_PIE"), is_wished("HELVE_BUILD_OLD_GLIBC"));
    if !is_for_this_machine() {
        return;
    }
    if !pie && works(&[FIXED]) == Some(true) {
        println!("cargo:rustc-link-arg-bins={FIXED}");
    } else if !old && works(&["-fPIE", "-pie", PACKED]) == Some(true) {
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
