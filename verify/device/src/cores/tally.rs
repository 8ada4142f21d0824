//! Counts of simulated cores, by the kind of operation.

use std::ops::{AddAssign, Index};

use hdrhistogram::Histogram;

use crate::counts::KINDS;

/// Declares counts with their names.
macro_rules! counts {
    ($(#[doc = $doc:literal] $name:ident,)*) => {
        /// Counts of operations of one kind.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CoreTally {
            $(#[doc = $doc] pub $name: u64,)*
        }

        impl AddAssign for CoreTally {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }

        impl CoreTally {
            /// Returns every count with its name.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counts! {
    #[doc = "Operations."]
    operations,
    #[doc = "Accesses to shared DRAM and to the medium."]
    steps,
    #[doc = "Lines that the second cache had."]
    l2_hits,
    #[doc = "Lines that a last-level cache or another core had, unmodified."]
    shared_fetches,
    #[doc = "Lines fetched from a core that had modified them."]
    transfers,
    #[doc = "Stores to lines that other cores had read since the last store: their copies are invalidated."]
    invalidations,
    #[doc = "Transfers and invalidations between sockets."]
    remote,
    #[doc = "Stores and locked instructions that took a line from other cores: transfers and invalidations by stores."]
    shared_writes,
    #[doc = "Lines fetched from DRAM."]
    dram_reads,
    #[doc = "Lines fetched from the device."]
    device_reads,
    #[doc = "Media lines read."]
    media_reads,
    #[doc = "Lines written to the device."]
    device_writes,
    #[doc = "Media lines written."]
    media_writes,
    #[doc = "Flushed lines."]
    flushes,
    #[doc = "Fences that wait for flushes."]
    fences,
    #[doc = "Locked instructions."]
    locked,
    #[doc = "Rounds of waiting loops."]
    waits,
    #[doc = "Picoseconds in waiting loops."]
    wait_ps,
}

/// The counts of all kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreTallies([CoreTally; KINDS]);

impl CoreTallies {
    pub(super) fn of(&mut self, kind: u8) -> &mut CoreTally {
        &mut self.0[usize::from(kind)]
    }

    /// Returns all kinds together.
    pub fn sum(&self) -> CoreTally {
        let mut sum = CoreTally::default();
        self.0.iter().for_each(|tally| sum += *tally);
        sum
    }
}

impl Index<u8> for CoreTallies {
    type Output = CoreTally;

    fn index(&self, kind: u8) -> &CoreTally {
        &self.0[usize::from(kind)]
    }
}

/// A line that moved between cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hot {
    /// Number of transfers of its modified contents and of invalidations.
    pub moved: u64,
    /// Its place: a part of the pool and the offset there, or DRAM.
    pub place: String,
    /// The functions that accessed it when it had moved for a while, innermost first; empty if not asked for.
    pub callers: Vec<String>,
}

/// Latencies of operations in nanoseconds of virtual time, by kind.
#[derive(Clone, Debug)]
pub struct Latencies([Option<Histogram<u64>>; KINDS]);

impl Default for Latencies {
    fn default() -> Self {
        Self([const { None }; KINDS])
    }
}

impl Latencies {
    pub(super) fn record(&mut self, kind: u8, picoseconds: u64) {
        let histogram = self.0[usize::from(kind)]
            .get_or_insert_with(|| Histogram::new(3).expect("three digits are possible"));
        histogram.record(picoseconds / 1000).expect("the histogram grows");
    }

    /// Returns those of a kind, if there were such operations.
    pub fn of(&self, kind: u8) -> Option<&Histogram<u64>> {
        self.0[usize::from(kind)].as_ref()
    }
}
