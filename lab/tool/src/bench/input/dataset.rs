//! Sources of a run's keys.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use bristlecone_cli::failure::{Failure, Outcome};
use clap::ValueEnum;

use super::generate::Generated;
use super::sosd;

/// A set of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dataset {
    /// Generated with a shape.
    Generated(Generated),
    /// Read from a file.
    Sosd(PathBuf),
}

impl Dataset {
    /// Returns at least `count` keys of the set, in order.
    pub fn keys(&self, count: u64, seed: u64) -> Outcome<Arc<[u64]>> {
        let keys = match self {
            Self::Generated(shape) => shape.draw(count, seed),
            Self::Sosd(path) => sosd::read(path)?,
        };
        if (keys.len() as u64) < count {
            let there = keys.len();
            return Err(Failure::usage(format!(
                "{self} has {there} different keys, and the phases take {count}: fewer --records or --operations"
            )));
        }
        Ok(keys.into())
    }
}

impl FromStr for Dataset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("sosd:") {
            return Ok(Self::Sosd(path.into()));
        }
        Generated::from_str(text, false)
            .map(Self::Generated)
            .map_err(|_| format!("{text:?} is none of dense, clustered, lognormal, timestamps, sosd:FILE"))
    }
}

impl fmt::Display for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Generated(shape) => {
                f.write_str(shape.to_possible_value().as_ref().map_or("", |value| value.get_name()))
            }
            Self::Sosd(path) => write!(f, "sosd:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dataset_printed_parses_to_the_same_and_must_have_enough_keys() {
        for text in ["dense", "clustered", "lognormal", "timestamps", "sosd:/x/books"] {
            assert_eq!(text.parse::<Dataset>().unwrap().to_string(), text);
        }
        assert!("books".parse::<Dataset>().is_err());
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let words = [2u64, 7, 9].map(u64::to_le_bytes);
        std::io::Write::write_all(&mut file, words.as_flattened()).unwrap();
        let set = Dataset::Sosd(file.path().to_owned());
        assert_eq!(&*set.keys(2, 1).unwrap(), [7, 9]);
        assert!(set.keys(3, 1).unwrap_err().line().contains("2 different keys, and the phases take 3"));
    }
}
