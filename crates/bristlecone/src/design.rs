//! The designs by name.

use std::fmt;
use std::str::FromStr;

use crate::{Error, Result, SsTreeOptions, TreeSpec};

/// A published design of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Design {
    /// SSTree: leaves that grow by subnodes.
    #[default]
    SsTree,
}

/// Names of designs that are yet to come.
const PLANNED: [&str; 4] = ["nbtree", "cclbtree", "lodgetree", "wotree"];

impl Design {
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::SsTree => 1,
        }
    }

    pub(crate) fn from_code(code: u32) -> Result<Self> {
        match code {
            1 => Ok(Self::SsTree),
            _ => Err(Error::Newer { needs: format!("tree design {code}") }),
        }
    }
}

impl Design {
    /// The design of a tree, as the directory has it.
    pub fn of(tree: &TreeSpec) -> Result<Self> {
        Self::from_code(tree.design)
    }

    /// The parameters of a tree by name, as the directory has them.
    pub fn options_of(tree: &TreeSpec) -> Result<Vec<(&'static str, u64)>> {
        match Self::of(tree)? {
            Self::SsTree => Ok(SsTreeOptions::from_params(tree.params)?.named().to_vec()),
        }
    }
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::SsTree => "sstree",
        })
    }
}

impl FromStr for Design {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "sstree" => Ok(Self::SsTree),
            _ if PLANNED.contains(&name) => {
                Err(Error::invalid(format!("{name} is not built yet: sstree is the one design so far")))
            }
            _ => Err(Error::invalid(format!("unknown design {name:?}: sstree is the one design so far"))),
        }
    }
}
