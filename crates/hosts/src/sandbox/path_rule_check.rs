//! Checks path rules after a command: moves away files that it created against a deny rule.
//!
//! Mounts protect existing files. The kernel cannot refuse new files by a name pattern, so they are moved to the
//! quarantine directory when the command ends.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use helve_contract::{Result, SafePath};

use super::{
    integrity::Integrity,
    integrity_notes as notes,
    items::Original,
    path_rules::{DeniedPlaces, PathRuleIndex},
    quarantine::Batch,
    settings::IntegrityOutcome,
};

/// The files that path rules match, before a command.
pub(super) struct PathRuleCheck {
    index: Arc<PathRuleIndex>,
    integrity: Arc<Integrity>,
    roots: Vec<SafePath>,
    before: DeniedPlaces,
    /// Whether files are moved or only reported.
    is_enforced: bool,
}

impl PathRuleCheck {
    /// Records the files; `None` if no rule applies to commands.
    pub(super) fn begin(
        index: &Arc<PathRuleIndex>,
        integrity: &Arc<Integrity>,
        roots: Vec<SafePath>,
        is_enforced: bool,
    ) -> Result<Option<Self>> {
        if roots.iter().all(|root| root.command_rules().next().is_none()) {
            return Ok(None);
        }
        let before = index.find(roots.iter())?;
        Ok(Some(Self { index: index.clone(), integrity: integrity.clone(), roots, before, is_enforced }))
    }

    /// Compares with the record and moves new files away; returns the messages.
    pub(super) async fn finish(self) -> Vec<String> {
        tokio::task::spawn_blocking(move || self.compare()).await.unwrap_or_default()
    }

    fn compare(&self) -> Vec<String> {
        let now = match self.index.find_all(self.roots.iter()) {
            Ok(now) => now,
            Err(error) => return vec![error.to_string()],
        };
        let tops: Vec<PathBuf> = self.roots.iter().filter_map(|root| fs::canonicalize(&root.root().dir).ok()).collect();
        let mut batch = self.integrity.batch();
        let (mut moved, mut notes) = (Vec::new(), Vec::new());
        for path in self.new_places(&now) {
            let above = tops.iter().filter(|top| path.starts_with(top)).min_by_key(|top| top.as_os_str().len());
            let Some(top) = above.filter(|top| !self.integrity.is_own(top, path)) else { continue };
            if !self.is_enforced {
                self.integrity.tell(path, IntegrityOutcome::Changed);
                notes.push(notes::denied_created(path));
                continue;
            }
            match self.take(top, path, &mut batch) {
                Ok(place) => moved.push((path.clone(), place)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    self.integrity.tell(path, IntegrityOutcome::Changed);
                    notes.push(notes::denied_not_moved(path, &error));
                }
            }
        }
        notes.extend(notes::denied_moved(&moved));
        notes
    }

    /// Paths that match a rule now and did not exist before. A link counts with its target.
    fn new_places<'a>(&'a self, now: &'a DeniedPlaces) -> impl Iterator<Item = &'a PathBuf> {
        let was_there = |path: &&PathBuf| !self.before.hidden.contains(path) && !self.before.read_only.contains(path);
        let files = now.hidden.iter().chain(&now.read_only).filter(was_there);
        files.chain(now.links.iter().filter(|link| !self.before.links.contains(link)).map(|(path, _)| path))
    }

    /// Moves a file away and restores the link that it replaced.
    fn take(&self, top: &Path, path: &Path, batch: &mut Batch) -> io::Result<PathBuf> {
        let place = batch.take(top, path)?;
        self.integrity.tell(path, IntegrityOutcome::Moved(place.clone()));
        if let Some((_, to)) = self.before.links.iter().find(|(link, _)| link == path) {
            let bytes = std::os::unix::ffi::OsStrExt::as_bytes(to.as_os_str()).to_vec();
            batch.put(top, path, &Original { is_link: true, mode: 0o777, bytes })?;
        }
        Ok(place)
    }
}
