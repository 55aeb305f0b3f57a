//! How the binaries are linked: with their relocations in the short form, where this machine's loader knows it.
//!
//! Every start reads all of them. Packed they are a hundredth of the size, and are applied in a fraction of the time.
//! Such a binary needs glibc 2.36 or later; `HELVE_BUILD_OLD_GLIBC=1` makes one that runs on older systems, too.

use std::{env, fs, path::Path, process::Command};

const PACKED: &str = "-Wl,-z,pack-relative-relocs";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=HELVE_BUILD_OLD_GLIBC");
    let old = env::var_os("HELVE_BUILD_OLD_GLIBC").is_some_and(|it| it != "0");
    if !old && is_for_this_machine() && works() == Some(true) {
        println!("cargo:rustc-link-arg-bins={PACKED}");
    }
}

/// Whether what is built can be tried here.
fn is_for_this_machine() -> bool {
    let is = |name: &str, wanted: &str| env::var(name).is_ok_and(|it| it == wanted);
    is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") && env::var("HOST") == env::var("TARGET")
}

/// Links a program in that way and starts it.
fn works() -> Option<bool> {
    let out = env::var_os("OUT_DIR")?;
    let (source, program) = (Path::new(&out).join("probe.c"), Path::new(&out).join("probe"));
    fs::write(&source, "int zero; int *at = &zero; int main(void) { return *at; }\n").ok()?;
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let linked = Command::new(linker).args(["-fPIE", "-pie", PACKED, "-o"]).arg(&program).arg(&source).status().ok()?;
    Some(linked.success() && Command::new(&program).status().ok()?.success())
}
