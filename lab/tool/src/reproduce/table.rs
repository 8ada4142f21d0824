//! Results as text: a line each, and the tables of `lab/docs/RESULTS.md`.

use std::fmt::Write;

use bristlecone_cli::output::grouped;

use super::figure::{Figure, Kind, X};
use super::results::Measurement;

/// Returns a number with four significant digits.
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    let text = match magnitude {
        _ if magnitude >= 1e15 => return format!("{value:.3e}"),
        _ if magnitude >= 1000.0 => {
            let sign = if value < 0.0 { "\u{2212}" } else { "" };
            return format!("{sign}{}", grouped(magnitude.round() as u64));
        }
        _ if magnitude >= 100.0 => format!("{value:.1}"),
        _ if magnitude >= 10.0 => format!("{value:.2}"),
        _ if magnitude >= 0.01 => format!("{value:.3}"),
        _ if magnitude > 0.0 => return format!("{value:.2e}"),
        _ => return "0".to_owned(),
    };
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    text.replace('-', "\u{2212}")
}

/// Returns a value with its unit.
pub fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "" => number(value),
        "%" => format!("{} %", number(value)),
        unit => format!("{} {unit}", number(value)),
    }
}

/// Returns the paper's value, if it exists.
pub fn paper(result: &Measurement) -> Option<String> {
    let value = result.paper_value?;
    let about = if result.paper_approximate { "about " } else { "" };
    Some(match result.paper_upto {
        Some(upto) => format!("{about}{} to {}", number(value), number(upto)),
        None => format!("{about}{}", number(value)),
    })
}

/// Returns the difference from the paper's value, if known.
pub fn deviation(result: &Measurement) -> Option<String> {
    let deviation = result.deviation?;
    let unit = if result.unit == "%" { "points" } else { "%" };
    if deviation.abs() < 0.05 {
        return Some("as there".to_owned());
    }
    Some(format!(
        "{}{} {unit}",
        if deviation > 0.0 { "+" } else { "" },
        number((deviation * 10.0).round() / 10.0)
    ))
}

/// Returns a row's position, readable for people.
pub fn position(x: &X) -> String {
    match x {
        X::Number(value) => number(*value),
        X::Label(label) => label.clone(),
        X::None => String::new(),
    }
}

/// Returns a result in one line.
pub fn line(figure: &Figure, result: &Measurement) -> String {
    let mut line = result.series.clone();
    if result.x != X::None {
        let _ = write!(line, ", {} {}", figure.x, position(&result.x));
    }
    let _ = write!(line, ": {} ", result.metric);
    match result.value {
        Some(value) => line.push_str(&with_unit(value, &result.unit)),
        None => line.push('\u{2013}'),
    }
    if let Some(paper) = paper(result) {
        let _ = write!(line, "; paper {paper}");
    }
    if let Some(deviation) = deviation(result) {
        let _ = write!(line, " ({deviation})");
    }
    if !result.remark.is_empty() {
        let _ = write!(line, "; {}", result.remark);
    }
    line
}

/// Returns the distinct values, in order of first occurrence.
pub fn distinct<'a, T: PartialEq>(all: impl Iterator<Item = &'a T>) -> Vec<&'a T> {
    let mut seen: Vec<&T> = Vec::new();
    for one in all {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}

/// Maximum number of columns of a table; longer series are sampled.
const COLUMNS_MAX: usize = 8;

/// Writes a figure in Markdown.
pub fn markdown(figure: &Figure, results: &[&Measurement]) -> String {
    let mut text = format!("### {}: {}\n\n", figure.name, figure.title);
    let kind = match figure.kind {
        Kind::Counted => "Counted: the same on every machine.",
        Kind::Simulated => "Simulated cores: the same on every machine.",
        Kind::Timed => "Timed, on the machine named above.",
    };
    let _ = writeln!(text, "{}\n", [kind, &figure.note].join(" ").trim());
    for metric in distinct(results.iter().map(|result| &result.metric)) {
        let rows: Vec<&Measurement> =
            results.iter().filter(|result| &result.metric == metric).copied().collect();
        let spread: Vec<_> =
            rows.iter().filter(|row| row.x != X::None && row.paper_value.is_none()).copied().collect();
        let single: Vec<_> =
            rows.iter().filter(|row| row.x == X::None || row.paper_value.is_some()).copied().collect();
        text.push_str(&across(figure, metric, &spread));
        text.push_str(&down(figure, metric, &single));
    }
    text
}

/// Writes series for which the paper has no numbers: a row each, with positions as columns.
fn across(figure: &Figure, metric: &str, rows: &[&Measurement]) -> String {
    let positions = distinct(rows.iter().map(|row| &row.x));
    let step = positions.len().div_ceil(COLUMNS_MAX).max(1);
    let shown: Vec<&&X> = positions.iter().step_by(step).collect();
    let Some(first) = rows.first() else { return String::new() };
    let unit = if first.unit.is_empty() { String::new() } else { format!(" [{}]", first.unit) };
    let heads: Vec<String> = shown.iter().map(|x| position(x)).collect();
    let mut text = format!(
        "| {metric}{unit}; {} | {} |\n|---|{}\n",
        figure.x,
        heads.join(" | "),
        "---|".repeat(heads.len())
    );
    let mut why = Vec::new();
    for series in distinct(rows.iter().map(|row| &row.series)) {
        let cell = |x: &&&X| {
            let row = rows.iter().find(|row| &row.series == series && &row.x == **x);
            row.and_then(|row| row.value).map_or_else(|| "\u{2013}".to_owned(), number)
        };
        let cells: Vec<String> = shown.iter().map(cell).collect();
        let _ = writeln!(text, "| {series} | {} |", cells.join(" | "));
        why.extend(
            rows.iter()
                .filter(|row| &row.series == series && !row.remark.is_empty())
                .map(|row| (series, &row.remark)),
        );
    }
    why.dedup();
    text.push('\n');
    for (series, remark) in why {
        let _ = writeln!(text, "- {series}: {remark}");
    }
    if text.ends_with('\n') && !text.ends_with("\n\n") {
        text.push('\n');
    }
    text
}

/// Writes numbers beside those of the paper, one below the other.
fn down(figure: &Figure, metric: &str, rows: &[&Measurement]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let unit = if first.unit.is_empty() { String::new() } else { format!(" [{}]", first.unit) };
    let mut text = format!(
        "| {metric}{unit} | ours | paper | deviation | where, and why it differs |\n|---|---|---|---|---|\n"
    );
    for row in rows {
        let name = match &row.x {
            X::None => row.series.clone(),
            x => format!("{}, {} {}", row.series, figure.x, position(x)),
        };
        let ours = match (row.value, row.min, row.max) {
            (Some(value), Some(min), Some(max)) if row.rounds.len() > 1 && min < max => {
                format!("{} ({} to {})", number(value), number(min), number(max))
            }
            (Some(value), ..) => number(value),
            _ => "\u{2013}".to_owned(),
        };
        let why = [row.paper_place.as_deref().unwrap_or_default(), &row.remark];
        let why: Vec<&str> = why.into_iter().filter(|part| !part.is_empty()).collect();
        let _ = writeln!(
            text,
            "| {name} | {ours} | {} | {} | {} |",
            paper(row).unwrap_or_default(),
            deviation(row).unwrap_or_default(),
            why.join("; ")
        );
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_digits_that_count() {
        let shown = [12_345.6, -12_345.6, 123.45, 12.345, 1.2345, 0.5, 0.001_234, 0.0, 100.0, 20.0];
        let shown = shown.map(number);
        let wanted =
            ["12,346", "\u{2212}12,346", "123.5", "12.35", "1.234", "0.5", "1.23e-3", "0", "100", "20"];
        assert_eq!(shown.iter().map(String::as_str).collect::<Vec<_>>()[..4], wanted[..4]);
        assert_eq!(shown[5..], wanted[5..]);
    }
}
