//! The state of a standby's replay, in a file beside its pool.
//!
//! ```text
//! 0     magic, version (4 B), CRC-32C of the other bytes (4 B); the journal's identity, 16 B
//! 32    LSN up to which entries are applied, LSN up to which they may be
//! 48    number and identity (16 B) of the timeline that it follows; identity of the one that it begins, or 0, 16 B
//! 88    identity of the kernel, 16 B; inode of the pool's file
//! 112   LSN of the archive's end; its time, and that of this state, in milliseconds since 1970
//! 136   1 while a process replays, else 0
//! 144   identity of the copy, 16 B
//! ```

use std::time::{Duration, SystemTime};

use bristlecone_pm::{Result, Storage};

use crate::journal::clock::{at, now};
use crate::journal::manifest::Timeline;

const MAGIC: u64 = u64::from_le_bytes(*b"BRISTSBY");
const VERSION: u64 = 1;
/// Name of the file.
pub const STATE: &str = "state";
const WORDS: usize = 20;

/// How far a standby has come: see [`Standby::status`](crate::Standby::status) and [`Standby::status_of`](crate::Standby::status_of).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StandbyStatus {
    /// LSN up to which entries are applied.
    pub lsn: u64,
    /// LSN of the end of the archive, when it was last read.
    pub archive_lsn: u64,
    /// When the archive had everything durable of the writer, at the last time that the standby read and applied it; `None`
    /// if it did not yet.
    pub as_of: Option<SystemTime>,
    /// Number of the timeline that it follows.
    pub timeline: u64,
    /// Whether a process replays. If it was killed, this is still set.
    pub running: bool,
}

impl StandbyStatus {
    /// Returns the bytes of entries that are in the archive and not applied.
    pub fn lag_bytes(&self) -> u64 {
        self.archive_lsn.saturating_sub(self.lsn)
    }

    /// Returns how old the state is that followers see: the time since the writer had nothing durable beyond it. `None` if
    /// that is not known yet.
    pub fn lag(&self) -> Option<Duration> {
        self.as_of.map(|as_of| SystemTime::now().duration_since(as_of).unwrap_or_default())
    }
}

/// The contents of the state's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    pub uuid: u128,
    pub applied: u64,
    pub applying: u64,
    pub timeline: Timeline,
    /// The identity of the timeline that this copy begins, or 0.
    pub own: u128,
    pub boot: u128,
    pub inode: u64,
    pub archive_end: u64,
    pub as_of: u64,
    pub time: u64,
    pub running: bool,
    /// The identity of the copy.
    pub pool: u128,
}

impl State {
    fn encode(&self) -> Vec<u8> {
        let halves = |id: u128| [id as u64, (id >> 64) as u64];
        let ([uuid, uuid_high], [line, line_high]) = (halves(self.uuid), halves(self.timeline.id));
        let ([own, own_high], [boot, boot_high]) = (halves(self.own), halves(self.boot));
        let mut words: [u64; WORDS] = [
            MAGIC,
            VERSION,
            uuid,
            uuid_high,
            self.applied,
            self.applying,
            self.timeline.number,
            line,
            line_high,
            own,
            own_high,
            boot,
            boot_high,
            self.inode,
            self.archive_end,
            self.as_of,
            self.time,
            u64::from(self.running),
            self.pool as u64,
            (self.pool >> 64) as u64,
        ];
        words[1] |= u64::from(crc32c::crc32c(words.map(u64::to_le_bytes).as_flattened())) << 32;
        words.map(u64::to_le_bytes).concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let id = |at: usize| u128::from(words[at + 1]) << 64 | u128::from(words[at]);
        if words.len() != WORDS {
            return None;
        }
        let state = Self {
            uuid: id(2),
            applied: words[4],
            applying: words[5],
            timeline: Timeline { number: words[6], id: id(7) },
            own: id(9),
            boot: id(11),
            inode: words[13],
            archive_end: words[14],
            as_of: words[15],
            time: words[16],
            running: words[17] != 0,
            pool: id(18),
        };
        (state.encode() == bytes).then_some(state)
    }

    /// Reads the state; returns `None` if there is none, or if it was torn.
    pub fn read(folder: &dyn Storage) -> Result<Option<Self>> {
        let Some(file) = folder.open(STATE)? else { return Ok(None) };
        let mut bytes = vec![0; WORDS * 8];
        let read = file.read(0, &mut bytes)?;
        Ok(Self::decode(&bytes[..read]))
    }

    /// Replaces the state. It survives the process.
    pub fn write(&mut self, folder: &dyn Storage) -> Result<()> {
        self.time = now();
        let new = format!("{STATE}.new");
        let file = folder.create(&new, 0)?;
        file.write(0, &self.encode())?;
        folder.rename(&new, STATE)
    }

    pub fn status(&self) -> StandbyStatus {
        StandbyStatus {
            lsn: self.applied,
            archive_lsn: self.archive_end,
            as_of: (self.as_of > 0).then(|| at(self.as_of)),
            timeline: self.timeline.number,
            running: self.running,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_round_trips_and_damage_is_noticed() {
        let state = State {
            uuid: 1 << 64 | 2,
            applied: 3,
            applying: 4,
            timeline: Timeline { number: 5, id: 6 },
            own: 7,
            boot: 8 << 64,
            inode: 9,
            archive_end: 10,
            as_of: 11,
            time: 12,
            running: true,
            pool: 14 << 64 | 13,
        };
        let bytes = state.encode();
        assert_eq!(State::decode(&bytes), Some(state));
        assert_eq!(crc32c::crc32c(&bytes), 2_432_369_271, "the bytes changed: a new version is needed");
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(State::decode(&damaged), None, "byte {at}");
        }
    }
}
