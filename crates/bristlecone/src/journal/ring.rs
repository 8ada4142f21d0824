//! The ring: entries that are not yet in a segment, in memory that survives the process.
//!
//! An entry lies at its LSN, modulo the size of the ring. Bytes between the last entry and the first one are zeros, so
//! the next process finds the entries behind one whose writer was killed before it stored the head.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst,
};

use bristlecone_pm::{Error, Result, SharedWords, prefetch_to_write};
use crossbeam_utils::CachePadded;

use super::entry::{Head, State, entry_bytes};

/// Words before the entries.
const HEADER_WORDS: usize = 512;
const MAGIC: u64 = u64::from_le_bytes(*b"BRISTRNG");

/// The state in which an entry was found after a kill.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    pub head: Head,
    pub body: Vec<u8>,
}

/// What the ring says about the process that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub uuid: u128,
    /// The kernel that ran.
    pub boot: u128,
    /// Device and inode of the pool's file.
    pub inode: (u64, u64),
}

impl Owner {
    fn words(&self, bytes: u64) -> [u64; 9] {
        let halves = |id: u128| [id as u64, (id >> 64) as u64];
        let ([uuid, uuid_high], [boot, boot_high]) = (halves(self.uuid), halves(self.boot));
        let (device, inode) = self.inode;
        let mut words = [MAGIC, 1, uuid, uuid_high, boot, boot_high, device, inode, bytes];
        // A header that was torn, or never written, has another sum.
        words[1] |= u64::from(crc32c::crc32c(words.map(u64::to_le_bytes).as_flattened())) << 32;
        words
    }
}

/// The ring of an open pool.
pub struct Ring {
    shared: Arc<dyn SharedWords>,
    /// Words for entries: a power of two.
    words: usize,
    /// The LSN of the next entry.
    reserved: AtomicU64,
    /// The LSN up to which this process has freed entries: what the header says, in a line of its own.
    freed: CachePadded<AtomicU64>,
}

/// The word of the header with the LSN up to which entries have left the ring.
const FREED: usize = 64;
/// The word of the header with the state of taking over the entries of a killed process.
const TAKEOVER: usize = 72;

/// How far before its use a line of the ring is fetched, in bytes.
const AHEAD: u64 = 512;

/// Completes the entry with this first word, of which this many changes count.
#[inline]
pub fn complete(first: &AtomicU64, head: Head, counts: u16) {
    // Pairs with `complete_up_to`: the body is visible.
    first.store(Head { state: State::Complete, counts, ..head }.encode(), Release);
}

/// How far a process has come that takes over the entries of a killed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takeover {
    /// It has not begun, or has finished.
    None,
    /// It writes the entries to the segment, from an LSN on: what follows there is repeated if it is killed, too.
    From(u64),
    /// All are in the segment, durably, and none of the ring counts.
    Done,
}

impl Takeover {
    fn encode(self) -> u64 {
        match self {
            Self::None => 0,
            Self::From(lsn) => lsn | 1,
            Self::Done => 2,
        }
    }
}

/// Returns the bytes of the file of a ring with `bytes` bytes for entries.
pub fn file_bytes(bytes: u64) -> u64 {
    bytes + (HEADER_WORDS * 8) as u64
}

/// Returns whether the ring belongs to the running kernel and this pool file.
pub fn is_of(shared: &dyn SharedWords, owner: &Owner) -> bool {
    let words = shared.words();
    let bytes = ((words.len() - HEADER_WORDS) * 8) as u64;
    owner.words(bytes).iter().zip(words).all(|(word, found)| found.load(Relaxed) == *word)
}

/// Returns whether the ring belongs to the running kernel and this pool, whatever its file is.
pub fn is_of_pool(shared: &dyn SharedWords, uuid: u128, boot: u128) -> bool {
    let word = |at: usize| shared.words()[at].load(Relaxed);
    is_of(shared, &Owner { uuid, boot, inode: (word(6), word(7)) })
}

impl Ring {
    /// Returns the ring of a journal whose entries up to `lsn` are in segments.
    pub fn new(shared: Arc<dyn SharedWords>, lsn: u64) -> Self {
        let words = shared.words().len() - HEADER_WORDS;
        assert!(words.is_power_of_two(), "a ring of a power of two");
        let ring = Self { shared, words, reserved: AtomicU64::new(lsn), freed: AtomicU64::new(lsn).into() };
        ring.freed_word().store(lsn, Relaxed);
        ring
    }

    /// Returns the words that a killed process left.
    pub fn left(shared: Arc<dyn SharedWords>) -> Self {
        let words = shared.words().len() - HEADER_WORDS;
        Self { shared, words, reserved: AtomicU64::new(0), freed: CachePadded::default() }
    }

    fn freed_word(&self) -> &AtomicU64 {
        &self.shared.words()[FREED]
    }

    /// Returns how far the process has come that last took over entries.
    pub fn takeover(&self) -> Takeover {
        match self.shared.words()[TAKEOVER].load(Acquire) {
            2 => Takeover::Done,
            from if from & 1 != 0 => Takeover::From(from & !1),
            _ => Takeover::None,
        }
    }

    pub fn set_takeover(&self, takeover: Takeover) {
        self.shared.words()[TAKEOVER].store(takeover.encode(), Release);
    }

    /// Removes all entries, and sets the owner; `None` lets no opening rely on the ring.
    pub fn reset(&self, owner: Option<&Owner>) {
        let words = self.shared.words();
        words[0].store(0, Release);
        self.clear();
        self.set_takeover(Takeover::None);
        if let Some(owner) = owner {
            let header = owner.words(self.bytes());
            // The magic number last: a kill in between leaves no owner.
            for (word, value) in words.iter().zip(header).skip(1) {
                word.store(value, Relaxed);
            }
            words[0].store(header[0], Release);
        }
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.entries().iter().for_each(|word| {
            if word.load(Relaxed) != 0 {
                word.store(0, Relaxed);
            }
        });
    }

    /// Lets no opening rely on the ring, nor on the pool's pages.
    pub fn disown(&self) {
        self.shared.words()[0].store(0, Release);
    }

    /// Returns the words of the entries.
    #[inline]
    pub fn entries(&self) -> &[AtomicU64] {
        &self.shared.words()[HEADER_WORDS..]
    }

    #[inline]
    fn word(&self, lsn: u64) -> &AtomicU64 {
        self.at(self.entries(), lsn)
    }

    /// Returns the word of an LSN among those of the entries, which a loop asks for once.
    #[inline]
    pub fn at<'a>(&self, entries: &'a [AtomicU64], lsn: u64) -> &'a AtomicU64 {
        &entries[self.place(lsn)]
    }

    #[inline]
    fn place(&self, lsn: u64) -> usize {
        (lsn / 8) as usize & (self.words - 1)
    }

    /// Returns the words between two LSNs: up to the end of the ring, and from its begin on.
    #[inline]
    fn span(&self, from: u64, to: u64) -> (&[AtomicU64], &[AtomicU64]) {
        let entries = self.entries();
        let (begin, words) = (self.place(from), ((to - from) / 8) as usize);
        let front = words.min(self.words - begin);
        (&entries[begin..begin + front], &entries[..words - front])
    }

    /// Returns the bytes for entries.
    pub fn bytes(&self) -> u64 {
        (self.words * 8) as u64
    }

    /// Returns the LSN of the next entry.
    pub fn reserved(&self) -> u64 {
        self.reserved.load(SeqCst)
    }

    /// Returns the LSN up to which entries have left the ring.
    pub fn freed(&self) -> u64 {
        self.freed_word().load(Acquire)
    }

    /// Reserves an LSN, and room for an entry with such a body once [`has_room`](Self::has_room) says so.
    ///
    /// The order of these LSNs is the order of changes: a thread that has seen another's change reserves after it.
    #[inline]
    pub fn reserve(&self, body: usize) -> u64 {
        // SeqCst: see `sync_within` of the journal.
        self.reserved.fetch_add(entry_bytes(body), SeqCst)
    }

    /// Returns whether the bytes up to an LSN are free.
    #[inline]
    pub fn has_room(&self, end: u64) -> bool {
        // Pairs with `free`: its zeros are visible.
        end - self.freed.load(Acquire) <= self.bytes()
    }

    /// Stores an entry among the words of all, whose changes are about to be applied; `body` yields the words of its body,
    /// padded with zeros.
    #[inline]
    pub fn put(&self, entries: &[AtomicU64], lsn: u64, head: Head, body: impl Iterator<Item = u64>) {
        // Another core may have cleared this line last. A later entry's stores would wait for it, and with them the next
        // locked instruction.
        prefetch_to_write(self.at(entries, lsn + AHEAD));
        let first = self.at(entries, lsn);
        // First: a kill from here on leaves the length. The next process skips the entry.
        first.store(Head { state: State::Reserved, ..head }.encode(), Release);
        let (begin, words) = (self.place(lsn), (head.bytes() / 8) as usize);
        let words_of_entry = std::iter::once(lsn).chain(body);
        if let Some(places) = entries.get(begin + 1..begin + words) {
            places.iter().zip(words_of_entry).for_each(|(place, word)| place.store(word, Relaxed));
        } else {
            let places = (lsn + 8..).step_by(8).map(|place| self.at(entries, place));
            places.zip(words_of_entry).for_each(|(place, word)| place.store(word, Relaxed));
        }
        // The body is complete before the intent, and the intent before the change: a killed process leaves its stores
        // in this order.
        first.store(head.encode(), Release);
    }

    /// Replaces a word of an entry's body that has not been completed.
    pub fn patch(&self, lsn: u64, word: usize, value: u64) {
        self.word(lsn + 16 + 8 * word as u64).store(value, Relaxed);
    }

    /// Sets bits of a byte of an entry's body that has not been completed.
    pub fn mark(&self, lsn: u64, at: usize, bits: u8) {
        let word = self.word(lsn + 16 + (at as u64 & !7));
        // No other thread stores to it.
        word.store(word.load(Relaxed) | u64::from(bits) << (at % 8 * 8), Relaxed);
    }

    /// Returns the end of the complete entries that follow each other from an LSN on, or that of the first one that
    /// reaches `last`.
    pub fn complete_up_to(&self, mut lsn: u64, last: u64) -> u64 {
        let entries = self.entries();
        // Behind the room lie the oldest entries once more.
        let end = self.reserved().min(self.freed() + self.bytes()).min(last);
        while lsn < end {
            match Head::decode(self.at(entries, lsn).load(Acquire)) {
                Some(head) if head.state == State::Complete => lsn += head.bytes(),
                _ => break,
            }
        }
        lsn
    }

    /// Returns the end of the complete entries, in the ring of another process, which may write meanwhile.
    pub fn seen_end(&self) -> u64 {
        let begin = self.freed();
        let (end, mut lsn) = (begin + self.bytes(), begin);
        while lsn < end {
            let head = Head::decode(self.word(lsn).load(Acquire));
            let is_complete = |head: &Head| head.state == State::Complete && lsn + head.bytes() <= end;
            // An entry of a later round has another LSN.
            match head.filter(is_complete) {
                Some(head) if self.word(lsn + 8).load(Relaxed) == lsn => lsn += head.bytes(),
                _ => break,
            }
        }
        lsn
    }

    /// Copies the bytes between two LSNs.
    pub fn copy(&self, from: u64, to: u64, into: &mut Vec<u8>) {
        let (front, back) = self.span(from, to);
        into.clear();
        into.reserve((front.len() + back.len()) * 8);
        for words in [front, back] {
            into.extend(words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()));
        }
    }

    /// Removes the entries up to an LSN, which are in a segment.
    pub fn free(&self, to: u64) {
        let (front, back) = self.span(self.freed_word().load(Relaxed), to);
        front.iter().chain(back).for_each(|word| word.store(0, Relaxed));
        // The word is shared: no process finds an entry beyond the room that it grants.
        self.freed_word().store(to, Release);
        // Pairs with `has_room`.
        self.freed.store(to, Release);
    }

    /// Returns the entries that a killed process left from an LSN on, in order.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupted`] for bytes that no process stored.
    pub fn found(&self, from: u64) -> Result<Vec<Found>> {
        let (mut found, mut lsn) = (Vec::new(), from);
        // Behind it may be the rest of entries that are in a segment.
        let end = self.freed() + self.bytes();
        let mut bytes = Vec::new();
        while lsn < end {
            let word = self.word(lsn).load(Acquire);
            if word == 0 {
                // Nothing, or room whose writer stored nothing yet.
                lsn += 8;
                continue;
            }
            let head = Head::decode(word).filter(|head| lsn + head.bytes() <= end);
            let is_own =
                |head: &Head| head.state == State::Reserved || self.word(lsn + 8).load(Relaxed) == lsn;
            let head = head.filter(is_own).ok_or_else(|| {
                Error::corrupted("an entry that cannot be read", format!("LSN {lsn} of the journal's ring"))
            })?;
            self.copy(lsn + 16, lsn + head.bytes(), &mut bytes);
            found.push(Found { head, body: bytes[..head.body].to_vec() });
            lsn += head.bytes();
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::entry::{Kind, words_of};
    use crate::journal::simulated::Memory;

    fn ring(bytes: u64, lsn: u64) -> (Arc<Memory>, Ring) {
        let shared = Arc::new(Memory::new(file_bytes(bytes)));
        (Arc::clone(&shared), Ring::new(shared, lsn))
    }

    fn put(ring: &Ring, lsn: u64, kind: Kind, aside: bool, body: &[u8]) -> Head {
        let head = Head::intent(kind, aside, body.len());
        ring.put(ring.entries(), lsn, head, words_of(body));
        head
    }

    #[test]
    fn entries_leave_in_order_and_their_room_is_used_again() {
        let (_, ring) = ring(256, 40);
        let mut bytes = Vec::new();
        for round in 0..100_u8 {
            let body = vec![round | 1; 1 + usize::from(round % 60)];
            let (first, second) = (ring.reserve(body.len()), ring.reserve(3));
            assert!(ring.has_room(second + entry_bytes(3)));
            let head = put(&ring, second, Kind::All, false, &[7, 8, 9]);
            complete(ring.word(second), head, 1);
            assert_eq!(ring.complete_up_to(first, u64::MAX), first, "the first one is incomplete");
            let head = put(&ring, first, Kind::Each, true, &body);
            assert_eq!(ring.complete_up_to(first, u64::MAX), first);
            complete(ring.word(first), head, 5);
            let end = ring.complete_up_to(first, u64::MAX);
            assert_eq!(end, second + entry_bytes(3));
            ring.copy(first, end, &mut bytes);
            let from = &mut &bytes[..];
            let entry = super::super::entry::take(from).unwrap();
            assert_eq!(
                (entry.lsn, entry.body, entry.head.counts, entry.head.aside),
                (first, &body[..], 5, true)
            );
            assert_eq!(super::super::entry::take(from).unwrap().body, [7, 8, 9]);
            ring.free(end);
        }
        assert!(!ring.has_room(ring.freed() + 257));
    }

    #[test]
    fn a_kill_leaves_what_was_stored_and_holes_hide_nothing() {
        let (shared, ring) = ring(512, 8);
        let lsns: Vec<u64> = (0..5).map(|body| ring.reserve(body * 9)).collect();
        let head = put(&ring, lsns[1], Kind::Each, false, &[1; 9]);
        complete(ring.word(lsns[1]), head, 1);
        put(&ring, lsns[3], Kind::All, false, &[3; 27]);
        let found = Ring::left(shared).found(8).unwrap();
        let states: Vec<_> = found.iter().map(|found| (found.head.state, found.body.clone())).collect();
        assert_eq!(states, [(State::Complete, vec![1; 9]), (State::Intent, vec![3; 27])]);
    }

    #[test]
    fn another_process_sees_the_end_of_the_complete_entries() {
        let (shared, ring) = ring(256, 40);
        let seen = || Ring::left(Arc::clone(&shared) as Arc<dyn SharedWords>).seen_end();
        assert_eq!(seen(), 40);
        let lsns: Vec<u64> = (0..3).map(|_| ring.reserve(8)).collect();
        let heads: Vec<_> = lsns.iter().map(|lsn| put(&ring, *lsn, Kind::Each, false, &[1; 8])).collect();
        [1, 0].iter().for_each(|at| complete(ring.word(lsns[*at]), heads[*at], 1));
        assert_eq!(seen(), lsns[2], "the last one is an intent");
        ring.free(lsns[1]);
        assert_eq!(seen(), lsns[2]);
        complete(ring.word(lsns[2]), heads[2], 1);
        assert_eq!(seen(), lsns[2] + entry_bytes(8));
    }

    #[test]
    fn an_owner_is_recognized() {
        let (shared, ring) = ring(512, 0);
        let owner = Owner { uuid: 1 << 80, boot: 7, inode: (1, 2) };
        assert!(!is_of(&*shared, &owner));
        ring.reset(Some(&owner));
        assert!(is_of(&*shared, &owner));
        assert!(!is_of(&*shared, &Owner { boot: 8, ..owner }));
        assert!(!is_of(&*shared, &Owner { inode: (1, 3), ..owner }));
        ring.disown();
        assert!(!is_of(&*shared, &owner));
    }
}
