//! Which figures of a paper are met, and why others are not.

use super::figure::{Figure, Kind};
use super::results::Measurement;
use super::table::distinct;

/// Deviation up to which a number counts as met: in percent, and in points where both numbers are percentages.
pub const MET: (f64, f64) = (25.0, 10.0);

/// What the tables of the summary show above them.
pub const MEANING: &str = "A number is met if it deviates by at most 25 % from the paper's, or by 10 points where both are percent. \
                           Figures without numbers of the paper are left out.";

/// A figure whose numbers the paper has.
pub struct Line {
    pub figure: String,
    pub kind: Kind,
    pub met: usize,
    pub missed: usize,
    /// Numbers of the paper that could not be measured.
    pub unmeasured: usize,
    /// Reasons for the missed ones, each once.
    pub why: Vec<String>,
}

impl Line {
    /// Returns the line of a figure, if the paper has numbers of it.
    pub fn of(figure: &Figure, results: &[&Measurement]) -> Option<Self> {
        let rows: Vec<&Measurement> =
            results.iter().copied().filter(|row| row.paper_value.is_some()).collect();
        let missed: Vec<_> = rows.iter().filter(|row| is_met(row) == Some(false)).collect();
        let mut why: Vec<String> = Vec::new();
        for remark in distinct(missed.iter().map(|row| &row.remark)) {
            why.push(if remark.is_empty() { "not explained".to_owned() } else { remark.clone() });
        }
        (!rows.is_empty()).then(|| Self {
            figure: format!("{}: {}", figure.name, figure.title),
            kind: figure.kind,
            met: rows.iter().filter(|row| is_met(row) == Some(true)).count(),
            missed: missed.len(),
            unmeasured: rows.iter().filter(|row| row.value.is_none()).count(),
            why,
        })
    }

    /// Returns the reasons in one text.
    pub fn reasons(&self) -> String {
        let not = (self.unmeasured > 0).then(|| format!("{} not measured", self.unmeasured));
        self.why.iter().cloned().chain(not).collect::<Vec<_>>().join("; ")
    }
}

/// Returns whether a number is near the paper's, if there are both.
fn is_met(row: &Measurement) -> Option<bool> {
    let most = if row.unit == "%" { MET.1 } else { MET.0 };
    row.deviation.map(|deviation| deviation.abs() <= most)
}

/// Returns the numbers of all lines together: met, missed, not measured.
pub fn total(lines: &[Line]) -> (usize, usize, usize) {
    let sum = |of: fn(&Line) -> usize| lines.iter().map(of).sum();
    (sum(|line| line.met), sum(|line| line.missed), sum(|line| line.unmeasured))
}

/// Writes the summary of a paper in Markdown.
pub fn markdown(title: &str, lines: &[Line]) -> String {
    let (met, missed, unmeasured) = total(lines);
    let not = if unmeasured > 0 { format!(", {unmeasured} not measured") } else { String::new() };
    let mut text = format!("**{title}**: {met} numbers met, {missed} missed{not}.\n\n");
    text.push_str("| figure | kind | met | missed | why |\n|---|---|---|---|---|\n");
    for line in lines {
        let Line { figure, kind, met, missed, .. } = line;
        text.push_str(&format!("| {figure} | {} | {met} | {missed} | {} |\n", kind.name(), line.reasons()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::figure::{Row, Said, X};
    use crate::reproduce::results::Made;
    use crate::reproduce::run::Run;
    use crate::reproduce::take::Take;

    fn row(unit: &str, paper: Option<f64>, remark: &str) -> Row {
        Row {
            series: "s".to_owned(),
            design: "sstree".to_owned(),
            x: X::None,
            metric: "m".to_owned(),
            unit: unit.to_owned(),
            runs: vec![Run::of("probe").unwrap()],
            take: Take::At("us".to_owned()),
            paper: paper.map(|value| Said { value, upto: None, place: "p".to_owned(), approximate: false }),
            remark: remark.to_owned(),
        }
    }

    #[test]
    fn summary_counts_what_is_met_and_says_why_the_rest_is_not() {
        let figure = Figure {
            name: "1".to_owned(),
            title: "f".to_owned(),
            kind: Kind::Simulated,
            x: String::new(),
            logarithmic: false,
            rows: Vec::new(),
            note: String::new(),
        };
        let of = |row: &Row, rounds| Measurement::new(("p", "1"), Kind::Simulated, row, rounds, &Made::now());
        let results = [
            of(&row("M/s", Some(100.0), "near"), vec![124.0]),
            of(&row("M/s", Some(100.0), "ours: more"), vec![126.0]),
            of(&row("M/s", Some(100.0), "ours: more"), vec![10.0]),
            of(&row("%", Some(50.0), ""), vec![61.0]),
            of(&row("%", Some(50.0), "near"), vec![41.0]),
            of(&row("M/s", Some(1.0), ""), Vec::new()),
            of(&row("M/s", None, "no number"), vec![1.0]),
        ];
        let line = Line::of(&figure, &results.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!((line.met, line.missed, line.unmeasured), (2, 3, 1));
        assert_eq!(line.reasons(), "ours: more; not explained; 1 not measured");
        let text = markdown("Paper", &[line]);
        assert!(text.starts_with("**Paper**: 2 numbers met, 3 missed, 1 not measured."), "{text}");
        assert!(
            text.contains("| 1: f | simulated | 2 | 3 | ours: more; not explained; 1 not measured |"),
            "{text}"
        );
        assert!(Line::of(&figure, &[&results[6]]).is_none());
    }
}
