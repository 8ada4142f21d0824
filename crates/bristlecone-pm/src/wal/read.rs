//! Reading a chunk: its entries up to the end, and its damage.

use super::layout::{Cell, Generation, Header, STAMPS_A_LINE, begins_line};
use super::{Log, LogChunk, LogEntry, Standing};
use crate::{Error, Issue, Medium, Result, SlotKind};

/// Contents of a slot.
enum Found {
    Entry(LogEntry),
    End,
    /// Description of the damage.
    Damage(&'static str),
}

/// Returns the state of a chunk according to its header and the stamp behind it.
pub(super) fn standing<M: Medium>(header: &Header, first: &Cell, medium: &M) -> (Generation, Standing) {
    let [word, copy] = [&header.generation, &header.copy].map(|word| word.load(medium));
    let [pattern, copied] = [word, copy].map(Generation::of_pattern);
    let stamp = first.stamp.load(medium);
    // The first stamp changes before the generation, and the copy directly after it: an interrupted advance may
    // leave the next end mark.
    let third = Generation::of_stamp(stamp);
    let agrees = |one: Generation| one == third || stamp == one.next().end_mark();
    match (pattern, copied) {
        (Some(one), Some(other)) if one == other => (one, Standing::Checked),
        (Some(one), _) if agrees(one) => (one, Standing::Checked),
        (None, None) if word <= 0xff => (Generation::of_number(word), Standing::Unchecked),
        // The value that two of three agree on, or the only valid one.
        (_, Some(other)) => (other, Standing::Broken),
        (Some(one), None) => (one, Standing::Broken),
        (None, None) => (third, Standing::Broken),
    }
}

impl<M: Medium> Log<M> {
    /// Returns the entries of a chunk, oldest first. Stops at the first damaged entry and returns its error.
    pub fn entries(&self, chunk: &LogChunk) -> impl Iterator<Item = Result<LogEntry>> {
        let mut going_on = true;
        let all = self.violation(chunk).map(Err).into_iter().chain(self.remains(chunk));
        all.take_while(move |found| std::mem::replace(&mut going_on, found.is_ok()))
    }

    /// Verifies all chunks of the log. Exact only while no thread appends.
    pub fn check(&self) -> Vec<Issue> {
        let chunks = self.pool.chunks_of(self.owner).into_iter().filter(|chunk| chunk.kind == SlotKind::LOG);
        let broken = chunks.filter_map(|chunk| {
            let header = self.pool.at::<Header>(chunk.offset);
            let first = self.pool.at(super::first_entry(chunk.offset));
            let (generation, standing) = standing(header, first, self.pool.medium());
            let chunk =
                LogChunk { id: chunk.id, offset: chunk.offset, generation, standing, node: 0, epoch: 0 };
            self.entries(&chunk).find_map(Result::err)
        });
        broken.map(|error| Issue::new("log", error.to_string())).collect()
    }

    /// Returns the damage to a chunk's header.
    pub fn violation(&self, chunk: &LogChunk) -> Option<Error> {
        let what = "a log's generation cannot be told for sure";
        let broken = chunk.standing == Standing::Broken;
        broken.then(|| Error::corrupted(what, format!("header of chunk {}, a log's", chunk.id)))
    }

    /// Returns the entries of a chunk of a damaged pool, including those behind a damaged one.
    pub fn remains(&self, chunk: &LogChunk) -> impl Iterator<Item = Result<LogEntry>> {
        let (id, generation) = (chunk.id, chunk.generation);
        let slots = if generation == Generation::default() { 1..1 } else { 1..self.slots };
        slots.map_while(move |slot| match self.find(chunk, slot) {
            Found::Entry(entry) => Some(Ok(entry)),
            Found::End => None,
            Found::Damage(what) => {
                Some(Err(Error::corrupted(what, format!("entry {slot} of chunk {id}, a log's"))))
            }
        })
    }

    fn find(&self, chunk: &LogChunk, slot: usize) -> Found {
        let (medium, generation) = (self.pool.medium(), chunk.generation);
        let cell = self.cell(chunk, slot);
        let stamp = cell.stamp.load(medium);
        let of = Generation::of_stamp(stamp);
        if chunk.standing == Standing::Unchecked {
            let entry = (of == generation).then(|| LogEntry::unchecked(medium, cell, stamp));
            return entry.map_or(Found::End, Found::Entry);
        }
        // The first slot has the next end mark before the chunk has that generation.
        if stamp == generation.end_mark() || slot == 1 && stamp == generation.next().end_mark() {
            return Found::End;
        }
        if of == generation {
            let entry = LogEntry::at(medium, cell, stamp, slot);
            return entry.map_or(Found::Damage("the check of a log entry differs"), Found::Entry);
        }
        if !of.is_whole() {
            return Found::Damage("a log entry of no generation");
        }
        if !begins_line(slot) {
            return Found::Damage("a log entry of another generation");
        }
        // Entries that were being written, including copies, have left end marks.
        let counts = |at: usize| {
            let stamp = (at < self.slots).then(|| self.cell(chunk, at).stamp.load(medium))?;
            (Generation::of_stamp(stamp) == generation && stamp != generation.end_mark()).then_some(())
        };
        match (slot + 1..slot + STAMPS_A_LINE).find_map(counts) {
            None => Found::End,
            Some(()) => Found::Damage("a log entry of another generation before one that counts"),
        }
    }
}
