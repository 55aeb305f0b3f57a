//! `schedule_runs` and `schedule_run_output`: results and output of runs.

use std::time::Duration;

use helve_contract::{Call, Effects, Error, Port, PortSet, Reply, Result, Tool, ports::ScheduleRun};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// Lists the last runs of a schedule, newest first, with a summary of each.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ScheduleRunsTool {
    /// Which schedule.
    pub id: String,
    /// How many: 5 unless told, 1 to 20.
    #[serde(default)]
    pub limit: Option<u64>,
}

/// The last runs of a schedule.
#[derive(Clone, Debug)]
pub struct ScheduleRunsOutput {
    /// The schedule.
    pub id: String,
    /// Its runs.
    pub runs: Vec<ScheduleRun>,
}

impl Tool for ScheduleRunsTool {
    const NAME: &'static str = "schedule_runs";
    const EFFECTS: Effects = Effects::READS;
    const NEEDS: PortSet = PortSet::of(&[Port::Schedules]);
    const TIMEOUT: Duration = Duration::from_secs(10);
    type Output = ScheduleRunsOutput;

    async fn run(self, call: &Call) -> Result<ScheduleRunsOutput> {
        let schedule = super::find_owned(call, &self.id).await?;
        let limit = self.limit.unwrap_or(5).clamp(1, 20) as usize;
        Ok(ScheduleRunsOutput { runs: call.store().runs(&schedule.id, limit).await?, id: schedule.id })
    }
}

impl From<ScheduleRunsOutput> for Reply {
    fn from(ScheduleRunsOutput { id, runs }: ScheduleRunsOutput) -> Self {
        let runs: Vec<Value> = runs.iter().map(run_to_json).collect();
        Self::json(json!({ "schedule_id": id, "count": runs.len(), "runs": runs }))
    }
}

fn run_to_json(run: &ScheduleRun) -> Value {
    let mut data = json!({
        "run_id": run.id,
        "started_at": super::time(run.started),
        "finished_at": run.finished.map(super::time),
        "status": run.status,
        "output_summary": run.summary,
        "turn_count": run.turns,
        "cost": run.cost,
        "notified": run.notified,
    });
    if run.attempt > 1 {
        data["attempt"] = run.attempt.into();
    }
    data
}

/// Reads the whole output of a run, piece by piece.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ScheduleRunOutputTool {
    /// Which run.
    pub run: String,
    /// Where to begin, in characters.
    #[serde(default)]
    pub offset: u64,
    /// How many characters: 4000 unless told, 200 to 8000.
    #[serde(default)]
    pub max_chars: Option<u64>,
}

/// A piece of a run's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRunOutputPage {
    /// The run.
    pub run: String,
    /// Where the piece begins, in characters.
    pub offset: u64,
    /// How many characters were wanted.
    pub max_chars: u64,
    /// The piece.
    pub text: String,
    /// Characters after it.
    pub remaining: u64,
    /// Characters in all.
    pub total: u64,
}

impl Tool for ScheduleRunOutputTool {
    const NAME: &'static str = "schedule_run_output";
    const EFFECTS: Effects = Effects::READS;
    const NEEDS: PortSet = PortSet::of(&[Port::Schedules]);
    const TIMEOUT: Duration = Duration::from_secs(10);
    type Output = ScheduleRunOutputPage;

    async fn run(self, call: &Call) -> Result<ScheduleRunOutputPage> {
        let strange = || {
            let id = super::truncate(&self.run, 64);
            Error::failed(format!("run {id} does not belong to you, or does not exist; list the runs of a schedule"))
        };
        let user = super::user(call)?;
        let run = call.store().run(&self.run).await?.ok_or_else(strange)?;
        let schedule = call.store().schedule(&run.schedule).await?;
        if schedule.is_none_or(|it| it.user != user) {
            return Err(strange());
        }
        Ok(chunk(run, self.offset, self.max_chars.unwrap_or(4_000).clamp(200, 8_000)))
    }
}

/// Cuts a piece out of the output. Everything is counted in characters.
fn chunk(run: ScheduleRun, offset: u64, max_chars: u64) -> ScheduleRunOutputPage {
    let total = run.output.chars().count() as u64;
    let offset = offset.min(total);
    let text: String = run.output.chars().skip(offset as usize).take(max_chars as usize).collect();
    let remaining = total - offset - text.chars().count() as u64;
    ScheduleRunOutputPage { run: run.id, offset, max_chars, text, remaining, total }
}

impl From<ScheduleRunOutputPage> for Reply {
    fn from(chunk: ScheduleRunOutputPage) -> Self {
        let mut data = json!({
            "run_id": chunk.run,
            "offset": chunk.offset,
            "max_chars": chunk.max_chars,
            "chunk": chunk.text,
            "remaining": chunk.remaining,
            "total_length": chunk.total,
        });
        if chunk.remaining > 0 {
            data["hint"] = format!("use offset={} for the next piece", chunk.total - chunk.remaining).into();
        }
        Self::json(data)
    }
}

#[cfg(test)]
mod tests {
    use helve_contract::{jiff::Timestamp, ports::ScheduleRunStatus};
    use proptest::prelude::*;

    use super::*;

    fn run(output: &str) -> ScheduleRun {
        ScheduleRun {
            id: "r".into(),
            schedule: "s".into(),
            due: Timestamp::UNIX_EPOCH,
            attempt: 1,
            owner: "o".into(),
            started: Timestamp::UNIX_EPOCH,
            finished: None,
            status: ScheduleRunStatus::Success,
            summary: String::new(),
            output: output.into(),
            turns: 0,
            cost: 0.0,
            notified: false,
        }
    }

    #[test]
    fn counts_characters_and_says_where_to_go_on() {
        let reply: Reply = chunk(run(&"é".repeat(500)), 100, 200).into();
        let data = reply.data.unwrap();
        assert_eq!(data["chunk"], "é".repeat(200));
        assert_eq!((&data["remaining"], &data["hint"]), (&200.into(), &"use offset=300 for the next piece".into()));
        assert_eq!(chunk(run(&"é".repeat(9000)), 0, 8000).text.chars().count(), 8000);
        let past = chunk(run("abc"), 99, 4000);
        assert_eq!((past.offset, past.text.as_str(), past.remaining), (3, "", 0));
    }

    proptest! {
        #[test]
        fn the_pieces_are_the_whole(text in any::<String>(), times in 1_usize..800, max in 200_u64..8000) {
            let whole = text.repeat(times.min(40_000 / text.len().max(1)));
            let (mut read, mut offset) = (String::new(), 0);
            loop {
                let piece = chunk(run(&whole), offset, max);
                read += &piece.text;
                let (remaining, total) = (piece.remaining, piece.total);
                prop_assert!(Reply::from(piece).text.len() < 65_536);
                if remaining == 0 { break }
                prop_assert!(total - remaining > offset);
                offset = total - remaining;
            }
            prop_assert_eq!(read, whole);
        }
    }
}
