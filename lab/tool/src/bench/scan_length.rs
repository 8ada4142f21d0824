//! Lengths of scans.

use std::fmt;
use std::str::FromStr;

/// Number of entries of a scan: uniformly distributed in this range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanLength {
    least: u32,
    most: u32,
}

impl ScanLength {
    /// Returns a constant length.
    pub fn of_length(length: u32) -> Self {
        Self { least: length, most: length }
    }

    /// Returns 1 to `most`.
    pub fn up_to(most: u32) -> Self {
        Self { least: 1, most }
    }

    /// Returns the length selected by a key's identity.
    #[inline]
    pub fn of(self, id: u64) -> usize {
        self.least as usize + (id % (u64::from(self.most - self.least) + 1)) as usize
    }
}

impl FromStr for ScanLength {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (least, most) = text.split_once('-').unwrap_or((text, text));
        match (least.parse(), most.parse()) {
            (Ok(least), Ok(most)) if 1 <= least && least <= most && most <= 1_000_000 => {
                Ok(Self { least, most })
            }
            _ => Err(format!("{text:?}: write LENGTH or MIN-MAX, of 1 to 1000000 entries")),
        }
    }
}

impl fmt::Display for ScanLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { least, most } if least == most => write!(f, "{least}"),
            Self { least, most } => write!(f, "{least}-{most}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scan_lengths_lie_where_they_are_asked_for() {
        let lengths: ScanLength = "50-400".parse().unwrap();
        let mut seen: Vec<usize> = (0..10_000).map(|id| lengths.of(id)).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!((seen[0], seen[seen.len() - 1], seen.len()), (50, 400, 351));
        assert_eq!(
            ("7".parse::<ScanLength>().unwrap().of(u64::MAX), lengths.to_string().as_str()),
            (7, "50-400")
        );
        for wrong in ["", "0", "5-4", "x", "1-", "2000000"] {
            assert!(wrong.parse::<ScanLength>().is_err(), "{wrong}");
        }
    }
}
