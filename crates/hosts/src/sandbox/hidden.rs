//! The places that commands never see: Helve's private files, and users' keys, tokens and histories.
//!
//! At L2 and L3 an empty mount hides each of them. L1 has no mounts: it grants the directories around them entry by
//! entry.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::supervise::PathGrant;

/// Keys, tokens, histories and browser profiles beneath a home.
pub(super) const HOME_SECRETS: &[&str] = &[
    // Keys and password stores.
    ".ssh",
    ".gnupg",
    ".putty",
    ".password-store",
    ".age",
    ".config/sops",
    ".config/op",
    ".config/keepassxc",
    ".config/Bitwarden",
    ".config/Bitwarden CLI",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".pki",
    ".bitcoin",
    ".ethereum",
    ".electrum",
    ".config/solana",
    // Files that log programs in to other machines.
    ".netrc",
    "_netrc",
    ".authinfo",
    ".authinfo.gpg",
    ".rhosts",
    ".pgpass",
    ".my.cnf",
    ".mylogin.cnf",
    ".msmtprc",
    ".fetchmailrc",
    ".smbcredentials",
    ".davfs2",
    ".Xauthority",
    ".ICEauthority",
    ".config/pulse/cookie",
    ".config/rclone",
    // Version control.
    ".git-credentials",
    ".config/git/credentials",
    ".config/gh",
    ".config/hub",
    ".config/glab-cli",
    ".config/tea",
    ".subversion/auth",
    // Package managers.
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".pypirc",
    ".config/pypoetry/auth.toml",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".local/share/gem/credentials",
    ".bundle/config",
    ".m2/settings.xml",
    ".m2/settings-security.xml",
    ".gradle/gradle.properties",
    ".composer/auth.json",
    ".config/composer/auth.json",
    ".nuget/NuGet/NuGet.Config",
    ".config/NuGet",
    ".hex/hex.config",
    ".condarc",
    // Clouds and containers.
    ".aws",
    ".azure",
    ".config/gcloud",
    ".boto",
    ".s3cfg",
    ".oci",
    ".aliyun",
    ".bluemix",
    ".kube",
    ".docker",
    ".config/containers/auth.json",
    ".config/helm",
    ".terraform.d",
    ".terraformrc",
    ".config/doctl",
    ".config/hcloud",
    ".config/linode-cli",
    ".config/netlify",
    ".netlify",
    ".vercel",
    ".local/share/com.vercel.cli",
    ".fly",
    ".config/heroku",
    ".vault-token",
    ".databrickscfg",
    ".snowflake",
    ".snowsql",
    ".kaggle",
    ".cache/huggingface/token",
    ".huggingface",
    ".config/wrangler",
    ".wrangler",
    ".config/stripe",
    ".config/ngrok",
    ".ngrok2",
    // Agents and assistants.
    ".config/helve",
    ".local/state/helve",
    ".claude.json",
    ".claude/.credentials.json",
    ".codex",
    ".gemini",
    ".config/github-copilot",
    ".config/openai",
    ".config/anthropic",
    // Browsers, mail and messengers.
    ".mozilla",
    ".librewolf",
    ".thunderbird",
    ".config/google-chrome",
    ".config/google-chrome-beta",
    ".config/google-chrome-unstable",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/microsoft-edge",
    ".config/vivaldi",
    ".config/opera",
    ".config/Signal",
    ".config/signal-cli",
    ".local/share/signal-cli",
    ".config/discord",
    ".config/Slack",
    ".purple",
    ".var/app",
    "snap",
    // Histories of shells and consoles.
    ".bash_history",
    ".zsh_history",
    ".zhistory",
    ".histfile",
    ".history",
    ".sh_history",
    ".ash_history",
    ".local/share/fish",
    ".local/state/bash",
    ".local/share/atuin",
    ".python_history",
    ".node_repl_history",
    ".irb_history",
    ".psql_history",
    ".mysql_history",
    ".sqlite_history",
    ".rediscli_history",
    ".mongosh",
    ".dbshell",
    ".lesshst",
    ".viminfo",
    ".wget-hsts",
];

/// The secrets of these home directories inside directories that a command sees. A link counts as its target.
pub(super) fn secrets_of(homes: &[PathBuf], seen: &[PathBuf]) -> Vec<PathBuf> {
    let is_seen = |path: &Path| seen.iter().any(|dir| path.starts_with(dir));
    homes
        .iter()
        .flat_map(|home| HOME_SECRETS.iter().map(|name| home.join(name)))
        .filter(|path| is_seen(path))
        .filter_map(|path| fs::canonicalize(path).ok())
        .collect()
}

/// The places to hide from a command that sees the directories `seen`. A visible directory inside a hidden one stays
/// visible, and hidden places in it are hidden again.
pub(super) fn covered(mut places: Vec<PathBuf>, seen: &[PathBuf]) -> Vec<PathBuf> {
    places.sort();
    places.dedup();
    let mut hidden: Vec<PathBuf> = Vec::new();
    for place in places {
        let is_seen = seen.iter().any(|dir| place.starts_with(dir)) && !seen.contains(&place);
        if is_seen && !is_hidden(&place, seen, &hidden) {
            hidden.push(place);
        }
    }
    hidden
}

/// Whether the innermost directory around a place is hidden, not visible.
pub(super) fn is_hidden(place: &Path, seen: &[PathBuf], hidden: &[PathBuf]) -> bool {
    let depth =
        |list: &[PathBuf]| list.iter().filter(|dir| place.starts_with(dir)).map(|dir| dir.components().count()).max();
    depth(hidden) > depth(seen)
}

/// The directories between a root and a hidden place in it. Renaming one would expose the place to the next command.
pub(super) fn folders_above(hidden: &[PathBuf], roots: &[(PathBuf, bool)]) -> Vec<PathBuf> {
    let is_inside_root = |dir: &Path| roots.iter().any(|(root, _)| dir.starts_with(root) && dir != root);
    let mut above: Vec<PathBuf> = hidden
        .iter()
        .flat_map(|place| place.ancestors().skip(1).filter(|dir| is_inside_root(dir)).map(Path::to_owned))
        .collect();
    above.sort();
    above.dedup();
    above
}

/// The grants without the hidden places. A directory around one is granted entry by entry, because Landlock has no
/// exceptions. Its names can be listed, but nothing can be created in it.
pub(super) fn grants_around(grants: Vec<(PathBuf, PathGrant)>, hidden: &[PathBuf]) -> Vec<(PathBuf, PathGrant)> {
    let mut out = Vec::with_capacity(grants.len());
    for (dir, grant) in grants {
        if grant != PathGrant::List && hidden.iter().any(|place| place.starts_with(&dir) && *place != dir) {
            entries_around(&dir, grant, hidden, &mut out);
        } else {
            out.push((dir, grant));
        }
    }
    out
}

fn entries_around(dir: &Path, grant: PathGrant, hidden: &[PathBuf], out: &mut Vec<(PathBuf, PathGrant)>) {
    out.push((dir.to_owned(), PathGrant::List));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        // A link needs no right, and a rule about it would grant its target.
        if hidden.contains(&path) || entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
            continue;
        }
        if hidden.iter().any(|place| place.starts_with(&path)) {
            entries_around(&path, grant, hidden, out);
        } else {
            out.push((path, grant));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(list: &[&str]) -> Vec<PathBuf> {
        list.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn a_root_inside_a_hidden_folder_stays_visible() {
        let places =
            paths(&["/h/state", "/h/state/vault", "/h/.ssh", "/elsewhere/key", "/h/state/tmp/run/key", "/h/a"]);
        let seen = paths(&["/h", "/h/state/tmp/run", "/h/a"]);
        let hidden = covered(places, &seen);
        assert_eq!(hidden, paths(&["/h/.ssh", "/h/state", "/h/state/tmp/run/key"]));
        for (place, expected) in [
            ("/h/state", true),
            ("/h/state/vault/k", true),
            ("/h/state/tmp/run", false),
            ("/h/state/tmp/run/x", false),
            ("/h/state/tmp/run/key", true),
            ("/h/state/tmp", true),
            ("/h/src", false),
            ("/elsewhere/key", false),
        ] {
            assert_eq!(is_hidden(Path::new(place), &seen, &hidden), expected, "{place}");
        }
    }

    #[test]
    fn folders_above_a_hidden_place_are_inside_a_root() {
        let roots = [(PathBuf::from("/h"), true)];
        assert_eq!(
            folders_above(&paths(&["/h/.local/state/helve", "/o/x/y"]), &roots),
            paths(&["/h/.local", "/h/.local/state"])
        );
    }

    #[test]
    fn grants_leave_out_hidden_entries_and_links() {
        let top = std::env::temp_dir().join(format!("helve-hidden-{}", std::process::id()));
        for dir in ["src", ".local/state/helve", ".local/bin", ".ssh"] {
            fs::create_dir_all(top.join(dir)).unwrap();
        }
        std::os::unix::fs::symlink(".ssh", top.join("way")).unwrap();
        let hidden = [".ssh", ".local/state/helve"].map(|name| top.join(name));
        let mut grants =
            grants_around(vec![(top.clone(), PathGrant::Write), ("/usr".into(), PathGrant::Read)], &hidden);
        grants.sort_by(|a, b| a.0.cmp(&b.0));
        let of = |name: &str, grant| (top.join(name), grant);
        let mut expected = vec![
            (top.clone(), PathGrant::List),
            of(".local", PathGrant::List),
            of(".local/bin", PathGrant::Write),
            of(".local/state", PathGrant::List),
            of("src", PathGrant::Write),
            ("/usr".into(), PathGrant::Read),
        ];
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(grants, expected);
        fs::remove_dir_all(top).unwrap();
    }
}
