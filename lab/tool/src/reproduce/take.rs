//! Derives a row's value from a report, or from two reports that are compared.

use serde_json::Value;

/// How a row's value is derived.
#[derive(Clone, Copy, Debug)]
pub enum Take {
    /// The value at this path of the run's report.
    At(&'static str),
    /// The same, times a factor.
    Scaled(&'static str, f64),
    /// The reduction of the first run's value relative to the second's, in percent.
    Saved(&'static str),
    /// The increase of the first run's value relative to the second's, in percent.
    More(&'static str),
    /// The ratio of the first run's value to the second's.
    Ratio(&'static str),
    /// The quotient of the values at two paths of the run's report.
    Quotient(&'static str, &'static str),
    /// The reduction of the value at one path of the run's report relative to another, in percent.
    SavedWithin(&'static str, &'static str),
    /// Many points, all in the run's report.
    Curve(fn(&Value) -> Vec<(f64, f64)>),
}

impl Take {
    /// Returns the value of a row from the reports of its runs; `None` if these do not contain it.
    pub fn value(self, reports: &[&Value]) -> Option<f64> {
        let number = |run: usize, path| at(reports.get(run)?, path)?.as_f64();
        match self {
            Self::At(path) => number(0, path),
            Self::Scaled(path, factor) => Some(number(0, path)? * factor),
            Self::Saved(path) => Some((1.0 - number(0, path)? / number(1, path)?) * 100.0),
            Self::More(path) => Some((number(0, path)? / number(1, path)? - 1.0) * 100.0),
            Self::Ratio(path) => Some(number(0, path)? / number(1, path)?),
            Self::Quotient(path, by) => Some(number(0, path)? / number(0, by)?),
            Self::SavedWithin(path, of) => Some((1.0 - number(0, path)? / number(0, of)?) * 100.0),
            Self::Curve(_) => None,
        }
        .filter(|value| value.is_finite())
    }
}

/// Returns the value at a path of names in a report; in an array, a name or number of threads
/// selects the element.
pub fn at<'a>(report: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('/').try_fold(report, |value, name| match value {
        Value::Array(values) => values.iter().find(|value| {
            value["name"].as_str() == Some(name)
                || value["threads"].as_u64().is_some_and(|n| n.to_string() == name)
        }),
        value => value.get(name),
    })
}

/// Returns a distribution of latencies as a curve: percent, nanoseconds.
pub fn cdf(points: Option<&Value>) -> Vec<(f64, f64)> {
    let points = points.and_then(Value::as_array);
    let point = |point: &Value| Some((point.get(0)?.as_f64()?, point.get(1)?.as_f64()?));
    points.map_or_else(Vec::new, |points| points.iter().filter_map(point).collect())
}

/// Returns one number of each slice of a report: percent of the phase, number.
pub fn slices(report: &Value, name: &str) -> Vec<(f64, f64)> {
    let Some(slices) = report["slices"].as_array() else { return Vec::new() };
    let point = |(at, slice): (usize, &Value)| {
        Some(((at + 1) as f64 * 100.0 / slices.len() as f64, slice[name].as_f64()?))
    };
    slices.iter().enumerate().filter_map(point).collect()
}
