//! Derives a row's value from a report, or from two reports that are compared.

use serde_json::Value;

/// How a row's value is derived.
#[derive(Clone, Debug, PartialEq)]
pub enum Take {
    /// The value at this path of the run's report.
    At(String),
    /// The value at this path, times a factor.
    Scaled(String, f64),
    /// The reduction of the first run's value relative to the second's, in percent.
    Saved(String),
    /// The increase of the first run's value relative to the second's, in percent.
    More(String),
    /// The ratio of the first run's value to the second's.
    Ratio(String),
    /// The quotient of the values at two paths of the run's report.
    Quotient(String, String),
    /// The reduction of the value at one path of the run's report relative to another, in percent.
    SavedWithin(String, String),
    /// Many points, all in the run's report.
    Curve(Curve),
}

/// How the points of a curve are derived.
#[derive(Clone, Debug, PartialEq)]
pub enum Curve {
    /// A number of each slice of a phase.
    Slices(String),
    /// A distribution of latencies, at this path.
    Cdf(String),
    /// Shares of the time in percent, by the number of threads, at this path.
    Shares(String),
}

impl Curve {
    /// Returns the points in a report.
    pub fn points(&self, report: &Value) -> Vec<(f64, f64)> {
        match self {
            Self::Slices(name) => slices(report, name),
            Self::Cdf(path) => cdf(at(report, path)),
            Self::Shares(path) => shares(at(report, path)),
        }
    }
}

impl Take {
    /// Reads a derivation: `PATH`, `FACTOR * PATH`, `saved PATH`, `saved PATH of PATH`, `more PATH`, `ratio PATH`,
    /// `quotient PATH PATH`, `slices NAME`, `cdf PATH` or `shares PATH`. A factor is a number or a quotient of two.
    pub fn of(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let own = |text: &str| text.to_owned();
        Ok(match words[..] {
            [path] => Self::At(own(path)),
            [by, "*", path] => Self::Scaled(own(path), factor(by)?),
            ["saved", path] => Self::Saved(own(path)),
            ["saved", path, "of", other] => Self::SavedWithin(own(path), own(other)),
            ["more", path] => Self::More(own(path)),
            ["ratio", path] => Self::Ratio(own(path)),
            ["quotient", path, by] => Self::Quotient(own(path), own(by)),
            ["slices", name] => Self::Curve(Curve::Slices(own(name))),
            ["cdf", path] => Self::Curve(Curve::Cdf(own(path))),
            ["shares", path] => Self::Curve(Curve::Shares(own(path))),
            _ => return Err(format!("{text:?} derives no value")),
        })
    }

    /// Returns the number of runs that it compares.
    pub fn runs(&self) -> usize {
        if matches!(self, Self::Saved(_) | Self::More(_) | Self::Ratio(_)) { 2 } else { 1 }
    }

    /// Returns the value of a row from the reports of its runs; `None` if these do not contain it.
    pub fn value(&self, reports: &[&Value]) -> Option<f64> {
        let number = |run: usize, path: &str| at(reports.get(run)?, path)?.as_f64();
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

/// Reads a number.
pub fn number(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

fn factor(text: &str) -> Result<f64, String> {
    match text.split_once('/') {
        Some((dividend, by)) => Ok(number(dividend)? / number(by)?),
        None => number(text),
    }
}

/// Returns the value at a path of names in a report; in an array, a name or number of threads
/// selects the element.
fn at<'a>(report: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('/').try_fold(report, |value, name| match value {
        Value::Array(values) => values.iter().find(|value| {
            value["name"].as_str() == Some(name)
                || value["threads"].as_u64().is_some_and(|n| n.to_string() == name)
        }),
        value => value.get(name),
    })
}

/// Returns a distribution of latencies as a curve: percent, nanoseconds.
fn cdf(points: Option<&Value>) -> Vec<(f64, f64)> {
    let points = points.and_then(Value::as_array);
    let point = |point: &Value| Some((point.get(0)?.as_f64()?, point.get(1)?.as_f64()?));
    points.map_or_else(Vec::new, |points| points.iter().filter_map(point).collect())
}

/// Returns one number of each slice of a report: percent of the phase, number.
fn slices(report: &Value, name: &str) -> Vec<(f64, f64)> {
    let Some(slices) = report["slices"].as_array() else { return Vec::new() };
    let point = |(at, slice): (usize, &Value)| {
        Some(((at + 1) as f64 * 100.0 / slices.len() as f64, slice[name].as_f64()?))
    };
    slices.iter().enumerate().filter_map(point).collect()
}

/// Returns the shares of an array as a curve: position, percent.
fn shares(points: Option<&Value>) -> Vec<(f64, f64)> {
    let shares = points.and_then(Value::as_array).into_iter().flatten().enumerate();
    shares.filter_map(|(threads, share)| Some((threads as f64, share.as_f64()? * 100.0))).collect()
}
