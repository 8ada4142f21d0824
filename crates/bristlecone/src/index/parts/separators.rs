//! The separators of an index whose keys are byte strings: they are stored in an arena, and a word is the number of the
//! separator's first piece. Keys that fit a word are their own separators, and do not use this.
//!
//! ```text
//! length (4 B) | bytes, up to the end of the last piece
//! ```

use std::alloc::{Layout, handle_alloc_error};
use std::sync::Mutex;

use bristlecone_pm::sync::epoch::{self, Guard};
use bristlecone_pm::sync::wait::lock;
use bristlecone_pm::sync::{AtomicU64, Ordering::Relaxed};
use bristlecone_pm::{KEY_BYTES_MAX, Manifest, ManifestReader, Memory, Released, Result};

use super::arena::{Arena, Bits, Zeroed};

const PIECE_BYTES: usize = 16;
const LEN_BYTES: usize = size_of::<u32>();
/// Number of pieces of the longest separator.
const PIECES_MAX: usize = (LEN_BYTES + KEY_BYTES_MAX).div_ceil(PIECE_BYTES);

/// A part of a separator.
#[derive(Debug)]
#[repr(C)]
struct Piece([AtomicU64; PIECE_BYTES / 8]);

// SAFETY: atomics, for which zero is a value.
unsafe impl Zeroed for Piece {}

/// The separators of an index.
#[derive(Debug, Default)]
pub struct Separators {
    /// `None`: keys are words.
    pieces: Option<Arena<Piece>>,
    /// First pieces of free separators, by the number of pieces.
    free: Mutex<Vec<Vec<u32>>>,
    /// Separators whose epoch has ended. Deferred closures run on any thread, at any time, even after the index is
    /// dropped: they own this queue and nothing else.
    retired: Released<u64>,
    /// Number of separators that were retired and are not free yet.
    limbo: AtomicU64,
}

impl Separators {
    /// Returns the empty separators of a new index; if `inline`, its keys are words.
    ///
    /// # Errors
    ///
    /// Fails if there is no address space left.
    pub fn new(inline: bool, memory: &Memory) -> Result<Self> {
        if inline {
            return Ok(Self::default());
        }
        let pieces = Arena::new(PIECE_BYTES, memory)?;
        // No separator has the number 0, which represents the smallest key.
        pieces.alloc_fresh(1)?;
        Ok(Self { pieces: Some(pieces), retired: Released::new(memory), ..Self::default() })
    }

    /// Returns the bytes of DRAM.
    pub fn bytes(&self) -> u64 {
        self.pieces.as_ref().map_or(0, Arena::bytes)
    }

    fn start(&self, word: u64) -> *mut u8 {
        let pieces = self.pieces.as_ref().expect("separators of byte strings");
        std::ptr::from_ref(pieces.get(word as u32)).cast_mut().cast()
    }

    /// Copies a key; returns the word that represents it.
    pub fn make(&self, key: &[u8]) -> u64 {
        self.take_back();
        let count = (LEN_BYTES + key.len()).div_ceil(PIECE_BYTES);
        let again = self.take_free(count);
        let fresh = || self.pieces.as_ref().expect("separators of byte strings").alloc_fresh(count as u32);
        let first = again.unwrap_or_else(|| match fresh() {
            Ok(pieces) => pieces.start,
            // Same as a box.
            Err(_) => handle_alloc_error(Layout::new::<[Piece; 1]>()),
        });
        let word = u64::from(first);
        let start = self.start(word);
        // SAFETY: this many pieces, which no other thread knows, or looks at, since it was pinned when they were in
        // use.
        unsafe {
            start.cast::<[u8; LEN_BYTES]>().write((key.len() as u32).to_ne_bytes());
            start.add(LEN_BYTES).copy_from_nonoverlapping(key.as_ptr(), key.len());
        }
        word
    }

    /// Returns the key that a word represents. The word must have been created here, and not retired before the guard
    /// was pinned.
    #[inline]
    pub fn at<'a>(&'a self, word: u64, _: &'a Guard) -> &'a [u8] {
        if word == 0 {
            return &[];
        }
        let start = self.start(word);
        // SAFETY: `make` wrote the length and that many bytes; until the thread that retired the word is no longer
        // pinned together with this one they stay as they are.
        unsafe {
            let len = u32::from_ne_bytes(start.cast::<[u8; LEN_BYTES]>().read()) as usize;
            // A late follower, which the writer no longer waits for, may read another word here: it is within the
            // arena, and validation fails later.
            std::slice::from_raw_parts(start.add(LEN_BYTES), len.min(KEY_BYTES_MAX))
        }
    }

    /// Frees a word that the index no longer holds, once no reader accesses its key.
    pub fn retire(&self, word: u64, guard: &Guard) {
        if word != 0 {
            self.limbo.fetch_add(1, Relaxed);
            let queue = self.retired.queue();
            // SAFETY: the closure owns what it uses, and may run on any thread.
            unsafe { guard.defer_unchecked(move || queue.push(word)) };
        }
    }

    /// Frees the separators that readers have released.
    fn take_back(&self) {
        while let Some(word) = self.retired.pop() {
            self.limbo.fetch_sub(1, Relaxed);
            // SAFETY: `make` wrote the length; no thread but this one has the word.
            let len = unsafe { u32::from_ne_bytes(self.start(word).cast::<[u8; LEN_BYTES]>().read()) };
            self.put(word as u32, (LEN_BYTES + len as usize).div_ceil(PIECE_BYTES));
        }
    }

    fn put(&self, first: u32, pieces: usize) {
        let mut free = lock(&self.free);
        if free.len() <= pieces {
            free.resize_with(pieces + 1, Vec::new);
        }
        free[pieces].push(first);
    }

    /// Saves the separators for the next open of their tree: see [`Arena::save`]. Returns `None` while a reader may
    /// access a retired one.
    pub fn save(&self, manifest: &mut Manifest) -> Option<()> {
        let Some(pieces) = &self.pieces else { return Some(()) };
        if manifest.is_live() {
            return pieces.save(manifest);
        }
        let is_settled = epoch::settle(|| {
            self.take_back();
            self.limbo.load(Relaxed) == 0
        });
        is_settled.then_some(())?;
        let free = lock(&self.free);
        manifest.push(free.len() as u64);
        free.iter().for_each(|list| manifest.push_all(list.iter().map(|&first| first.into())));
        pieces.save(manifest)
    }

    /// Takes over the separators saved by [`save`](Self::save).
    pub fn resume(inline: bool, manifest: &mut ManifestReader<'_>) -> Option<Self> {
        if inline {
            return Some(Self::default());
        }
        if manifest.is_live() {
            return Some(Self { pieces: Some(Arena::resume(PIECE_BYTES, manifest)?), ..Self::default() });
        }
        let lists = usize::try_from(manifest.read()?).ok().filter(|&lists| lists <= PIECES_MAX + 1)?;
        let list = |manifest: &mut ManifestReader<'_>| {
            manifest.read_all()?.iter().map(|&first| u32::try_from(first).ok()).collect::<Option<Vec<_>>>()
        };
        let free = (0..lists).map(|_| list(manifest)).collect::<Option<Vec<_>>>()?;
        let pieces = Arena::resume(PIECE_BYTES, manifest)?;
        let begun = pieces.begun() as usize;
        let fits = free.iter().enumerate().all(|(count, list)| {
            list.iter().all(|&first| (1..=begun.saturating_sub(count)).contains(&(first as usize)))
        });
        let retired = Released::new(&manifest.memory());
        fits.then(|| Self { pieces: Some(pieces), free: Mutex::new(free), retired, ..Self::default() })
    }
}

impl Separators {
    /// Takes over the separators of a killed process: see [`Arena::recover`].
    pub fn recover(inline: bool, manifest: &mut ManifestReader<'_>) -> Option<Self> {
        if inline {
            return Some(Self::default());
        }
        let pieces = Arena::recover(PIECE_BYTES, manifest)?;
        let retired = Released::new(&manifest.memory());
        (pieces.begun() > 0).then(|| Self { pieces: Some(pieces), retired, ..Self::default() })
    }

    /// Returns whether a separator may begin at the piece of a word.
    pub fn may_be(&self, word: u64) -> bool {
        self.pieces.as_ref().is_some_and(|pieces| word < u64::from(pieces.begun()))
    }

    /// Makes everything free that does not belong to the separators of `words`. For recovered separators. Returns
    /// `None` if one of them cannot be.
    pub fn free_others(&self, words: impl Iterator<Item = u64>) -> Option<()> {
        let begun = self.pieces.as_ref()?.begun();
        let mut used = Bits::below(begun);
        used.add(0);
        for word in words.filter(|&word| word != 0) {
            (word < u64::from(begun)).then_some(())?;
            // SAFETY: within the arena; no thread writes to it.
            let len =
                unsafe { u32::from_ne_bytes(self.start(word).cast::<[u8; LEN_BYTES]>().read()) } as usize;
            let count = (LEN_BYTES + len).div_ceil(PIECE_BYTES) as u64;
            (len <= KEY_BYTES_MAX && word + count <= u64::from(begun)).then_some(())?;
            (word..word + count).for_each(|piece| _ = used.add(piece as u32));
        }
        let mut first = 0;
        while let Some(start) = (first..begun).find(|&piece| !used.has(piece)) {
            let end =
                (start..begun).find(|&piece| used.has(piece)).unwrap_or(begun).min(start + PIECES_MAX as u32);
            self.put(start, (end - start) as usize);
            first = end;
        }
        Some(())
    }

    /// Returns free pieces for a separator: of its size, or a part of larger ones.
    fn take_free(&self, count: usize) -> Option<u32> {
        let mut free = lock(&self.free);
        if let Some(first) = free.get_mut(count).and_then(Vec::pop) {
            return Some(first);
        }
        // Left by a kill: separators of several sizes side by side.
        let larger = (count + 1..free.len()).rev().find(|&pieces| !free[pieces].is_empty())?;
        let first = free[larger].pop()?;
        free[larger - count].push(first + count as u32);
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use bristlecone_pm::sync::epoch::pin;

    use super::*;

    #[test]
    fn separators_are_what_they_were_made_of_and_their_room_is_used_again() {
        let separators = Separators::new(false, &Memory::private()).unwrap();
        let keys: Vec<Vec<u8>> = (0..100_u8).map(|at| vec![at; usize::from(at)]).collect();
        let words: Vec<u64> = keys.iter().map(|key| separators.make(key)).collect();
        let longest = separators.make(&vec![7; KEY_BYTES_MAX]);
        for (word, key) in words.iter().zip(&keys) {
            assert_eq!(separators.at(*word, &pin()), key);
        }
        assert!(separators.at(0, &pin()).is_empty());
        let bytes = separators.bytes();
        separators.retire(words[20], &pin());
        separators.retire(longest, &pin());
        while separators.limbo.load(Relaxed) > 0 {
            pin().flush();
            separators.take_back();
        }
        // As many pieces as the one of 20 bytes had.
        let again = [separators.make(&[9; 25]), separators.make(&vec![9; KEY_BYTES_MAX])];
        assert_eq!((again, separators.bytes()), ([words[20], longest], bytes));
        assert_eq!(separators.at(words[21], &pin()), keys[21]);
    }
}
