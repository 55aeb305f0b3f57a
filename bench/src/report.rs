//! The measurements: printed line by line, and stored for the files.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::{
    growth::{Curve, MAX_EXPONENT, Point, Series},
    measure::{BenchEffort, BenchSide, Comparison, Percentiles, Scale, Timing},
    page::format_figure,
};

/// All that was measured.
pub(crate) struct BenchReport {
    /// How much is measured.
    pub(crate) effort: BenchEffort,
    /// The `helve` to start.
    pub(crate) helve: Option<PathBuf>,
    like: String,
    group: &'static str,
    /// What the machine was busy with before.
    pub(crate) load: String,
    pub(crate) rows: Vec<ComparisonRow>,
    pub(crate) facts: Vec<BenchFigure>,
    pub(crate) curves: Vec<Curve>,
    pub(crate) remarks: Vec<BenchNote>,
}

/// One comparison.
#[derive(Serialize)]
pub(crate) struct ComparisonRow {
    pub(crate) group: &'static str,
    pub(crate) ours: String,
    pub(crate) peer: String,
    #[serde(flatten)]
    pub(crate) measured: Comparison,
    /// Whether the CPU ratio is meaningful: not if a side works in another process that continues.
    pub(crate) has_cpu: bool,
    pub(crate) aim: Option<BenchTarget>,
}

/// One figure that is no ratio.
#[derive(Serialize)]
pub(crate) struct BenchFigure {
    pub(crate) group: &'static str,
    pub(crate) what: String,
    pub(crate) figure: f64,
    pub(crate) unit: &'static str,
    pub(crate) aim: Option<BenchTarget>,
}

/// A target.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum BenchTarget {
    /// This ratio, or less.
    Ratio(f64),
    /// This many microseconds, or less.
    Micros(f64),
    /// This figure, or less.
    Most(f64),
    /// This figure, or more.
    Least(f64),
}

/// Something that a reader must know.
#[derive(Serialize)]
pub(crate) struct BenchNote {
    pub(crate) group: &'static str,
    pub(crate) kind: NoteKind,
    pub(crate) text: String,
}

/// What a remark is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum NoteKind {
    Skipped,
    Failed,
    Note,
}

/// What is compared with what, and what should come out.
pub(crate) struct ComparisonSpec<'a> {
    /// Our side.
    pub(crate) ours: &'a str,
    /// The other.
    pub(crate) peer: &'a str,
    /// What should come out, where something is aimed at.
    pub(crate) aim: Option<BenchTarget>,
    /// Whether CPU time is told, too.
    pub(crate) cpu: bool,
}

impl<'a> ComparisonSpec<'a> {
    /// Ours against theirs, without an aim.
    pub(crate) fn of(ours: &'a str, peer: &'a str) -> Self {
        Self { ours, peer, aim: None, cpu: false }
    }

    /// The same with an aim.
    pub(crate) fn aim(self, aim: BenchTarget) -> Self {
        Self { aim: Some(aim), ..self }
    }

    /// The same with CPU time.
    pub(crate) fn cpu(self) -> Self {
        Self { cpu: true, ..self }
    }
}

/// Work that can be done any number of times.
pub(crate) type BenchWork<'a> = dyn FnMut(usize) -> Result<()> + 'a;

/// One of those that we are raced with.
pub(crate) struct Competitor<'a, 'b> {
    /// Who it is.
    pub(crate) name: String,
    /// What we aim at beside it.
    pub(crate) aim: Option<BenchTarget>,
    /// Its work.
    pub(crate) side: &'b mut BenchWork<'a>,
}

/// Work of one size, ready to be done any number of times.
pub(crate) type PreparedWork<'a> = Box<BenchWork<'a>>;
/// Makes work of any size ready.
pub(crate) type WorkFactory<'a, 'b> = &'b mut dyn FnMut(usize) -> Result<PreparedWork<'a>>;

/// A size that took longer than this in total is the last one: in a full run, and in a short one.
const MAX_SIZE_TIME: Duration = Duration::from_secs(12);
const MAX_SIZE_TIME_QUICK: Duration = Duration::from_millis(1_500);

impl BenchReport {
    /// Nothing measured yet.
    pub(crate) fn new(effort: BenchEffort, helve: Option<PathBuf>, like: String) -> Self {
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
        Self {
            effort,
            helve,
            like,
            group: "",
            load,
            rows: Vec::new(),
            facts: Vec::new(),
            curves: Vec::new(),
            remarks: Vec::new(),
        }
    }

    /// A new group.
    pub(crate) fn begin(&mut self, group: &'static str) {
        self.group = group;
        eprintln!("\n{group}");
    }

    /// Whether a comparison of this name is wanted.
    pub(crate) fn wants(&self, name: &str) -> bool {
        name.contains(&self.like)
    }

    /// Measures two sides and tells it.
    pub(crate) fn compare(&mut self, duel: ComparisonSpec<'_>, ours: BenchSide<'_>, peer: BenchSide<'_>) -> Result<()> {
        if !self.wants(duel.ours) && !self.wants(duel.peer) {
            return Ok(());
        }
        let about = || format!("{} against {}", duel.ours, duel.peer);
        let mut told = self.effort.race(&mut [ours, peer]).into_iter();
        let mut next = || told.next().context("no side")?.with_context(about);
        let (ours, peer) = (next()?, next()?);
        self.row(duel.ours, duel.peer, (&ours, &peer), duel.aim, duel.cpu);
        Ok(())
    }

    /// Measures Helve and all others in one race. One that fails is reported and left out; Helve must not fail.
    pub(crate) fn race(&mut self, what: &str, ours: BenchSide<'_>, rivals: Vec<Competitor<'_, '_>>) -> Result<()> {
        if !self.wants(what) && !rivals.iter().any(|it| self.wants(&it.name)) {
            return Ok(());
        }
        let mut names = Vec::new();
        let mut sides: Vec<BenchSide<'_>> = vec![ours];
        for rival in rivals {
            names.push((rival.name, rival.aim));
            sides.push(rival.side);
        }
        let mut told = self.effort.race(&mut sides).into_iter();
        let ours = told.next().context("no side")?.with_context(|| what.to_owned())?;
        for ((name, aim), timed) in names.into_iter().zip(told) {
            match timed {
                Ok(timed) => self.row(what, &name, (&ours, &timed), aim, false),
                Err(error) => self.note(&format!("{what}: {name} is out: {}", first_line(&format!("{error:#}")))),
            }
        }
        Ok(())
    }

    fn row(
        &mut self,
        ours: &str,
        peer: &str,
        (our, their): (&Timing, &Timing),
        aim: Option<BenchTarget>,
        has_cpu: bool,
    ) {
        let (group, measured) = (self.group, our.compare(their));
        let row = ComparisonRow { group, ours: ours.to_owned(), peer: peer.to_owned(), measured, has_cpu, aim };
        eprintln!(
            "  {:<52} {:>8} × {:<36} {}",
            row.ours,
            format_figure(row.measured.ratio.p50),
            row.peer,
            row.verdict()
        );
        self.rows.push(row);
    }

    /// Measures the growth of time with size, as far as is practical. Helve comes first.
    pub(crate) fn measure_growth(
        &mut self,
        (what, unit): (&str, &str),
        sizes: &[usize],
        sides: &mut [(&str, WorkFactory<'_, '_>)],
    ) -> Result<()> {
        if !self.wants(what) {
            return Ok(());
        }
        let mut points: Vec<Vec<Point>> = vec![Vec::new(); sides.len()];
        let (most, long) = match self.effort.scale {
            Scale::Full => (sizes.len(), MAX_SIZE_TIME),
            Scale::Quick => (3, MAX_SIZE_TIME_QUICK),
            Scale::Check => (sizes.len(), MAX_SIZE_TIME_QUICK),
        };
        for &size in sizes.iter().take(most) {
            let begun = Instant::now();
            let mut ready = Vec::new();
            for (_, maker) in sides.iter_mut() {
                ready.push(maker(size).with_context(|| format!("{what}, {size} {unit}"))?);
            }
            let mut refs: Vec<BenchSide<'_>> = ready.iter_mut().map(|it| it.as_mut() as BenchSide<'_>).collect();
            for (timed, points) in self.effort.race(&mut refs).into_iter().zip(&mut points) {
                points.push(Point { size, micros: timed.with_context(|| format!("{what}, {size} {unit}"))?.micros() });
            }
            if begun.elapsed() > long {
                break;
            }
        }
        let series: Vec<Series> =
            sides.iter().zip(points).map(|((name, _), points)| Series::new(name, points)).collect();
        self.add_curve(Curve { group: self.group, what: what.to_owned(), unit: unit.to_owned(), series });
        Ok(())
    }

    /// Makes a curve of the comparisons that were just measured, one for each of these sizes.
    pub(crate) fn curve_of_rows(&mut self, (what, unit): (&str, &str), sizes: &[usize]) {
        let Some(rows) = self.rows.len().checked_sub(sizes.len()).map(|from| &self.rows[from..]) else { return };
        let Some(peer) = rows.first().filter(|it| it.group == self.group).map(|it| it.peer.clone()) else { return };
        let line = |time: fn(&Comparison) -> Percentiles| {
            sizes.iter().zip(rows).map(|(size, row)| Point { size: *size, micros: time(&row.measured) }).collect()
        };
        let series = vec![Series::new("helve", line(|it| it.ours_us)), Series::new(&peer, line(|it| it.peer_us))];
        self.add_curve(Curve { group: self.group, what: what.to_owned(), unit: unit.to_owned(), series });
    }

    fn add_curve(&mut self, curve: Curve) {
        for it in &curve.series {
            let power = it.power.map_or("?".to_owned(), |it| format!("{it:.2}"));
            let verdict = if it.is_superlinear() { "STEEP" } else { "" };
            let times: Vec<String> = it.points.iter().map(|it| format_figure(it.micros.p50)).collect();
            eprintln!("  {}, {}: n^{power} {verdict}  µs at {}: {}", curve.what, it.name, curve.unit, times.join(" "));
        }
        self.curves.push(curve);
    }

    /// Tells one figure.
    pub(crate) fn figure(&mut self, what: &str, figure: f64, unit: &'static str, aim: Option<BenchTarget>) {
        let fact = BenchFigure { group: self.group, what: what.to_owned(), figure, unit, aim };
        eprintln!("  {:<52} {:>8} {unit} {}", fact.what, self::format_figure(figure), fact.verdict());
        self.facts.push(fact);
    }

    /// Tells that something could not be measured here.
    pub(crate) fn skip(&mut self, why: &str) {
        self.remark(NoteKind::Skipped, why);
    }

    /// Tells that a comparison is not one.
    pub(crate) fn fail(&mut self, why: &str) {
        self.remark(NoteKind::Failed, why);
    }

    /// Tells something that is no figure.
    pub(crate) fn note(&mut self, text: &str) {
        self.remark(NoteKind::Note, text);
    }

    fn remark(&mut self, kind: NoteKind, text: &str) {
        eprintln!("  {}: {text}", kind.as_str());
        self.remarks.push(BenchNote { group: self.group, kind, text: text.to_owned() });
    }

    /// What must not be: comparisons that are none, and where it was asked for, figures far beyond their aims.
    pub(crate) fn failures(&self) -> Vec<String> {
        let mut faults: Vec<String> =
            self.remarks.iter().filter(|it| it.kind == NoteKind::Failed).map(|it| it.text.clone()).collect();
        if self.effort.scale == Scale::Check {
            // Without optimisation no time says anything; how it grows does.
            let judged = |_: &BenchTarget| !cfg!(debug_assertions);
            let far =
                |aim: Option<BenchTarget>, seen: f64| aim.filter(judged).is_some_and(|it| !it.is_met(seen, MARGIN));
            for row in self.rows.iter().filter(|it| far(it.aim, it.value())) {
                let ratio = format_figure(row.measured.ratio.p50);
                faults.push(format!("{}: {ratio} × {}, {}", row.ours, row.peer, row.verdict()));
            }
            for fact in self.facts.iter().filter(|it| far(it.aim, it.figure)) {
                faults.push(format!("{}: {} {}, {}", fact.what, format_figure(fact.figure), fact.unit, fact.verdict()));
            }
            // A busy machine may bend a line: only what is nearly a square counts.
            let steep = |it: &&Series| it.power.is_some_and(|it| it > MAX_EXPONENT + 0.5);
            for (curve, line) in self.curves.iter().filter_map(|it| Some((it, it.series.first().filter(steep)?))) {
                faults.push(format!(
                    "{} grows with the {}'s power {:.2}",
                    curve.what,
                    curve.unit,
                    line.power.unwrap_or(0.0)
                ));
            }
        }
        faults
    }
}

/// How many times an aim may be missed before a check fails: machines that are busy with other work differ that much. A
/// program that nobody optimised is ten times slower besides; what is found with it is a wrong complexity.
const MARGIN: f64 = if cfg!(debug_assertions) { 50.0 } else { 5.0 };

impl BenchTarget {
    /// Whether this figure is within so many times the aim.
    pub(crate) fn is_met(self, seen: f64, margin: f64) -> bool {
        match self {
            Self::Ratio(most) | Self::Micros(most) | Self::Most(most) => seen <= most * margin,
            Self::Least(least) => seen >= least / margin,
        }
    }

    fn describe(self, seen: f64, unit: &str) -> String {
        let (sign, border, unit) = match self {
            Self::Ratio(most) => ("≤", most, ""),
            Self::Micros(most) => ("≤", most, "µs"),
            Self::Most(most) => ("≤", most, unit),
            Self::Least(least) => ("≥", least, unit),
        };
        let gap = if unit.is_empty() { "" } else { " " };
        format!("{sign} {border}{gap}{unit}: {}", if self.is_met(seen, 1.0) { "met" } else { "**missed**" })
    }
}

impl ComparisonRow {
    /// The figure that the aim is about.
    fn value(&self) -> f64 {
        if matches!(self.aim, Some(BenchTarget::Micros(_))) {
            self.measured.ours_us.p50
        } else {
            self.measured.ratio.p50
        }
    }

    /// The aim, and whether it was met.
    pub(crate) fn verdict(&self) -> String {
        self.aim.map_or(String::new(), |aim| aim.describe(self.value(), ""))
    }
}

impl BenchFigure {
    /// The aim, and whether it was met.
    pub(crate) fn verdict(&self) -> String {
        self.aim.map_or(String::new(), |aim| aim.describe(self.figure, self.unit))
    }
}

impl NoteKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Skipped => "SKIPPED",
            Self::Failed => "FAILED",
            Self::Note => "note",
        }
    }
}

/// The beginning of what somebody else said, in one line.
pub(crate) fn first_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(160).collect()
}
