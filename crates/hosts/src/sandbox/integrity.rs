//! The integrity check: finds and repairs changes to protected names that no mount can prevent.
//!
//! Before a command runs, the check records the protected files and directories beneath its writable roots.
//! Afterwards it moves new and replaced ones to the quarantine directory, and the command's reply reports it.
//! Concurrent commands share the record of the first, and each end is a check. A journal in the quarantine directory
//! lists running commands, so that after a kill the next start does the check.

mod check;

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, DirBuilder, OpenOptions},
    io::Write as _,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::{DirBuilderExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::supervise::Mounts;

use super::{
    dir_index::DirIndex,
    git_dirs::GitDirs,
    git_refs::{Refs, hex},
    git_repair, integrity_notes as notes,
    items::{self, Differences, GitChange, Items},
    journal::Journal,
    placeholders,
    protected_names::{ProtectedNames, is_within},
    quarantine::Batch,
    settings::{IntegrityEvent, IntegrityListener, IntegrityOutcome},
};

pub(crate) use check::Check;
use check::Pending;

/// An index up to this size is updated inline.
const SMALL_INDEX: usize = 256;
/// A smaller index is not saved to a file.
const KEPT_INDEX: usize = 64;
/// The minimum interval between two writes of the index.
const WRITE_INDEX_EVERY: Duration = Duration::from_secs(30);
/// The timeout for searching files in refs.
const MAX_SEARCH: Duration = Duration::from_secs(10);
/// The maximum number of repositories per root whose refs are read.
const MAX_REPOSITORIES: usize = 32;

/// Runs git in the sandbox: the repository's top directory, arguments, input.
pub(super) type Git = Arc<dyn Fn(PathBuf, Vec<String>, Vec<u8>) -> BoxFuture<'static, Option<Vec<u8>>> + Send + Sync>;

/// The protected names and the quarantine directory.
pub(super) struct Integrity {
    names: ProtectedNames,
    /// Names beneath a root, for placeholders of earlier versions.
    at_root: Vec<String>,
    quarantine: PathBuf,
    listener: Option<IntegrityListener>,
    /// The refs of all repositories beneath all roots.
    refs: Mutex<BTreeMap<PathBuf, Refs>>,
    roots: Mutex<HashMap<PathBuf, Arc<AsyncMutex<State>>>>,
}

/// The state of one root.
#[derive(Default)]
struct State {
    root: PathBuf,
    is_open: bool,
    index: DirIndex,
    /// The items before the current commands.
    before: Items,
    refs: BTreeMap<PathBuf, Refs>,
    /// The git directories at the last check, and those that this session's commands created.
    git: GitDirs,
    made: GitDirs,
    running: usize,
    journal: Option<Journal>,
    /// Messages that were not reported yet.
    notes: Vec<String>,
    index_written: Option<Instant>,
    has_told_partial: bool,
}

impl Integrity {
    pub(super) fn new(
        names: ProtectedNames,
        at_root: Vec<String>,
        quarantine: Option<PathBuf>,
        listener: Option<IntegrityListener>,
    ) -> Self {
        let quarantine = quarantine.unwrap_or_else(usual_quarantine);
        // A link in its path would hide that it is beneath a root.
        let quarantine = real(&quarantine);
        Self { names, at_root, quarantine, listener, refs: Mutex::default(), roots: Mutex::default() }
    }

    /// A batch of moves to the quarantine directory.
    pub(super) fn batch(&self) -> Batch {
        Batch::new(&self.quarantine)
    }

    /// Whether Helve writes this file beneath a root.
    pub(super) fn is_own(&self, root: &Path, path: &Path) -> bool {
        is_within(path, self.own_folder(root))
    }

    pub(super) fn tell(&self, path: &Path, outcome: IntegrityOutcome) {
        if let Some(IntegrityListener(listener)) = &self.listener {
            listener(&IntegrityEvent { path: path.to_owned(), outcome });
        }
    }

    /// Records the state before a command that may write to these roots.
    pub(super) async fn begin(self: &Arc<Self>, roots: &[PathBuf], is_enforced: bool, git: Git) -> Check {
        let mut pending =
            Pending { integrity: self.clone(), states: Vec::new(), is_enforced, git, mounts: Mounts::default() };
        if self.names.is_empty() {
            return Check::default();
        }
        for root in outermost(roots) {
            let shared = self.state(&root);
            let mut state = shared.clone().lock_owned().await;
            state = self.open(state, is_enforced, &pending.git).await;
            let integrity = self.clone();
            state = on_thread(state, move |state| {
                if state.running == 0 {
                    let now = state.scan(&integrity);
                    state.made.retain(&state.git);
                    state.record(now, &integrity);
                    state.write_journal(&integrity);
                }
                state.running += 1;
            })
            .await;
            let mounts = state.git.mounts(&root, &state.made);
            pending.mounts.pinned.extend(mounts.pinned);
            pending.mounts.read_only.extend(mounts.read_only);
            drop(state);
            pending.states.push(shared);
        }
        Check { pending: Some(pending), path_rules: None }
    }

    /// Does the checks that a kill prevented and removes placeholders of earlier versions; returns the messages.
    pub(super) async fn recover(self: &Arc<Self>, roots: &[PathBuf], is_enforced: bool, git: Git) -> Vec<String> {
        let mut notes = Vec::new();
        if self.names.is_empty() {
            return notes;
        }
        for root in outermost(roots) {
            let state = self.state(&root).lock_owned().await;
            let mut state = self.open(state, is_enforced, &git).await;
            notes.append(&mut state.notes);
        }
        notes
    }

    fn state(&self, root: &Path) -> Arc<AsyncMutex<State>> {
        let mut roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(AsyncMutex::new(State { root: root.to_owned(), ..State::default() }));
        roots.entry(root.to_owned()).or_insert_with(new).clone()
    }

    /// Prepares a root at its first use.
    async fn open(
        self: &Arc<Self>,
        state: OwnedMutexGuard<State>,
        is_enforced: bool,
        git: &Git,
    ) -> OwnedMutexGuard<State> {
        if state.is_open {
            return state;
        }
        let integrity = self.clone();
        let mut state = on_thread(state, move |state| {
            state.is_open = true;
            placeholders::remove(&state.root, integrity.at_root.iter());
            state.load_index(&integrity);
            for (before, refs) in Journal::abandoned(&integrity.quarantine, &state.root) {
                state.before = before;
                state.refs = refs;
                state.running = 1;
            }
        })
        .await;
        if state.running > 0 {
            state = self.check(state, is_enforced, git).await;
            state.running = 0;
            state.made = GitDirs::default();
        }
        state
    }

    /// The part of the state directory beneath a root, if any. Helve writes there while commands run.
    fn own_folder(&self, root: &Path) -> Option<&Path> {
        let own = self.quarantine.parent().unwrap_or(&self.quarantine);
        let own = if own.starts_with(root) && own != root { own } else { self.quarantine.as_path() };
        own.starts_with(root).then_some(own)
    }

    /// Compares with the record and moves new items away.
    async fn check(
        self: &Arc<Self>,
        state: OwnedMutexGuard<State>,
        is_enforced: bool,
        git: &Git,
    ) -> OwnedMutexGuard<State> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let integrity = self.clone();
        let state = on_thread(state, move |state| {
            let earlier = state.git.clone();
            let mut now = state.scan(&integrity);
            state.made.add_new(&earlier, &state.git);
            let found = items::compare(&state.root, &state.before, &mut now);
            _ = sender.send((found, now));
        })
        .await;
        let Ok((found, now)) = receiver.try_recv() else { return state };
        if found.is_empty() {
            return state;
        }
        let integrity = self.clone();
        let (sender, receiver) = std::sync::mpsc::channel();
        // First, because the git queries that follow take time.
        let state = on_thread(state, move |state| {
            let (mut found, mut now) = (found, now);
            state.settle_git_changes(&integrity, std::mem::take(&mut found.git), &mut now, is_enforced);
            _ = sender.send((found, now));
        })
        .await;
        let Ok((found, now)) = receiver.try_recv() else { return state };
        let known = self.refs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut standing = BTreeMap::new();
        if is_enforced {
            // Files not found before the timeout count as absent from refs.
            _ = tokio::time::timeout(MAX_SEARCH, state.find_standing(&found, known, git, &mut standing)).await;
        }
        let integrity = self.clone();
        on_thread(state, move |state| state.settle(&integrity, found, now, &standing, is_enforced)).await
    }
}

impl State {
    /// Collects the current items.
    fn scan(&mut self, integrity: &Integrity) -> Items {
        let own = integrity.own_folder(&self.root);
        let has_changed = self.index.update(&self.root, own, &integrity.names);
        if has_changed && self.index_written.is_none_or(|at| at.elapsed() > WRITE_INDEX_EVERY) {
            self.store_index(integrity);
        }
        self.git = if integrity.names.has_git() { GitDirs::find(&self.root, &self.index) } else { GitDirs::default() };
        items::collect(&self.root, &self.index, &self.git, &integrity.names, own)
    }

    /// Makes the current items the record for the next command.
    fn record(&mut self, mut now: Items, integrity: &Integrity) {
        items::read_contents(&self.root, &mut now, &self.before);
        self.before = now;
        let repositories: Vec<PathBuf> = self.repositories();
        self.refs.retain(|git, _| repositories.contains(git));
        for git in repositories {
            let refs = self.refs.entry(git.clone()).or_default();
            if refs.update(&git, true) {
                integrity.refs.lock().unwrap_or_else(PoisonError::into_inner).insert(git, refs.clone());
            }
        }
    }

    fn repositories(&self) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> =
            self.index.iter().filter(|(_, dir)| dir.is_repository).map(|(dir, _)| dir.join(".git")).collect();
        all.sort_by_key(|git| git.as_os_str().len());
        all.truncate(MAX_REPOSITORIES);
        all.retain(|git| git.is_dir());
        all
    }

    /// Finds the new files that an earlier ref contains, with the object. For a file in a new repository, possibly a
    /// clone, the refs of all repositories count.
    async fn find_standing(
        &self,
        found: &Differences,
        known: BTreeMap<PathBuf, Refs>,
        git: &Git,
        standing: &mut BTreeMap<PathBuf, String>,
    ) {
        let tops: Vec<&PathBuf> = self.index.iter().filter(|(_, dir)| dir.is_repository).map(|(dir, _)| dir).collect();
        let mut questions = BTreeMap::<PathBuf, Vec<(PathBuf, String, Vec<u8>)>>::new();
        for path in found.new.iter().flat_map(|(_, files)| files).chain(&found.changed) {
            let above = tops.iter().filter(|top| path.starts_with(top) && !path.starts_with(top.join(".git")));
            let Some(top) = above.max_by_key(|top| top.as_os_str().len()) else { continue };
            let relative = path.strip_prefix(top).ok().and_then(Path::to_str);
            let link = fs::read_link(path).ok().map(|to| to.into_os_string().into_vec());
            let (Some(relative), Some(content)) = (relative, link.or_else(|| items::read_file(path))) else { continue };
            let own = top.join(".git");
            let sources: Vec<&PathBuf> = match self.refs.contains_key(&own) {
                true => vec![&own],
                false if **top != self.root => known.keys().collect(),
                false => Vec::new(),
            };
            for source in sources {
                let question = (path.clone(), relative.to_owned(), content.clone());
                questions.entry(source.clone()).or_default().push(question);
            }
        }
        for (repository, files) in questions {
            let Some((refs, top)) = self.refs.get(&repository).or(known.get(&repository)).zip(repository.parent())
            else {
                continue;
            };
            let contents: Vec<(String, Vec<u8>)> =
                files.iter().map(|(_, at, content)| (at.clone(), content.clone())).collect();
            let run = |args, input| git(top.to_owned(), args, input);
            let named = refs.find(&contents, &run).await;
            for (path, relative, content) in files {
                // Two clones may have different files at the same path.
                let is_same = contents.iter().all(|(at, other)| *at != relative || *other == content);
                if let Some(object) = named.get(&relative).filter(|_| is_same) {
                    standing.insert(path, object.clone());
                }
            }
        }
    }

    /// Moves new items away unless a ref contains them, and records the messages.
    fn settle(
        &mut self,
        integrity: &Integrity,
        found: Differences,
        mut now: Items,
        standing: &BTreeMap<PathBuf, String>,
        is_enforced: bool,
    ) {
        let mut batch = integrity.batch();
        let (mut moved, mut kept) = (Vec::new(), Vec::new());
        for (top, files) in found.new {
            kept.extend(files.iter().filter_map(|file| Some((file.clone(), standing.get(file)?))));
            let all_stand = !files.is_empty() && files.iter().all(|file| standing.contains_key(file));
            let some_stand = files.iter().any(|file| standing.contains_key(file));
            let away = match (all_stand, some_stand) {
                (true, _) => Vec::new(),
                (_, true) => files.into_iter().filter(|file| !standing.contains_key(file)).collect(),
                _ => vec![top],
            };
            for path in away {
                if !is_enforced {
                    self.notes.push(notes::created(&path));
                    integrity.tell(&path, IntegrityOutcome::Changed);
                    continue;
                }
                match batch.take(&self.root, &path) {
                    Ok(place) => {
                        integrity.tell(&path, IntegrityOutcome::Moved(place.clone()));
                        moved.push((path, place));
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    Err(error) => {
                        integrity.tell(&path, IntegrityOutcome::Changed);
                        self.notes.push(notes::not_moved(&path, &error));
                    }
                }
            }
        }
        self.notes.extend(notes::moved_notes(&moved, &integrity.quarantine));
        self.notes.extend(kept.iter().take(notes::MAX_NAMED).map(|(path, object)| notes::stays(path, object)));
        for (path, object) in &kept {
            integrity.tell(path, IntegrityOutcome::Stands((*object).clone()));
        }
        if !found.project.is_empty() {
            self.notes.push(notes::project_files(&self.root, &found.project));
        }
        for path in &found.project {
            integrity.tell(path, IntegrityOutcome::Changed);
        }
        for path in &found.changed {
            let outcome =
                standing.get(path).map_or(IntegrityOutcome::Changed, |it| IntegrityOutcome::Stands(it.clone()));
            integrity.tell(path, outcome);
            self.notes
                .push(standing.get(path).map_or_else(|| notes::changed(path), |object| notes::stays(path, object)));
        }
        // Reported items are not reported again while other commands run.
        now.retain(|path, _| !moved.iter().any(|(gone, _)| path.starts_with(gone)));
        items::read_contents(&self.root, &mut now, &self.before);
        self.before = now;
        if self.journal.is_some() {
            self.write_journal(integrity);
        }
    }

    /// Undoes what a command did to git directories.
    fn settle_git_changes(
        &mut self,
        integrity: &Integrity,
        changes: Vec<GitChange>,
        now: &mut Items,
        is_enforced: bool,
    ) {
        let mut batch = integrity.batch();
        for change in changes {
            self.settle_git(integrity, &change, &mut batch, is_enforced);
            match now.get(&change.path).and_then(|item| item.again(&change.path)) {
                Some(item) => _ = now.insert(change.path.clone(), item),
                None => _ = now.remove(&change.path),
            }
        }
    }

    /// Reverts a change to a file of a git directory and records the message.
    fn settle_git(&mut self, integrity: &Integrity, change: &GitChange, batch: &mut Batch, is_enforced: bool) {
        let others: Vec<PathBuf> =
            integrity.roots.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        let Some(repair) = git_repair::plan(change, &self.root, &others) else { return };
        if !is_enforced {
            integrity.tell(&change.path, IntegrityOutcome::Changed);
            self.notes.push(repair.warning(&change.path));
            return;
        }
        match repair.apply(change, &self.root, batch) {
            Ok((note, place)) => {
                integrity.tell(&change.path, IntegrityOutcome::Moved(place));
                self.notes.push(note);
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                integrity.tell(&change.path, IntegrityOutcome::Changed);
                self.notes.push(notes::not_moved(&change.path, &error));
            }
        }
    }

    fn write_journal(&mut self, integrity: &Integrity) {
        // The new journal exists before the old one is removed.
        let new = Journal::write(&integrity.quarantine, &self.root, &self.before, &self.refs);
        self.journal = new;
    }

    fn index_file(&self, integrity: &Integrity) -> Option<PathBuf> {
        // A journal in a place that commands can write is untrusted.
        if integrity.quarantine.starts_with(&self.root) || integrity.names.only_at_root() {
            return None;
        }
        // The number is the format version.
        let text = [self.root.as_os_str().as_bytes(), b"\0" as &[u8], b"2", integrity.names.text().as_bytes()].concat();
        let name = hex(&Sha256::digest(text)[..16]);
        Some(integrity.quarantine.join("index").join(name))
    }

    fn load_index(&mut self, integrity: &Integrity) {
        let bytes = self.index_file(integrity).and_then(|file| fs::read(file).ok());
        if let Some(index) = bytes.and_then(|bytes| DirIndex::from_bytes(&bytes)) {
            self.index = index;
        }
    }

    /// Saves the index for the next process, which would otherwise list all directories.
    fn store_index(&mut self, integrity: &Integrity) {
        self.index_written = Some(Instant::now());
        if self.index.len() < KEPT_INDEX {
            return;
        }
        if let (Some(file), Some(bytes)) = (self.index_file(integrity), self.index.to_bytes()) {
            _ = write_private(&file, &bytes);
        }
    }
}

/// Runs work on a state on a blocking thread.
async fn on_thread(
    mut state: OwnedMutexGuard<State>,
    work: impl FnOnce(&mut State) + Send + 'static,
) -> OwnedMutexGuard<State> {
    if (1..=SMALL_INDEX).contains(&state.index.len()) {
        work(&mut state);
        return state;
    }
    let shared = OwnedMutexGuard::mutex(&state).clone();
    let worked = tokio::task::spawn_blocking(move || {
        work(&mut state);
        state
    });
    match worked.await {
        Ok(state) => state,
        Err(_) => shared.lock_owned().await,
    }
}

/// The roots that lie in no other one.
fn outermost(roots: &[PathBuf]) -> Vec<PathBuf> {
    let inside = |root: &PathBuf| roots.iter().any(|other| other != root && root.starts_with(other));
    let mut all: Vec<PathBuf> = roots.iter().filter(|root| !inside(root)).cloned().collect();
    all.dedup();
    all
}

/// The default quarantine directory.
fn usual_quarantine() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|it| it.is_absolute());
    match variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state"))) {
        Some(state) => state.join("helve/quarantine"),
        None => std::env::temp_dir().join(format!("helve-{}/quarantine", rustix::process::geteuid().as_raw())),
    }
}

/// Resolves links as far as the path exists.
fn real(path: &Path) -> PathBuf {
    for above in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (fs::canonicalize(above), path.strip_prefix(above)) {
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    path.to_owned()
}

fn write_private(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    if let Some(dir) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let aside = file.with_extension(format!("{}.tmp", std::process::id()));
    let mut open = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
    open.write_all(bytes)?;
    fs::rename(aside, file)
}
