//! What was measured: told line by line, and written to two files.

use std::{fmt::Write as _, fs, path::Path, path::PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::json;

use crate::measure::{Effort, Measured, Side, Spread};

/// All that was measured.
pub(crate) struct Report {
    /// How much is measured.
    pub(crate) effort: Effort,
    /// The `helve` to start.
    pub(crate) helve: Option<PathBuf>,
    like: String,
    group: &'static str,
    load: String,
    rows: Vec<Row>,
    remarks: Vec<Remark>,
}

/// One comparison.
#[derive(Serialize)]
struct Row {
    group: &'static str,
    ours: String,
    peer: String,
    #[serde(flatten)]
    measured: Measured,
    /// Whether the CPU ratio says anything: not where a side works in another process that goes on.
    has_cpu: bool,
    aim: Option<Aim>,
}

/// What should come out.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) enum Aim {
    /// This ratio, or less.
    Ratio(f64),
    /// This many microseconds, or less.
    Micros(f64),
}

/// Something that a reader must know.
#[derive(Serialize)]
struct Remark {
    group: &'static str,
    kind: Kind,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Kind {
    Skipped,
    Failed,
    Note,
}

/// What is compared with what, and what should come out.
pub(crate) struct Duel<'a> {
    /// Our side.
    pub(crate) ours: &'a str,
    /// The other.
    pub(crate) peer: &'a str,
    /// What should come out, where something is aimed at.
    pub(crate) aim: Option<Aim>,
    /// Whether CPU time is told, too.
    pub(crate) cpu: bool,
}

impl<'a> Duel<'a> {
    /// Ours against theirs, without an aim.
    pub(crate) fn of(ours: &'a str, peer: &'a str) -> Self {
        Self { ours, peer, aim: None, cpu: false }
    }

    /// The same with an aim.
    pub(crate) fn aim(self, aim: Aim) -> Self {
        Self { aim: Some(aim), ..self }
    }

    /// The same with CPU time.
    pub(crate) fn cpu(self) -> Self {
        Self { cpu: true, ..self }
    }
}

impl Report {
    /// Nothing measured yet.
    pub(crate) fn new(effort: Effort, helve: Option<PathBuf>, like: String) -> Self {
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
        Self { effort, helve, like, group: "", load, rows: Vec::new(), remarks: Vec::new() }
    }

    /// A new group.
    pub(crate) fn begin(&mut self, group: &'static str) {
        self.group = group;
        eprintln!("\n{group}");
    }

    /// Measures two sides and tells it.
    pub(crate) fn duel(&mut self, duel: Duel<'_>, ours: Side<'_>, peer: Side<'_>) -> Result<()> {
        if !duel.ours.contains(&self.like) && !duel.peer.contains(&self.like) {
            return Ok(());
        }
        let about = || format!("{} against {}", duel.ours, duel.peer);
        let measured = self.effort.compare(ours, peer).with_context(about)?;
        let row = Row {
            group: self.group,
            ours: duel.ours.to_owned(),
            peer: duel.peer.to_owned(),
            measured,
            has_cpu: duel.cpu,
            aim: duel.aim,
        };
        eprintln!("  {:<52} {:>8} × {:<36} {}", row.ours, figure(row.measured.ratio.p50), row.peer, row.verdict());
        self.rows.push(row);
        Ok(())
    }

    /// Tells that something could not be measured here.
    pub(crate) fn skip(&mut self, why: &str) {
        self.remark(Kind::Skipped, why);
    }

    /// Tells that a comparison is not one.
    pub(crate) fn fail(&mut self, why: &str) {
        self.remark(Kind::Failed, why);
    }

    /// Tells something that is no ratio.
    pub(crate) fn note(&mut self, text: &str) {
        self.remark(Kind::Note, text);
    }

    fn remark(&mut self, kind: Kind, text: &str) {
        eprintln!("  {}: {text}", kind.word());
        self.remarks.push(Remark { group: self.group, kind, text: text.to_owned() });
    }

    /// Whether all comparisons were ones.
    pub(crate) fn is_sound(&self) -> bool {
        self.remarks.iter().all(|remark| remark.kind != Kind::Failed)
    }

    /// Writes `results.json` and `results.md`.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
        let when = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string();
        let results = json!({
            "when": when, "machine": machine(), "load": self.load, "quick": self.effort.quick,
            "rows": self.rows, "remarks": self.remarks,
        });
        fs::write(folder.join("results.json"), format!("{results:#}\n"))?;
        fs::write(folder.join("results.md"), self.page(&when))?;
        eprintln!("\nwritten: {}/results.md and results.json", folder.display());
        Ok(())
    }

    fn page(&self, when: &str) -> String {
        let mut page = format!("# Results\n\n{when}; {}; load before: {}", machine(), self.load);
        page += if self.effort.quick { "; --quick, so no figures to rely on.\n" } else { ".\n" };
        let mut groups: Vec<&str> = self.rows.iter().map(|it| it.group).collect();
        groups.extend(self.remarks.iter().map(|it| it.group));
        let mut seen = Vec::new();
        for group in groups {
            if seen.contains(&group) {
                continue;
            }
            seen.push(group);
            _ = writeln!(page, "\n## {group}\n");
            if self.rows.iter().any(|it| it.group == group) {
                page += "| ours | against | ratio | p10–p90 | CPU ratio | ours µs | theirs µs | pairs | aim |\n";
                page += "|---|---|--:|--:|--:|--:|--:|--:|---|\n";
            }
            for row in self.rows.iter().filter(|it| it.group == group) {
                page += &row.line();
            }
            for remark in self.remarks.iter().filter(|it| it.group == group) {
                _ = write!(page, "\n{}: {}\n", remark.kind.word(), remark.text);
            }
        }
        page
    }
}

impl Row {
    fn line(&self) -> String {
        let Measured { ratio, ours_us, peer_us, cpu, pairs } = &self.measured;
        let Spread { p10, p50, p90 } = ratio;
        let cpu = if self.has_cpu { figure(*cpu) } else { "–".to_owned() };
        format!(
            "| {} | {} | **{}** | {}–{} | {cpu} | {} | {} | {pairs} | {} |\n",
            self.ours.replace('|', "\\|"),
            self.peer.replace('|', "\\|"),
            figure(*p50),
            figure(*p10),
            figure(*p90),
            figure(ours_us.p50),
            figure(peer_us.p50),
            self.verdict()
        )
    }

    fn verdict(&self) -> String {
        let (seen, most, unit) = match self.aim {
            None => return String::new(),
            Some(Aim::Ratio(most)) => (self.measured.ratio.p50, most, ""),
            Some(Aim::Micros(most)) => (self.measured.ours_us.p50, most, " µs"),
        };
        format!("≤ {most}{unit}: {}", if seen <= most { "met" } else { "MISSED" })
    }
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Skipped => "SKIPPED",
            Self::Failed => "FAILED",
            Self::Note => "note",
        }
    }
}

/// Three digits that matter.
fn figure(number: f64) -> String {
    match number.abs() {
        it if it >= 100.0 => format!("{number:.0}"),
        it if it >= 10.0 => format!("{number:.1}"),
        it if it >= 1.0 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

/// The machine in a few words.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let after = |text: String, key: &str, mark: char| {
        let line = text.lines().find_map(|line| Some(line.strip_prefix(key)?.split_once(mark)?.1.trim().to_owned()));
        line.unwrap_or_else(|| "unknown".to_owned())
    };
    let processor = after(text("/proc/cpuinfo"), "model name", ':');
    let system = after(text("/etc/os-release"), "PRETTY_NAME", '=');
    let kernel = text("/proc/sys/kernel/osrelease");
    format!("{cores} cores ({processor}), {}, Linux {}", system.trim_matches('"'), kernel.trim())
}
