//! The point at which a full leaf is split.
//!
//! Keys that arrive in ascending or descending order should leave full leaves behind, also if they do so in a part of the
//! tree only: devices with times, tables with row numbers. Such a run is recognized by distances: its next key is much
//! nearer to the key before it than to the keys of others.
//!
//! Some keys of a run may arrive late. The first of them would split a full leaf into halves that never fill again. Where
//! the keys of a full leaf have equal distances, except for some that are a multiple, the keys between are expected
//! late, and the leaf keeps slots free for them.

use smallvec::SmallVec;

use super::codec::KeyCodec;

/// How many times nearer to its neighbour on one side a new key must be, to continue a run. Of random keys one in tens of
/// thousands is.
const NEARER: u64 = 1 << 16;

/// Keys that are expected between two others: at most this many. A larger distance is one to other keys.
const LATE_BETWEEN: u64 = 3;

/// Late keys are expected in at most one of this many slots of a leaf. Where more are missing, the keys are not evenly
/// spaced.
const SLOTS_A_LATE_KEY: usize = 4;

/// Late keys are not expected in leaves with fewer items.
const EVEN_MIN: usize = 8;

/// New keys that continue others, which are all on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// They are above those before them, and far from those behind.
    Ascending,
    /// They are below those behind them, and far from those before.
    Descending,
}

impl Run {
    /// Returns whether the keys from `least` to `greatest` continue a run between two others.
    pub fn of<'k, K: KeyCodec>(
        before: K::Ref<'k>,
        (least, greatest): (K::Ref<'k>, K::Ref<'k>),
        behind: K::Ref<'k>,
    ) -> Option<Self> {
        // All keys between have these bytes, too.
        let common = K::common(before, behind);
        let distance = |from: K::Ref<'k>, to: K::Ref<'k>| {
            K::rank_behind(to, common).saturating_sub(K::rank_behind(from, common))
        };
        let (below, above) = (distance(before, least), distance(greatest, behind));
        if below.saturating_mul(NEARER) < above {
            Some(Self::Ascending)
        } else if above.saturating_mul(NEARER) < below {
            Some(Self::Descending)
        } else {
            None
        }
    }
}

/// Returns the number of keys that are missing between those of a leaf, if they are evenly spaced. `key` returns the keys
/// in any order.
pub fn late_keys<'k, K: KeyCodec>(len: usize, key: impl Fn(usize) -> K::Ref<'k>) -> usize {
    if len < EVEN_MIN {
        return 0;
    }
    let keys: SmallVec<[K::Ref<'k>; 64]> = (0..len).map(key).collect();
    let (mut least, mut greatest) = (keys[0], keys[0]);
    for key in &keys {
        least = least.min(*key);
        greatest = greatest.max(*key);
    }
    // All keys have these bytes.
    let common = K::common(least, greatest);
    let mut ranks: SmallVec<[u64; 64]> = keys.iter().map(|key| K::rank_behind(*key, common)).collect();
    if !K::INLINE {
        count_by_used_bytes(&mut ranks);
    }
    let (least, greatest) =
        ranks.iter().fold((u64::MAX, 0), |(least, greatest), rank| (least.min(*rank), greatest.max(*rank)));
    let step = ranks.iter().filter(|rank| **rank < greatest).map(|rank| greatest - rank).min().unwrap_or(0);
    if step.checked_mul(len as u64 - 1) == Some(greatest - least) {
        // Most series are complete. This check takes less time than the sort.
        return 0;
    }
    ranks.sort_unstable();
    let mut distances = ranks;
    for at in 1..len {
        distances[at - 1] = distances[at] - distances[at - 1];
    }
    distances.truncate(len - 1);
    let (_, usual, _) = distances.select_nth_unstable((len - 1) / 2);
    let usual = (*usual).max(1);
    // Rounded, because times vary somewhat.
    let missing = |distance: &u64| (distance.saturating_add(usual / 2) / usual).saturating_sub(1);
    let late: u64 = distances.iter().map(missing).filter(|between| *between <= LATE_BETWEEN).sum();
    if late as usize * SLOTS_A_LATE_KEY > len { 0 } else { late as usize }
}

/// Replaces words by others in the same order, in which each byte counts from the least to the greatest one in use at its
/// place. So numbers of decimal digits become evenly spaced.
fn count_by_used_bytes(words: &mut [u64]) {
    let first = words[0];
    let different = words.iter().fold(0, |bits, word| bits | word ^ first);
    let mut counted: SmallVec<[u64; 64]> = SmallVec::from_elem(0, words.len());
    for shift in (0..8).rev().map(|place| 8 * place).filter(|shift| different >> shift & 0xff != 0) {
        let byte = |word: &u64| word >> shift & 0xff;
        let (least, greatest) = words
            .iter()
            .map(byte)
            .fold((0xff, 0), |(least, greatest), byte| (byte.min(least), byte.max(greatest)));
        // The product of eight bases is at most 2^64.
        let base = greatest - least + 1;
        for (counted, word) in counted.iter_mut().zip(&*words) {
            *counted = *counted * base + (byte(word) - least);
        }
    }
    words.copy_from_slice(&counted);
}

/// Where a full leaf is split for a new key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The number of the least items that stay. The others move to the new leaf.
    pub kept: usize,
    /// The run that the new key continues: it gets the leaf with the run.
    pub run: Option<Run>,
}

impl Cut {
    /// Returns the cut of a leaf of `len` items, of which `below` are less than the new key. `around` returns the last of
    /// these and the first of the others; it is called if there are any of both. `key` returns the keys in any order.
    ///
    /// For a key above all items nothing moves, for a key below all items only the least one stays, and a run ends its
    /// leaf. So ascending and descending keys leave full leaves behind, except for the slots of late keys.
    pub fn new<'k, K: KeyCodec>(
        len: usize,
        below: usize,
        new: K::Ref<'k>,
        around: impl FnOnce() -> (K::Ref<'k>, K::Ref<'k>),
        key: impl Fn(usize) -> K::Ref<'k>,
    ) -> Self {
        if below == 0 || below == len {
            let late = late_keys::<K>(len, key);
            return Self { kept: if below == 0 { 1 + late } else { len - late }, run: None };
        }
        let (before, behind) = around();
        // A leaf may also be replaced for a key that it has.
        let run = if behind == new { None } else { Run::of::<K>(before, (new, new), behind) };
        Self { kept: run.map_or(len.div_ceil(2), |_| below), run }
    }

    /// Returns the separator between the kept items, of which the last is given, and the others.
    pub fn separator<'k, K: KeyCodec>(
        self,
        last: K::Ref<'k>,
        new: K::Ref<'k>,
        first: K::Ref<'k>,
    ) -> K::Ref<'k> {
        match self.run {
            Some(Run::Ascending) => K::separator(new, first),
            Some(Run::Descending) => K::low_separator(last, new),
            None => K::separator(last, first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::parts::codec::{Inline, Record};

    fn of_words(keys: &[u64], new: u64) -> Cut {
        let below = keys.partition_point(|key| *key < new);
        Cut::new::<Inline>(keys.len(), below, new, || (keys[below - 1], keys[below]), |at| keys[at])
    }

    #[test]
    fn ends_and_the_middle_are_cut_as_the_order_of_arrival_suggests() {
        let keys = [10, 20, 30, 40, 50];
        let cut = |new| of_words(&keys, new).kept;
        assert_eq!((cut(5), cut(60), cut(11), cut(35), cut(49), cut(50)), (1, 5, 3, 3, 3, 3));
    }

    #[test]
    fn a_run_ends_its_leaf() {
        let far = 1 << 40;
        let up = [1, 2, 3, far, 2 * far];
        assert_eq!(of_words(&up, 4), Cut { kept: 3, run: Some(Run::Ascending) });
        let down = [1, far, far + 1, far + 2, far + 3];
        assert_eq!(of_words(&down, far - 1), Cut { kept: 1, run: Some(Run::Descending) });
        // Neither is near.
        assert_eq!(of_words(&up, far / 2), Cut { kept: 3, run: None });
        let separator = |keys: &[u64], new| {
            let cut = of_words(keys, new);
            cut.separator::<Inline>(keys[cut.kept - 1], new, keys[cut.kept])
        };
        // The new key gets the leaf of its run.
        assert!(4 < separator(&up, 4) && separator(&up, 4) <= far);
        assert_eq!(separator(&down, far - 1), 2);
    }

    #[test]
    fn slots_stay_free_for_keys_missing_from_even_series() {
        let late = |keys: &[u64]| late_keys::<Inline>(keys.len(), |at| keys[at]);
        let without = |step: u64, missing: &[u64]| -> Vec<u64> {
            (100..130).filter(|number| !missing.contains(number)).map(|number| number * step).rev().collect()
        };
        assert_eq!(late(&without(1, &[])), 0);
        assert_eq!(late(&without(1, &[105, 110, 111, 128])), 4);
        assert_eq!(late(&without(1000, &[105])), 1);
        // Times vary.
        let times: Vec<u64> =
            without(1000, &[105, 128]).into_iter().map(|time| time + time % 7 * 30).collect();
        assert_eq!(late(&times), 2);
        // Other series are far away.
        let mut series = without(1, &[105]);
        series.extend([1 << 40, u64::MAX, 0]);
        assert_eq!(late(&series), 1);
        // Uneven keys, and too few.
        assert_eq!(late(&(0..30).map(|number| number * number * number).collect::<Vec<_>>()), 0);
        assert_eq!(late(&(0..60).map(bristlecone_random::mix).collect::<Vec<_>>()), 0);
        assert_eq!((late(&[0, 2, 4, 5, 6, 7, 8]), late(&[5; 20]), late(&[])), (0, 0, 0));

        let keys = without(1, &[105, 110]);
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        assert_eq!((of_words(&sorted, 99).kept, of_words(&sorted, 130).kept), (3, 26));
        let texts = |width: usize| -> Vec<String> {
            keys.iter().map(|key| format!("id {:0width$}/x", key + 890)).collect()
        };
        for texts in [texts(4), texts(12)] {
            assert_eq!(late_keys::<Record>(texts.len(), |at| texts[at].as_bytes()), 2, "{texts:?}");
        }
        let mut words = [u64::MAX, 0, u64::MAX - 1, 1 << 63];
        let before = words;
        count_by_used_bytes(&mut words);
        assert_eq!(words, before);
    }

    #[test]
    fn runs_of_byte_strings_are_recognized_behind_what_they_have_in_common() {
        let run = |before: &[u8], new: &[u8], behind: &[u8]| Run::of::<Record>(before, (new, new), behind);
        assert_eq!(run(b"user:12:0456", b"user:12:0457", b"user:13:0001"), Some(Run::Ascending));
        assert_eq!(run(b"user:12:0999", b"user:13:0455", b"user:13:0456"), Some(Run::Descending));
        assert_eq!(run(b"user:12:0456", b"user:12:0457", b"user:12:0458"), None);
        assert_eq!(run(b"a", b"b", b"c"), None);
        assert_eq!(run(b"", b"", b""), None);
        let cut = Cut { kept: 1, run: Some(Run::Ascending) };
        let separator = cut.separator::<Record>(b"user:12:0456", b"user:12:0457", b"user:13:0001");
        assert_eq!(separator, b"user:13");
        let cut = Cut { kept: 1, run: Some(Run::Descending) };
        assert_eq!(cut.separator::<Record>(b"a", b"bb", b"bc"), b"b");
    }
}
