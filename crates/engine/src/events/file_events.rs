//! The `Events` port over a file of JSON lines. Several processes may append several streams.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use helve_contract::{
    Error, Result, async_trait,
    events::{EventRecord, NewEvent},
    ports::Events,
};

use super::{
    event_id,
    file::{EventFile, SeqLine, TAIL_BYTES},
    lock,
};

/// How often a reader that waits looks at the size of the file.
const POLL: Duration = Duration::from_millis(100);

/// Events in a file. Writers lock it, so that numbers have no gaps; a line that a killed writer left is repaired by the
/// next one. Readers take no lock, and pass over what is not a whole line.
#[derive(Clone)]
pub struct FileEvents(Arc<Inner>);

struct Inner {
    path: PathBuf,
    writers: Mutex<HashMap<String, Arc<Mutex<EventFile>>>>,
    /// How far each stream was read.
    places: Mutex<HashMap<String, Place>>,
}

/// A position in the file: all events of a stream up to `seq` end at `offset`.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Place {
    inode: u64,
    offset: u64,
    seq: u64,
}

impl FileEvents {
    /// The events of a file, which the first event creates.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(Arc::new(Inner { path: path.into(), writers: Mutex::default(), places: Mutex::default() }))
    }

    /// [`Events::tail`] without a runtime.
    pub fn tail_now(&self, stream: &str, limit: usize) -> io::Result<Vec<EventRecord>> {
        self.0.tail(stream, limit)
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = self.0.clone();
        let done = tokio::task::spawn_blocking(move || work(&inner)).await;
        done.map_err(|error| Error::Internal(error.into()))?.map_err(|error| Error::Internal(error.into()))
    }
}

impl Inner {
    fn append(&self, stream: &str, events: Vec<NewEvent>) -> io::Result<u64> {
        let records = events.into_iter().map(|it| Ok(EventRecord::new(event_id()?, stream, 0, String::new(), it)));
        let mut records = records.collect::<io::Result<Vec<_>>>()?;
        let writer = match lock(&self.writers).entry(stream.to_owned()) {
            std::collections::hash_map::Entry::Occupied(it) => it.get().clone(),
            std::collections::hash_map::Entry::Vacant(it) => {
                it.insert(Arc::new(Mutex::new(EventFile::open(&self.path, stream)?))).clone()
            }
        };
        let mut writer = lock(&writer);
        writer.append(&mut records)
    }

    /// The file and its length; `None` where there is no file yet.
    fn open(&self) -> io::Result<Option<(File, u64, u64)>> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let about = file.metadata()?;
        Ok(Some((file, about.len(), about.ino())))
    }

    fn read(&self, stream: &str, after: u64, limit: usize) -> io::Result<Vec<EventRecord>> {
        let Some((file, size, inode)) = self.open()? else { return Ok(Vec::new()) };
        let start = Place { inode, ..Place::default() };
        let known = lock(&self.places).get(stream).copied().unwrap_or_default();
        let is_usable = known.inode == inode && known.offset <= size && known.seq <= after;
        let mut place = if is_usable { known } else { start };
        let mut found = Vec::new();
        lines(file, place.offset, size, |line, end| {
            if let Some(record) = parse(stream, line).filter(|it| it.seq > place.seq) {
                place.seq = record.seq;
                if record.seq > after {
                    found.push(record);
                }
            }
            place.offset = end;
            found.len() < limit
        })?;
        lock(&self.places).insert(stream.to_owned(), place);
        Ok(found)
    }

    /// Reads back from the end, as far as it takes.
    fn tail(&self, stream: &str, limit: usize) -> io::Result<Vec<EventRecord>> {
        let mut window = TAIL_BYTES;
        loop {
            let Some((file, size, _)) = self.open()? else { return Ok(Vec::new()) };
            let from = size.saturating_sub(window);
            let mut found = Vec::new();
            // The first line may be partial and is then not JSON.
            lines(file, from, size, |line, _| {
                found.extend(parse(stream, line));
                true
            })?;
            if found.len() >= limit || from == 0 {
                return Ok(found.split_off(found.len().saturating_sub(limit)));
            }
            window = window.saturating_mul(4);
        }
    }

    /// Whether there is an event above this number. It costs one look at the size while nothing is written.
    fn has_more(&self, stream: &str, after: u64) -> io::Result<bool> {
        let Some((_, size, inode)) = self.open()? else { return Ok(false) };
        let known = lock(&self.places).get(stream).copied().unwrap_or_default();
        if known.inode == inode && known.offset == size && known.seq <= after {
            return Ok(false);
        }
        let found = self.read(stream, after, 1)?;
        // The caller reads the event again, so the position moves back before it.
        if !found.is_empty() {
            lock(&self.places).insert(stream.to_owned(), known);
        }
        Ok(!found.is_empty())
    }
}

/// Gives each whole line between two positions to a function, with the position after it, until it returns false.
fn lines(mut file: File, from: u64, to: u64, mut take: impl FnMut(&[u8], u64) -> bool) -> io::Result<()> {
    file.seek(SeekFrom::Start(from))?;
    let mut lines = BufReader::new(file.take(to.saturating_sub(from)));
    let (mut line, mut end) = (Vec::new(), from);
    while lines.read_until(b'\n', &mut line)? > 0 {
        end += line.len() as u64;
        if line.last() != Some(&b'\n') || !take(&line, end) {
            break;
        }
        line.clear();
    }
    Ok(())
}

/// The event in a line, if it is one of this stream.
fn parse(stream: &str, line: &[u8]) -> Option<EventRecord> {
    serde_json::from_slice::<SeqLine>(line).ok().filter(|it| it.is_of(stream))?;
    serde_json::from_slice(line).ok()
}

#[async_trait]
impl Events for FileEvents {
    async fn append(&self, stream: &str, events: Vec<NewEvent>) -> Result<u64> {
        let stream = stream.to_owned();
        self.blocking(move |it| it.append(&stream, events)).await
    }

    async fn read(&self, stream: &str, after: u64, limit: usize) -> Result<Vec<EventRecord>> {
        let stream = stream.to_owned();
        self.blocking(move |it| it.read(&stream, after, limit)).await
    }

    async fn last(&self, stream: &str) -> Result<u64> {
        Ok(self.tail(stream, 1).await?.last().map_or(0, |it| it.seq))
    }

    async fn wait(&self, stream: &str, after: u64) -> Result<()> {
        loop {
            let name = stream.to_owned();
            if self.blocking(move |it| it.has_more(&name, after)).await? {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn tail(&self, stream: &str, limit: usize) -> Result<Vec<EventRecord>> {
        let stream = stream.to_owned();
        self.blocking(move |it| it.tail(&stream, limit)).await
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _};

    use helve_contract::events::ForgeStarted;

    use super::*;

    fn event(run: &str) -> NewEvent {
        ForgeStarted { run: run.into() }.into()
    }

    fn seqs(events: &FileEvents, after: u64) -> Vec<u64> {
        events.0.read("s", after, 100).unwrap().iter().map(|it| it.seq).collect()
    }

    #[test]
    fn a_torn_last_line_is_skipped_and_the_next_writer_repairs_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.ndjson");
        FileEvents::new(&path).0.append("s", vec![event("a"), event("b")]).unwrap();
        let whole = fs::read(&path).unwrap();
        let second = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for cut in second..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let reader = FileEvents::new(&path);
            assert_eq!(seqs(&reader, 0), [1], "{cut}");
            // Another process appends; the reader continues at its position.
            FileEvents::new(&path).0.append("s", vec![event("c")]).unwrap();
            // A line that lacks only its newline is complete and stays.
            let expected = if cut == whole.len() - 1 { vec![2, 3] } else { vec![2] };
            assert_eq!(seqs(&reader, 1), expected, "{cut}");
        }
    }

    #[test]
    fn a_reader_takes_up_a_file_that_was_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.ndjson");
        let reader = FileEvents::new(&path);
        assert_eq!(seqs(&reader, 0), [0; 0]);
        FileEvents::new(&path).0.append("s", vec![event("a"), event("b")]).unwrap();
        assert_eq!(seqs(&reader, 0), [1, 2]);
        fs::rename(&path, dir.path().join("old")).unwrap();
        FileEvents::new(&path).0.append("s", vec![event("a")]).unwrap();
        assert_eq!(seqs(&reader, 0), [1]);
    }

    #[test]
    fn the_end_of_a_large_file_is_read_from_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.ndjson");
        let events = FileEvents::new(&path);
        events.0.append("s", (0..3).map(|_| event(&"x".repeat(100_000))).collect()).unwrap();
        events.0.append("other", vec![event("y")]).unwrap();
        let tail = |limit| events.tail_now("s", limit).unwrap().iter().map(|it| it.seq).collect::<Vec<_>>();
        assert_eq!((tail(1), tail(3), tail(9), tail(0)), (vec![3], vec![1, 2, 3], vec![1, 2, 3], vec![]));
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"seq\":4,").unwrap();
        assert_eq!(tail(1), [3]);
    }
}
