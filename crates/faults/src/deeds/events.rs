//! Checks the event log: complete lines, numbers without gaps, a start and an end for every call.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;

use crate::Violation;

/// Violations in an event log that must contain at least this many finished calls. If `lossy`, some may be missing,
/// because the disk was full or failed and that was reported.
pub fn verify_events(file: &Path, ended: u64, lossy: bool) -> anyhow::Result<Vec<Violation>> {
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(_) if ended == 0 || lossy => return Ok(Vec::new()),
        Err(error) => return Ok(vec![Violation::Lost(format!("{}: {error}", file.display()))]),
    };
    let (mut wrong, mut seqs, mut count) = (Vec::new(), BTreeMap::<String, u64>::new(), 0);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let Ok(event) = serde_json::from_slice::<Value>(line) else {
            wrong.push(Violation::Partial(format!("an event of {} bytes is torn", line.len())));
            continue;
        };
        if !line.ends_with(b"\n") {
            wrong.push(Violation::Partial("the last event has no end".into()));
        }
        let (run, seq) = (event["runId"].as_str().unwrap_or_default().to_owned(), event["seq"].as_u64().unwrap_or(0));
        let last = seqs.entry(run).or_default();
        if seq != *last + 1 {
            wrong.push(Violation::Partial(format!("event {seq} follows {last}")));
        }
        *last = seq;
        count += u64::from(event["type"] == "tool.result");
    }
    if count < ended && !lossy {
        wrong.push(Violation::Lost(format!("{ended} calls were answered, the record knows the end of {count}")));
    }
    Ok(wrong)
}
