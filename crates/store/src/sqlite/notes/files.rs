//! Memory files and their passages in the index.

use std::collections::BTreeMap;

use helve_contract::{Result, ports::FileRevision};
use rusqlite::params;

use super::{
    super::{SqliteStore, to_micros},
    cut, index,
    shelf::{self, Key},
};

impl SqliteStore {
    pub(super) async fn sync_memory_files(
        &self,
        user: &str,
        place: &str,
        files: &[FileRevision],
    ) -> Result<Vec<String>> {
        let (user, place, files) = (user.to_owned(), place.to_owned(), files.to_vec());
        let (known, user, place) = self
            .read(move |t| {
                let mut known = t.prepare_cached(
                    "SELECT path, mark FROM memory_files WHERE tenant = ?1 AND user = ?2 AND place = ?3",
                )?;
                let rows = known.query_map(params![t.tenant, user, place], |row| Ok((row.get(0)?, row.get(1)?)))?;
                let known = rows.collect::<Result<BTreeMap<String, String>, _>>()?;
                Ok((known, user, place))
            })
            .await?;
        let gone: Vec<String> = known.keys().filter(|path| files.iter().all(|it| it.path != **path)).cloned().collect();
        if !gone.is_empty() {
            self.write(move |t| {
                let shelf = shelf::id(t, &Key::files(&user, &place))?;
                for path in gone {
                    t.prepare_cached(
                        "DELETE FROM memory_files WHERE tenant = ?1 AND user = ?2 AND place = ?3 AND path = ?4",
                    )?
                    .execute(params![t.tenant, user, place, path])?;
                    index::remove(t, shelf, &path)?;
                }
                Ok(())
            })
            .await?;
        }
        let new = files.into_iter().filter(|it| known.get(&it.path) != Some(&it.revision));
        Ok(new.map(|it| it.path).collect())
    }

    pub(super) async fn index_memory_file(
        &self,
        user: &str,
        place: &str,
        file: &FileRevision,
        text: &str,
    ) -> Result<()> {
        let passages = self.read_passages(cut::chunk_file(text)).await;
        let (user, place, file) = (user.to_owned(), place.to_owned(), file.clone());
        self.write(move |t| {
            t.prepare_cached(
                "INSERT OR REPLACE INTO memory_files (tenant, user, place, path, mark) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![t.tenant, user, place, file.path, file.revision])?;
            let shelf = shelf::id(t, &Key::files(&user, &place))?;
            index::remove(t, shelf, &file.path)?;
            index::insert(t, shelf, &file.path, to_micros(t.now), &passages)
        })
        .await
    }
}
