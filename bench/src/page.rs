//! The results as files: JSON, a Markdown page, images; and the generated part of the documentation.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context, Result};
use serde_json::json;

use crate::{
    growth::Curve,
    measure::{Comparison, Percentiles, Scale},
    plot,
    report::{BenchReport, ComparisonRow, NoteKind},
};

/// The part of a page that is ours to write.
const BEGIN_MARKER: &str = "<!-- figures: written by bench/run --write -->";
const END_MARKER: &str = "<!-- end of figures -->";

impl BenchReport {
    /// Writes `results.json`, `results.md` and an image of each group's growth.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
        let when = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string();
        let results = json!({
            "when": when, "machine": machine(), "load": self.load, "full": self.effort.scale == Scale::Full,
            "rows": self.rows, "facts": self.facts, "curves": self.curves, "remarks": self.remarks,
        });
        fs::write(folder.join("results.json"), format!("{results:#}\n"))?;
        fs::write(folder.join("results.md"), format!("# Results\n\n{when}; {}\n", self.page("")))?;
        self.pictures(folder)?;
        eprintln!("\nwritten: {}/results.md, results.json and pictures", folder.display());
        Ok(())
    }

    /// Writes the figures into a page of the documentation, between the two marks, and images beside it.
    pub(crate) fn write_into(&self, page: &Path) -> Result<()> {
        let about = || format!("{}", page.display());
        let text = fs::read_to_string(page).with_context(about)?;
        let (before, rest) =
            text.split_once(BEGIN_MARKER).with_context(|| format!("{}: no line {BEGIN_MARKER}", about()))?;
        let (_, after) = rest.split_once(END_MARKER).with_context(|| format!("{}: no line {END_MARKER}", about()))?;
        let plots = page.with_file_name("plots");
        fs::create_dir_all(&plots)?;
        self.pictures(&plots)?;
        fs::write(page, format!("{before}{BEGIN_MARKER}\n\n{}\n{END_MARKER}{after}", self.page("plots/")))
            .with_context(about)?;
        eprintln!("written: {} and {}", page.display(), plots.display());
        Ok(())
    }

    fn pictures(&self, folder: &Path) -> Result<()> {
        for group in self.groups() {
            if let Some(svg) = plot::render_svg(group, &self.curves_of(group)) {
                fs::write(folder.join(format!("{group}.svg")), svg)?;
            }
        }
        Ok(())
    }

    fn curves_of(&self, group: &str) -> Vec<&Curve> {
        self.curves.iter().filter(|it| it.group == group).collect()
    }

    /// The groups, in the order in which they ran.
    fn groups(&self) -> Vec<&'static str> {
        let rows = self.rows.iter().map(|it| it.group).chain(self.facts.iter().map(|it| it.group));
        let more = self.curves.iter().map(|it| it.group).chain(self.remarks.iter().map(|it| it.group));
        let mut groups: Vec<&str> = Vec::new();
        for group in rows.chain(more) {
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups.sort_by_key(|group| crate::groups::ALL.iter().position(|(name, _)| name == group));
        groups
    }

    /// All of it as Markdown; `plots` is where the images are.
    fn page(&self, plots: &str) -> String {
        let mut page = format!("{}; load before: {}", machine(), self.load);
        page += if self.effort.is_small() { "; a short run, so no figures to rely on.\n" } else { ".\n" };
        self.summary(&mut page);
        for group in self.groups() {
            _ = writeln!(page, "\n### {group}\n");
            if self.rows.iter().any(|it| it.group == group) {
                page += "| ours | against | ratio | p10–p90 | CPU ratio | ours µs | theirs µs | rounds | aim |\n";
                page += "|---|---|--:|--:|--:|--:|--:|--:|---|\n";
            }
            for row in self.rows.iter().filter(|it| it.group == group) {
                page += &row.line();
            }
            if self.facts.iter().any(|it| it.group == group) {
                page += "\n| what | figure | aim |\n|---|--:|---|\n";
            }
            for fact in self.facts.iter().filter(|it| it.group == group) {
                let (what, figure, unit) = (cell(&fact.what), format_figure(fact.figure), fact.unit);
                _ = writeln!(page, "| {what} | {figure} {unit} | {} |", fact.verdict());
            }
            let curves = self.curves_of(group);
            if !curves.is_empty() {
                _ = writeln!(page, "\n![Growth of the group {group}]({plots}{group}.svg)");
                page += "\n| growth | who | µs at each size | power |\n|---|---|---|--:|\n";
            }
            for curve in curves {
                curve_table(&mut page, curve);
            }
            for remark in self.remarks.iter().filter(|it| it.group == group) {
                _ = write!(page, "\n{}: {}\n", remark.kind.as_str(), remark.text);
            }
        }
        page
    }

    /// How many targets were met, and which were not.
    fn summary(&self, page: &mut String) {
        let rows = self.rows.iter().filter(|it| it.aim.is_some()).map(|it| (it.verdict(), it.ours.clone()));
        let facts = self.facts.iter().filter(|it| it.aim.is_some()).map(|it| (it.verdict(), it.what.clone()));
        let (missed, met): (Vec<_>, Vec<_>) = rows.chain(facts).partition(|it| it.0.contains("missed"));
        _ = writeln!(page, "\nAims: {} met, {} missed.", met.len(), missed.len());
        let skipped = self.remarks.iter().filter(|it| it.kind == NoteKind::Skipped).count();
        if skipped > 0 {
            _ = writeln!(page, "{skipped} things could not be measured here; each group says which.");
        }
    }
}

/// The lines of a curve.
fn curve_table(page: &mut String, curve: &Curve) {
    for series in &curve.series {
        let points: Vec<String> =
            series.points.iter().map(|it| format!("{}: {}", it.size, format_figure(it.micros.p50))).collect();
        let power = series.power.map_or("–".to_owned(), |it| format!("{it:.2}"));
        let steep = if series.is_superlinear() { " **steep**" } else { "" };
        let what = format!("{}, {}", curve.what, curve.unit);
        _ = writeln!(page, "| {} | {} | {} | {power}{steep} |", cell(&what), cell(&series.name), points.join(" · "));
    }
}

impl ComparisonRow {
    fn line(&self) -> String {
        let Comparison { ratio, ours_us, peer_us, cpu, pairs } = &self.measured;
        let Percentiles { p10, p50, p90 } = ratio;
        let cpu = if self.has_cpu { format_figure(*cpu) } else { "–".to_owned() };
        format!(
            "| {} | {} | **{}** | {}–{} | {cpu} | {} | {} | {pairs} | {} |\n",
            cell(&self.ours),
            cell(&self.peer),
            format_figure(*p50),
            format_figure(*p10),
            format_figure(*p90),
            format_figure(ours_us.p50),
            format_figure(peer_us.p50),
            self.verdict()
        )
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// Three digits that matter.
pub(crate) fn format_figure(number: f64) -> String {
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
