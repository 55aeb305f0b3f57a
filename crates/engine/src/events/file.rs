//! Events in a file that several processes may write to: numbered without a gap, never half a line.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::fs::{FlockOperation, flock};
use serde::Deserialize;

/// How far back the last line is looked for before the whole file is read.
const TAIL: u64 = 256 << 10;

/// A file of events of one run, among those of others perhaps.
pub(super) struct Log {
    file: File,
    run: String,
    /// Bytes of the file that are known: up to here, `seq` is the number of the run's last event.
    known: u64,
    seq: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Numbered {
    seq: u64,
    run_id: Option<String>,
}

impl Log {
    /// Opens the file, puts a torn end right, and finds the last number.
    pub(super) fn open(path: &Path, run: &str) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other(format!("{} is not a regular file", path.display())));
        }
        let mut log = Self { file, run: run.to_owned(), known: 0, seq: 0 };
        log.locked(Self::catch_up)?;
        Ok(log)
    }

    /// Writes one line, made with the next number.
    pub(super) fn append(&mut self, mut line: impl FnMut(u64) -> Vec<u8>) -> io::Result<()> {
        self.locked(|log| {
            log.catch_up()?;
            let line = line(log.seq + 1);
            if let Err(error) = log.file.write_all(&line) {
                // Half a line would be in the way of the next one.
                _ = log.file.set_len(log.known);
                return Err(error);
            }
            log.known += line.len() as u64;
            log.seq += 1;
            Ok(())
        })
    }

    fn locked<T>(&mut self, work: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
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
        if size == self.known {
            return Ok(());
        }
        if size < self.known {
            (self.known, self.seq) = (0, 0);
        }
        let size = self.heal(size)?;
        let near = size.saturating_sub(TAIL);
        if near <= self.known || !self.numbers(near, size)? {
            self.numbers(self.known, size)?;
        }
        self.known = size;
        Ok(())
    }

    /// Ends a last line that has no end: with a newline if it is whole, else by taking it away.
    fn heal(&mut self, size: u64) -> io::Result<u64> {
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
    fn numbers(&mut self, from: u64, to: u64) -> io::Result<bool> {
        self.file.seek(SeekFrom::Start(from))?;
        let mut lines = BufReader::new((&self.file).take(to - from));
        let (mut line, mut found) = (Vec::new(), None);
        while lines.read_until(b'\n', &mut line)? > 0 {
            if let Ok(event) = serde_json::from_slice::<Numbered>(&line)
                && event.run_id.is_none_or(|run| run == self.run)
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
    use super::*;
    use std::{fs, path::PathBuf};

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("helve-events-{name}-{}.ndjson", crate::events::random_hex().unwrap()))
    }

    fn line(run: &str) -> impl FnMut(u64) -> Vec<u8> {
        move |seq| format!("{{\"seq\":{seq},\"runId\":\"{run}\"}}\n").into_bytes()
    }

    #[test]
    fn goes_on_where_the_last_process_stopped() {
        let path = place("on");
        Log::open(&path, "r").unwrap().append(line("r")).unwrap();
        Log::open(&path, "r").unwrap().append(line("r")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"seq\":1,\"runId\":\"r\"}\n{\"seq\":2,\"runId\":\"r\"}\n");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_torn_end_is_put_right() {
        let path = place("torn");
        fs::write(&path, "{\"seq\":1,\"runId\":\"r\"}\n{\"seq\":2,\"ru").unwrap();
        Log::open(&path, "r").unwrap().append(line("r")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"seq\":1,\"runId\":\"r\"}\n{\"seq\":2,\"runId\":\"r\"}\n");
        fs::write(&path, "{\"seq\":1,\"runId\":\"r\"}").unwrap();
        Log::open(&path, "r").unwrap().append(line("r")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"seq\":1,\"runId\":\"r\"}\n{\"seq\":2,\"runId\":\"r\"}\n");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn many_writers_leave_no_gap() {
        let path = place("many");
        let writers: Vec<_> = (0..8)
            .map(|at| {
                let (path, run) = (path.clone(), if at % 2 == 0 { "even" } else { "odd" });
                std::thread::spawn(move || {
                    let mut log = Log::open(&path, run).unwrap();
                    (0..50).for_each(|_| log.append(line(run)).unwrap());
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
                .map(|it| serde_json::from_str::<Numbered>(it).unwrap())
                .filter(|it| it.run_id.as_deref() == Some(run))
                .map(|it| it.seq)
                .collect();
            assert_eq!(seen, (1..=200).collect::<Vec<_>>());
        }
        fs::remove_file(path).unwrap();
    }
}
