//! What a simulated run did to its memory, in one global order.

use bristlecone_pm::Step;

/// The thread that what a file system does at opening is said of.
pub(crate) const FILE: u32 = u32::MAX;

/// One thing that happened.
#[derive(Debug, Clone, Copy)]
pub enum Event {
    /// A store became visible.
    Store {
        /// The number of the word in memory.
        word: u32,
        /// What it holds from now on.
        value: u64,
        /// Who stored.
        thread: u32,
        /// The name, where it was a publish.
        publish: Option<Step>,
    },
    /// The file was extended: a store to the word that says how long it is, which no cache holds.
    Extended {
        /// The number of that word.
        word: u32,
        /// How many bytes it has from now on.
        value: u64,
        /// The thread that extended it.
        thread: u32,
    },
    /// A line was asked to be written back.
    Flush {
        /// The number of the line.
        line: u32,
        /// Who asked.
        thread: u32,
        /// The name of the site.
        step: Step,
    },
    /// A thread waited for its flushes.
    Fence {
        /// Who waited.
        thread: u32,
        /// The name of the site.
        step: Step,
    },
    /// A locked instruction succeeded: a fence, then a store.
    Locked {
        /// The number of the word in memory.
        word: u32,
        /// What it holds from now on.
        value: u64,
        /// Who did it.
        thread: u32,
    },
    /// Of a thread's stores to one line, those before this persist ahead of those after it.
    Order {
        /// Who asked for it.
        thread: u32,
    },
    /// The scenario's own notes.
    Mark(Mark),
}

/// Where in the scenario the trace stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The operation of this number began.
    Begin(usize),
    /// The operation of this number was acknowledged.
    End(usize),
    /// Opening returned: what was seen from now on must stay.
    Opened,
}

/// The kinds of named places in the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SiteKind {
    /// A flush.
    Flush,
    /// A fence.
    Fence,
    /// A publishing store.
    Publish,
}

/// A named place in the code that keeps data alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// What it does.
    pub kind: SiteKind,
    /// Its name.
    pub step: Step,
}

impl Event {
    /// Returns the thread that was at a named site, and its name.
    pub(crate) fn by(&self) -> Option<(u32, Step)> {
        match *self {
            Event::Store { thread, publish: Some(step), .. }
            | Event::Flush { thread, step, .. }
            | Event::Fence { thread, step } => Some((thread, step)),
            _ => None,
        }
    }

    /// The site that this event came from, if it has a name.
    pub fn site(&self) -> Option<Site> {
        match *self {
            Event::Flush { thread: FILE, .. } | Event::Fence { thread: FILE, .. } => None,
            Event::Store { publish: Some(step), .. } => Some(Site { kind: SiteKind::Publish, step }),
            Event::Flush { step, .. } => Some(Site { kind: SiteKind::Flush, step }),
            Event::Fence { step, .. } => Some(Site { kind: SiteKind::Fence, step }),
            _ => None,
        }
    }

    /// The word that this event stored to.
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
        };
        write!(f, "{kind} \"{}\"", self.step)
    }
}
