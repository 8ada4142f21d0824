//! Machines: cores, caches, sockets and the times of their accesses. `lab/docs/SCALE.md` has the source of each number.

use std::fmt;
use std::str::FromStr;

use bristlecone_pm::LINE_BYTES;

use super::directory::THREADS_MAX;
use crate::profile::Profile;

/// The socket whose modules hold a line of the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The first socket's, as for a file on one namespace.
    First,
    /// The socket of the thread that touches a page first.
    FirstTouch,
    /// Pages alternate between the sockets.
    Interleaved,
}

/// A machine. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Name in arguments and reports.
    pub name: &'static str,
    /// Number of sockets.
    pub sockets: usize,
    /// Number of cores of a socket. Threads fill the cores of the first socket, then those of the next ones, and then
    /// begin to share cores.
    pub cores: usize,
    /// Number of threads that can share a core.
    pub threads_per_core: usize,
    /// Time of instructions of a thread that shares its core, as a multiple of the time alone.
    pub shared_core: f64,
    /// Size of a core's first cache in bytes.
    pub l1_bytes: usize,
    /// Number of ways of the first cache.
    pub l1_ways: usize,
    /// Size of a core's second cache in bytes.
    pub l2_bytes: usize,
    /// Number of ways of the second cache.
    pub l2_ways: usize,
    /// Size of the last-level cache of a socket in bytes.
    pub llc_bytes: usize,
    /// Number of ways of the last-level cache.
    pub llc_ways: usize,
    /// Time of the instructions of an operation outside of its steps.
    pub operation_ns: f64,
    /// Time of the instructions between two steps.
    pub step_ns: f64,
    /// Latency of a load that hits the second cache.
    pub l2_ns: f64,
    /// Latency of a load that hits the last-level cache.
    pub llc_ns: f64,
    /// Latency of a load of a line that another core of the socket has modified.
    pub transfer_ns: f64,
    /// Additional latency of a transfer from a core of another socket.
    pub remote_transfer_ns: f64,
    /// Latency of a load from DRAM of the socket.
    pub dram_ns: f64,
    /// Additional latency of a load from another socket's memory.
    pub remote_memory_ns: f64,
    /// Time for which the DRAM of a socket is busy with a line.
    pub dram_line_ns: f64,
    /// Part of the latency of a miss that remains if the thread has just accessed the line before it: the processor
    /// has begun to fetch it.
    pub sequential: f64,
    /// Time of a locked instruction on a line that the core owns, beyond the wait for earlier stores.
    pub locked_ns: f64,
    /// Time of a full fence, beyond the wait for earlier stores.
    pub full_fence_ns: f64,
    /// Number of stores that a core can hold back.
    pub store_buffer: usize,
    /// Number of lines that a core can wait for at the same time.
    pub fill_buffers: usize,
    /// Time of one round of a waiting loop.
    pub pause_ns: f64,
    /// Rounds after which a thread that waits for a lock of the standard library sleeps.
    pub spins: u32,
    /// Time until a thread that sleeps is woken.
    pub wake_ns: f64,
    /// The device.
    pub device: Profile,
    /// The socket of a line of the device.
    pub placement: Placement,
}

impl Machine {
    /// Two sockets with Ice Lake processors of 24 cores, and four modules of Optane each.
    pub const ICELAKE: Self = Self {
        name: "icelake2s-optane",
        sockets: 2,
        cores: 24,
        threads_per_core: 2,
        shared_core: 1.6,
        l1_bytes: 48 << 10,
        l1_ways: 12,
        l2_bytes: 1280 << 10,
        l2_ways: 20,
        llc_bytes: 36 << 20,
        llc_ways: 12,
        operation_ns: 120.0,
        step_ns: 1.2,
        l2_ns: 4.4,
        llc_ns: 22.0,
        transfer_ns: 55.0,
        remote_transfer_ns: 65.0,
        dram_ns: 85.0,
        remote_memory_ns: 55.0,
        dram_line_ns: 0.4,
        sequential: 0.25,
        locked_ns: 6.0,
        full_fence_ns: 11.0,
        store_buffer: 72,
        fill_buffers: 12,
        pause_ns: 44.0,
        spins: 100,
        wake_ns: 3000.0,
        device: Profile { modules: 4, ..Profile::OPTANE },
        placement: Placement::First,
    };

    /// Two sockets with Sapphire Rapids processors of 32 cores, and a memory expander behind CXL.
    pub const CXL: Self = Self {
        name: "sapphire2s-cxl",
        cores: 32,
        l2_bytes: 2 << 20,
        l2_ways: 16,
        llc_bytes: 60 << 20,
        llc_ways: 15,
        l2_ns: 4.5,
        llc_ns: 33.0,
        transfer_ns: 75.0,
        remote_transfer_ns: 75.0,
        dram_ns: 110.0,
        remote_memory_ns: 80.0,
        dram_line_ns: 0.3,
        store_buffer: 112,
        fill_buffers: 16,
        device: Profile {
            name: "cxl-dram",
            modules: 1,
            read_ns: 250.0,
            buffered_read_ns: 250.0,
            flush_ns: 10.0,
            fence_ns: 190.0,
            media_read_ns: 2.5,
            media_write_ns: 3.0,
            queue_ns: 400.0,
            ..Profile::NVDIMM
        },
        ..Self::ICELAKE
    };

    /// Two cores of a Zen 4 server processor that share a last-level cache; the pool is in DRAM.
    pub const ZEN4: Self = Self {
        name: "zen4-dram",
        sockets: 1,
        cores: 2,
        threads_per_core: 1,
        shared_core: 1.0,
        l1_bytes: 32 << 10,
        l1_ways: 8,
        l2_bytes: 1 << 20,
        l2_ways: 8,
        llc_bytes: 32 << 20,
        llc_ways: 16,
        operation_ns: 90.0,
        step_ns: 0.8,
        l2_ns: 5.0,
        llc_ns: 15.0,
        transfer_ns: 27.0,
        remote_transfer_ns: 0.0,
        dram_ns: 145.0,
        remote_memory_ns: 0.0,
        dram_line_ns: 1.5,
        sequential: 0.25,
        locked_ns: 2.0,
        full_fence_ns: 16.3,
        store_buffer: 64,
        fill_buffers: 24,
        pause_ns: 25.5,
        spins: 100,
        wake_ns: 5000.0,
        device: Profile {
            name: "dram",
            read_ns: 145.0,
            buffered_read_ns: 145.0,
            flush_ns: 10.0,
            fence_ns: 50.0,
            media_read_ns: 1.5,
            media_write_ns: 1.5,
            ..Profile::NVDIMM
        },
        placement: Placement::First,
    };

    /// Every machine.
    pub const ALL: [Self; 3] = [Self::ICELAKE, Self::CXL, Self::ZEN4];

    /// Returns the machine with this share of its second and last-level caches, but none smaller than the cache before it.
    #[must_use]
    pub fn with_smaller_caches(self, share: f64) -> Self {
        let smaller = |bytes: usize, ways: usize, least: usize| {
            let bytes = ((bytes as f64 * share) as usize).max(least).min(bytes);
            bytes.next_multiple_of(LINE_BYTES * ways)
        };
        let l2_bytes = smaller(self.l2_bytes, self.l2_ways, self.l1_bytes);
        let llc_bytes = smaller(self.llc_bytes, self.llc_ways, l2_bytes);
        Self { l2_bytes, llc_bytes, ..self }
    }

    /// Returns the number of threads that the machine runs at the same time.
    pub fn threads(&self) -> usize {
        self.sockets * self.cores * self.threads_per_core
    }

    /// Checks that the parameters are valid.
    ///
    /// # Errors
    ///
    /// The invalid parameter, in one line.
    pub fn check(&self) -> Result<(), String> {
        let counts = [
            ("sockets", self.sockets, 8),
            ("cores", self.cores, THREADS_MAX),
            ("threads_per_core", self.threads_per_core, 8),
            ("store_buffer", self.store_buffer, 1024),
            ("fill_buffers", self.fill_buffers, 64),
        ];
        if let Some((name, value, most)) =
            counts.into_iter().find(|(_, value, most)| !(1..=*most).contains(value))
        {
            return Err(format!("{name} = {value}: 1 to {most}"));
        }
        if self.threads() > THREADS_MAX {
            let threads = self.threads();
            return Err(format!("{threads} threads of all cores: the directory holds {THREADS_MAX}"));
        }
        let caches = [
            ("l1", self.l1_bytes, self.l1_ways),
            ("l2", self.l2_bytes, self.l2_ways),
            ("llc", self.llc_bytes, self.llc_ways),
        ];
        for (name, bytes, ways) in caches {
            if !(1..=64).contains(&ways)
                || bytes > 1 << 32
                || !bytes.is_multiple_of(LINE_BYTES * ways)
                || bytes == 0
            {
                return Err(format!(
                    "{name}_bytes = {bytes}, {name}_ways = {ways}: sets of 1 to 64 lines, 4 GiB at most"
                ));
            }
        }
        if self.l1_bytes > self.l2_bytes {
            return Err(format!("l1_bytes = {}: l2_bytes = {} at most", self.l1_bytes, self.l2_bytes));
        }
        self.check_times()?;
        self.device.check()
    }

    fn check_times(&self) -> Result<(), String> {
        let positive = [
            ("step_ns", self.step_ns),
            ("l2_ns", self.l2_ns),
            ("llc_ns", self.llc_ns),
            ("transfer_ns", self.transfer_ns),
            ("dram_ns", self.dram_ns),
            ("pause_ns", self.pause_ns),
        ];
        if let Some((name, value)) = positive.into_iter().find(|(_, value)| !(0.001..=1e6).contains(value)) {
            return Err(format!("{name} = {value}: 0.001 to 1e6"));
        }
        let times = [
            ("operation_ns", self.operation_ns),
            ("remote_transfer_ns", self.remote_transfer_ns),
            ("remote_memory_ns", self.remote_memory_ns),
            ("dram_line_ns", self.dram_line_ns),
            ("locked_ns", self.locked_ns),
            ("full_fence_ns", self.full_fence_ns),
            ("wake_ns", self.wake_ns),
        ];
        if let Some((name, value)) = times.into_iter().find(|(_, value)| !(0.0..=1e6).contains(value)) {
            return Err(format!("{name} = {value}: 0 to 1e6"));
        }
        if !(0.0..=1.0).contains(&self.sequential) {
            return Err(format!("sequential = {}: 0 to 1", self.sequential));
        }
        if !(1.0..=16.0).contains(&self.shared_core) {
            return Err(format!("shared_core = {}: 1 to 16", self.shared_core));
        }
        let ordered = [("l2_ns", self.l2_ns), ("llc_ns", self.llc_ns), ("dram_ns", self.dram_ns)];
        match ordered.windows(2).find(|pair| pair[0].1 > pair[1].1) {
            Some(pair) => {
                Err(format!("{} = {}: {} = {} at most", pair[0].0, pair[0].1, pair[1].0, pair[1].1))
            }
            None => Ok(()),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

impl FromStr for Machine {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|machine| machine.name == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(|machine| machine.name).join(", ");
            format!("no machine {name:?}: expected one of {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaller_caches_are_valid_and_not_below_the_ones_before_them() {
        for machine in Machine::ALL {
            for share in [1.0, 0.3, 1e-3, 0.0] {
                let smaller = machine.with_smaller_caches(share);
                smaller.check().unwrap();
                assert!(smaller.l2_bytes >= machine.l1_bytes && smaller.llc_bytes >= smaller.l2_bytes);
                assert_eq!(smaller == machine, share == 1.0, "{machine}");
            }
        }
        let tenth = Machine { llc_bytes: 40 << 20, ..Machine::ICELAKE }.with_smaller_caches(0.1);
        assert_eq!((tenth.l2_bytes, tenth.llc_bytes), (131_840, 4_194_816));
    }

    #[test]
    fn machine_check_names_the_invalid_parameter_in_one_line() {
        Machine::ALL.iter().for_each(|machine| machine.check().unwrap());
        let base = Machine::ICELAKE;
        let wrong = [
            (Machine { cores: 0, ..base }, "cores = 0"),
            (Machine { cores: 64, ..base }, "256 threads"),
            (Machine { l1_bytes: 100, ..base }, "l1_bytes = 100"),
            (Machine { l1_bytes: 48 << 20, ..base }, "l2_bytes"),
            (Machine { llc_ways: 0, ..base }, "llc_ways = 0"),
            (Machine { dram_ns: f64::NAN, ..base }, "dram_ns = NaN"),
            (Machine { step_ns: 0.0, ..base }, "step_ns = 0"),
            (Machine { wake_ns: -1.0, ..base }, "wake_ns = -1"),
            (Machine { llc_ns: 200.0, ..base }, "llc_ns = 200: dram_ns = 85 at most"),
            (Machine { sequential: 2.0, ..base }, "sequential = 2"),
            (Machine { shared_core: 0.5, ..base }, "shared_core = 0.5"),
            (Machine { device: Profile { modules: 0, ..base.device }, ..base }, "modules = 0"),
        ];
        for (machine, said) in wrong {
            let error = machine.check().unwrap_err();
            assert!(error.contains(said) && !error.contains('\n'), "{error}");
        }
        assert!("i486".parse::<Machine>().unwrap_err().contains("icelake2s-optane"));
    }
}
