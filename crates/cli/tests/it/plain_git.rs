//! A sandboxed command plants something in a git directory; then plain `git` runs outside. Nothing planted may run.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::PathBuf,
    process::Command,
};

use crate::desk::Desk;

/// Something that a command plants.
struct Plant {
    name: &'static str,
    /// Run by the sandboxed command, in a directory with the repositories of [`FIXTURE`]. `@RUN@` leaves a mark.
    plant: &'static str,
    /// Run by plain `sh` outside, in the same directory.
    trigger: &'static str,
}

const fn plant(name: &'static str, plant: &'static str, trigger: &'static str) -> Plant {
    Plant { name, plant, trigger }
}

/// Everyday commands, run after every plant beside its own trigger.
const EVERYDAY: &str = "git status; git log -1; git diff; git submodule status; git fetch --all; echo x >> a; git stash; \
                        git commit --allow-empty -m x";

/// A repository with a submodule, a linked worktree, a nested repository and a bare one.
const FIXTURE: &str = "git init -q . && echo 1 > a && echo s > .gitignore.x && git add -A && git commit -qm 1 \
    && git -c protocol.file.allow=always submodule --quiet add ../source s && git commit -qm s && echo 2 > a && git commit -qam 2 \
    && git branch side HEAD~1 && git worktree add -q wt -b wt && git init -q n && git -C n commit -q --allow-empty -m 1 \
    && git clone -q --bare ../source b.git && git init -q --bare hb && git -C hb config core.bare false && mkdir -p hb/hooks && printf '[user]\\n' > inc.cfg \
    && git config include.path ../inc.cfg && printf '/wt\\n/n\\n/b.git\\n/hb\\n/inc.cfg\\n' >> .git/info/exclude";

/// Makes a repository `evil` whose settings run `@RUN@`.
const EVIL: &str =
    "git init -q evil; git -C evil commit -q --allow-empty -m x; git -C evil config core.fsmonitor '@RUN@;false'; ";

const PLANTS: [Plant; 67] = [
    plant("fsmonitor", "git config core.fsmonitor '@RUN@;false'", "git status"),
    plant("fsmonitor-written", "printf '[CORE]FSMonitor=\"@RUN@;false\"\\n' >> .git/config", "git status"),
    plant(
        "fsmonitor-bom",
        "printf '\\357\\273\\277[core]\\r\\n\\tbare = false\\r\\n\\tfsmonitor = \"@RUN@;false\"\\r\\n' > c; mv c .git/config",
        "git status",
    ),
    plant(
        "fsmonitor-continued",
        "printf '[core]\\n\\tbare = fa\\\\\\nlse\\n\\tfsmonitor = \"@RUN@;fa\\\\\\nlse\"\\n' > n/.git/config",
        "cd n; git status",
    ),
    plant(
        "hooks-path",
        "mkdir hk; printf '#!/bin/sh\\n@RUN@\\n' > hk/pre-commit; chmod +x hk/*; git config core.hooksPath hk",
        "",
    ),
    plant("hook-pre-commit", "printf '#!/bin/sh\\n@RUN@\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/*", ""),
    plant(
        "hook-index-change",
        "mkdir -p .git/hooks; printf '#!/bin/sh\\n@RUN@\\n' > .git/hooks/post-index-change; chmod +x .git/hooks/*",
        "touch a; git status",
    ),
    plant(
        "hook-references",
        "cp /bin/sh x; printf '#!/bin/sh\\n@RUN@\\n' > .git/hooks/reference-transaction; chmod 755 .git/hooks/reference-transaction",
        "git tag t",
    ),
    plant(
        "hooks-linked",
        "mkdir hk; printf '#!/bin/sh\\n@RUN@\\n' > hk/pre-commit; chmod +x hk/*; mv .git/hooks h2; ln -s ../hk .git/hooks",
        "",
    ),
    plant(
        "hooks-replaced",
        "mkdir hk; printf '#!/bin/sh\\n@RUN@\\n' > hk/pre-commit; chmod +x hk/*; mv .git/hooks h2; mv hk .git/hooks",
        "",
    ),
    plant(
        "hooks-from-husky",
        "mkdir .husky; printf '#!/bin/sh\\n@RUN@\\n' > .husky/pre-commit; chmod +x .husky/*; rm -r .git/hooks; mv .husky .git/hooks",
        "",
    ),
    plant("editor", "git config core.editor '@RUN@;true'", "git commit --allow-empty --amend"),
    plant("sequence-editor", "git config sequence.editor '@RUN@;true'", "git rebase -i HEAD~1"),
    plant("ssh-command", "git config core.sshCommand '@RUN@;false'; git remote add o ssh://h.invalid/x", "git fetch o"),
    plant(
        "filter-clean",
        "git config filter.x.clean '@RUN@;cat'; echo '* filter=x' > .gitattributes",
        "echo z > a; git add a",
    ),
    plant(
        "filter-smudge",
        "git config filter.x.smudge '@RUN@;cat'; echo '* filter=x' > .gitattributes",
        "rm a; git checkout a",
    ),
    plant(
        "filter-attributes",
        "git config filter.x.process '@RUN@;false'; mkdir -p .git/info; echo '* filter=x' > .git/info/attributes",
        "echo z > a; git add a",
    ),
    plant("diff-external", "git config diff.external '@RUN@;true'", "echo z > a; git diff"),
    plant(
        "diff-textconv",
        "git config diff.x.textconv '@RUN@;cat'; echo 'a diff=x' > .gitattributes",
        "echo z > a; git diff",
    ),
    plant(
        "diff-command",
        "git config diff.x.command '@RUN@;true'; echo 'a diff=x' > .gitattributes",
        "echo z > a; git diff",
    ),
    plant("difftool", "git config diff.tool x; git config difftool.x.cmd '@RUN@'", "echo z > a; git difftool -y -t x"),
    plant(
        "merge-driver",
        "git config merge.x.driver '@RUN@;false'; echo 'a merge=x' > .git/info/attributes",
        "git checkout -q side; echo 3 > a; git commit -qam 3; git merge -",
    ),
    plant(
        "include",
        "printf '[core]\\n\\tfsmonitor = \"@RUN@;false\"\\n' > c; git config include.path ../c",
        "git status",
    ),
    plant(
        "include-if",
        "printf '[core]\\n\\tfsmonitor = \"@RUN@;false\"\\n' > c; git config includeIf.gitdir:/.path ../c",
        "git status",
    ),
    plant(
        "config-linked",
        "(cat .git/config; printf '[core]\\n\\tfsmonitor = \"@RUN@;false\"\\n') > c; rm -f .git/config; ln -s ../c .git/config",
        "git status",
    ),
    plant("alias", "git config alias.st '!@RUN@'", "git st"),
    plant(
        "gpg",
        "printf '#!/bin/sh\\n@RUN@\\n' > g; chmod +x g; git config gpg.program ./g; git config commit.gpgsign true",
        "",
    ),
    plant("archive", "git config tar.x.command '@RUN@'", "git archive --format=x HEAD"),
    plant("remote-ext", "git config protocol.ext.allow always; git remote add o 'ext::@RUN@'", "git fetch o"),
    plant(
        "remote-uploadpack",
        "git remote add o ../source; git config remote.o.uploadpack '@RUN@;false'",
        "git fetch o",
    ),
    plant(
        "remotes-file",
        "mkdir -p .git/remotes; printf 'URL: ext::@RUN@\\n' > .git/remotes/o; git config protocol.ext.allow always",
        "git fetch o",
    ),
    plant(
        "instead-of",
        "git config protocol.ext.allow always; git config 'url.ext::@RUN@ .insteadOf' q:; git remote add o q:",
        "git fetch o",
    ),
    plant(
        "submodule-update",
        "git config submodule.s.update '!@RUN@;false'",
        "git -C s commit -q --allow-empty -m z; git submodule update",
    ),
    plant("module-config", "git --git-dir=.git/modules/s config core.fsmonitor '@RUN@;false'", "git status"),
    plant(
        "module-hook",
        "mkdir -p .git/modules/s/hooks; printf '#!/bin/sh\\n@RUN@\\n' > .git/modules/s/hooks/pre-commit; chmod +x .git/modules/s/hooks/*",
        "cd s; git commit --allow-empty -m x",
    ),
    plant(
        "modules-replaced",
        "cp -r .git/modules m; printf '[core]\\n\\tfsmonitor = \"@RUN@;false\"\\n' >> m/s/config; mv .git/modules .git/old; mv m .git/modules",
        "git status",
    ),
    plant("module-file", "@EVIL@ printf 'gitdir: ../evil/.git\\n' > s/.git", "cd s; git status"),
    plant(
        "module-file-hidden",
        "@EVIL@ mv evil/.git .git/objects/evil; printf 'gitdir: ../.git/objects/evil\\n' > s/.git",
        "cd s; git status",
    ),
    plant(
        "module-new",
        "@EVIL@ mkdir -p .git/modules z; mv evil/.git .git/modules/z; printf 'gitdir: ../.git/modules/z\\n' > z/.git",
        "cd z; git status",
    ),
    plant("worktree-file", "@EVIL@ printf 'gitdir: ../evil/.git\\n' > wt/.git", "cd wt; git status"),
    plant(
        "worktree-config",
        "git config extensions.worktreeConfig true; printf '[core]\\n\\tfsmonitor = \"@RUN@;false\"\\n' > .git/worktrees/wt/config.worktree",
        "cd wt; git status",
    ),
    plant(
        "worktree-commondir",
        "@EVIL@ cp -r evil/.git/. .git/worktrees/wt/; printf '../../../evil/.git\\n' > .git/worktrees/wt/commondir",
        "cd wt; git status",
    ),
    plant("commondir", "@EVIL@ printf '../evil/.git\\n' > .git/commondir", "git status"),
    plant("nested-config", "git -C n config core.fsmonitor '@RUN@;false'", "cd n; git status"),
    plant(
        "nested-hook",
        "mkdir -p n/.git/hooks; printf '#!/bin/sh\\n@RUN@\\n' > n/.git/hooks/pre-commit; chmod +x n/.git/hooks/*",
        "cd n; git commit --allow-empty -m x",
    ),
    plant(
        "bare-config",
        "git -C b.git config core.sshCommand '@RUN@;false'; git -C b.git config remote.origin.url ssh://h.invalid/x",
        "cd b.git; git fetch origin",
    ),
    plant(
        "bare-hook",
        "mkdir -p b.git/hooks; printf '#!/bin/sh\\n@RUN@\\n' > b.git/hooks/reference-transaction; chmod +x b.git/hooks/*",
        "cd b.git; git tag t",
    ),
    plant(
        "bare-new",
        "git init -q --bare q; git -C q config core.bare false; git -C q config core.worktree ..; git -C q config core.fsmonitor '@RUN@;false'",
        "cd q; git status",
    ),
    plant("gitlink", "@EVIL@ git add evil", "git status"),
    plant("linked-git", "@EVIL@ mkdir l; ln -s ../evil/.git l/.git", "cd l; git status"),
    plant(
        "outside",
        "d=${TMPDIR:-/tmp}/evil-@ID@; git init -q $d; git -C $d config core.fsmonitor '@RUN@;false'; mkdir l; printf \"gitdir: $d/.git\\n\" > l/.git",
        "cd l; git status",
    ),
    plant(
        "rebase-steps",
        "GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i HEAD~1; echo 'exec @RUN@' >> .git/rebase-merge/git-rebase-todo",
        "git rebase --continue",
    ),
    // Sorted first, so that a check that fails at it leaves all others.
    plant(
        "a-name-that-is-no-text",
        "d=$(printf 'r\\377x'); git init -q $d; git -C $d config core.fsmonitor '@RUN@;false'",
        "cd r*x; git status",
    ),
    // `hb` is a bare repository with dangerous settings that is part of the project.
    plant("project-link", "mkdir l; echo 'gitdir: ../hb' > l/.git", "cd l; git status"),
    plant("project-symlink", "mkdir l; ln -s ../hb l/.git", "cd l; git status"),
    plant("project-moved", "mkdir l; mv hb l/.git || cp -r hb l/.git", "cd l; git status"),
    plant(
        "project-gitlink",
        "mkdir l; echo 'gitdir: ../hb' > l/.git; git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),l",
        "git status",
    ),
    plant(
        "project-module",
        "mkdir -p .git/modules z; mv hb .git/modules/z || cp -r hb .git/modules/z; echo 'gitdir: ../.git/modules/z' > z/.git",
        "cd z; git status",
    ),
    plant(
        "project-commondir",
        "mkdir -p n/.git/worktrees/w w; cp n/.git/HEAD n/.git/worktrees/w/; echo ../../../../hb > n/.git/worktrees/w/commondir; echo 'gitdir: ../n/.git/worktrees/w' > w/.git",
        "cd w; git status",
    ),
    plant(
        "file-with-nul",
        "@EVIL@ mv evil/.git .git/objects/evil; mkdir l; printf 'gitdir: ../.git/objects/evil\\0/../../../n/.git\\n' > l/.git",
        "cd l; git status",
    ),
    plant(
        "module-named-lfs",
        "git clone -q --bare ../source .git/modules/lfs; git --git-dir=.git/modules/lfs config core.bare false; git --git-dir=.git/modules/lfs config core.fsmonitor '@RUN@;false'; printf '[submodule \"lfs\"]\\n\\tpath = lfs\\n\\turl = ../source\\n' >> .gitmodules; mkdir lfs; git update-index --add --cacheinfo 160000,$(git -C ../source rev-parse HEAD),lfs",
        "git -c protocol.file.allow=always submodule update --init; cd lfs; git status",
    ),
    plant(
        "many-hooks",
        "git init -q r; for i in $(seq 3000); do : > r/.git/hooks/z$i; done; for h in pre-commit post-commit commit-msg reference-transaction; do printf '#!/bin/sh\\n@RUN@\\n' > r/.git/hooks/$h; done; chmod +x r/.git/hooks/*",
        "cd r; git commit --allow-empty -m x",
    ),
    plant(
        "rebase-strategy",
        "GIT_SEQUENCE_EDITOR='sed -i 1ibreak' git rebase -q -i HEAD~1; echo x/evil > .git/rebase-merge/strategy; mkdir git-merge-x; printf '#!/bin/sh\\n@RUN@\\n' > git-merge-x/evil; chmod +x git-merge-x/evil; echo 7 > q; git add q; git commit -qm 7",
        "git rebase --continue",
    ),
    plant("included-file", "printf '[core]\\n\\tfsmonitor = \"@RUN@;false\"\\n' > inc.cfg", "git status"),
    plant(
        "included-replaced",
        "printf '[core]\\n\\tfsmonitor = \"@RUN@;false\"\\n' > c; cp c d; mv -f d inc.cfg; rm -f inc.cfg; cp c inc.cfg",
        "git status",
    ),
    plant(
        "folder-swapped",
        "git init -q q; git -C q config core.fsmonitor '@RUN@;false'; mv n n.old; mv q n",
        "cd n; git status",
    ),
    plant(
        "reftable",
        "git init -q --ref-format=reftable r; git -C r config core.fsmonitor '@RUN@;false'",
        "cd r; git status",
    ),
];

/// A desk whose files belong to the user that everything runs as.
struct Scene {
    desk: Desk,
    user: Option<u32>,
}

impl Scene {
    fn new(user: Option<u32>) -> Self {
        let desk = Desk::new();
        fs::set_permissions(desk.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["marks", "home", "work"] {
            fs::create_dir_all(desk.path(name)).unwrap();
            if let Some(user) = user {
                std::os::unix::fs::chown(desk.path(name), Some(user), Some(user)).unwrap();
            }
        }
        Self { desk, user }
    }

    fn as_user(&self, command: &mut Command) {
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
    }

    /// Plain `sh` outside of the sandbox with an empty home; its output.
    fn outside(&self, dir: &str, script: &str) -> (bool, String) {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).current_dir(self.desk.path(dir)).env_clear();
        command.env("HOME", self.desk.path("home")).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "n").env(format!("GIT_{who}_EMAIL"), "a@b");
        }
        command.env("GIT_TERMINAL_PROMPT", "0").stdin(std::process::Stdio::null());
        self.as_user(&mut command);
        let done = command.output().unwrap();
        let text = [done.stdout, done.stderr].concat();
        (done.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    fn must(&self, dir: &str, script: &str) {
        let (is_good, text) = self.outside(dir, script);
        assert!(is_good, "{dir}: {script}: {text}");
    }

    /// A sandboxed command; its output with all remarks.
    fn inside(&self, level: &str, script: &str) -> (i32, String) {
        self.desk.put("home/script", script);
        // The gate reads what a command line names; a script says nothing before it runs.
        fs::copy(self.desk.path("home/script"), self.desk.path("work/.script")).unwrap();
        let set = format!("sandbox.level={level}");
        let mut command = self.desk.command(&["call", "Bash", r#"{"command":"sh .script"}"#, "--set", &set]);
        self.as_user(&mut command);
        let done = command.output().unwrap();
        let text = [done.stdout, done.stderr].concat();
        _ = fs::remove_file(self.desk.path("work/.script"));
        (done.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
    }

    fn filled(&self, script: &str, name: &str) -> String {
        let mark = self.desk.path("marks").join(name);
        let id = format!("{name}-{}", std::process::id());
        script.replace("@EVIL@", EVIL).replace("@RUN@", &format!("touch {}", mark.display())).replace("@ID@", &id)
    }

    fn mark(&self, name: &str) -> PathBuf {
        self.desk.path("marks").join(name)
    }

    /// Every plant in a directory of its own.
    fn prepare(&self) {
        self.must("work", "git init -q source && git -C source commit -q --allow-empty -m 1");
        self.must(
            "work",
            &format!("mkdir fixture && cd fixture && {FIXTURE} && git worktree remove wt && git branch -D wt"),
        );
        let copies: Vec<String> = PLANTS
            .iter()
            .map(|it| {
                let run = self.filled("@RUN@;false", it.name);
                format!(
                    "cp -r fixture {0} && git -C {0} worktree add -q wt -b wt && git -C {0}/hb config core.fsmonitor '{run}' && ",
                    it.name
                )
            })
            .collect();
        self.must("work", &format!("{} true", copies.concat()));
    }

    fn planting(&self) -> String {
        let one = |it: &Plant| format!("(cd {} && {})\n", it.name, self.filled(it.plant, it.name));
        let identity = "export GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=a@b\n";
        format!("{identity}{}", PLANTS.iter().map(one).collect::<Vec<_>>().concat())
    }

    /// Which plants ran outside.
    fn fired(&self) -> Vec<&'static str> {
        let ran = |it: &&Plant| {
            self.outside(&format!("work/{}", it.name), it.trigger);
            self.outside(&format!("work/{}", it.name), EVERYDAY);
            self.mark(it.name).exists()
        };
        PLANTS.iter().filter(ran).map(|it| it.name).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for it in &PLANTS {
            _ = fs::remove_dir_all(format!("/tmp/evil-{}-{}", it.name, std::process::id()));
        }
    }
}

/// Root and an ordinary user, where the tests run as root.
fn users() -> Vec<Option<u32>> {
    if rustix::process::geteuid().is_root() { vec![None, Some(65534)] } else { vec![None] }
}

fn nothing_runs_at(level: &str) {
    for user in users() {
        let scene = Scene::new(user);
        scene.prepare();
        let (code, said) = scene.inside(level, &scene.planting());
        assert!(said.contains(&format!("[{level}, exit")), "{level} {user:?}: {code} {said}");
        let fired = scene.fired();
        assert_eq!(fired, [""; 0], "{level}, user {user:?}: {said}");
    }
}

#[test]
fn every_plant_runs_without_a_sandbox() {
    let scene = Scene::new(None);
    scene.prepare();
    scene.outside("work", &scene.planting());
    let fired = scene.fired();
    let quiet: Vec<_> = PLANTS.iter().map(|it| it.name).filter(|name| !fired.contains(name)).collect();
    assert_eq!(quiet, [""; 0], "these prove nothing");
}

#[test]
fn no_plant_runs_outside_after_l3() {
    nothing_runs_at("L3");
}

#[test]
fn no_plant_runs_outside_after_l2() {
    nothing_runs_at("L2");
}

#[test]
fn no_plant_runs_outside_after_l1() {
    nothing_runs_at("L1");
}

#[test]
fn no_plant_runs_outside_in_the_repository_at_the_root() {
    for level in ["L3", "L2", "L1"] {
        for it in PLANTS.iter().filter(|it| {
            [
                "fsmonitor",
                "hook-pre-commit",
                "config-linked",
                "module-config",
                "modules-replaced",
                "worktree-file",
                "commondir",
                "hooks-replaced",
                "module-file-hidden",
                "remotes-file",
            ]
            .contains(&it.name)
        }) {
            let scene = Scene::new(None);
            scene.must("home", "git init -q ../source && git -C ../source commit -q --allow-empty -m 1");
            scene.must("work", FIXTURE);
            let (_, said) = scene.inside(level, &scene.filled(it.plant, it.name));
            scene.outside("work", it.trigger);
            scene.outside("work", EVERYDAY);
            assert!(!scene.mark(it.name).exists(), "{level} {}: {said}", it.name);
        }
    }
}

#[test]
fn a_bare_repository_at_the_root_runs_nothing_also_when_it_is_made_in_steps() {
    for level in ["L3", "L2", "L1"] {
        let scene = Scene::new(None);
        let config = scene.filled(
            "printf '[core]\\n\\tbare = false\\n\\tworktree = sub\\n\\tfsmonitor = \"@RUN@;false\"\\n' > config",
            "steps",
        );
        scene.inside(level, &format!("mkdir -p sub objects hooks; {config}"));
        let (_, said) = scene.inside(level, "mkdir -p refs; echo 'ref: refs/heads/main' > HEAD");
        assert!(said.contains("core.fsmonitor"), "{level}: {said}");
        let (_, out) = scene.outside("work", "git status");
        assert!(!scene.mark("steps").exists(), "{level}: {out}");
    }
}

#[test]
fn ordinary_work_with_git_goes_on_inside() {
    const WORK: &str = "set -e
export GIT_AUTHOR_NAME=n GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=n GIT_COMMITTER_EMAIL=a@b
echo 3 > b; git add b; git commit -qm three
echo 4 > b; git stash -q; git stash pop -q; git commit -qam four
git branch topic HEAD~1; git switch -q topic; echo 5 > c; git add c; git commit -qm five
git rebase -q main; git switch -q -; git merge -q topic
git worktree add -q more -b more; git -C more commit -q --allow-empty -m six
git worktree remove more
git -c protocol.file.allow=always submodule --quiet update
git -C s commit -q --allow-empty -m seven
git -C n commit -q --allow-empty -m eight; git -C wt commit -q --allow-empty -m nine
git clone -q n clone; git -C clone remote add up ../x; git -C clone checkout -q -b t; git -C clone commit -q --allow-empty -m ten
git init -q fresh; git -C fresh config user.name me; git -C fresh commit -q --allow-empty -m eleven
git gc -q; git tag v1; git status --short > /dev/null; echo done";
    for level in ["L3", "L2", "L1"] {
        for user in users() {
            let scene = Scene::new(user);
            scene.must("work", "git init -q source -b main && git -C source commit -q --allow-empty -m 1 && mkdir w");
            scene.must("work/w", &format!("git config --global init.defaultBranch main && {FIXTURE}"));
            // The submodule is known and not there yet.
            scene.must("work/w", "rm -rf s .git/modules && mkdir s");
            let before = fs::read(scene.desk.path("work/w/.git/config")).unwrap();
            let (code, said) = scene.inside(level, &format!("cd w; {WORK}"));
            assert!(code == 0 && said.contains("done"), "{level} {user:?}: {said}");
            assert!(!said.contains("protected") && !said.contains("removed"), "{level} {user:?}: {said}");
            assert_eq!(fs::read(scene.desk.path("work/w/.git/config")).unwrap(), before, "{level} {user:?}");
            scene.must("work/w", "git fsck && git log --oneline | grep -q five && git -C s log --oneline | grep -q seven \
                && test \"$(git -C clone config remote.up.url)\" = ../x && test \"$(git -C fresh config user.name)\" = me \
                && git -C n log --oneline | grep -q eight && git -C wt log --oneline | grep -q nine");
        }
    }
}

#[test]
fn a_repository_that_commands_made_can_be_configured_by_the_next_one() {
    for level in ["L3", "L2", "L1"] {
        let scene = Scene::new(None);
        let lines = [
            "git init -q .",
            "git remote add origin https://example.com/x.git",
            "git config core.fsmonitor evil; git config user.name me",
            "git config --list",
        ]
        .map(|command| serde_json::json!({ "tool": "Bash", "args": { "command": command } }).to_string());
        let ran = scene.desk.fed(&["batch", "--set", &format!("sandbox.level={level}")], &lines.join("\n"));
        let last = ran.out.lines().last().unwrap_or_default();
        assert!(
            last.contains("https://example.com/x.git") && last.contains("user.name=me"),
            "{level}: {} {}",
            ran.out,
            ran.err
        );
        assert!(!last.contains("fsmonitor"), "{level}: {last}");
        assert!(
            ran.out.contains("These settings were removed") && ran.out.contains("core.fsmonitor"),
            "{level}: {}",
            ran.out
        );
    }
}

#[test]
fn files_that_other_programs_run_are_named_in_the_reply() {
    for level in ["L3", "L2", "L1"] {
        let scene = Scene::new(None);
        scene.desk.put("work/package.json", r#"{"scripts":{"test":"true"}}"#);
        let (_, said) = scene.inside(level, "echo x > a; sed -i s/1/2/ package.json");
        assert!(!said.contains("other programs run"), "{level}: {said}");
        let (_, said) = scene.inside(level, "mkdir -p .github/workflows sub; echo x > .github/workflows/ci.yml; echo x > sub/.envrc; sed -i s/true/false/ package.json");
        for text in
            [".github/workflows/ci.yml (run by GitHub Actions", "sub/.envrc (run by direnv", "package.json (run by npm"]
        {
            assert!(said.contains(text), "{level} {text}: {said}");
        }
        assert!(scene.desk.path("work/sub/.envrc").exists(), "{level}");
    }
}
