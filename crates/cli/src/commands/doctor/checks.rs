//! The checks of `helve doctor`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::Check;
use crate::{
    config::{HostKind, ProjectFileStatus, Settings, TaintPolicySetting},
    hosts::{self, HostReport},
    rules::ApprovalRules,
    setup, shell, state,
};

/// Less free disk space than this causes a warning.
const MIN_FREE_BYTES: u64 = 256 << 20;

/// Tries everything.
pub(super) fn run_all(settings: &Settings) -> Vec<Check> {
    let mut checks = vec![kernel(), openat2(&settings.workspace), workspace(settings)];
    checks.extend(state_folder(settings));
    checks.push(disk_space(&settings.workspace));
    checks.extend(sandbox(settings));
    checks.extend(hosts(settings));
    checks.extend([documents(), git()]);
    checks.extend(settings_files(settings));
    checks.push(protected_paths());
    checks.push(untrusted_content(settings));
    checks.extend(rules(settings));
    checks
}

/// Whether the rules parse, and which of them refer to tools that do not exist now.
fn rules(settings: &Settings) -> Option<Check> {
    let approval = &settings.config.approval;
    let count = approval.allow.len() + approval.ask.len() + approval.deny.len();
    if count == 0 {
        return None;
    }
    let read = match ApprovalRules::read(settings) {
        Ok(read) => read,
        Err(why) => return Some(Check::failed("rules", why.to_string(), "fix the rules under [approval]")),
    };
    let dialect = helve_dialects::by_name(settings.dialect())?;
    let absent = read.absent(&dialect);
    if absent.is_empty() {
        return Some(Check::ok("rules", format!("{count} rules are in force")));
    }
    let text =
        format!("{count} rules are in force; no tool of {} has the name of: {}", dialect.name, absent.join(", "));
    Some(Check::degraded(
        "rules",
        text,
        "they hold as soon as an MCP server, a plugin or another dialect brings the tool",
    ))
}

/// The settings for untrusted content and for secrets.
fn untrusted_content(settings: &Settings) -> Check {
    let taint = settings.config.policy.taint;
    let count = |many: usize, what: &str| format!("{many} {what}{}", if many == 1 { "" } else { "s" });
    let baits = count(settings.config.secrets.canaries.len(), "canary").replace("canarys", "canaries");
    let named = count(settings.config.scrub.secrets_env.len(), "named secret");
    let told = format!("policy.taint is {taint}; {baits} and {named} may not be sent out");
    if taint == TaintPolicySetting::Off {
        Check::degraded("strangers", told, "set policy.taint to auto, so that pages cannot steer what goes out")
    } else {
        Check::ok("strangers", told)
    }
}

fn kernel() -> Check {
    let name = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    let who = rustix::process::geteuid();
    let who = if who.is_root() { "root".to_owned() } else { format!("user {}", who.as_raw()) };
    let release = text(name.release());
    Check::ok("kernel", format!("{} {release} on {}, running as {who}", text(name.sysname()), text(name.machine())))
}

/// Opens the workspace in the same way as every file.
fn openat2(workspace: &Path) -> Check {
    let opened = rustix::fs::open(workspace, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).and_then(|top| {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&top, ".", OFlags::PATH | OFlags::DIRECTORY, Mode::empty(), resolve)
    });
    match opened {
        Ok(_) => Check::ok("openat2", "the kernel keeps file work inside the roots"),
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => Check::degraded(
            "openat2",
            "not offered by this kernel or container; paths are walked part by part instead, which is slower",
            "Linux 5.6 or later has it; an old container runtime may block it",
        ),
        Err(error) => Check::failed("openat2", error.to_string(), "choose a readable folder with --workspace"),
    }
}

fn workspace(settings: &Settings) -> Check {
    let shown = settings.workspace.display();
    match probe_file(&settings.workspace) {
        Ok(()) => Check::ok("workspace", format!("{shown} can be read and changed")),
        Err(error) => Check::degraded(
            "workspace",
            format!("{shown} cannot be changed: {error}"),
            "tools that write will fail there; choose another folder with --workspace",
        ),
    }
}

/// Makes a file and removes it again.
fn probe_file(folder: &Path) -> std::io::Result<()> {
    let path = folder.join(format!(".helve-doctor-{}", state::random_id()?));
    fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
    fs::remove_file(path)
}

fn state_folder(settings: &Settings) -> Vec<Check> {
    let (folder, note) = match state::open(settings) {
        Ok(opened) => opened,
        Err(error) => {
            return vec![Check::failed("state folder", error.to_string(), "set HELVE_STATE_DIR to a folder of yours")];
        }
    };
    let mut checks = Vec::new();
    checks.push(match (probe_file(&folder), note) {
        (Ok(()), None) => Check::ok("state folder", format!("{} is private and writable", folder.display())),
        (Ok(()), Some(note)) => Check::degraded("state folder", note, "what is kept there may not last"),
        (Err(error), _) => Check::failed(
            "state folder",
            format!("{}: {error}", folder.display()),
            "set HELVE_STATE_DIR to a folder of yours",
        ),
    });
    let spill = folder.join("spill");
    checks.push(match state::private(&spill).and_then(|()| probe_file(&spill)) {
        Ok(()) => Check::ok(
            "spill folder",
            format!(
                "{} keeps long outputs for {} hours; {} there now",
                spill.display(),
                settings.config.spill.keep_hours.0,
                format_bytes(size_of(&spill))
            ),
        ),
        Err(error) => Check::degraded(
            "spill folder",
            format!("{}: {error}", spill.display()),
            "long outputs are cut, and the rest of them is lost",
        ),
    });
    checks.push(disk_space_of("state disk", &folder));
    checks
}

fn size_of(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|it| it.len()).sum()
}

fn disk_space(workspace: &Path) -> Check {
    disk_space_of("disk", workspace)
}

fn disk_space_of(name: &'static str, folder: &Path) -> Check {
    match rustix::fs::statvfs(folder) {
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let text = format!("{} free at {}", format_bytes(free), folder.display());
            if free < MIN_FREE_BYTES {
                Check::degraded(name, text, "make room: writes will fail soon")
            } else {
                Check::ok(name, text)
            }
        }
        Err(error) => Check::degraded(name, error.to_string(), "the free space could not be found out"),
    }
}

fn format_bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

/// Tests the sandbox by running a program in it.
fn sandbox(settings: &Settings) -> Vec<Check> {
    shell::check_sandbox(settings)
        .into_iter()
        .map(|found| match found {
            shell::Found::Ok(name, text) => Check::ok(name, text),
            shell::Found::Degraded(name, text, next) => Check::degraded(name, text, next),
        })
        .collect()
}

/// Other hosts for commands. Only the configured host has to work.
fn hosts(settings: &Settings) -> Vec<Check> {
    let Ok(runtime) = setup::runtime() else { return Vec::new() };
    let local = settings.config.host.kind == HostKind::Local;
    let used = if local { "files and commands are here" } else { "files only; `host.kind` names another" };
    let mut checks = vec![Check::ok("host local", used)];
    for HostReport { kind, is_selected, found } in runtime.block_on(hosts::probe(settings)) {
        let name = match kind {
            HostKind::Docker => "host docker",
            HostKind::Ssh => "host ssh",
            _ => "host e2b",
        };
        checks.push(match (found, is_selected) {
            (Ok(found), true) => Check::ok(name, found),
            (Ok(found), false) => Check::ok(name, format!("{found}; not used, set `host.kind` to use it")),
            (Err(why), true) => {
                Check::degraded(name, why, "commands fail until it works, or `host.kind` names another")
            }
            (Err(why), false) => Check::ok(name, format!("not used; {why}")),
        });
    }
    checks
}

/// Lets the parser child read an empty page.
fn documents() -> Check {
    let read =
        setup::runtime().map_err(|error| error.to_string()).and_then(|runtime| runtime.block_on(parse_test_pdf()));
    match read {
        Ok(pages) => Check::ok("documents", format!("the child that reads PDF files works ({pages} page read)")),
        Err(error) => Check::degraded(
            "documents",
            format!("the child that reads PDF files does not work: {error}"),
            "PDF files and pictures cannot be read; /proc must be mounted, and processes may be started",
        ),
    }
}

async fn parse_test_pdf() -> Result<u32, String> {
    use helve_contract::ports::Documents;
    let call = setup::detached_call();
    let pages =
        helve_web::DocumentReader::new().pdf(&call, empty_pdf(), None).await.map_err(|error| error.to_string())?;
    Ok(pages.total)
}

/// The smallest PDF with a page.
fn empty_pdf() -> Vec<u8> {
    let objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        "<</Type/Pages/Kids[3 0 R]/Count 1>>",
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 72 72]/Resources<<>>>>",
    ];
    let mut text = "%PDF-1.4\n".to_owned();
    let mut table = "xref\n0 4\n0000000000 65535 f \n".to_owned();
    for (at, object) in objects.iter().enumerate() {
        table.push_str(&format!("{:010} 00000 n \n", text.len()));
        text.push_str(&format!("{} 0 obj\n{object}\nendobj\n", at + 1));
    }
    let start = text.len();
    text.push_str(&format!("{table}trailer\n<</Size 4/Root 1 0 R>>\nstartxref\n{start}\n%%EOF\n"));
    text.into_bytes()
}

/// Asks git for its version: the system's program, outside any project, with an empty environment.
fn git() -> Check {
    let program = ["/usr/bin/git", "/usr/local/bin/git", "/bin/git"].into_iter().find(|it| Path::new(it).exists());
    let missing = || Check::degraded("git", "not installed", "install git if agents are to use it");
    let Some(program) = program else { return missing() };
    let asked = Command::new(program).arg("--version").env_clear().current_dir("/").stdin(Stdio::null()).output();
    match asked {
        Ok(output) if output.status.success() => {
            let told = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            if is_fixed_git(&told) {
                Check::ok("git", format!("{told} ({program})"))
            } else {
                Check::degraded("git", format!("{told} ({program}) may run hooks of a cloned submodule"), GIT_FIX)
            }
        }
        Ok(output) => {
            Check::degraded("git", String::from_utf8_lossy(&output.stderr).trim().to_owned(), "mend the git package")
        }
        Err(error) => Check::degraded("git", error.to_string(), "mend the git package"),
    }
}

const GIT_FIX: &str =
    "update git to a release from July 2025 or later; do not clone submodules of strangers until then";

/// The first release of each git series that handles a carriage return in a submodule's path safely.
const FIXED_GIT_RELEASES: [(u32, u32); 8] = [(43, 7), (44, 4), (45, 4), (46, 4), (47, 3), (48, 2), (49, 1), (50, 1)];

/// Whether a git version is safe; an unreadable version counts as safe.
fn is_fixed_git(told: &str) -> bool {
    let number = |part: Option<&str>| part.and_then(|it| it.parse::<u32>().ok());
    let mut parts = told.trim_start_matches("git version ").split(['.', ' ']);
    let (Some(major), Some(line), patch) = (number(parts.next()), number(parts.next()), number(parts.next())) else {
        return true;
    };
    let first = FIXED_GIT_RELEASES.iter().find(|(mended, _)| *mended == line).map(|(_, patch)| *patch);
    major > 2 || (major == 2 && (line > 50 || first.is_some_and(|first| patch.unwrap_or(0) >= first)))
}

/// The settings files that apply, and those that do not.
fn settings_files(settings: &Settings) -> Vec<Check> {
    let mut checks = Vec::new();
    checks.push(match &settings.user_file {
        Some((path, true)) => Check::ok("user settings", path.display().to_string()),
        Some((path, false)) => Check::ok("user settings", format!("none ({} would be read)", path.display())),
        None => Check::degraded("user settings", "none: HOME is not set", "set HOME to have settings of your own"),
    });
    checks.push(match &settings.project_file {
        ProjectFileStatus::Absent => Check::ok("project", "no settings file in the workspace"),
        ProjectFileStatus::Trusted(path) => Check::ok("project", format!("{} is trusted", path.display())),
        ProjectFileStatus::Untrusted(path) => Check::degraded(
            "project",
            format!("{} is ignored, because it is not trusted", path.display()),
            "read it, then run `helve config trust`",
        ),
        ProjectFileStatus::Unreadable(path, why) => {
            Check::degraded("project", format!("{} is ignored: {why}", path.display()), "mend or remove it")
        }
    });
    let program = env::current_exe().unwrap_or_else(|_| PathBuf::from("helve"));
    if program.starts_with(&settings.workspace) {
        checks.push(Check::degraded(
            "program",
            format!("{} lies inside the workspace, where tools can change it", program.display()),
            "install helve outside of the folders that agents work in",
        ));
    }
    checks
}

fn protected_paths() -> Check {
    let names = helve_engine::PROTECTED_PATHS;
    let some: Vec<_> = names.iter().copied().filter(|it| !it.contains('*')).step_by(names.len().div_ceil(8)).collect();
    let text = format!("no tool writes {} names, in any spelling, such as {}", names.len(), some.join(", "));
    Check::ok("protected", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_git_is_told_of() {
        for (told, mended) in [
            ("git version 2.47.3", true),
            ("git version 2.47.2", false),
            ("git version 2.39.5 (Apple Git-154)", false),
            ("git version 2.50.1.windows.1", true),
            ("git version 2.51.0", true),
            ("git version 3.0.0", true),
            ("something else", true),
        ] {
            assert_eq!(is_fixed_git(told), mended, "{told}");
        }
    }
}
