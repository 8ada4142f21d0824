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
    /// A flush of a line waits until this long after the flush of the same line before it; 0: it does not.
    pub reflush_ns: f64,
    /// Whether a flush takes the line out of the processor's cache.
    pub clwb_evicts: bool,
    /// Whether a full write buffer gives up one of its media lines at random, instead of the least recently used.
    pub random_eviction: bool,
    /// For how long a module is busy with taking or giving a line of the processor.
    pub line_ns: f64,
    /// Threads with which the media write at their best.
    pub writers_best: usize,
    /// By which share of its time a media write takes longer for each thread above these.
    pub write_slowdown: f64,
    /// Whether writes to all modules stand in one queue, and wait behind one that its module does not take.
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

    /// Checks that there can be such a device.
    ///
    /// # Errors
    ///
    /// The parameter that is not possible, in one line.
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
