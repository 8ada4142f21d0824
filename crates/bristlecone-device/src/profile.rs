//! Kinds of persistent memory. `docs/lab/DEVICE.md` has the source of each number.

use std::fmt;
use std::str::FromStr;

use bristlecone_pm::LINE_BYTES;

/// A device: what it writes at once, what it holds back, how long it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// As in arguments and reports.
    pub name: &'static str,
    /// Bytes that the media read and write at once: a media line, a multiple of 64.
    pub media_line_bytes: usize,
    /// Modules that work at the same time.
    pub modules: usize,
    /// Bytes of the address space that lie in one module before the next one's begin.
    pub interleave_bytes: usize,
    /// Media lines that a module's write-combining buffer holds; 0: every line goes to the media.
    pub write_buffer_lines: usize,
    /// Media lines that a module keeps of those it read; 0: none.
    pub read_buffer_lines: usize,
    /// From a load to its line, from the media.
    pub read_ns: f64,
    /// From a load to its line, from a buffer of the device.
    pub buffered_read_ns: f64,
    /// A thread's own time for one flush.
    pub flush_ns: f64,
    /// A fence's time after flushes.
    pub fence_ns: f64,
    /// For how long a module is busy with reading a media line.
    pub media_read_ns: f64,
    /// For how long a module is busy with writing a media line.
    pub media_write_ns: f64,
    /// A thread waits when the writes a module has taken are more work than this.
    pub queue_ns: f64,
}

impl Profile {
    /// Intel Optane persistent memory, six modules.
    pub const OPTANE: Self = Self {
        name: "optane",
        media_line_bytes: 256,
        modules: 6,
        interleave_bytes: 4096,
        write_buffer_lines: 64,
        read_buffer_lines: 64,
        read_ns: 305.0,
        buffered_read_ns: 169.0,
        flush_ns: 10.0,
        fence_ns: 52.0,
        media_read_ns: 39.0,
        media_write_ns: 111.0,
        queue_ns: 1000.0,
    };

    /// A memory-semantic SSD behind CXL: flash pages under a buffer of DRAM.
    pub const CXL_SSD: Self = Self {
        name: "cxl-ssd",
        media_line_bytes: 4096,
        modules: 8,
        interleave_bytes: 4096,
        write_buffer_lines: 256,
        read_buffer_lines: 256,
        read_ns: 3000.0,
        buffered_read_ns: 300.0,
        flush_ns: 10.0,
        fence_ns: 300.0,
        media_read_ns: 1300.0,
        media_write_ns: 4000.0,
        queue_ns: 20_000.0,
    };

    /// DRAM with a battery: what is written is a line of the processor.
    pub const NVDIMM: Self = Self {
        name: "nvdimm",
        media_line_bytes: LINE_BYTES,
        modules: 6,
        interleave_bytes: 4096,
        write_buffer_lines: 0,
        read_buffer_lines: 0,
        read_ns: 90.0,
        buffered_read_ns: 90.0,
        flush_ns: 10.0,
        fence_ns: 50.0,
        media_read_ns: 3.5,
        media_write_ns: 3.5,
        queue_ns: 200.0,
    };

    /// Every profile.
    pub const ALL: [Self; 3] = [Self::OPTANE, Self::CXL_SSD, Self::NVDIMM];

    /// Returns the processor lines in a media line.
    pub(super) fn lines_per_unit(&self) -> usize {
        self.media_line_bytes / LINE_BYTES
    }

    /// Returns the module that holds a line.
    pub(super) fn module_of(&self, line: usize) -> usize {
        line * LINE_BYTES / self.interleave_bytes % self.modules
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|profile| profile.name == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(|profile| profile.name).join(", ");
            format!("no profile {name:?}: there is {names}")
        })
    }
}

/// The processor's side: the cache in front of the device, and time that has nothing to do with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processor {
    /// Bytes of persistent lines that the cache holds.
    pub cache_bytes: usize,
    /// Lines that a set of the cache holds.
    pub ways: usize,
    /// A line's first touch in an operation, if the cache has it.
    pub hit_ns: f64,
    /// Each operation's work on volatile memory.
    pub operation_ns: f64,
    /// Prefetched lines of a thread that may be under way at once.
    pub fill_buffers: usize,
}

impl Default for Processor {
    fn default() -> Self {
        Self { cache_bytes: 36 << 20, ways: 12, hit_ns: 20.0, operation_ns: 300.0, fill_buffers: 10 }
    }
}
