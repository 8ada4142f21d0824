//! The crash models by name.

use bristlecone_pm::Domain;

/// Crash models, which differ in the unfenced stores that may survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// x86: of the stores to one line, a prefix in store order.
    Prefix,
    /// Any choice per word (ARM, page write-back), except for
    /// [`ordered_within_line`](bristlecone_pm::Persist::ordered_within_line).
    Subset,
    /// Caches survive: exactly a prefix of all stores.
    Eadr,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Prefix, Self::Subset, Self::Eadr];

    /// Returns the domain of the code under test in this mode.
    pub fn domain(self) -> Domain {
        match self {
            Self::Prefix => Domain::Adr,
            Self::Subset => Domain::Msync,
            Self::Eadr => Domain::Eadr,
        }
    }
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mode| mode.to_string() == name);
        found.ok_or_else(|| format!("unknown mode {name:?}: there is prefix, subset, eadr"))
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Mode::Prefix => "prefix",
            Mode::Subset => "subset",
            Mode::Eadr => "eadr",
        })
    }
}
