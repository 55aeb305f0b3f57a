//! An event file that several processes append to: consecutive numbers and only whole lines. Events that the disk
//! refuses are queued and written later.

use std::{
    collections::VecDeque,
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use helve_contract::events::{EventRecord, EventsRecovered};
use rustix::fs::{FlockOperation, flock};
use serde::Deserialize;

use super::{EventContext, WritePolicy, timestamp_now};

/// How far back the last line is looked for before the whole file is read.
pub(super) const TAIL_BYTES: u64 = 256 << 10;
/// A number above this was planted: nobody counts that far, and readers of JSON no longer tell it from the next one.
pub(super) const MAX_SEQ: u64 = 1 << 53;

/// A file of events of one run, among those of others perhaps.
pub(super) struct EventFile {
    file: File,
    run: String,
    /// Bytes of the file that are known: up to here, `seq` is the number of the run's last event.
    scanned: u64,
    seq: u64,
    /// The time of what was written last.
    time: String,
    /// Events that are written with the next one.
    batched: Vec<EventRecord>,
    /// Whether ends of calls wait, too.
    batching: bool,
    /// Events that the disk did not take, oldest first.
    unwritten: VecDeque<EventRecord>,
    /// Their size, about.
    unwritten_bytes: usize,
    /// How many there was no room for.
    dropped: u64,
}

/// How many events wait at most.
const MAX_BATCHED: usize = 64;
/// What is held at most.
const MAX_UNWRITTEN: (usize, usize) = (1000, 8 << 20);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SeqLine {
    pub(super) seq: u64,
    pub(super) run_id: Option<String>,
}

impl SeqLine {
    /// Whether the line belongs to a stream and has a number that is not planted.
    pub(super) fn is_of(&self, run: &str) -> bool {
        self.run_id.as_deref().is_none_or(|it| it == run) && self.seq < MAX_SEQ
    }
}

impl EventFile {
    /// Opens the file, puts a torn end right, and finds the last number.
    pub(super) fn open(path: &Path, run: &str) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other(format!("{} is not a regular file", path.display())));
        }
        let mut log = Self {
            file,
            run: run.to_owned(),
            scanned: 0,
            seq: 0,
            time: String::new(),
            batched: Vec::new(),
            batching: false,
            unwritten: VecDeque::new(),
            unwritten_bytes: 0,
            dropped: 0,
        };
        log.with_lock(Self::catch_up)?;
        Ok(log)
    }

    /// The number and the time of the last event.
    pub(super) fn last(&self) -> (u64, String) {
        (self.seq, self.time.clone())
    }

    /// Takes an event and writes it with the next number, after those that wait or are held; or lets it wait. What cannot be
    /// written is held, and the error says so.
    pub(super) fn take(&mut self, head: &EventContext, event: EventRecord, when: WritePolicy) -> io::Result<()> {
        self.batched.push(event);
        let waits = match when {
            WritePolicy::Immediate => false,
            WritePolicy::WithNext => true,
            WritePolicy::Batched => self.batching && self.batched.len() < MAX_BATCHED,
        };
        if waits { Ok(()) } else { self.flush(head) }
    }

    /// Ends of calls may wait from now on, or no longer.
    pub(super) fn set_batching(&mut self, gathering: bool) {
        self.batching = gathering;
    }

    /// Writes the events that wait, after those that are held.
    pub(super) fn flush(&mut self, head: &EventContext) -> io::Result<()> {
        if self.batched.is_empty() && self.unwritten.is_empty() {
            return Ok(());
        }
        let mut events = std::mem::take(&mut self.batched);
        let done = self.with_lock(|log| {
            log.catch_up()?;
            log.write_unwritten(head)?;
            log.write_events(&mut events)
        });
        done.map_err(|error| {
            for event in events {
                self.buffer_unwritten(event);
            }
            let lost = if self.dropped > 0 { format!(", and {} are lost", self.dropped) } else { String::new() };
            io::Error::new(error.kind(), format!("{error}; {} events wait to be written{lost}", self.unwritten.len()))
        })
    }

    /// Writes events at once, all or none. Unlike [`EventFile::take`] it keeps nothing that the disk did not take.
    pub(super) fn append(&mut self, events: &mut [EventRecord]) -> io::Result<u64> {
        self.with_lock(|log| {
            log.catch_up()?;
            log.write_events(events)
        })?;
        Ok(self.seq)
    }

    /// Keeps an event until the disk takes it.
    fn buffer_unwritten(&mut self, mut event: EventRecord) {
        event.unknown.insert("heldSince".to_owned(), timestamp_now().into());
        let size = event.append_data(Vec::new()).len();
        if self.unwritten.len() < MAX_UNWRITTEN.0 && self.unwritten_bytes + size <= MAX_UNWRITTEN.1 {
            self.unwritten_bytes += size;
            self.unwritten.push_back(event);
        } else {
            self.dropped += 1;
        }
    }

    /// Writes what is held, and then that something was.
    fn write_unwritten(&mut self, head: &EventContext) -> io::Result<()> {
        let count = self.unwritten.len();
        if count == 0 {
            return Ok(());
        }
        while let Some(mut event) = self.unwritten.pop_front() {
            if let Err(error) = self.write_events(std::slice::from_mut(&mut event)) {
                self.unwritten.push_front(event);
                return Err(error);
            }
        }
        let recovered = EventsRecovered { held: count as u64, lost: self.dropped };
        // The queued events are written; losing this one loses no data.
        _ = self.write_events(&mut [head.pending(recovered.into())?]);
        (self.unwritten_bytes, self.dropped) = (0, 0);
        Ok(())
    }

    /// Writes events in one go, each in a line, and gives them their numbers and their time.
    fn write_events(&mut self, events: &mut [EventRecord]) -> io::Result<()> {
        // The time is taken under the lock, so that it grows with the numbers.
        let (time, mut lines, mut seq) = (timestamp_now(), Vec::with_capacity(1024), self.seq);
        for event in events {
            seq += 1;
            (event.seq, event.timestamp) = (seq, time.clone());
            lines = event.append_json(lines);
            lines.push(b'\n');
        }
        if let Err(error) = self.file.write_all(&lines) {
            // A partial line would corrupt the next one.
            _ = self.file.set_len(self.scanned);
            return Err(error);
        }
        self.scanned += lines.len() as u64;
        (self.seq, self.time) = (seq, time);
        Ok(())
    }

    fn with_lock<T>(&mut self, work: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        loop {
            match flock(&self.file, FlockOperation::LockExclusive) {
                Err(rustix::io::Errno::INTR) => {}
                done => break done?,
            }
        }
        let done = work(self);
        _ = flock(&self.file, FlockOperation::Unlock);
        done
    }

    /// Reads what was written since, by whomever.
    fn catch_up(&mut self) -> io::Result<()> {
        let size = self.file.metadata()?.len();
        if size == self.scanned {
            return Ok(());
        }
        if size < self.scanned {
            (self.scanned, self.seq) = (0, 0);
        }
        let size = self.repair_tail(size)?;
        let near = size.saturating_sub(TAIL_BYTES);
        if near <= self.scanned || !self.scan_seq(near, size)? {
            self.scan_seq(self.scanned, size)?;
        }
        self.scanned = size;
        Ok(())
    }

    /// Ends a last line that has no end: with a newline if it is whole, else by taking it away.
    fn repair_tail(&mut self, size: u64) -> io::Result<u64> {
        let mut last = [0];
        if size == 0 || (self.read_at(size - 1, &mut last)? == 1 && last == *b"\n") {
            return Ok(size);
        }
        let start = self.line_start(size)?;
        self.file.seek(SeekFrom::Start(start))?;
        let mut torn = Vec::new();
        (&self.file).take(size - start).read_to_end(&mut torn)?;
        if serde_json::from_slice::<serde_json::Value>(&torn).is_ok_and(|it| it.is_object()) {
            self.file.write_all(b"\n")?;
            return Ok(size + 1);
        }
        self.file.set_len(start)?;
        Ok(start)
    }

    /// Where the line begins that ends at `end`.
    fn line_start(&mut self, mut end: u64) -> io::Result<u64> {
        let mut block = vec![0; 64 << 10];
        while end > 0 {
            let from = end.saturating_sub(block.len() as u64);
            let count = self.read_at(from, &mut block[..(end - from) as usize])?;
            if let Some(at) = block[..count].iter().rposition(|byte| *byte == b'\n') {
                return Ok(from + at as u64 + 1);
            }
            end = from;
        }
        Ok(0)
    }

    fn read_at(&mut self, from: u64, into: &mut [u8]) -> io::Result<usize> {
        self.file.seek(SeekFrom::Start(from))?;
        let mut count = 0;
        while count < into.len() {
            match self.file.read(&mut into[count..])? {
                0 => break,
                more => count += more,
            }
        }
        Ok(count)
    }

    /// Takes the run's highest number from these lines; says whether there was one.
    fn scan_seq(&mut self, from: u64, to: u64) -> io::Result<bool> {
        self.file.seek(SeekFrom::Start(from))?;
        let mut lines = BufReader::new((&self.file).take(to - from));
        let (mut line, mut found) = (Vec::new(), None);
        while lines.read_until(b'\n', &mut line)? > 0 {
            if let Ok(event) = serde_json::from_slice::<SeqLine>(&line)
                && event.is_of(&self.run)
            {
                found = found.max(Some(event.seq));
            }
            line.clear();
        }
        self.seq = found.map_or(self.seq, |seq| seq.max(self.seq));
        Ok(found.is_some())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use helve_contract::events::ForgeStarted;
    use serde_json::{Value, json};

    use super::*;

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("helve-events-{name}-{}.ndjson", crate::events::random_hex().unwrap()))
    }

    fn event() -> EventRecord {
        named("x")
    }

    fn named(run: &str) -> EventRecord {
        head("r").pending(ForgeStarted { run: run.into() }.into()).unwrap()
    }

    fn head(run: &str) -> EventContext {
        EventContext { run: run.into(), ..EventContext::default() }
    }

    /// The numbers and runs of a file's events.
    fn seen(path: &Path) -> Vec<(u64, String)> {
        let lines = fs::read_to_string(path).unwrap();
        let events = lines.lines().map(|line| serde_json::from_str::<SeqLine>(line).unwrap());
        events.map(|it| (it.seq, it.run_id.unwrap())).collect()
    }

    fn of(run: &str, seqs: &[u64]) -> Vec<(u64, String)> {
        seqs.iter().map(|seq| (*seq, run.to_owned())).collect()
    }

    #[test]
    fn goes_on_where_the_last_process_stopped() {
        let path = place("on");
        EventFile::open(&path, "r").unwrap().take(&head("r"), event(), WritePolicy::Immediate).unwrap();
        EventFile::open(&path, "r").unwrap().take(&head("r"), event(), WritePolicy::Immediate).unwrap();
        assert_eq!(seen(&path), of("r", &[1, 2]));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_the_disk_did_not_take_is_written_later() {
        let path = place("later");
        let mut log = EventFile::open(&path, "r").unwrap();
        log.take(&head("r"), event(), WritePolicy::Immediate).unwrap();
        // Simulates a file that is temporarily not writable.
        let whole = std::mem::replace(&mut log.file, File::open(&path).unwrap());
        let error = log.take(&head("r"), event(), WritePolicy::Immediate).unwrap_err().to_string();
        assert!(error.ends_with("; 1 events wait to be written"), "{error}");
        assert!(log.take(&head("r"), event(), WritePolicy::Immediate).is_err());
        assert_eq!(seen(&path), of("r", &[1]));
        log.file = whole;
        log.take(&head("r"), event(), WritePolicy::Immediate).unwrap();
        assert_eq!(seen(&path), of("r", &[1, 2, 3, 4, 5]));
        let text = fs::read_to_string(&path).unwrap();
        let told: Value = serde_json::from_str(text.lines().nth(3).unwrap()).unwrap();
        assert_eq!((&told["type"], &told["data"]), (&json!("events.recovered"), &json!({ "held": 2, "lost": 0 })));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_waits_is_written_with_the_next_in_its_order() {
        let path = place("with");
        let mut log = EventFile::open(&path, "r").unwrap();
        log.take(&head("r"), named("first"), WritePolicy::WithNext).unwrap();
        assert_eq!(seen(&path), []);
        log.take(&head("r"), named("second"), WritePolicy::Immediate).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let runs = text.lines().map(|it| serde_json::from_str::<Value>(it).unwrap()["data"]["run"].clone());
        assert_eq!(runs.collect::<Vec<_>>(), ["first", "second"]);
        assert_eq!(seen(&path), of("r", &[1, 2]));
        log.take(&head("r"), event(), WritePolicy::WithNext).unwrap();
        log.flush(&head("r")).unwrap();
        assert_eq!(seen(&path), of("r", &[1, 2, 3]));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_was_torn_or_planted_in_the_middle_is_passed_over() {
        let path = place("planted");
        let junk: &[&[u8]] = &[
            b"{\"seq\":1,\"runId\":\"r\"}\n",
            &[0; 5000],
            b"\n{\"seq\":7,\"ru\n\r\n\n[1]\n",
            "{\"seq\":2,\"runId\":\"r\",\"data\":\"a\u{2028}b\"}\r\n".as_bytes(),
            b"\xff\xfe\n",
            &vec![b'x'; 3_000_000],
        ];
        fs::write(&path, junk.concat()).unwrap();
        EventFile::open(&path, "r").unwrap().take(&head("r"), event(), WritePolicy::Immediate).unwrap();
        let bytes = fs::read(&path).unwrap();
        let whole: Vec<u64> = bytes
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<SeqLine>(line).ok())
            .map(|it| it.seq)
            .collect();
        assert_eq!(whole, [1, 2, 3]);
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_number_without_a_next_one_is_passed_over() {
        let path = place("highest");
        fs::write(&path, format!("{{\"seq\":4,\"runId\":\"r\"}}\n{{\"seq\":{},\"runId\":\"r\"}}\n", u64::MAX)).unwrap();
        EventFile::open(&path, "r").unwrap().take(&head("r"), event(), WritePolicy::Immediate).unwrap();
        assert_eq!(seen(&path), of("r", &[4, u64::MAX, 5]));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_torn_end_is_put_right() {
        let path = place("torn");
        fs::write(&path, "{\"seq\":1,\"runId\":\"r\"}\n{\"seq\":2,\"ru").unwrap();
        EventFile::open(&path, "r").unwrap().take(&head("r"), event(), WritePolicy::Immediate).unwrap();
        assert_eq!(seen(&path), of("r", &[1, 2]));
        fs::write(&path, "{\"seq\":1,\"runId\":\"r\"}").unwrap();
        EventFile::open(&path, "r").unwrap().take(&head("r"), event(), WritePolicy::Immediate).unwrap();
        assert_eq!(seen(&path), of("r", &[1, 2]));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn many_writers_leave_no_gap() {
        let path = place("many");
        let writers: Vec<_> = (0..8)
            .map(|at| {
                let (path, run) = (path.clone(), if at % 2 == 0 { "even" } else { "odd" });
                std::thread::spawn(move || {
                    let mut log = EventFile::open(&path, run).unwrap();
                    let event = || head(run).pending(ForgeStarted { run: run.into() }.into()).unwrap();
                    (0..50).for_each(|_| log.take(&head(run), event(), WritePolicy::Immediate).unwrap());
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        let text = fs::read_to_string(&path).unwrap();
        for run in ["even", "odd"] {
            let seen: Vec<u64> = text
                .lines()
                .map(|it| serde_json::from_str::<SeqLine>(it).unwrap())
                .filter(|it| it.run_id.as_deref() == Some(run))
                .map(|it| it.seq)
                .collect();
            assert_eq!(seen, (1..=200).collect::<Vec<_>>());
        }
        fs::remove_file(path).unwrap();
    }
}
