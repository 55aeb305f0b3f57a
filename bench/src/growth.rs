//! Growth of time with size: a curve and its fitted exponent.

use serde::Serialize;

use crate::measure::Percentiles;

/// From this exponent on the growth is reported as wrong: a sort is 1.1, a nested loop is 2.
pub(crate) const MAX_EXPONENT: f64 = 1.3;
/// The exponent is fitted to this many of the largest sizes: fixed costs dominate the small ones.
const FIT_POINTS: usize = 3;

/// Times over sizes, of one or more ways to do the same.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Curve {
    pub(crate) group: &'static str,
    /// What was done.
    pub(crate) what: String,
    /// What the sizes count.
    pub(crate) unit: String,
    /// Ours first.
    pub(crate) series: Vec<Series>,
}

/// One line of a curve.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
    /// The power of the size that the time follows at the end.
    pub(crate) power: Option<f64>,
}

/// How long it took at one size.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Point {
    pub(crate) size: usize,
    pub(crate) micros: Percentiles,
}

impl Series {
    pub(crate) fn new(name: &str, points: Vec<Point>) -> Self {
        let tail = &points[points.len().saturating_sub(FIT_POINTS)..];
        // The fastest tenth has the least noise from other work on the machine.
        let power = fit_exponent(tail.iter().map(|it| (it.size as f64, it.micros.p10)));
        Self { name: name.to_owned(), power, points }
    }

    /// Whether it grows much faster than its size.
    pub(crate) fn is_superlinear(&self) -> bool {
        self.power.is_some_and(|it| it > MAX_EXPONENT)
    }
}

/// The slope of the straight line through points whose both axes are logarithms.
fn fit_exponent(points: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let points: Vec<(f64, f64)> = points.map(|(x, y)| (x.ln(), y.ln())).filter(|it| it.1.is_finite()).collect();
    let many = points.len() as f64;
    let (mean_x, mean_y) =
        (points.iter().map(|it| it.0).sum::<f64>() / many, points.iter().map(|it| it.1).sum::<f64>() / many);
    let over: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let under: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    (points.len() > 1 && under > 0.0).then(|| over / under)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(time: impl Fn(f64) -> f64) -> Series {
        let points = [100_usize, 1_000, 10_000, 100_000].map(|size| {
            let time = time(size as f64);
            Point { size, micros: Percentiles { p10: time, p50: time, p90: time } }
        });
        Series::new("it", points.to_vec())
    }

    #[test]
    fn a_loop_in_a_loop_shows() {
        let square = series(|n| 50.0 + n * n / 1e3);
        assert!((square.power.unwrap() - 2.0).abs() < 0.1 && square.is_superlinear(), "{square:?}");
    }

    #[test]
    fn a_sort_and_a_look_up_do_not() {
        let sort = series(|n| n * n.ln());
        assert!((1.0..MAX_EXPONENT).contains(&sort.power.unwrap()) && !sort.is_superlinear(), "{sort:?}");
        assert!(series(|_| 7.0).power.unwrap().abs() < 1e-9);
    }
}
