//! Memory files: which there are, and their lines in the index.

use std::collections::BTreeMap;

use helve_contract::{Result, jiff::Timestamp, ports::FileMark};
use rusqlite::params;

use super::{
    super::{Sqlite, kept},
    cut, index,
    shelf::{self, Kind},
};

impl Sqlite {
    pub(super) async fn sync_memory_files(&self, place: &str, files: &[FileMark]) -> Result<Vec<String>> {
        let (place, files) = (place.to_owned(), files.to_vec());
        let (known, place) = self
            .read(move |t| {
                let mut known = t.prepare_cached("SELECT path, mark FROM memory_files WHERE place = ?1")?;
                let rows = known.query_map([&place], |row| Ok((row.get(0)?, row.get(1)?)))?;
                let known = rows.collect::<Result<BTreeMap<String, String>, _>>()?;
                Ok((known, place))
            })
            .await?;
        let gone: Vec<String> = known.keys().filter(|path| files.iter().all(|it| it.path != **path)).cloned().collect();
        if !gone.is_empty() {
            self.write(move |t| {
                let shelf = shelf::id(t, Kind::Files, &place)?;
                for path in gone {
                    t.prepare_cached("DELETE FROM memory_files WHERE place = ?1 AND path = ?2")?
                        .execute(params![place, path])?;
                    index::drop(t, shelf, &path)?;
                }
                Ok(())
            })
            .await?;
        }
        let new = files.into_iter().filter(|it| known.get(&it.path) != Some(&it.mark));
        Ok(new.map(|it| it.path).collect())
    }

    pub(super) async fn keep_memory_file(
        &self,
        place: &str,
        file: &FileMark,
        text: &str,
        now: Timestamp,
    ) -> Result<()> {
        let passages = self.read_passages(cut::file(text)).await;
        let (place, file) = (place.to_owned(), file.clone());
        self.write(move |t| {
            t.prepare_cached("INSERT OR REPLACE INTO memory_files (place, path, mark) VALUES (?1, ?2, ?3)")?
                .execute(params![place, file.path, file.mark])?;
            let shelf = shelf::id(t, Kind::Files, &place)?;
            index::drop(t, shelf, &file.path)?;
            index::put(t, shelf, &file.path, kept(now), &passages)
        })
        .await
    }
}
