//! The name of one failed case: everything needed to reproduce it.
//!
//! ```text
//! v3/sstree-words-3/split/subset/0.8/412:198.1,200.3/25:192.3
//!  |        |         |      |    | |  |   |   |      the next crash, inside the recovery
//!  |        |         |      |    | |  |   line 198 kept the first of the contents it may have
//!  |        |         |      |    | |  before event 412 of the run
//!  |        |         |      |    | one in 8 continuations crashes in its last operation
//!  |        subject   |      mode seed
//!  version            scenario
//!
//! v3/sstree-words-3/schedules/subset/0.1/77    schedule 77 of seed 0, with the crashes drawn for it
//! ```

use std::fmt;
use std::str::FromStr;

use crate::model::mode::Mode;
use crate::report::{Choice, Crash, Failure};

/// Must change whenever an older case would change its meaning.
const VERSION: &str = "v3";

/// One crash of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrashAt {
    /// The first event that did not happen.
    pub event: usize,
    /// Choices of lines that kept unpromised stores; the other lines kept none.
    pub choices: Vec<Choice>,
}

/// A failed case by name. See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// The explored subject.
    pub subject: String,
    /// The scenario.
    pub scenario: String,
    /// The crash model.
    pub mode: Mode,
    /// Seed of the exploration's budget.
    pub seed: u64,
    /// Value of the exploration's budget.
    pub continuation_crashes: u32,
    /// The crashes, one inside the recovery from the other.
    pub crashes: Vec<CrashAt>,
}

impl Case {
    /// Returns the name of a failure.
    pub fn of(failure: &Failure, subject: &str, seed: u64, continuation_crashes: u32) -> Self {
        let crash = |crash: &Crash| CrashAt { event: crash.event, choices: crash.choices.clone() };
        Self {
            subject: subject.to_owned(),
            scenario: failure.scenario.clone(),
            mode: failure.mode,
            seed,
            continuation_crashes,
            crashes: match failure.schedule {
                // Everything else is drawn from the seed and the number.
                Some(number) => vec![CrashAt { event: number as usize, choices: Vec::new() }],
                None => failure.crashes.iter().map(crash).collect(),
            },
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, scenario, mode, seed, continuation_crashes, crashes } = self;
        write!(f, "{VERSION}/{subject}/{scenario}/{mode}/{seed}.{continuation_crashes}")?;
        for crash in crashes {
            write!(f, "/{}", crash.event)?;
            for (at, Choice { line, contents }) in crash.choices.iter().enumerate() {
                write!(f, "{}{line}.{contents}", if at == 0 { ':' } else { ',' })?;
            }
        }
        Ok(())
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refusal = || {
            format!(
                "{text:?} is not a case: it looks like {VERSION}/sstree-words-3/split/subset/0.8/412:198.1"
            )
        };
        let mut parts = text.split('/');
        let version = parts.next().unwrap_or_default();
        if version != VERSION {
            let is_version = version.strip_prefix('v').is_some_and(|number| number.parse::<u32>().is_ok());
            return Err(if is_version {
                format!(
                    "the case is of version {version}, this tool replays {VERSION}: find it again with this tool"
                )
            } else {
                refusal()
            });
        }
        let mut next = || parts.next().filter(|part| !part.is_empty()).ok_or_else(refusal);
        let (subject, scenario) = (next()?.to_owned(), next()?.to_owned());
        let mode = next()?.parse()?;
        let (seed, continuation_crashes) = pair(next()?).ok_or_else(refusal)?;
        if continuation_crashes == 0 {
            return Err(refusal());
        }
        let crashes = parts.map(|part| crash(part).ok_or_else(refusal)).collect::<Result<_, _>>()?;
        Ok(Self { subject, scenario, mode, seed, continuation_crashes, crashes })
    }
}

fn pair<A: FromStr, B: FromStr>(text: &str) -> Option<(A, B)> {
    let (a, b) = text.split_once('.')?;
    Some((a.parse().ok()?, b.parse().ok()?))
}

fn crash(text: &str) -> Option<CrashAt> {
    let (event, choices) = text.split_once(':').map_or((text, None), |(event, rest)| (event, Some(rest)));
    let choice = |text| pair(text).map(|(line, contents)| Choice { line, contents });
    let choices = choices.map_or(Some(Vec::new()), |choices| choices.split(',').map(choice).collect())?;
    Some(CrashAt { event: event.parse().ok()?, choices })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_printed_parses_to_the_same() {
        for text in [
            "v3/sstree-words-3/split/subset/7.8/412:198.1,200.3/25:192.3/4",
            "v3/pool/drop/eadr/0.1/9",
            "v3/pool/drop/prefix/0.1",
        ] {
            assert_eq!(text.parse::<Case>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn case_malformed_is_refused_in_one_line() {
        let refusal = |text: &str| match text.parse::<Case>() {
            Ok(case) => panic!("{case:?}"),
            Err(what) => what,
        };
        assert!(refusal("v1/pool/drop/eadr/0.1/9").contains("of version v1"));
        assert!(refusal("v3/pool/drop/never/0.1/9").contains("unknown mode"));
        for text in
            ["", "v3", "v3/pool/drop/eadr/0", "v3/pool/drop/eadr/0.0", "v3/pool/drop/eadr/0.1/x", "hello"]
        {
            assert!(refusal(text).contains("is not a case") && refusal(text).lines().count() == 1, "{text}");
        }
    }
}
