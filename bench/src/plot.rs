//! Renders curves as SVG images. Both axes are logarithmic, so a power is a straight line.

use std::fmt::Write as _;

use crate::growth::{Curve, Series};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 460.0;
/// Where the axes are; names of lines stand to the right of them.
const LEFT: f64 = 74.0;
const RIGHT: f64 = 540.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 400.0;
/// Distinguishable with colour blindness, on white and on black.
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7a5cc0", "#808080"];
/// The image takes the colours of the page that it is on.
const STYLE: &str = "<style>\
    .paper{fill:#fff}.ink{fill:#222}.grid{stroke:#ddd}.axis{stroke:#777}\
    @media(prefers-color-scheme:dark){.paper{fill:#16181c}.ink{fill:#ddd}.grid{stroke:#333}.axis{stroke:#999}}\
    text{font:12px system-ui,sans-serif}.head{font-size:15px;font-weight:600}</style>";

/// The curves of one group in one image; nothing where there is no line.
pub(crate) fn render_svg(group: &str, curves: &[&Curve]) -> Option<String> {
    let lines: Vec<(&Curve, &Series)> =
        curves.iter().flat_map(|it| it.series.iter().map(move |series| (*it, series))).collect();
    let points = || lines.iter().flat_map(|(_, it)| &it.points);
    let x = Axis::over(points().map(|it| it.size as f64), LEFT, RIGHT)?;
    let y = Axis::over(points().map(|it| it.micros.p50), BOTTOM, TOP)?;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\">\n<title>{}: time over size</title>\n\
         {STYLE}\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"ink head\" x=\"{LEFT}\" y=\"24\">{}: time over size, both axes logarithmic</text>\n",
        height(lines.len()),
        text(group),
        text(group),
    );
    for power in x.powers() {
        let at = x.position(10_f64.powi(power));
        _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{at:.1} {TOP}V{BOTTOM}\"/>\
             <text class=\"ink\" x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            BOTTOM + 18.0,
            count(power)
        );
    }
    for power in y.powers() {
        let at = y.position(10_f64.powi(power));
        _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/>\
             <text class=\"ink\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            at + 4.0,
            time(power)
        );
    }
    _ = writeln!(svg, "<path class=\"axis\" fill=\"none\" d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\"/>");
    for (at, (curve, series)) in lines.iter().enumerate() {
        line(&mut svg, at, curve, series, (&x, &y));
    }
    Some(svg + "</svg>\n")
}

/// One line, and its name at the right. Ours are solid, others dashed.
fn line(svg: &mut String, at: usize, curve: &Curve, series: &Series, (x, y): (&Axis, &Axis)) {
    let colour = COLOURS[at % COLOURS.len()];
    let is_ours = curve.series.first().is_some_and(|it| std::ptr::eq(it, series));
    let dash = if is_ours { "" } else { " stroke-dasharray=\"5 4\"" };
    let places: Vec<(f64, f64)> =
        series.points.iter().map(|it| (x.position(it.size as f64), y.position(it.micros.p50))).collect();
    let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    _ = writeln!(svg, "<path fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dash} d=\"M{}\"/>", path.join("L"));
    for (x, y) in places {
        _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
    }
    let (from, row) = (RIGHT + 18.0, TOP + 8.0 + at as f64 * 18.0);
    let power = series.power.map_or(String::new(), |it| format!(" ~ n^{it:.2}"));
    _ = writeln!(
        svg,
        "<path stroke=\"{colour}\" stroke-width=\"2\"{dash} d=\"M{from} {row}h22\"/>\
         <text class=\"ink\" x=\"{}\" y=\"{}\">{}</text>",
        from + 28.0,
        row + 4.0,
        text(&format!("{}, {} ({}){power}", curve.what, series.name, curve.unit))
    );
}

fn height(lines: usize) -> f64 {
    HEIGHT.max(TOP + 30.0 + lines as f64 * 18.0)
}

/// An axis whose marks are powers of ten.
struct Axis {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Option<Self> {
        let logs: Vec<f64> = values.map(f64::log10).filter(|it| it.is_finite()).collect();
        let least = logs.iter().copied().reduce(f64::min)?.floor();
        let most = logs.iter().copied().reduce(f64::max)?.ceil().max(least + 1.0);
        Some(Self { least, most, from, to })
    }

    fn position(&self, value: f64) -> f64 {
        let part = (value.log10() - self.least) / (self.most - self.least);
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    fn powers(&self) -> impl Iterator<Item = i32> {
        self.least as i32..=self.most as i32
    }
}

/// A power of ten of things.
fn count(power: i32) -> String {
    match power {
        ..3 => 10_f64.powi(power).to_string(),
        3..6 => format!("{}k", 10_i32.pow(power as u32 - 3)),
        _ => format!("{}M", 10_f64.powi(power - 6)),
    }
}

/// A power of ten of microseconds.
fn time(power: i32) -> String {
    match power {
        ..0 => format!("{} ns", 10_f64.powi(power + 3)),
        0..3 => format!("{} µs", 10_f64.powi(power)),
        3..6 => format!("{} ms", 10_f64.powi(power - 3)),
        _ => format!("{} s", 10_f64.powi(power - 6)),
    }
}

fn text(raw: &str) -> String {
    raw.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{growth::Point, measure::Percentiles};

    #[test]
    fn a_picture_has_axes_lines_and_names() {
        let point = |size, time| Point { size, micros: Percentiles { p10: time, p50: time, p90: time } };
        let series = vec![
            Series::new("ours", vec![point(100, 10.0), point(1_000, 100.0)]),
            Series::new("a < b", vec![point(100, 5.0), point(1_000, 500.0)]),
        ];
        let curve = Curve { group: "files", what: "ls".into(), unit: "entries".into(), series };
        let svg = render_svg("files", &[&curve]).unwrap();
        assert!(svg.contains(">100</text>") && svg.contains(">1k</text>"), "{svg}");
        assert!(svg.contains(">10 µs</text>") && svg.contains(">1 ms</text>"), "{svg}");
        assert!(svg.contains("ls, ours (entries) ~ n^1.00") && svg.contains("a &lt; b (entries) ~ n^2.00"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 4);
        assert_eq!(render_svg("none", &[]), None);
    }
}
