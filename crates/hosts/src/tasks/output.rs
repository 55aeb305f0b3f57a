//! The output of a task in memory: the start and the latest end.

use std::collections::VecDeque;

use helve_contract::ports::TaskOutput;

use super::text::OutputSanitizer;

/// How much of the beginning is kept: enough for the largest limit of a dialect, 100,000 characters of four bytes.
pub(super) const HEAD_BYTES: usize = 512 << 10;
/// How much of the end is kept.
const TAIL_BYTES: usize = 512 << 10;
/// How many changes from one stream to the other are remembered.
const MAX_RUNS: usize = 32 << 10;

/// One of a program's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputStream {
    Out,
    Err,
}

/// Bytes of both streams as they came.
#[derive(Default)]
pub(super) struct OutputBuffer {
    /// How many came in all.
    pub(super) total: u64,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Where the bytes of one stream begin, until the next entry.
    runs: VecDeque<(u64, OutputStream)>,
    /// Entries about the head; they are never dropped.
    head_runs: Vec<(u64, OutputStream)>,
}

impl OutputBuffer {
    /// Keeps a piece.
    pub(super) fn push(&mut self, stream: OutputStream, piece: &[u8]) {
        let (head, tail) = piece.split_at(piece.len().min(HEAD_BYTES - self.head.len()));
        if !head.is_empty() {
            if self.head_runs.last().map(|(_, last)| *last) != Some(stream) {
                self.head_runs.push((self.total, stream));
            }
            self.head.extend(head);
        }
        if !tail.is_empty() {
            if self.runs.back().map(|(_, last)| *last) != Some(stream) {
                self.runs.push_back((self.total + head.len() as u64, stream));
            }
            let room = TAIL_BYTES.saturating_sub(tail.len().min(TAIL_BYTES));
            let gone = self.tail.len().saturating_sub(room);
            self.tail.drain(..gone);
            self.tail.extend(&tail[tail.len().saturating_sub(TAIL_BYTES)..]);
        }
        self.total += piece.len() as u64;
        self.forget_runs();
    }

    fn forget_runs(&mut self) {
        while self.runs.len() > MAX_RUNS {
            // Too many short runs: drop the oldest of the tail with their bytes.
            let until = self.runs[1].0;
            let gone = until.saturating_sub(self.tail_start()) as usize;
            self.tail.drain(..gone.min(self.tail.len()));
            self.runs.pop_front();
        }
        while self.runs.len() > 1 && self.runs[1].0 <= self.tail_start() {
            self.runs.pop_front();
        }
    }

    fn tail_start(&self) -> u64 {
        self.total - self.tail.len() as u64
    }

    /// The beginning, for a file that is begun late.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// The end, for a file that was cut short.
    pub(super) fn tail(&self) -> Vec<u8> {
        self.tail.iter().copied().collect()
    }

    /// The text from a byte on, at most `max` bytes of it. `ended` says that nothing more will come.
    pub(super) fn text(&self, from: u64, max: usize, ended: bool) -> TaskOutput {
        let head_end = self.head.len() as u64;
        let start = if from < head_end { from } else { from.clamp(self.tail_start().min(self.total), self.total) };
        let skipped = start.saturating_sub(from);
        let start = start + self.skip_partial_char(start);
        let whole = head_end == self.tail_start();
        let end = if start < head_end && !whole { head_end } else { self.total };
        let end = end.min(start.saturating_add(max as u64));
        let mut builder = OutputBuilder::default();
        self.each_run(start, end, |stream, piece| builder.feed(stream, piece));
        // If the last byte has arrived, or the next chunk is not in memory, nothing is held back.
        let stuck = builder.output.merged.is_empty();
        let last = ended && end == self.total || end == head_end && !whole || stuck && end < self.total;
        builder.done(end, last, skipped)
    }

    /// How many bytes to pass over so as not to begin in the middle of a character.
    fn skip_partial_char(&self, start: u64) -> u64 {
        let before = start.checked_sub(1).and_then(|at| self.byte(at));
        if before.is_none_or(|byte| byte < 0x80) {
            return 0;
        }
        (start..start + 3).take_while(|at| self.byte(*at).is_some_and(|byte| byte & 0xC0 == 0x80)).count() as u64
    }

    fn byte(&self, at: u64) -> Option<u8> {
        match self.head.get(at as usize) {
            Some(byte) => Some(*byte),
            None => self.tail.get(at.checked_sub(self.tail_start())? as usize).copied(),
        }
    }

    /// Goes through a stretch, one stream at a time.
    fn each_run(&self, start: u64, end: u64, mut take: impl FnMut(OutputStream, &[u8])) {
        let starts: Vec<(u64, OutputStream)> = self.head_runs.iter().chain(&self.runs).copied().collect();
        for (at, (begin, stream)) in starts.iter().enumerate() {
            let until = starts.get(at + 1).map_or(self.total, |(next, _)| *next);
            let (begin, until) = ((*begin).max(start), until.min(end));
            if begin < until {
                self.bytes(begin, until, |piece| take(*stream, piece));
            }
        }
    }

    fn bytes(&self, begin: u64, until: u64, mut take: impl FnMut(&[u8])) {
        let head_end = self.head.len() as u64;
        if begin < head_end {
            take(&self.head[begin as usize..until.min(head_end) as usize]);
        }
        let tail_start = self.tail_start();
        let (begin, until) = (begin.max(tail_start), until.max(tail_start));
        if until > begin && until > head_end {
            let (first, second) = self.tail.as_slices();
            let (begin, until) = ((begin - tail_start) as usize, (until - tail_start) as usize);
            take(&first[begin.min(first.len())..until.min(first.len())]);
            take(&second[begin.saturating_sub(first.len())..until.saturating_sub(first.len())]);
        }
    }
}

/// Builds the answer, each stream with its own state.
#[derive(Default)]
struct OutputBuilder {
    output: TaskOutput,
    out: OutputSanitizer,
    err: OutputSanitizer,
    last: Option<OutputStream>,
}

impl OutputBuilder {
    fn feed(&mut self, stream: OutputStream, piece: &[u8]) {
        let mut text = String::new();
        let (cleaner, own) = match stream {
            OutputStream::Out => (&mut self.out, &mut self.output.stdout),
            OutputStream::Err => (&mut self.err, &mut self.output.stderr),
        };
        cleaner.feed(piece, &mut text);
        own.push_str(&text);
        self.output.merged.push_str(&text);
        self.last = Some(stream);
    }

    fn done(mut self, end: u64, last: bool, skipped: u64) -> TaskOutput {
        let waiting_last = match self.last {
            Some(OutputStream::Out) => self.out.waiting(),
            Some(OutputStream::Err) => self.err.waiting(),
            None => 0,
        };
        // An incomplete sequence at the end is read again next time; one before the other stream's output is shown
        // now.
        for stream in [OutputStream::Out, OutputStream::Err] {
            if last || self.last != Some(stream) {
                let (cleaner, own) = match stream {
                    OutputStream::Out => (&mut self.out, &mut self.output.stdout),
                    OutputStream::Err => (&mut self.err, &mut self.output.stderr),
                };
                let mut text = String::new();
                cleaner.finish(&mut text);
                own.push_str(&text);
                self.output.merged.push_str(&text);
            }
        }
        let waiting = if last { 0 } else { waiting_last as u64 };
        TaskOutput { next: end.saturating_sub(waiting), skipped, ..self.output }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(merged: &str, stdout: &str, stderr: &str, next: u64, skipped: u64) -> TaskOutput {
        TaskOutput { merged: merged.into(), stdout: stdout.into(), stderr: stderr.into(), next, skipped }
    }

    #[test]
    fn streams_apart_and_together() {
        let mut kept = OutputBuffer::default();
        kept.push(OutputStream::Out, b"one\n");
        kept.push(OutputStream::Err, b"two\n");
        kept.push(OutputStream::Out, b"three\n");
        assert_eq!(kept.text(0, 100, true), output("one\ntwo\nthree\n", "one\nthree\n", "two\n", 14, 0));
        assert_eq!(kept.text(4, 6, true), output("two\nth", "th", "two\n", 10, 0));
        assert_eq!(kept.text(14, 6, true), output("", "", "", 14, 0));
        assert_eq!(kept.text(99, 6, true), output("", "", "", 14, 0));
    }

    #[test]
    fn a_character_is_never_cut() {
        let mut kept = OutputBuffer::default();
        kept.push(OutputStream::Out, "a世".as_bytes());
        assert_eq!(kept.text(0, 3, false), output("a", "a", "", 1, 0));
        assert_eq!(kept.text(1, 3, false), output("世", "世", "", 4, 0));
        assert_eq!(kept.text(2, 9, false), output("", "", "", 4, 0));
        kept.push(OutputStream::Out, b"\xe4\xb8");
        assert_eq!(kept.text(4, 9, false), output("", "", "", 4, 0));
        assert_eq!(kept.text(4, 9, true), output("\\xe4\\xb8", "\\xe4\\xb8", "", 6, 0));
    }

    #[test]
    fn the_beginning_and_the_end_stay() {
        let mut kept = OutputBuffer::default();
        for _ in 0..100 {
            kept.push(OutputStream::Out, &vec![b'x'; 65_536]);
        }
        kept.push(OutputStream::Err, b"the end");
        let total = 6_553_607;
        assert_eq!((kept.total, kept.head.len(), kept.tail.len()), (total, HEAD_BYTES, TAIL_BYTES));
        let first = kept.text(0, 1 << 30, true);
        assert_eq!((first.merged.len(), first.next, first.skipped), (HEAD_BYTES, HEAD_BYTES as u64, 0));
        let then = kept.text(first.next, 10, true);
        assert_eq!(
            then,
            output(
                "xxxxxxxxxx",
                "xxxxxxxxxx",
                "",
                total - TAIL_BYTES as u64 + 10,
                total - (TAIL_BYTES + HEAD_BYTES) as u64
            )
        );
        assert_eq!(kept.text(total - 7, 100, true), output("the end", "", "the end", total, 0));
    }

    #[test]
    fn many_short_turns_cost_little() {
        let mut kept = OutputBuffer::default();
        for at in 0..1_000_000_u32 {
            kept.push(if at % 2 == 0 { OutputStream::Out } else { OutputStream::Err }, b"x");
        }
        assert!(kept.runs.len() <= MAX_RUNS);
        let end = kept.text(kept.total - 4, 10, true);
        assert_eq!(end, output("xxxx", "xx", "xx", 1_000_000, 0));
    }
}
