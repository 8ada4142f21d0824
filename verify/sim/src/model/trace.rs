//! The accesses of a simulated run to its memory, in one global order.

use std::collections::{BTreeSet, HashSet};
use std::hash::BuildHasherDefault;
use std::panic::Location;

use bristlecone_pm::Step;

use crate::model::lines::LineHasher;

/// A place in the source.
pub type Place = &'static Location<'static>;

/// Thread number in the trace for actions of the file system at open.
pub(crate) const FILE: u32 = u32::MAX;

/// One event.
#[derive(Debug, Clone, Copy)]
pub enum Event {
    /// A store became visible.
    Store {
        /// The number of the word in memory.
        word: u32,
        /// Its new value.
        value: u64,
        /// The thread that stored.
        thread: u32,
        /// The name, if it was a publish.
        publish: Option<Step>,
        /// Whether recovery does not rely on it.
        derived: bool,
        /// Whether it never reaches the medium: a mutation.
        lost: bool,
        /// Its place in the source.
        at: Place,
    },
    /// The file was extended: a store to the word with its length, which bypasses caches.
    Extended {
        /// The number of that word.
        word: u32,
        /// Its new length in bytes.
        value: u64,
        /// The thread that extended it.
        thread: u32,
    },
    /// A line is written back.
    Flush {
        /// The number of the line.
        line: u32,
        /// The thread that flushed.
        thread: u32,
        /// The name of the site.
        step: Step,
        /// Its place in the source.
        at: Place,
    },
    /// A thread waited for its flushes.
    Fence {
        /// The thread that waited.
        thread: u32,
        /// The name of the site.
        step: Step,
        /// Its place in the source.
        at: Place,
    },
    /// A locked instruction succeeded: a fence, then a store.
    Locked {
        /// The number of the word in memory.
        word: u32,
        /// Its new value.
        value: u64,
        /// The thread that executed it.
        thread: u32,
        /// Whether the store never reaches the medium: a mutation.
        lost: bool,
        /// Its place in the source.
        at: Place,
    },
    /// A thread's earlier stores to a line persist before its later ones.
    Order {
        /// The thread that set the order.
        thread: u32,
        /// Its place in the source.
        at: Place,
    },
    /// The scenario's own notes.
    Mark(Mark),
}

/// A position of the trace in its scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The operation of this number began.
    Begin(usize),
    /// The operation of this number was acknowledged.
    End(usize),
    /// Open returned: later observations must persist.
    Opened,
}

/// The kinds of code sites that a crash depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SiteKind {
    /// A flush.
    Flush,
    /// A fence.
    Fence,
    /// A publishing store.
    Publish,
    /// A store that a later publish makes reachable.
    Store,
    /// A store that recovery does not rely on.
    Derived,
    /// A compare-and-swap.
    Swap,
    /// An order of stores to one line.
    Order,
}

/// A code site that makes data durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// Its kind.
    pub kind: SiteKind,
    /// Its name, or its source file if it has none.
    pub step: Step,
    /// Its place in the source.
    pub at: Place,
}

impl Site {
    pub(crate) fn unnamed(kind: SiteKind, at: Place) -> Self {
        Self { kind, step: at.file(), at }
    }

    /// Returns whether it has a name: it is a flush, a fence, or a publish.
    pub fn is_named(&self) -> bool {
        matches!(self.kind, SiteKind::Flush | SiteKind::Fence | SiteKind::Publish)
    }

    /// Returns whether it is the pool's, not a structure's.
    pub fn is_of_pool(&self) -> bool {
        self.step.starts_with("pool") || self.at.file().contains("/pool/")
    }
}

/// Ordered set of sites.
#[derive(Debug, Clone, Default)]
pub struct Sites {
    all: BTreeSet<Site>,
    /// Known sites by the addresses of their parts: most events are at one of these.
    noted: HashSet<[usize; 3], BuildHasherDefault<LineHasher>>,
}

impl Sites {
    /// Adds the sites that a trace passed.
    pub(crate) fn note(&mut self, trace: &[Event]) {
        for site in trace.iter().filter_map(Event::site) {
            let parts = [std::ptr::from_ref(site.at).addr(), site.step.as_ptr().addr(), site.kind as usize];
            if self.noted.insert(parts) {
                self.all.insert(site);
            }
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.all.extend(&other.all);
    }
}

impl std::ops::Deref for Sites {
    type Target = BTreeSet<Site>;

    fn deref(&self) -> &BTreeSet<Site> {
        &self.all
    }
}

impl Event {
    /// Returns the thread at a named site, and its name.
    pub(crate) fn by(&self) -> Option<(u32, Step)> {
        match *self {
            Event::Store { thread, publish: Some(step), .. }
            | Event::Flush { thread, step, .. }
            | Event::Fence { thread, step, .. } => Some((thread, step)),
            _ => None,
        }
    }

    /// Returns the site of this event, if it has a name.
    pub fn site(&self) -> Option<Site> {
        match *self {
            Event::Flush { thread: FILE, .. } | Event::Fence { thread: FILE, .. } => None,
            Event::Store { thread: FILE, .. } => None,
            Event::Store { publish: Some(step), at, .. } => Some(Site { kind: SiteKind::Publish, step, at }),
            Event::Store { derived: true, at, .. } => Some(Site::unnamed(SiteKind::Derived, at)),
            Event::Store { at, .. } => Some(Site::unnamed(SiteKind::Store, at)),
            Event::Flush { step, at, .. } => Some(Site { kind: SiteKind::Flush, step, at }),
            Event::Fence { step, at, .. } => Some(Site { kind: SiteKind::Fence, step, at }),
            Event::Locked { at, .. } => Some(Site::unnamed(SiteKind::Swap, at)),
            Event::Order { at, .. } => Some(Site::unnamed(SiteKind::Order, at)),
            _ => None,
        }
    }

    /// Returns the word that this event stored to.
    pub fn stored(&self) -> Option<(u32, u64)> {
        match *self {
            Event::Store { word, value, .. }
            | Event::Locked { word, value, .. }
            | Event::Extended { word, value, .. } => Some((word, value)),
            _ => None,
        }
    }
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            SiteKind::Flush => "flush",
            SiteKind::Fence => "fence",
            SiteKind::Publish => "publish",
            SiteKind::Store => "store",
            SiteKind::Derived => "derived store",
            SiteKind::Swap => "compare-and-swap",
            SiteKind::Order => "order",
        };
        // Two components of a path identify a file, and the line identifies the place.
        let file = self.at.file();
        let from = file.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
        let (file, line) = (&file[from..], self.at.line());
        match self.is_named() {
            true => write!(f, "{kind} \"{}\" at {file}:{line}", self.step),
            false => write!(f, "{kind} at {file}:{line}"),
        }
    }
}
