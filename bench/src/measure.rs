//! Interleaved measurements, A B A B …: relative costs, independent of other load on the machine.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// One side of a comparison: does its work this many times.
pub(crate) type BenchSide<'a> = &'a mut dyn FnMut(usize) -> Result<()>;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BenchEffort {
    /// The most rounds of a comparison.
    rounds: usize,
    /// No more rounds start after this time per side, once there are [`MIN_ROUNDS`].
    time: Duration,
    /// How large the data are, and what the figures are for.
    pub(crate) scale: Scale,
}

/// What figures are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// To be told.
    Full,
    /// To see that it runs.
    Quick,
    /// To see that nothing has become many times slower.
    Check,
}

/// The fewest rounds that a median is taken of, and the fewest where a round takes very long.
const MIN_ROUNDS: usize = 7;
const MIN_ROUNDS_SLOW: usize = 3;
/// A sample lasts at least this long, so that the clock does not matter.
const MIN_SAMPLE_TIME: Duration = Duration::from_micros(500);
/// A pause before each sample: a side that polls for its next call would disturb the next one.
const PAUSE: Duration = Duration::from_millis(1);

/// What one side took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timing {
    /// Seconds of one piece of work, in each round.
    wall_secs: Vec<f64>,
    /// CPU seconds of all rounds together, per piece of work.
    cpu: f64,
}

/// What came out of a comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    /// Ours by theirs, of each pair.
    pub(crate) ratio: Percentiles,
    /// Microseconds of one of ours.
    pub(crate) ours_us: Percentiles,
    /// Microseconds of one of theirs.
    pub(crate) peer_us: Percentiles,
    /// CPU time of all of ours by that of all of theirs, per piece of work.
    pub(crate) cpu: f64,
    /// How many pairs there were.
    pub(crate) pairs: usize,
}

/// The middle of some figures, and where all but the outermost tenths lie.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Percentiles {
    /// A tenth is below.
    pub(crate) p10: f64,
    /// Half is below.
    pub(crate) p50: f64,
    /// A tenth is above.
    pub(crate) p90: f64,
}

impl BenchEffort {
    /// For figures.
    pub(crate) fn full() -> Self {
        Self { rounds: 101, time: Duration::from_secs(2), scale: Scale::Full }
    }

    /// To see that it runs.
    pub(crate) fn quick() -> Self {
        Self { rounds: MIN_ROUNDS, time: Duration::from_millis(100), scale: Scale::Quick }
    }

    /// To see that nothing has become many times slower.
    pub(crate) fn check() -> Self {
        Self { rounds: 15, time: Duration::from_millis(250), scale: Scale::Check }
    }

    /// Whether data should be small.
    pub(crate) fn is_small(&self) -> bool {
        self.scale != Scale::Full
    }

    /// Measures sides in turns, A B C A B C …. A side that fails is out of the race from then on.
    pub(crate) fn race(&self, sides: &mut [BenchSide<'_>]) -> Vec<Result<Timing>> {
        let mut counts: Vec<_> = sides.iter_mut().map(|side| calibrate(*side)).collect();
        let mut all = vec![Timing::default(); sides.len()];
        let (start, most) = (Instant::now(), self.time * sides.len() as u32);
        for round in 0..self.rounds {
            let fewest = if start.elapsed() > most * 2 { MIN_ROUNDS_SLOW } else { MIN_ROUNDS };
            if round >= fewest && start.elapsed() >= most {
                break;
            }
            for ((side, count), timed) in sides.iter_mut().zip(&mut counts).zip(&mut all) {
                let Ok(times) = *count else { continue };
                thread::sleep(PAUSE);
                match sample(*side, times) {
                    Ok(sample) => {
                        timed.wall_secs.push(sample.wall);
                        timed.cpu += sample.cpu;
                    }
                    Err(error) => *count = Err(error),
                }
            }
        }
        counts.into_iter().zip(all).map(|(count, timed)| count.map(|_| timed)).collect()
    }
}

impl Timing {
    /// Microseconds of one piece of work.
    pub(crate) fn micros(&self) -> Percentiles {
        Percentiles::of(self.wall_secs.iter().map(|it| it * 1e6).collect())
    }

    /// This side by another of the same race.
    pub(crate) fn compare(&self, peer: &Self) -> Comparison {
        Comparison {
            pairs: self.wall_secs.len().min(peer.wall_secs.len()),
            ratio: Percentiles::of(self.wall_secs.iter().zip(&peer.wall_secs).map(|(a, b)| a / b).collect()),
            ours_us: self.micros(),
            peer_us: peer.micros(),
            cpu: self.cpu / peer.cpu,
        }
    }
}

/// Seconds of one piece of work.
struct TimeSample {
    wall: f64,
    cpu: f64,
}

fn sample(side: BenchSide<'_>, count: usize) -> Result<TimeSample> {
    let cpu = cpu();
    let start = Instant::now();
    side(count)?;
    let wall = start.elapsed().as_secs_f64();
    let cpu = self::cpu() - cpu;
    Ok(TimeSample { wall: wall / count as f64, cpu: cpu / count as f64 })
}

/// How often a side works in one sample. Also warms it up: a slow first run is repeated.
fn calibrate(side: BenchSide<'_>) -> Result<usize> {
    side(1)?;
    let mut is_long = |count: usize| -> Result<bool> {
        let start = Instant::now();
        side(count)?;
        Ok(start.elapsed() >= MIN_SAMPLE_TIME || count >= 1 << 12)
    };
    let mut count = 1;
    while !(is_long(count)? && is_long(count)?) {
        count *= 2;
    }
    Ok(count)
}

/// CPU seconds of this process and of its children that have ended.
fn cpu() -> f64 {
    let own = clock_gettime(ClockId::ProcessCPUTime);
    own.tv_sec as f64 + own.tv_nsec as f64 / 1e9 + children().unwrap_or(0.0)
}

/// CPU seconds of the children that have ended. The kernel counts in hundredths; the rest of one sample is carried to
/// the next, so that a sum over many is exact enough.
fn children() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields.split_ascii_whitespace().skip(13).take(2).filter_map(|it| it.parse::<u64>().ok());
    Some((ticks.next()? + ticks.next()?) as f64 / 100.0)
}

impl Percentiles {
    pub(crate) fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let last = figures.len().saturating_sub(1) as f64;
        let at = |part: f64| figures.get((last * part).round() as usize).copied();
        let at = |part: f64| at(part).unwrap_or(f64::NAN);
        Self { p10: at(0.1), p50: at(0.5), p90: at(0.9) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_told_with_its_spread() {
        let spread = Percentiles::of((0..=100).rev().map(f64::from).collect());
        assert_eq!((spread.p10, spread.p50, spread.p90), (10.0, 50.0, 90.0));
    }

    #[test]
    fn the_sides_take_turns_and_one_that_fails_is_out() {
        let turns = std::cell::RefCell::new(String::new());
        let work = |name: char| {
            turns.borrow_mut().push(name);
            thread::sleep(MIN_SAMPLE_TIME);
            Ok(())
        };
        let mut left = 4;
        let mut fails = |_| {
            left -= 1;
            if left > 0 { work('x') } else { anyhow::bail!("no more") }
        };
        let mut told = BenchEffort::quick().race(&mut [&mut |_| work('a'), &mut |_| work('b'), &mut fails]);
        assert_eq!(told.pop().unwrap().unwrap_err().to_string(), "no more");
        assert!(told.iter().all(|it| it.as_ref().unwrap().wall_secs.len() >= MIN_ROUNDS_SLOW));
        assert_eq!(&turns.into_inner()[..13], "aaabbbxxxabab");
    }
}
