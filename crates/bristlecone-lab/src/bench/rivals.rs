//! What `--against` can name: volatile maps, and trees of other designs.

use std::str::FromStr;

use bristlecone_baselines::Contender;
use clap::ValueEnum;

use super::peers::Peer;

/// Whom a tree is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// A volatile map.
    Map(Peer),
    /// A tree on the same medium.
    Tree(Contender),
}

impl Rival {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Map(peer) => peer.name(),
            Self::Tree(contender) => contender.name(),
        }
    }

    /// Returns the name, with what it is.
    pub fn title(self) -> String {
        match self {
            Self::Map(peer) => peer.name().to_owned(),
            Self::Tree(contender) => contender.title(),
        }
    }

    /// Returns whether it is a design that is there to be compared with only.
    pub fn is_baseline(self) -> bool {
        matches!(self, Self::Tree(contender) if contender.is_baseline())
    }
}

impl FromStr for Rival {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if let Ok(peer) = Peer::from_str(name, false) {
            return Ok(Self::Map(peer));
        }
        name.parse().map(Self::Tree).map_err(|error| {
            let maps: Vec<_> = Peer::value_variants().iter().map(|peer| peer.name()).collect();
            format!("{error}, and as volatile maps {}", maps.join(", "))
        })
    }
}
