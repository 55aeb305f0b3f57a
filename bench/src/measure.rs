//! Two sides in turns, A B A B …: what one costs in terms of the other, whatever else the machine does meanwhile.

use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// One side of a comparison: does its work this many times.
pub(crate) type Side<'a> = &'a mut dyn FnMut(usize) -> Result<()>;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// The most pairs of a comparison.
    pairs: usize,
    /// No more pairs are begun after this time, once there are [`FEWEST`].
    time: Duration,
    /// Whether data should be small, too.
    pub(crate) quick: bool,
}

/// The fewest pairs that a median is taken of.
const FEWEST: usize = 7;
/// A sample lasts at least this long, so that the clock does not matter.
const SAMPLE: Duration = Duration::from_micros(500);

/// What came out of a comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    /// Ours by theirs, of each pair.
    pub(crate) ratio: Spread,
    /// Microseconds of one of ours.
    pub(crate) ours_us: Spread,
    /// Microseconds of one of theirs.
    pub(crate) peer_us: Spread,
    /// CPU time of all of ours by that of all of theirs, per piece of work.
    pub(crate) cpu: f64,
    /// How many pairs there were.
    pub(crate) pairs: usize,
}

/// The middle of some figures, and where all but the outermost tenths lie.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Spread {
    /// A tenth is below.
    pub(crate) p10: f64,
    /// Half is below.
    pub(crate) p50: f64,
    /// A tenth is above.
    pub(crate) p90: f64,
}

impl Effort {
    /// For figures.
    pub(crate) fn full() -> Self {
        Self { pairs: 101, time: Duration::from_secs(4), quick: false }
    }

    /// To see that it runs.
    pub(crate) fn quick() -> Self {
        Self { pairs: FEWEST, time: Duration::from_millis(200), quick: true }
    }

    /// Measures two sides in turns.
    pub(crate) fn compare(&self, ours: Side<'_>, peer: Side<'_>) -> Result<Measured> {
        let (our_count, peer_count) = (enough(ours)?, enough(peer)?);
        let (mut our_times, mut peer_times, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        let (mut our_cpu, mut peer_cpu) = (0.0, 0.0);
        let start = Instant::now();
        while ratios.len() < self.pairs && (ratios.len() < FEWEST || start.elapsed() < self.time) {
            let a = sample(ours, our_count)?;
            let b = sample(peer, peer_count)?;
            ratios.push(a.wall / b.wall);
            our_times.push(a.wall * 1e6);
            peer_times.push(b.wall * 1e6);
            our_cpu += a.cpu;
            peer_cpu += b.cpu;
        }
        Ok(Measured {
            pairs: ratios.len(),
            ratio: Spread::of(ratios),
            ours_us: Spread::of(our_times),
            peer_us: Spread::of(peer_times),
            cpu: our_cpu / peer_cpu,
        })
    }
}

/// Seconds of one piece of work.
struct Sample {
    wall: f64,
    cpu: f64,
}

fn sample(side: Side<'_>, count: usize) -> Result<Sample> {
    let cpu = cpu();
    let start = Instant::now();
    side(count)?;
    let wall = start.elapsed().as_secs_f64();
    let cpu = self::cpu() - cpu;
    Ok(Sample { wall: wall / count as f64, cpu: cpu / count as f64 })
}

/// How many times a side works in one sample. Warms it up on the way.
fn enough(side: Side<'_>) -> Result<usize> {
    side(1)?;
    let mut count = 1;
    loop {
        let start = Instant::now();
        side(count)?;
        if start.elapsed() >= SAMPLE || count >= 1 << 12 {
            return Ok(count);
        }
        count *= 2;
    }
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

impl Spread {
    fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let at = |part: f64| figures.get(((figures.len() - 1) as f64 * part).round() as usize).copied();
        let at = |part: f64| at(part).unwrap_or(f64::NAN);
        Self { p10: at(0.1), p50: at(0.5), p90: at(0.9) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_told_with_its_spread() {
        let spread = Spread::of((0..=100).rev().map(f64::from).collect());
        assert_eq!((spread.p10, spread.p50, spread.p90), (10.0, 50.0, 90.0));
    }

    #[test]
    fn the_sides_take_turns() {
        let turns = std::cell::RefCell::new(String::new());
        let work = |name: char| {
            turns.borrow_mut().push(name);
            std::thread::sleep(SAMPLE);
            Ok(())
        };
        let measured = Effort::quick().compare(&mut |_| work('a'), &mut |_| work('b')).unwrap();
        assert!(measured.pairs >= FEWEST);
        let turns = turns.into_inner();
        assert_eq!((&turns[..4], &turns[4..8]), ("aabb", "abab"));
    }
}
