//! The device: modules with buffers in front of media that read and write more than a line.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::num::NonZeroUsize;

use bristlecone_random::Generator;
use lru::LruCache;

use super::counts::Writer;
use super::profile::Profile;

/// Media lines by number, the last used first. The hash has no random seed: when a table grows depends on it, and with
/// that the addresses of what a simulated thread allocates next.
type Recent<T> = LruCache<usize, T, BuildHasherDefault<DefaultHasher>>;

fn recent<T>(most: NonZeroUsize) -> Recent<T> {
    LruCache::with_hasher(most, BuildHasherDefault::default())
}

/// A media line in a write buffer.
struct Unit {
    /// Its written lines, a bit each.
    written: u64,
    /// Whether the device knows the other lines, so that it need not read them from the media.
    known: bool,
    /// The writer of the first one.
    by: Writer,
}

/// A media line being written to the media.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MediaWrite {
    pub by: Writer,
    /// It was written in part: the rest was read before.
    pub read_first: bool,
}

/// Media lines waiting to be written, by number.
struct WriteBuffer {
    units: Recent<Unit>,
    /// Chooses the evicted line, if eviction is random.
    random: Option<Generator>,
}

impl WriteBuffer {
    /// Adds a media line that is not present; returns the one evicted for it.
    fn push(&mut self, number: usize, unit: Unit) -> Option<Unit> {
        if let Some(random) = &mut self.random
            && self.units.len() == self.units.cap().get()
        {
            let at = random.word() as usize % self.units.len();
            let gone = self.units.iter().nth(at).map(|(number, _)| *number)?;
            let evicted = self.units.pop(&gone);
            self.units.put(number, unit);
            return evicted;
        }
        self.units.push(number, unit).map(|(_, evicted)| evicted)
    }
}

struct Module {
    writes: Option<WriteBuffer>,
    reads: Option<Recent<()>>,
}

/// All modules.
pub(crate) struct Media {
    profile: Profile,
    modules: Vec<Module>,
}

impl Media {
    pub fn new(profile: Profile) -> Self {
        let module = |number: usize| Module {
            writes: NonZeroUsize::new(profile.write_buffer_lines).map(|lines| WriteBuffer {
                units: recent(lines),
                random: profile.random_eviction.then(|| Generator::new(number as u64)),
            }),
            reads: NonZeroUsize::new(profile.read_buffer_lines).map(recent),
        };
        Self { profile, modules: (0..profile.modules).map(module).collect() }
    }

    fn find(&mut self, line: usize) -> (&mut Module, usize, u64) {
        let lines = self.profile.lines_per_unit();
        (&mut self.modules[self.profile.module_of(line)], line / lines, 1 << (line % lines))
    }

    /// Returns the module that holds a line.
    pub fn module_of(&self, line: usize) -> u16 {
        self.profile.module_of(line) as u16
    }

    /// Accepts a line, and returns the resulting write to the media.
    pub fn write(&mut self, line: usize, by: Writer) -> Option<MediaWrite> {
        let every = self.every();
        let (module, unit, bit) = self.find(line);
        let Some(writes) = &mut module.writes else {
            return Some(MediaWrite { by, read_first: bit != every });
        };
        if let Some(unit) = writes.units.get_mut(&unit) {
            unit.written |= bit;
            return None;
        }
        let known = module.reads.as_ref().is_some_and(|reads| reads.contains(&unit));
        let evicted = writes.push(unit, Unit { written: bit, known, by })?;
        Some(evicted.to_media(every))
    }

    /// Reads a line, and returns whether the media must be read.
    pub fn read(&mut self, line: usize) -> bool {
        let (module, unit, bit) = self.find(line);
        if let Some(unit) = module.writes.as_mut().and_then(|writes| writes.units.peek_mut(&unit)) {
            let asked = !unit.known && unit.written & bit == 0;
            // A partly written line is complete once the rest was read.
            unit.known |= asked;
            return asked;
        }
        match &mut module.reads {
            Some(reads) => reads.put(unit, ()).is_none(),
            None => true,
        }
    }

    /// Empties the write buffers.
    pub fn drain(&mut self, mut each: impl FnMut(MediaWrite)) {
        let every = self.every();
        for writes in self.modules.iter_mut().filter_map(|module| module.writes.as_mut()) {
            while let Some((_, unit)) = writes.units.pop_lru() {
                each(unit.to_media(every));
            }
        }
    }

    /// Returns the bits of all lines of a media line.
    fn every(&self) -> u64 {
        u64::MAX >> (64 - self.profile.lines_per_unit())
    }
}

impl Unit {
    fn to_media(&self, every: u64) -> MediaWrite {
        MediaWrite { by: self.by, read_first: !self.known && self.written != every }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY: Writer = Writer(1);

    /// Returns whether each of `lines` causes a write to the media of one module with space for two
    /// media lines of four.
    fn sent(write: &[usize]) -> Vec<bool> {
        let small = Profile { modules: 1, write_buffer_lines: 2, read_buffer_lines: 1, ..Profile::OPTANE };
        let mut media = Media::new(small);
        let mut sent: Vec<_> = write.iter().filter_map(|line| media.write(*line, BY)).collect();
        media.drain(|write| sent.push(write));
        sent.into_iter().map(|write| write.read_first).collect()
    }

    #[test]
    fn media_write_all_lines_of_a_media_line_writes_it_once() {
        assert_eq!(sent(&[0]), [true], "a part of it is read, modified and written");
        assert_eq!(sent(&[0, 1, 2, 3]), [false], "a whole one is written");
        assert_eq!(sent(&[0, 0, 0, 0]), [true]);
        assert_eq!(sent(&[0, 4, 8]), [true; 3]);
        assert_eq!(sent(&[0, 4, 0, 8, 0]), [true; 3], "4 leaves, 0 was used after it");
    }

    #[test]
    fn media_write_part_of_a_media_line_in_the_read_buffer_reads_nothing() {
        let mut media = Media::new(Profile { modules: 1, ..Profile::OPTANE });
        assert!(media.read(0) && !media.read(1), "the whole media line is read");
        media.write(2, BY);
        assert!(!media.read(0) && !media.read(3));
        media.write(4, BY);
        assert!(!media.read(4) && media.read(5) && !media.read(6));
        media.drain(|write| assert!(!write.read_first));
    }

    #[test]
    fn media_write_into_a_full_buffer_at_random_gives_up_any_of_its_lines() {
        let profile = Profile { modules: 1, write_buffer_lines: 8, random_eviction: true, ..Profile::OPTANE };
        let mut media = Media::new(profile);
        (0..8).for_each(|unit| assert_eq!(media.write(unit * 4, Writer(unit as u8)), None));
        // Lines are reused one after the other; with least-recently-used eviction they would stay.
        let mut gone = std::collections::HashSet::new();
        for more in 8..2000 {
            media.write(0, Writer(0));
            gone.extend(media.write(more * 4, Writer(100)).map(|write| write.by.0));
        }
        assert!(gone.contains(&0) && gone.contains(&7), "{gone:?}");
        let mut left = 0;
        media.drain(|_| left += 1);
        assert_eq!(left, 8);
    }

    #[test]
    fn media_write_without_buffers_writes_every_line() {
        let mut media = Media::new(Profile::NVDIMM);
        for _ in 0..2 {
            assert_eq!(media.write(3, BY), Some(MediaWrite { by: BY, read_first: false }));
            assert!(media.read(3));
        }
    }
}
