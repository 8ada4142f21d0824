//! Checks whether a machine has enough memory for a scale.

use bristlecone_cli::failure::{Exit, Failure, Outcome};
use bristlecone_cli::size;

use super::figure::Scale;
use super::papers::{self, Asked};
use super::run::Run;

/// Scales to suggest.
const KEYS: [(u64, &str); 11] = [
    (500_000_000, "500M"),
    (200_000_000, "200M"),
    (100_000_000, "100M"),
    (50_000_000, "50M"),
    (20_000_000, "20M"),
    (10_000_000, "10M"),
    (5_000_000, "5M"),
    (2_000_000, "2M"),
    (1_000_000, "1M"),
    (200_000, "200k"),
    (10_000, "10k"),
];

/// Returns the usable bytes: nine tenths of the memory that the system reports as available.
pub fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024 / 10 * 9)
}

/// Returns the run with the largest memory consumption.
fn largest(asked: &[Asked]) -> Option<(&Asked, u64)> {
    let most = |asked: &Asked| {
        let runs = asked.figure.rows.iter().flat_map(|row| &row.runs);
        runs.filter(|run| run.is_possible()).map(Run::bytes).max()
    };
    asked.iter().filter_map(|asked| Some((asked, most(asked)?))).max_by_key(|(_, bytes)| *bytes)
}

/// Fails if there is too little memory for the requested figures, and suggests a scale that fits.
pub fn check(paper: &str, names: &[String], asked: &[Asked], available: u64) -> Outcome {
    let Some((most, bytes)) = largest(asked).filter(|(_, bytes)| *bytes > available) else { return Ok(()) };
    let fits = |keys: u64| {
        let smaller = papers::asked(paper, names, Scale::Keys(keys)).ok()?;
        largest(&smaller).is_none_or(|(_, bytes)| bytes <= available).then_some(())
    };
    let advice = match KEYS.iter().find(|(keys, _)| fits(*keys).is_some()) {
        Some((_, text)) => format!("--scale {text} would fit"),
        None => "no scale would fit".to_owned(),
    };
    let what = format!(
        "{} {} takes about {} of memory, of which {} are available: {advice}",
        most.paper.name,
        most.figure.name,
        size::show(bytes),
        size::show(available)
    );
    Err(Failure::new(Exit::Full, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_too_little_is_said_with_what_would_fit() {
        let line = |scale, available| {
            let asked = papers::asked("all", &[], scale).unwrap();
            check("all", &[], &asked, available).err().map(|failure| failure.line().to_owned())
        };
        assert!(line(Scale::Full, 16 << 30).unwrap().contains("--scale 5M would fit"));
        assert_eq!(line(Scale::Keys(5_000_000), 16 << 30), None);
        assert!(line(Scale::Quick, 1 << 20).unwrap().contains("no scale would fit"));
        assert!(available().is_some_and(|bytes| bytes > 1 << 20));
    }
}
