//! The point at which a full leaf is split.
//!
//! Keys that arrive in ascending or descending order should leave full leaves behind, also if they do so in a part of the
//! tree only: devices with times, tables with row numbers. Such a run is recognized by distances: its next key is much
//! nearer to the key before it than to the keys of others.

use super::codec::KeyCodec;

/// How many times nearer to its neighbour on one side a new key must be, to continue a run. Of random keys one in tens of
/// thousands is.
const NEARER: u64 = 1 << 16;

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
    /// these and the first of the others; it is called if there are any of both.
    ///
    /// For a key above all items nothing moves, for a key below all items only the least one stays, and a run ends its
    /// leaf. So ascending and descending keys leave full leaves behind.
    pub fn new<'k, K: KeyCodec>(
        len: usize,
        below: usize,
        new: K::Ref<'k>,
        around: impl FnOnce() -> (K::Ref<'k>, K::Ref<'k>),
    ) -> Self {
        if below == 0 || below == len {
            return Self { kept: below.max(1), run: None };
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
        Cut::new::<Inline>(keys.len(), below, new, || (keys[below - 1], keys[below]))
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
