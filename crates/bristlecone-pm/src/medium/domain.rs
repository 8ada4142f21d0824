//! Persistence domains: what makes a store durable on a medium, and which stores survive.

use std::fmt;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::str::FromStr;

use crate::{Error, Result};

/// The persistence domain: the point that a store must reach to survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Domain {
    /// Shared memory: a store survives the process that made it. No flushes are needed.
    Process,
    /// Memory behind caches that power failure empties: lines are flushed, then fenced.
    Adr,
    /// Caches lie within the persistence domain: a fence is enough.
    Eadr,
    /// An ordinary file: touched pages are synced at every durability point.
    Msync,
    /// An ordinary file with a journal beside it: memory as in [`Process`](Self::Process), and a journal that is synced
    /// for many threads together and restores the pool after a power failure.
    Journal,
}

impl Domain {
    /// Returns a description of what survives.
    pub fn survives(self) -> &'static str {
        match self {
            Self::Process => "a crash or kill of the process, not a power failure",
            Self::Adr | Self::Eadr | Self::Msync | Self::Journal => "power failure",
        }
    }

    /// Returns whether a store survives as soon as other threads can see it, before any fence. In
    /// [`Journal`](Self::Journal) this holds for a kill of the process; its journal decides about power failure.
    pub fn visible_is_durable(self) -> bool {
        matches!(self, Self::Process | Self::Eadr | Self::Journal)
    }

    /// Determines the domain of an open pool file from `MAP_SYNC` and the file system.
    pub fn detect(file: &File, dax: bool) -> Self {
        if dax {
            if caches_are_persistent() { Self::Eadr } else { Self::Adr }
        } else if is_memory(file) {
            Self::Process
        } else {
            Self::Msync
        }
    }

    /// Returns a warning if this medium cannot guarantee what the domain promises.
    pub fn warning(self, detected: Self) -> Option<&'static str> {
        let volatile = detected == Self::Process && !matches!(self, Self::Process | Self::Journal);
        let cached = detected == Self::Msync && matches!(self, Self::Adr | Self::Eadr);
        let weaker = self == Self::Process && detected != Self::Process;
        if volatile {
            Some("the medium is shared memory: nothing survives a power failure")
        } else if cached {
            Some("the medium is an ordinary file: flushed lines do not survive a power failure")
        } else if weaker {
            Some("weaker than the medium allows: a power failure may lose what was acknowledged")
        } else {
            None
        }
    }
}

/// Returns whether every nd region of this machine flushes its caches on power failure. A single
/// region that reports less makes this false; CXL's global persistent flush does not count.
fn caches_are_persistent() -> bool {
    let regions = Path::new("/sys/bus/nd/devices");
    let Ok(entries) = regions.read_dir() else { return false };
    let mut domains = entries
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("persistence_domain")).ok())
        .peekable();
    domains.peek().is_some() && domains.all(|domain| domain.trim() == "cpu_cache")
}

/// Returns whether the file is in memory (tmpfs, hugetlbfs).
pub(crate) fn is_memory(file: &File) -> bool {
    const HUGETLBFS: u64 = 0x9584_58f6;
    file_system(file).is_some_and(|kind| matches!(kind, TMPFS | HUGETLBFS))
}

/// Returns whether the file is on tmpfs, as a memfd is.
pub(crate) fn is_tmpfs(file: &File) -> bool {
    file_system(file) == Some(TMPFS)
}

const TMPFS: u64 = 0x0102_1994;

fn file_system(file: &File) -> Option<u64> {
    rustix::fs::fstatfs(file.as_fd()).ok().map(|stat| stat.f_type as u64 & 0xffff_ffff)
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Process => "process",
            Self::Adr => "adr",
            Self::Eadr => "eadr",
            Self::Msync => "msync",
            Self::Journal => "journal",
        })
    }
}

impl FromStr for Domain {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "process" => Ok(Self::Process),
            "adr" => Ok(Self::Adr),
            "eadr" => Ok(Self::Eadr),
            "msync" => Ok(Self::Msync),
            "journal" => Ok(Self::Journal),
            _ => Err(Error::invalid(format!(
                "unknown domain {name:?}; expected process, adr, eadr, msync or journal"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for domain in [Domain::Process, Domain::Adr, Domain::Eadr, Domain::Msync, Domain::Journal] {
            assert_eq!(domain.to_string().parse::<Domain>().unwrap(), domain);
        }
        assert!("dram".parse::<Domain>().is_err());
    }

    #[test]
    fn a_promise_that_the_medium_breaks_is_named() {
        assert!(Domain::Adr.warning(Domain::Process).is_some());
        assert!(Domain::Process.warning(Domain::Msync).is_some());
        assert!(Domain::Msync.warning(Domain::Msync).is_none());
        assert!(Domain::Process.warning(Domain::Process).is_none());
    }
}
