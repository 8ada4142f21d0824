//! Results: one line of JSON each, appended immediately, and kept by the next call.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use bristlecone_cli::failure::{Exit, Failure, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::figure::{Figure, Kind, Row, X};
use super::take::Take;

/// The measurement of a row, and its circumstances.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measurement {
    pub paper: String,
    pub figure: String,
    pub series: String,
    pub design: String,
    pub x: X,
    pub metric: String,
    pub kind: Kind,
    pub unit: String,
    /// The median of the rounds; `None` if it could not be measured, for the reason in the remark.
    pub value: Option<f64>,
    pub paper_value: Option<f64>,
    /// The other end, where the paper gives a range.
    pub paper_upto: Option<f64>,
    /// Location of the paper's number.
    pub paper_place: Option<String>,
    pub paper_approximate: bool,
    /// Percent of the paper's value; percentage points where the unit is percent.
    pub deviation: Option<f64>,
    pub remark: String,
    pub rounds: Vec<f64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    /// The command lines that measured it.
    pub arguments: Vec<String>,
    #[serde(flatten)]
    pub made: Made,
}

/// Build, machine and time of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Made {
    pub version: String,
    pub commit: String,
    pub compiler: String,
    pub build: String,
    pub machine: Value,
    pub date: String,
}

impl Made {
    /// Returns the present circumstances.
    pub fn now() -> Self {
        let build = if cfg!(debug_assertions) { "with debug assertions" } else { "optimized" };
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: commit().unwrap_or_else(|| "unknown".to_owned()),
            compiler: env!("BRISTLECONE_COMPILER").to_owned(),
            build: build.to_owned(),
            machine: crate::bench::report::machine(),
            date: humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
        }
    }
}

/// Returns the commit of this build, marked if a source was changed. A build for tests does not know its commit and
/// returns the time of the build: results of another build are not reused.
fn commit() -> Option<String> {
    if let Some(commit) = option_env!("BRISTLECONE_COMMIT") {
        return Some(commit.to_owned());
    }
    let built = std::env::current_exe().and_then(std::fs::metadata).and_then(|file| file.modified());
    Some(format!("unknown, built {}", humantime::format_rfc3339_seconds(built.ok()?)))
}

impl Measurement {
    /// Creates the result of a row from the values of its rounds; if there are none, the remark gives the reason.
    pub fn new((paper, figure): (&str, &str), kind: Kind, row: &Row, rounds: Vec<f64>, made: &Made) -> Self {
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let value = sorted.get(sorted.len() / 2).copied();
        Self {
            paper: paper.to_owned(),
            figure: figure.to_owned(),
            series: row.series.clone(),
            design: row.design.clone(),
            x: row.x.clone(),
            metric: row.metric.clone(),
            kind,
            unit: row.unit.clone(),
            value,
            paper_value: row.paper.as_ref().map(|said| said.value),
            paper_upto: row.paper.as_ref().and_then(|said| said.upto),
            paper_place: row.paper.as_ref().map(|said| said.place.clone()),
            paper_approximate: row.paper.as_ref().is_some_and(|said| said.approximate),
            deviation: value.and_then(|value| row.deviation(value)),
            remark: row.remark.clone(),
            min: sorted.first().copied(),
            max: sorted.last().copied(),
            rounds,
            arguments: row.runs.iter().map(super::run::Run::line).collect(),
            made: made.clone(),
        }
    }

    /// Takes over the remark that the paper's file has now, if it was measured.
    pub fn refresh(&mut self, paper: &str, figures: &[Figure]) {
        if self.paper != paper || self.value.is_none() {
            return;
        }
        let figure = figures.iter().find(|figure| figure.name == self.figure);
        let is_same = |row: &&Row| (&row.series, &row.metric) == (&self.series, &self.metric);
        let is_here = |row: &&Row| is_same(row) && (row.x == self.x || matches!(row.take, Take::Curve(_)));
        if let Some(row) = figure.and_then(|figure| figure.rows.iter().find(is_here)) {
            self.remark = row.remark.clone();
        }
    }

    /// Returns whether it is of the same number, regardless of when it was measured.
    pub fn is_of(&self, other: &Self) -> bool {
        self.is_of_series(other) && self.x == other.x
    }

    /// Returns whether it is of the same series of points.
    fn is_of_series(&self, other: &Self) -> bool {
        (&self.paper, &self.figure, &self.series, &self.metric)
            == (&other.paper, &other.figure, &other.series, &other.metric)
    }

    /// Returns whether `row` need not be measured again.
    pub fn serves(&self, (paper, figure): (&str, &str), row: &Row, made: &Made) -> bool {
        let is_whole_curve = matches!(row.take, Take::Curve(_));
        (self.paper.as_str(), self.figure.as_str()) == (paper, figure)
            && (self.series.as_str(), self.metric.as_str()) == (row.series.as_str(), row.metric.as_str())
            && (is_whole_curve || self.x == row.x)
            && self.arguments.iter().eq(row.runs.iter().map(super::run::Run::line).collect::<Vec<_>>().iter())
            && (&self.made.commit, &self.made.version, &self.made.build)
                == (&made.commit, &made.version, &made.build)
            && self.made.machine == made.machine
            && (self.value.is_some() || !row.runs.iter().all(super::run::Run::is_possible))
    }
}

/// The file of results.
pub struct Results {
    path: PathBuf,
    to: File,
    pub all: Vec<Measurement>,
}

/// The name of the file of results in its folder.
pub const FILE: &str = "results.jsonl";

impl Results {
    /// Opens the results of a folder, which is created if missing.
    pub fn open(folder: &Path) -> Outcome<Self> {
        std::fs::create_dir_all(folder).map_err(|error| Failure::io(folder.display(), &error))?;
        let path = folder.join(FILE);
        let all = if path.exists() { read(&path)? } else { Vec::new() };
        let to = OpenOptions::new().create(true).append(true).open(&path);
        let to = to.map_err(|error| Failure::io(path.display(), &error))?;
        let mut results = Self { path, to, all };
        // Removes a partial line of a killed call, and replaced measurements.
        results.rewrite()?;
        Ok(results)
    }

    /// Adds results, which replace those of the same numbers.
    pub fn add(&mut self, new: Vec<Measurement>) -> Outcome {
        let mut lines = String::new();
        for result in &new {
            lines.push_str(&serde_json::to_string(result).map_err(std::io::Error::from)?);
            lines.push('\n');
        }
        let written = self.to.write_all(lines.as_bytes()).and_then(|()| self.to.flush());
        written.map_err(|error| Failure::io(self.path.display(), &error))?;
        replace(&mut self.all, new);
        Ok(())
    }

    /// Removes points of curves that are about to be measured again: their positions may differ.
    pub fn forget_curve(&mut self, (paper, figure): (&str, &str), row: &Row) {
        self.all.retain(|result| {
            (result.paper.as_str(), result.figure.as_str(), result.series.as_str(), result.metric.as_str())
                != (paper, figure, &row.series, &row.metric)
        });
    }

    /// Rewrites the file: each number once. A crash leaves the old file or the new one.
    pub fn rewrite(&mut self) -> Outcome {
        let said = |error: std::io::Error| Failure::io(self.path.display(), &error);
        let new = self.path.with_extension("jsonl.new");
        let mut file = File::create(&new).map_err(|error| Failure::io(new.display(), &error))?;
        for result in &self.all {
            let line = serde_json::to_string(result).map_err(std::io::Error::from)?;
            writeln!(file, "{line}").map_err(said)?;
        }
        file.sync_all().map_err(said)?;
        std::fs::rename(&new, &self.path).map_err(said)?;
        self.to = OpenOptions::new().append(true).open(&self.path).map_err(said)?;
        Ok(())
    }
}

fn replace(all: &mut Vec<Measurement>, new: Vec<Measurement>) {
    for result in new {
        match all.iter_mut().find(|old| old.is_of(&result)) {
            Some(old) => *old = result,
            None => all.push(result),
        }
    }
}

/// Reads a file of results; of several with the same number, the last one counts. A last line without an end is a
/// partial line of a killed call, and does not count.
pub fn read(path: &Path) -> Outcome<Vec<Measurement>> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io(path.display(), &error))?;
    let mut all = Vec::new();
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let Some(line) = line.strip_suffix('\n') else { break };
        let result: Measurement = serde_json::from_str(line).map_err(|error| {
            let what = format!(
                "{} is damaged at line {}: {error}; remove that line, or the file",
                path.display(),
                number + 1
            );
            Failure::new(Exit::BadInput, what)
        })?;
        replace(&mut all, vec![result]);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::figure::Said;
    use crate::reproduce::run::Run;

    fn run(keys: u64) -> Run {
        Run::of(&format!("count --design sstree --records {keys}")).unwrap()
    }

    fn row(x: u64) -> Row {
        Row {
            series: "SSTree".to_owned(),
            design: "sstree".to_owned(),
            x: X::Number(x as f64),
            metric: "lines".to_owned(),
            unit: "lines".to_owned(),
            runs: vec![run(10)],
            take: Take::At("x".to_owned()),
            paper: Some(Said::of("2", Some("table 1")).unwrap()),
            remark: String::new(),
        }
    }

    #[test]
    fn a_measured_number_has_the_remark_of_now() {
        let mut figure = Figure {
            name: "1".to_owned(),
            title: "f".to_owned(),
            kind: Kind::Counted,
            x: String::new(),
            logarithmic: false,
            rows: vec![row(1), row(2)],
            note: String::new(),
        };
        figure.rows[1].remark = "ours: better".to_owned();
        let mut measured = Measurement::new(("p", "1"), Kind::Counted, &row(2), vec![1.0], &made());
        measured.refresh("q", std::slice::from_ref(&figure));
        assert_eq!(measured.remark, "");
        measured.refresh("p", std::slice::from_ref(&figure));
        assert_eq!(measured.remark, "ours: better");
        let mut failed = Measurement::new(("p", "1"), Kind::Counted, &row(2), Vec::new(), &made());
        failed.remark = "not measured: x".to_owned();
        failed.refresh("p", std::slice::from_ref(&figure));
        assert_eq!(failed.remark, "not measured: x");
    }

    fn made() -> Made {
        let text = |text: &str| text.to_owned();
        Made {
            version: text("1"),
            commit: text("c"),
            compiler: text("r"),
            build: text("b"),
            machine: Value::Null,
            date: text("d"),
        }
    }

    #[test]
    fn results_of_a_number_replace_what_was_measured_before() {
        let folder = tempfile::tempdir().unwrap();
        let result =
            |x, value| Measurement::new(("p", "1"), Kind::Timed, &row(x), vec![3.0, value, 9.0], &made());
        let mut results = Results::open(folder.path()).unwrap();
        results.add(vec![result(1, 4.0), result(2, 5.0)]).unwrap();
        results.add(vec![result(1, 6.0)]).unwrap();
        let path = folder.path().join(FILE);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 3);
        // A partial line does not count, and is removed.
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"paper\":").unwrap();
        let results = Results::open(folder.path()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
        let values: Vec<_> =
            results.all.iter().map(|result| (result.value, result.min, result.max)).collect();
        assert_eq!(values, [(Some(6.0), Some(3.0), Some(9.0)), (Some(5.0), Some(3.0), Some(9.0))]);
        assert_eq!(results.all[0].deviation, Some(200.0));
    }

    #[test]
    fn results_serve_only_the_same_arguments_and_commit() {
        let result = Measurement::new(("p", "1"), Kind::Counted, &row(1), vec![1.0], &made());
        assert!(result.serves(("p", "1"), &row(1), &made()));
        assert!(!result.serves(("p", "2"), &row(1), &made()));
        assert!(!result.serves(("p", "1"), &row(2), &made()));
        assert!(!result.serves(("p", "1"), &row(1), &Made { commit: "d".to_owned(), ..made() }));
        let other = Row { runs: vec![run(11)], ..row(1) };
        assert!(!result.serves(("p", "1"), &other, &made()));
        let not_measured = Measurement::new(("p", "1"), Kind::Counted, &row(1), Vec::new(), &made());
        assert!(!not_measured.serves(("p", "1"), &row(1), &made()));
    }

    #[test]
    fn results_with_a_line_that_is_none_are_refused_by_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let good = Measurement::new(("p", "1"), Kind::Counted, &row(1), vec![1.0], &made());
        std::fs::write(&path, format!("{}\n{{}}\n", serde_json::to_string(&good).unwrap())).unwrap();
        let failure = Results::open(folder.path()).err().unwrap();
        assert!(failure.line().contains("damaged at line 2"), "{}", failure.line());
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2, "and is left as it is");
    }
}
