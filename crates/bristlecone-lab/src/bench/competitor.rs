//! What `--against` can name: volatile maps, and trees of other designs.

use std::str::FromStr;

use bristlecone_baselines::AnyDesign;
use clap::ValueEnum;

use super::volatile::VolatileMap;

/// What a tree is measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Competitor {
    /// A volatile map.
    Map(VolatileMap),
    /// A tree on the same medium.
    Tree(AnyDesign),
}

impl Competitor {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Map(map) => map.name(),
            Self::Tree(design) => design.name(),
        }
    }

    /// Returns the name, with what it is.
    pub fn title(self) -> String {
        match self {
            Self::Map(map) => map.name().to_owned(),
            Self::Tree(design) => design.title(),
        }
    }

    /// Returns whether it is a design that is there to be compared with only.
    pub fn is_baseline(self) -> bool {
        matches!(self, Self::Tree(design) if design.is_baseline())
    }
}

impl FromStr for Competitor {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if let Ok(map) = VolatileMap::from_str(name, false) {
            return Ok(Self::Map(map));
        }
        name.parse().map(Self::Tree).map_err(|error| {
            let maps: Vec<_> = VolatileMap::value_variants().iter().map(|map| map.name()).collect();
            format!("{error}, and as volatile maps {}", maps.join(", "))
        })
    }
}
