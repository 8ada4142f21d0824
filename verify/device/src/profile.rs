//! Kinds of persistent memory. `lab/docs/DEVICE.md` has the source of each number.

use std::fmt;
use std::str::FromStr;

use bristlecone_pm::LINE_BYTES;

/// A device: the units it writes, its buffers, its times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Name in arguments and reports.
    pub name: &'static str,
    /// Unit of reads and writes of the media in bytes: a media line, a multiple of 64.
    pub media_line_bytes: usize,
    /// Number of modules that work in parallel.
    pub modules: usize,
    /// Bytes of contiguous address space in one module.
    pub interleave_bytes: usize,
    /// Media lines in a module's write-combining buffer; 0: every line is written to the media
    /// immediately.
    pub write_buffer_lines: usize,
    /// Media lines in a module's read buffer; 0: none.
    pub read_buffer_lines: usize,
    /// Latency of a load from the media.
    pub read_ns: f64,
    /// Latency of a load from a buffer of the device.
    pub buffered_read_ns: f64,
    /// A thread's own time for one flush.
    pub flush_ns: f64,
    /// A fence's time after flushes.
    pub fence_ns: f64,
    /// Time for which a module is busy with reading a media line.
    pub media_read_ns: f64,
    /// Time for which a module is busy with writing a media line.
    pub media_write_ns: f64,
    /// A thread waits when a module's backlog of writes exceeds this time.
    pub queue_ns: f64,
    /// Minimum interval between two flushes of the same line; a flush waits for it. 0: it does not.
    pub reflush_ns: f64,
    /// Whether a flush evicts the line from the processor's cache.
    pub clwb_evicts: bool,
    /// Whether a full write buffer evicts a random media line instead of the least recently used
    /// one.
    pub random_eviction: bool,
    /// Time for which a module is busy with transferring a line of the processor.
    pub line_ns: f64,
    /// Number of threads at which the media write fastest.
    pub writers_best: usize,
    /// Relative slowdown of a media write for each thread above these.
    pub write_slowdown: f64,
    /// Whether writes to all modules share one queue, and wait behind one that its module does not
    /// accept.
    pub shared_queue: bool,
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
        reflush_ns: 0.0,
        clwb_evicts: false,
        random_eviction: false,
        line_ns: 0.0,
        writers_best: 4,
        write_slowdown: 0.0,
        shared_queue: false,
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
        reflush_ns: 0.0,
        clwb_evicts: false,
        random_eviction: false,
        line_ns: 0.0,
        writers_best: 4,
        write_slowdown: 0.0,
        shared_queue: false,
    };

    /// DRAM with a battery: the unit of writes is a line of the processor.
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
        reflush_ns: 0.0,
        clwb_evicts: false,
        random_eviction: false,
        line_ns: 0.0,
        writers_best: 4,
        write_slowdown: 0.0,
        shared_queue: false,
    };

    /// Every profile.
    pub const ALL: [Self; 3] = [Self::OPTANE, Self::CXL_SSD, Self::NVDIMM];

    /// Checks that the parameters are valid.
    ///
    /// # Errors
    ///
    /// The invalid parameter, in one line.
    pub fn check(&self) -> Result<(), String> {
        let times = [
            ("read_ns", self.read_ns),
            ("buffered_read_ns", self.buffered_read_ns),
            ("flush_ns", self.flush_ns),
            ("fence_ns", self.fence_ns),
            ("media_read_ns", self.media_read_ns),
            ("media_write_ns", self.media_write_ns),
            ("queue_ns", self.queue_ns),
            ("reflush_ns", self.reflush_ns),
            ("line_ns", self.line_ns),
            ("write_slowdown", self.write_slowdown),
        ];
        if let Some((name, value)) = times.into_iter().find(|(_, value)| !(0.0..=1e9).contains(value)) {
            return Err(format!("{name} = {value}: 0 to 1e9"));
        }
        let lines = self.media_line_bytes / LINE_BYTES;
        if !self.media_line_bytes.is_multiple_of(LINE_BYTES) || !(1..=64).contains(&lines) {
            return Err(format!(
                "media_line_bytes = {}: a multiple of 64, 4096 at most",
                self.media_line_bytes
            ));
        }
        if !(1..=1024).contains(&self.modules) {
            return Err(format!("modules = {}: 1 to 1024", self.modules));
        }
        if self.interleave_bytes == 0 || !self.interleave_bytes.is_multiple_of(self.media_line_bytes) {
            return Err(format!(
                "interleave_bytes = {}: a multiple of media_line_bytes",
                self.interleave_bytes
            ));
        }
        let buffers =
            [("write_buffer_lines", self.write_buffer_lines), ("read_buffer_lines", self.read_buffer_lines)];
        match buffers.into_iter().find(|(_, lines)| *lines > 1 << 24) {
            Some((name, lines)) => Err(format!("{name} = {lines}: 2^24 at most")),
            None => Ok(()),
        }
    }

    /// Returns the number of processor lines in a media line.
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

/// The processor's side: the cache in front of the device, and time independent of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processor {
    /// Bytes of persistent lines that fit in the cache.
    pub cache_bytes: usize,
    /// Number of lines of a set of the cache.
    pub ways: usize,
    /// Time of the first access of an operation to a cached line.
    pub hit_ns: f64,
    /// Time of each operation for volatile memory.
    pub operation_ns: f64,
    /// Maximum number of outstanding prefetches of a thread.
    pub fill_buffers: usize,
}

impl Default for Processor {
    fn default() -> Self {
        Self { cache_bytes: 36 << 20, ways: 12, hit_ns: 20.0, operation_ns: 300.0, fill_buffers: 10 }
    }
}
