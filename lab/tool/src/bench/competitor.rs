//! Competitors for `--against`: volatile maps, trees of other designs, alternative stores, and wrappers for
//! PiBench.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use bristlecone::Domain;
use bristlecone_baselines::AnyDesign;
use clap::ValueEnum;

use super::rivals::{Class, Rival};
use super::volatile::VolatileMap;
use super::workload::{Op, Phase};

/// The name of the tree as read by followers.
const FOLLOWER: &str = "follower";

/// A competitor of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Competitor {
    /// A volatile map.
    Map(VolatileMap),
    /// A tree on the same medium.
    Tree(AnyDesign),
    /// The tree under measurement, followed like by another process.
    Follower,
    /// A store in files.
    Store(Rival),
    /// A shared library that is a wrapper for PiBench.
    Library(PathBuf),
}

impl Competitor {
    /// Returns its name.
    pub fn name(&self) -> String {
        match self {
            Self::Map(map) => map.name().to_owned(),
            Self::Tree(design) => design.name().to_owned(),
            Self::Follower => FOLLOWER.to_owned(),
            Self::Store(rival) => rival.name().to_owned(),
            Self::Library(path) => {
                path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
            }
        }
    }

    /// Returns the name, with a description.
    pub fn title(&self) -> String {
        match self {
            Self::Tree(design) => design.title(),
            other => other.name(),
        }
    }

    /// Returns whether it is a design that exists only for comparison.
    pub fn is_baseline(&self) -> bool {
        matches!(self, Self::Tree(design) if design.is_baseline())
    }

    /// Returns the durability of a completed operation, and what provides it.
    pub fn durability(&self, domain: Domain) -> String {
        match self {
            Self::Map(_) => "survives nothing: volatile".to_owned(),
            Self::Tree(_) | Self::Follower => format!("survives {}: domain {domain}", domain.survives()),
            Self::Store(rival) => rival.durability(Class::of(domain)).to_owned(),
            Self::Library(_) => "survives what its wrapper makes of it: not known here".to_owned(),
        }
    }

    /// Returns the reason why it skips a phase, if it does.
    pub fn skips(&self, phase: &Phase, threads: usize) -> Option<&'static str> {
        let replaces =
            [Op::Update, Op::Upsert, Op::ReadModifyWrite, Op::UpsertMany].iter().any(|op| phase.mix.has(*op));
        let is_read = |op: Op| matches!(op, Op::Get | Op::GetMany | Op::Scan);
        match self {
            Self::Follower if Op::all().any(|op| phase.mix.has(op) && !is_read(op)) => {
                Some("a follower reads")
            }
            Self::Map(VolatileMap::Skiplist) if replaces && threads > 1 => {
                Some("it removes and inserts to replace, and other threads miss the key in between")
            }
            _ => None,
        }
    }
}

impl FromStr for Competitor {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if name.contains('/') || name.ends_with(".so") {
            return Ok(Self::Library(Path::new(name).to_owned()));
        }
        if name == FOLLOWER {
            return Ok(Self::Follower);
        }
        if let Ok(map) = VolatileMap::from_str(name, false) {
            return Ok(Self::Map(map));
        }
        if let Some(rival) = Rival::named(name)? {
            return Ok(Self::Store(rival));
        }
        name.parse().map(Self::Tree).map_err(|error| {
            let maps: Vec<_> = VolatileMap::value_variants().iter().map(|map| map.name()).collect();
            let stores = Rival::names().collect::<Vec<_>>().join(", ");
            format!(
                "{error}; as volatile maps {}; as stores {stores}; {FOLLOWER}, which reads the tree itself as another \
                 process would; and the path of a wrapper for PiBench",
                maps.join(", ")
            )
        })
    }
}
