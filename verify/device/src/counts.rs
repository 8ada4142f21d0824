//! Counts, by the kind of operation and by the purpose of the bytes.

use std::ops::{AddAssign, Index};

use bristlecone_pm::Part;

/// Kinds of operations that a device distinguishes; 0 is [`OUTSIDE`].
pub const KINDS: usize = 16;
/// Outside of any operation: setup, and background threads.
pub const OUTSIDE: u8 = 0;

const PARTS: [Part; 3] = [Part::Leaf, Part::Log, Part::Other];

/// Category of a write: the kind of its operation, and the written part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Writer(pub u8);

impl Writer {
    pub fn new(kind: u8, part: Part) -> Self {
        Self(kind << 2 | part as u8)
    }

    /// Returns the category of writes that are not distinguished.
    pub fn none() -> Self {
        Self::new(OUTSIDE, Part::Other)
    }

    fn kind(self) -> usize {
        usize::from(self.0 >> 2)
    }

    fn part(self) -> usize {
        usize::from(self.0 & 3)
    }
}

/// Lines and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Lines that flushes wrote back.
    pub flushes: u64,
    /// Distinct lines that an operation stored to, summed over operations.
    pub lines_written: u64,
    /// Distinct lines that an operation loaded from, summed over operations.
    pub lines_read: u64,
    /// Bytes that reached the device, in lines of the processor.
    pub device_bytes_written: u64,
    /// Bytes that the media wrote.
    pub media_bytes_written: u64,
    /// Bytes that the media read, for loads and for partial writes of a media line.
    pub media_bytes_read: u64,
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.flushes += other.flushes;
        self.lines_written += other.lines_written;
        self.lines_read += other.lines_read;
        self.device_bytes_written += other.device_bytes_written;
        self.media_bytes_written += other.media_bytes_written;
        self.media_bytes_read += other.media_bytes_read;
    }
}

/// Counts of operations of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of operations.
    pub operations: u64,
    /// Bytes that the user wrote.
    pub user_bytes: u64,
    /// Waits for flushes.
    pub fences: u64,
    /// Operations that loaded no line: all they needed was in DRAM.
    pub reading_nothing: u64,
    parts: [Traffic; PARTS.len()],
}

impl Tally {
    /// Returns the traffic of all parts.
    pub fn total(&self) -> Traffic {
        let mut total = Traffic::default();
        self.parts.iter().for_each(|part| total += *part);
        total
    }

    /// Returns the traffic of chunks of one sort.
    pub fn part(&self, part: Part) -> Traffic {
        self.parts[part as usize]
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.operations += other.operations;
        self.user_bytes += other.user_bytes;
        self.fences += other.fences;
        self.reading_nothing += other.reading_nothing;
        for (part, other) in self.parts.iter_mut().zip(other.parts) {
            *part += other;
        }
    }
}

/// The tallies of all kinds.
#[derive(Clone, Debug, Default)]
pub struct Tallies([Tally; KINDS]);

impl Tallies {
    pub(super) fn of(&mut self, kind: u8) -> &mut Tally {
        &mut self.0[usize::from(kind)]
    }

    pub(super) fn traffic(&mut self, of: Writer) -> &mut Traffic {
        &mut self.0[of.kind()].parts[of.part()]
    }

    /// Returns all kinds together.
    pub fn sum(&self) -> Tally {
        let mut sum = Tally::default();
        self.0.iter().for_each(|tally| sum += *tally);
        sum
    }
}

impl AddAssign<&Tallies> for Tallies {
    fn add_assign(&mut self, other: &Self) {
        for (tally, other) in self.0.iter_mut().zip(&other.0) {
            *tally += *other;
        }
    }
}

impl Index<u8> for Tallies {
    type Output = Tally;

    fn index(&self, kind: u8) -> &Tally {
        &self.0[usize::from(kind)]
    }
}

impl Writer {
    /// Returns whether it belongs to a timed operation.
    pub fn is_timed(self) -> bool {
        self.kind() != usize::from(OUTSIDE)
    }
}
