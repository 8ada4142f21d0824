//! The items of a leaf, taken out of it to be put in order.

use std::mem::MaybeUninit;

use bristlecone_pm::{Medium, Word, read_words};

use super::search::Level;

/// Most items that are put in order at once.
pub const WORDS_MAX: usize = 64;

/// Key and value words of a leaf, where its slots were and in no order.
pub struct Words {
    items: [MaybeUninit<[u64; 2]>; WORDS_MAX],
    /// Which of them are items: those are written.
    taken: u64,
}

impl Default for Words {
    #[inline(always)]
    fn default() -> Self {
        Self { items: [MaybeUninit::uninit(); WORDS_MAX], taken: 0 }
    }
}

impl Words {
    /// Takes those of a leaf's slots that are `taken`; they become items from `at` on. Slots stand
    /// in `slots` as key word and value word, one behind the other.
    ///
    /// # Panics
    ///
    /// If a taken slot is not there, or its place.
    #[inline(always)]
    pub fn copy<M: Medium>(&mut self, medium: &M, at: usize, slots: &[Word], taken: u64) {
        let len = (u64::BITS - taken.leading_zeros()) as usize;
        let to = &mut self.items[at..][..len];
        // SAFETY: an item is two words, which may be unwritten.
        let to = unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast(), 2 * len) };
        read_words(medium, &slots[..2 * len], to);
        self.taken |= taken << at;
    }

    /// Adds an item. What readers see too late may be more than there is room for.
    #[inline(always)]
    pub fn push(&mut self, key: u64, value: u64) {
        let at = self.taken.trailing_ones() as usize % WORDS_MAX;
        self.items[at].write([key, value]);
        self.taken |= 1 << at;
    }

    /// How many there are.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.taken.count_ones() as usize
    }

    /// Where they are, and their words.
    #[inline(always)]
    pub fn iter(&self) -> impl Iterator<Item = (usize, [u64; 2])> {
        let mut left = self.taken;
        std::iter::from_fn(move || {
            let at = left.trailing_zeros() as usize;
            (left != 0).then(|| {
                left &= left - 1;
                // SAFETY: items that are taken are written.
                (at, unsafe { self.items[at].assume_init() })
            })
        })
    }

    /// Puts a value in the place of an item's.
    #[inline(always)]
    pub fn set_value(&mut self, at: usize, key: u64, value: u64) {
        self.items[at].write([key, value]);
    }

    /// Removes the item at `at`.
    #[inline(always)]
    pub fn remove(&mut self, at: usize) {
        self.taken &= !(1 << at);
    }

    /// Keeps the items whose keys are wanted.
    #[inline(always)]
    pub fn retain(&mut self, mut wanted: impl FnMut(u64) -> bool) {
        let unwanted = self.iter().fold(0, |set, (at, [key, _])| set | u64::from(!wanted(key)) << at);
        self.taken &= !unwanted;
    }

    /// For each item, in the order of [`iter`](Self::iter), how many have lesser key words: where
    /// it belongs in ascending order. The ranks are a permutation, also where words are equal;
    /// what stands behind them does not matter. `level` is what [`Level::detect`] said.
    #[inline(always)]
    pub fn rank(&self, level: Level, ranks: &mut [u16; WORDS_MAX]) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the features were detected, and items that are taken are written.
        if level == Level::Avx512 && unsafe { avx512::rank(self.items.as_ptr().cast(), self.taken, ranks) } {
            return;
        }
        let _ = level;
        self.rank_by(ranks, u64::cmp);
    }

    /// The same in another order than that of the key words.
    #[inline(always)]
    pub fn rank_by(&self, ranks: &mut [u16; WORDS_MAX], order: impl Fn(&u64, &u64) -> std::cmp::Ordering) {
        let mut sorted = [(0_u64, 0_u16); WORDS_MAX];
        let sorted = &mut sorted[..self.count()];
        for (index, (entry, (_, [key, _]))) in sorted.iter_mut().zip(self.iter()).enumerate() {
            *entry = (key, index as u16);
        }
        sorted.sort_unstable_by(|a, b| order(&a.0, &b.0));
        for (rank, &(_, index)) in sorted.iter().enumerate() {
            ranks[index as usize] = rank as u16;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;
    use std::mem::MaybeUninit;

    use super::WORDS_MAX;

    /// Keys in one register.
    const WIDE: usize = 8;
    /// Their short forms in one register.
    const SHORT: usize = 32;

    /// Ranks key words by 16 bits of theirs, from the highest in which they differ: each is
    /// compared with all others, 32 at a time, and no branch depends on what they are. Whether
    /// that told all of them apart.
    ///
    /// # Safety
    ///
    /// Those of the 64 items that are taken can be read.
    #[target_feature(enable = "avx512f,avx512bw,bmi2,popcnt")]
    pub unsafe fn rank(items: *const [u64; 2], taken: u64, ranks: &mut [u16; WORDS_MAX]) -> bool {
        // Key words, without gaps.
        let mut keys = [MaybeUninit::uninit(); WORDS_MAX / WIDE];
        let even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
        let (mut least, mut most) = (_mm512_set1_epi64(-1), _mm512_setzero_si512());
        let groups = (WORDS_MAX - taken.leading_zeros() as usize).div_ceil(WIDE);
        for (at, keys) in keys.iter_mut().enumerate().take(groups) {
            let taken = (taken >> (at * WIDE)) as u32 & 0xff;
            let pairs = _pdep_u32(taken, 0x5555) * 3;
            // SAFETY: only words of taken items are loaded.
            let [low, high] = [(0, pairs), (WIDE / 2, pairs >> 8)].map(|(half, lanes)| unsafe {
                _mm512_maskz_loadu_epi64(lanes as __mmask8, items.add(at * WIDE + half).cast())
            });
            let all = _mm512_permutex2var_epi64(low, even, high);
            least = _mm512_mask_min_epu64(least, taken as __mmask8, least, all);
            most = _mm512_max_epu64(most, all);
            keys.write(_mm512_maskz_compress_epi64(taken as __mmask8, all));
        }
        let least = _mm512_reduce_min_epu64(least);
        let differing = u64::BITS - _mm512_reduce_max_epu64(most).wrapping_sub(least).leading_zeros();
        let excess = _mm_cvtsi32_si128(differing.saturating_sub(u16::BITS) as i32);
        let least = _mm512_set1_epi64(least as i64);

        let mut short = [0_u16; WORDS_MAX];
        let mut len = 0;
        for (at, &keys) in keys.iter().enumerate().take(groups) {
            // SAFETY: so many groups are written.
            let keys = unsafe { keys.assume_init() };
            let keys = _mm512_srl_epi64(_mm512_sub_epi64(keys, least), excess);
            // SAFETY: groups before this one were no longer than their registers, so this one's fits.
            unsafe { _mm_storeu_si128(short.as_mut_ptr().add(len).cast(), _mm512_cvtepi64_epi16(keys)) };
            len += (taken >> (at * WIDE) & 0xff).count_ones() as usize;
        }
        let sum =
            if len <= SHORT { compare::<1>(&short, len, ranks) } else { compare::<2>(&short, len, ranks) };
        // Keys that look alike have the same rank, the lowest of theirs.
        sum == len * len.saturating_sub(1) / 2
    }

    /// Ranks short forms in so many registers: the sum of the ranks.
    #[target_feature(enable = "avx512f,avx512bw")]
    fn compare<const GROUPS: usize>(
        keys: &[u16; WORDS_MAX],
        len: usize,
        ranks: &mut [u16; WORDS_MAX],
    ) -> usize {
        let one = _mm512_set1_epi16(1);
        // SAFETY: there are two groups, and GROUPS is at most two.
        let groups: [_; GROUPS] =
            std::array::from_fn(|at| unsafe { _mm512_loadu_epi16(keys.as_ptr().add(at * SHORT).cast()) });
        let mut sums = [_mm512_setzero_si512(); GROUPS];
        for &key in &keys[..len] {
            let key = _mm512_set1_epi16(key as i16);
            for (sum, group) in sums.iter_mut().zip(groups) {
                *sum = _mm512_mask_add_epi16(*sum, _mm512_cmplt_epu16_mask(key, group), *sum, one);
            }
        }
        let mut total = _mm512_setzero_si512();
        for (at, sum) in sums.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { _mm512_storeu_epi16(ranks.as_mut_ptr().add(at * SHORT).cast(), sum) };
            let lanes = !u32::MAX.checked_shl(len.saturating_sub(at * SHORT) as u32).unwrap_or(0);
            total = _mm512_add_epi32(total, _mm512_madd_epi16(_mm512_maskz_mov_epi16(lanes, sum), one));
        }
        _mm512_reduce_add_epi32(total) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::search::tests::levels;

    #[test]
    fn ranks_are_those_of_the_sorted_keys() {
        let mut noise = 3_u64;
        let mut draw = || {
            noise = noise.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            noise ^ noise >> 32
        };
        for round in 0..20_000_usize {
            let mut words = Words::default();
            let wanted = draw() | draw();
            for at in 0..round % (WORDS_MAX + 1) {
                // Far apart, equal, close together, or in two clusters that look alike.
                let key = match round % 4 {
                    0 => draw().rotate_left(at as u32),
                    1 => draw() >> 60,
                    2 => u64::MAX - (draw() >> 50),
                    _ => draw() & (1 << 63 | 0xff),
                };
                words.push(key, at as u64);
            }
            words.taken &= wanted;
            let keys: Vec<u64> = words.iter().map(|(_, [key, _])| key).collect();
            let mut sorted = keys.clone();
            sorted.sort_unstable();
            for level in levels() {
                let mut ranks = [0; WORDS_MAX];
                words.rank(level, &mut ranks);
                let ranks = &mut ranks[..keys.len()];
                assert!(ranks.iter().zip(keys.iter()).all(|(&rank, &key)| sorted[rank as usize] == key));
                ranks.sort_unstable();
                assert!(ranks.iter().enumerate().all(|(at, &rank)| at == rank as usize));
            }
        }
    }

    #[test]
    fn a_full_leaf_takes_no_more() {
        let mut words = Words::default();
        (0..70).for_each(|key| words.push(key, key));
        assert_eq!(words.count(), WORDS_MAX);
        words.retain(|key| key % 2 == 0);
        assert!(words.iter().all(|(_, [key, value])| key == value && key % 2 == 0));
    }
}
