//! The items of a leaf, copied out to be sorted.

use std::mem::MaybeUninit;
use std::ops::Range;

use bristlecone_pm::{Medium, Result, Word, read_words};

use smallvec::SmallVec;

use super::codec::KeyCodec;
use super::search::Level;

/// Maximum number of items that are sorted together.
pub const WORDS_MAX: usize = 64;

/// Key and value words of a leaf, unordered, at the positions of their slots.
pub struct Words {
    items: [MaybeUninit<[u64; 2]>; WORDS_MAX],
    /// The initialized items.
    taken: u64,
}

impl Default for Words {
    #[inline(always)]
    fn default() -> Self {
        // SAFETY: items may be uninitialized. Repeating an initialized one would write zeros.
        Self { items: unsafe { MaybeUninit::uninit().assume_init() }, taken: 0 }
    }
}

impl Words {
    /// Copies the `taken` slots of a leaf; they become items from `at` on. `slots` has key word and value word of each
    /// slot, alternating.
    ///
    /// # Panics
    ///
    /// Panics if a taken slot, or the position for it, is out of range.
    #[inline(always)]
    pub fn copy<M: Medium>(&mut self, medium: &M, at: usize, slots: &[Word], taken: u64) {
        let len = (u64::BITS - taken.leading_zeros()) as usize;
        let to = &mut self.items[at..][..len];
        // SAFETY: an item is two words, which may be unwritten.
        let to = unsafe { std::slice::from_raw_parts_mut(to.as_mut_ptr().cast(), 2 * len) };
        read_words(medium, &slots[..2 * len], to);
        self.taken |= taken << at;
    }

    /// Adds an item. A reader whose validation will fail may see more items than fit; the position wraps around then.
    #[inline(always)]
    pub fn push(&mut self, key: u64, value: u64) {
        let at = self.taken.trailing_ones() as usize % WORDS_MAX;
        self.items[at].write([key, value]);
        self.taken |= 1 << at;
    }

    /// Adds an item at a position that is not taken.
    #[inline(always)]
    pub fn put(&mut self, at: usize, key: u64, value: u64) {
        self.items[at].write([key, value]);
        self.taken |= 1 << at;
    }

    /// Returns the number of items.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.taken.count_ones() as usize
    }

    /// Returns the positions of the items, a bit each.
    #[inline(always)]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns the words of the item at a position.
    ///
    /// # Panics
    ///
    /// Panics if there is none.
    #[inline(always)]
    pub fn at(&self, at: usize) -> [u64; 2] {
        assert!(at < WORDS_MAX && self.taken >> at & 1 == 1, "no item at {at}");
        // SAFETY: items that are taken are written.
        unsafe { self.items[at].assume_init() }
    }

    /// Returns the positions and words of the items.
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

    /// Replaces the value of an item.
    #[inline(always)]
    pub fn set_value(&mut self, at: usize, key: u64, value: u64) {
        debug_assert!(self.taken >> at & 1 == 1, "no item at {at}");
        self.items[at].write([key, value]);
    }

    /// Removes the item at `at`.
    #[inline(always)]
    pub fn remove(&mut self, at: usize) {
        self.taken &= !(1 << at);
    }

    /// Calls `put` with the rank of each item in the order of the key words, ascending or `DESCENDING`, and its position.
    /// The first attempt may assign wrong ranks: of several calls for a rank the last one counts. `level` must be the
    /// result of [`Level::detect`].
    #[inline(always)]
    pub fn place<const DESCENDING: bool>(&self, level: Level, put: impl FnMut(usize, usize)) {
        let mut put = put;
        #[cfg(target_arch = "x86_64")]
        if level == Level::Avx512 {
            // SAFETY: the features were detected, and items that are taken are written.
            let told =
                unsafe { avx512::place::<DESCENDING>(self.items.as_ptr().cast(), self.taken, &mut put) };
            if told {
                return;
            }
        }
        let _ = level;
        let mut sorted = [[0; 2]; WORDS_MAX];
        let sorted = &mut sorted[..self.count()];
        for (entry, (at, [key, _])) in sorted.iter_mut().zip(self.iter()) {
            *entry = [key, at as u64];
        }
        sort_words::<DESCENDING>(sorted);
        for (place, [_, at]) in sorted.iter().enumerate() {
            put(place, *at as usize);
        }
    }

    /// Returns the order of the items' keys. `level` must be the result of [`Level::detect`].
    ///
    /// # Errors
    ///
    /// Those of `key_of`, which returns the key of a word.
    #[inline(always)]
    pub fn order<'k, K: KeyCodec>(
        &self,
        level: Level,
        key_of: impl Fn(u64) -> Result<K::Ref<'k>>,
    ) -> Result<Order> {
        let (mut places, count) = ([0; WORDS_MAX], self.count());
        if K::INLINE {
            self.place::<false>(level, |place, at| places[place % WORDS_MAX] = at as u8);
            return Ok(Order { places, count });
        }
        let mut keys = [K::least(); WORDS_MAX];
        for ((at, [key, _]), (known, place)) in self.iter().zip(keys.iter_mut().zip(&mut places)) {
            (*known, *place) = (key_of(key)?, at as u8);
        }
        let order = order::<K>(level, &keys[..count]);
        Ok(Order { places: order.map(|at| places[usize::from(at) % WORDS_MAX]), count })
    }
}

/// The positions of a leaf's items, in the order of their keys.
#[derive(Clone, Debug)]
pub struct Order {
    places: [u8; WORDS_MAX],
    count: usize,
}

impl Order {
    /// Returns the order of the items at the positions `taken`, from that of the items at the positions `sorted`.
    #[inline]
    pub fn among(places: [u8; WORDS_MAX], sorted: u64, taken: u64) -> Self {
        let count = sorted.count_ones() as usize;
        if taken == sorted {
            return Self { places, count };
        }
        let (mut some, mut to) = ([0; WORDS_MAX], 0);
        for at in &places[..count] {
            some[to % WORDS_MAX] = *at;
            to += (taken >> (at % WORDS_MAX as u8) & 1) as usize;
        }
        Self { places: some, count: to }
    }

    /// Returns the positions, and more behind them.
    pub fn places(&self) -> &[u8; WORDS_MAX] {
        &self.places
    }

    /// Returns the number of items.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the positions of some items.
    #[inline(always)]
    pub fn range(&self, some: Range<usize>) -> impl DoubleEndedIterator<Item = usize> {
        self.places[some].iter().map(|at| usize::from(*at) % WORDS_MAX)
    }

    /// Returns the number of items at the begin of `some` that meet a condition, which no item behind them meets. `some`
    /// counts from the first item of all.
    ///
    /// # Errors
    ///
    /// Those of `meets`.
    #[inline(always)]
    pub fn count_while(&self, some: Range<usize>, meets: impl Fn(usize) -> Result<bool>) -> Result<usize> {
        let Range { start: mut low, end: mut high } = some;
        while low < high {
            let middle = low.midpoint(high);
            if meets(usize::from(self.places[middle]) % WORDS_MAX)? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }
}

/// The order of items that are sorted.
const IN_PLACE: [u8; WORDS_MAX] = {
    let (mut order, mut at) = ([0; WORDS_MAX], 0);
    while at < WORDS_MAX {
        order[at] = at as u8;
        at += 1;
    }
    order
};

/// Returns the order of keys: their common prefix is skipped, and the eight or sixteen bytes behind it distinguish most of
/// them.
/// Compiled once per kind of key, instead of once per design and medium.
fn order<K: KeyCodec>(level: Level, keys: &[K::Ref<'_>]) -> [u8; WORDS_MAX] {
    let common = |most: usize, key: &K::Ref<'_>| most.min(K::common(K::shorten(keys[0]), K::shorten(*key)));
    let common = keys.iter().fold(usize::MAX, common);
    let ranks_behind = |bytes: usize| {
        let mut ranks = [u64::MAX; WORDS_MAX];
        for (key, rank) in keys.iter().zip(&mut ranks) {
            *rank = K::rank_behind(*key, bytes);
        }
        ranks
    };
    let ranks = ranks_behind(common);
    #[cfg(target_arch = "x86_64")]
    if level == Level::Avx512 {
        let mut order = [0; WORDS_MAX];
        // SAFETY: the features were detected.
        let is_complete = unsafe {
            avx512::order(&[ranks], keys.len(), &mut order)
                || avx512::order(&[ranks, ranks_behind(common + 8)], keys.len(), &mut order)
        };
        if is_complete {
            return order;
        }
    }
    let _ = level;
    let mut order = IN_PLACE;
    let key = |at: &u8| (ranks[*at as usize], keys[*at as usize]);
    order[..keys.len()].sort_unstable_by(|a, b| key(a).cmp(&key(b)));
    order
}

/// Sorts at most 64 values by their keys. `level` must be the result of [`Level::detect`].
#[inline]
pub fn sort_by_key<'k, K: KeyCodec, T: Copy>(level: Level, values: &mut [T], key: impl Fn(&T) -> K::Ref<'k>) {
    if K::INLINE || values.len() > WORDS_MAX {
        return values.sort_unstable_by_key(key);
    }
    let mut keys = [K::least(); WORDS_MAX];
    keys.iter_mut().zip(&*values).for_each(|(known, value)| *known = key(value));
    let order = order::<K>(level, &keys[..values.len()]);
    let unsorted: SmallVec<[T; WORDS_MAX]> = SmallVec::from_slice(values);
    values.iter_mut().zip(order).for_each(|(value, at)| *value = unsorted[usize::from(at)]);
}

/// Sorts items by their key words: compiled once, instead of once per design and medium.
fn sort_words<const DESCENDING: bool>(items: &mut [[u64; 2]]) {
    items.sort_unstable_by(|a, b| if DESCENDING { b[0].cmp(&a[0]) } else { a[0].cmp(&b[0]) });
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use super::WORDS_MAX;

    /// Number of keys in one register.
    const WIDE: usize = 8;
    /// Number of their short forms in one register.
    const SHORT: usize = 32;

    /// Ranks items by 16 bits of their key words, from the highest bit in which they differ. Each item is compared
    /// with all others, 32 at a time, without data-dependent branches. Returns whether this distinguished all of them.
    ///
    /// # Safety
    ///
    /// Those of the 64 items that are taken must be readable.
    #[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2,popcnt")]
    pub unsafe fn place<const DESCENDING: bool>(
        items: *const [u64; 2],
        taken: u64,
        put: &mut impl FnMut(usize, usize),
    ) -> bool {
        let (len, mut sum) = (taken.count_ones() as usize, 0);
        let put = |at: usize, place: usize| {
            sum += place;
            put(place, at);
        };
        // SAFETY: the caller's.
        unsafe {
            if taken >> SHORT == 0 {
                compare::<1, DESCENDING>(items, taken, put);
            } else {
                compare::<2, DESCENDING>(items, taken, put);
            }
        }
        // Keys with equal short forms get the same rank, that of the first one.
        sum == len * len.saturating_sub(1) / 2
    }

    /// Sorts the indices of the first `count` ranks, each compared with all others; the rest are [`u64::MAX`]. A rank has
    /// one or more words. Returns whether all of them are distinct.
    #[target_feature(enable = "avx512f,popcnt")]
    pub fn order<const WORDS: usize>(
        ranks: &[[u64; WORDS_MAX]; WORDS],
        count: usize,
        order: &mut [u8; WORDS_MAX],
    ) -> bool {
        let mut sum = 0;
        for at in 0..count {
            let mut before = 0;
            for group in 0..count.div_ceil(WIDE) {
                let (mut less, mut equal) = (0, u8::MAX);
                for ranks in ranks {
                    let rank = _mm512_set1_epi64(ranks[at] as i64);
                    // SAFETY: a group is as long as a register.
                    let group =
                        unsafe { _mm512_loadu_epi64(ranks.as_chunks::<WIDE>().0[group].as_ptr().cast()) };
                    less |= equal & _mm512_cmplt_epu64_mask(group, rank);
                    equal &= _mm512_cmpeq_epu64_mask(group, rank);
                }
                before += less.count_ones() as usize;
            }
            order[before % WORDS_MAX] = at as u8;
            sum += before;
        }
        // Equal ones get the same position, that of the first one.
        sum == count * count.saturating_sub(1) / 2
    }

    /// Returns for each item the number of items with smaller short forms. All of them fit `REGISTERS` registers.
    ///
    /// # Safety
    ///
    /// Those of the items that are taken must be readable.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,bmi1,bmi2,popcnt")]
    unsafe fn compare<const REGISTERS: usize, const DESCENDING: bool>(
        items: *const [u64; 2],
        taken: u64,
        mut put: impl FnMut(usize, usize),
    ) {
        const GROUPS: usize = SHORT / WIDE;
        let even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
        let (mut least, mut most) = (_mm512_set1_epi64(-1), _mm512_setzero_si512());
        let mut keys = [[most; GROUPS]; REGISTERS];
        for (at, keys) in keys.as_flattened_mut().iter_mut().enumerate() {
            let taken = (taken >> (at * WIDE)) as u32 & 0xff;
            let pairs = _pdep_u32(taken, 0x5555) * 3;
            // SAFETY: only words of taken items are loaded.
            let (low, high) = unsafe {
                let items = items.add(at * WIDE).cast::<i64>();
                let low = _mm512_maskz_loadu_epi64(pairs as __mmask8, items);
                (low, _mm512_maskz_loadu_epi64((pairs >> WIDE) as __mmask8, items.add(WIDE)))
            };
            *keys = _mm512_permutex2var_epi64(low, even, high);
            least = _mm512_mask_min_epu64(least, taken as __mmask8, least, *keys);
            most = _mm512_max_epu64(most, *keys);
        }
        let least = _mm512_reduce_min_epu64(least);
        let differing = u64::BITS - _mm512_reduce_max_epu64(most).wrapping_sub(least).leading_zeros();
        let excess = _mm_cvtsi32_si128(differing.saturating_sub(u16::BITS) as i32);
        let least = _mm512_set1_epi64(least as i64);
        let mut forms = [most; REGISTERS];
        for (forms, keys) in forms.iter_mut().zip(keys) {
            let mut groups = [_mm_setzero_si128(); GROUPS];
            for (group, keys) in groups.iter_mut().zip(keys) {
                *group = _mm512_cvtepi64_epi16(_mm512_srl_epi64(_mm512_sub_epi64(keys, least), excess));
            }
            let [a, b, c, d] = groups;
            let low = _mm512_castsi256_si512(_mm256_set_m128i(b, a));
            *forms = _mm512_inserti64x4(low, _mm256_set_m128i(d, c), 1);
        }
        // SAFETY: any bits are numbers.
        let each: [[u16; SHORT]; REGISTERS] = unsafe { std::mem::transmute_copy(&forms) };

        let mut left = taken;
        while left != 0 {
            let at = left.trailing_zeros() as usize;
            left &= left - 1;
            let form = _mm512_set1_epi16(each.as_flattened()[at] as i16);
            let mut before = 0;
            for (register, &forms) in forms.iter().enumerate() {
                let taken = (taken >> (register * SHORT)) as u32;
                let some = if DESCENDING {
                    _mm512_mask_cmpgt_epu16_mask(taken, forms, form)
                } else {
                    _mm512_mask_cmplt_epu16_mask(taken, forms, form)
                };
                before |= u64::from(some) << (register * SHORT);
            }
            put(at, before.count_ones() as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::parts::codec::Record;
    use crate::index::parts::search::tests::levels;

    #[test]
    fn places_are_those_of_the_sorted_keys() {
        let mut noise = 3_u64;
        let mut draw = || {
            noise = noise.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            noise ^ noise >> 32
        };
        for round in 0..20_000_usize {
            let mut words = Words::default();
            let wanted = draw() | draw();
            for at in 0..round % (WORDS_MAX + 1) {
                // Far apart, equal, close together, or in two clusters with equal short forms.
                let key = match round % 4 {
                    0 => draw().rotate_left(at as u32),
                    1 => draw() >> 60,
                    2 => u64::MAX - (draw() >> 50),
                    _ => draw() & (1 << 63 | 0xff),
                };
                words.push(key, !key);
            }
            words.taken &= wanted;
            let mut sorted: Vec<_> = words.iter().map(|(_, item)| item).collect();
            sorted.sort_unstable();
            for level in levels() {
                let mut placed = [[0; 2]; WORDS_MAX];
                words.place::<false>(level, |place, at| placed[place] = words.at(at));
                assert_eq!(placed[..sorted.len()], sorted);
                words.place::<true>(level, |place, at| placed[place] = words.at(at));
                placed[..sorted.len()].reverse();
                assert_eq!(placed[..sorted.len()], sorted);
            }
        }
    }

    #[test]
    fn byte_strings_are_sorted_whatever_they_begin_with() {
        let mut noise = 7_u64;
        let mut draw = |below: u64| {
            noise = noise.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (noise ^ noise >> 32) % below
        };
        for round in 0..5_000 {
            // Prefixes of all lengths, trailing zeros, and few different bytes: many share long prefixes.
            let (common, spread) = (draw(20) as usize, [1, 2, 256][round % 3]);
            let keys: Vec<Vec<u8>> = (0..round % (WORDS_MAX + 1))
                .map(|_| {
                    let ends = (0..draw(30)).map(|_| draw(spread) as u8);
                    std::iter::repeat_n(b'/', common).chain(ends).collect()
                })
                .collect();
            let mut words = Words::default();
            (0..keys.len() as u64).for_each(|at| words.push(at, at + 100));
            for level in levels() {
                let order = words.order::<Record>(level, |at| Ok(&keys[at as usize][..])).unwrap();
                let sorted: Vec<_> = order.range(0..order.count()).map(|at| words.at(at)).collect();
                assert_eq!(sorted.len(), keys.len());
                assert!(sorted.iter().all(|[key, value]| *value == key + 100));
                assert!(sorted.is_sorted_by_key(|[key, _]| &keys[*key as usize]));
                let mut values: Vec<u64> = sorted.iter().map(|[_, value]| *value).collect();
                values.sort_unstable();
                assert!(values.into_iter().eq((100..).take(keys.len())));
            }
        }
    }

    #[test]
    fn a_full_leaf_takes_no_more() {
        let mut words = Words::default();
        (0..70).for_each(|key| words.push(key, key));
        assert_eq!(words.count(), WORDS_MAX);
        assert!(words.iter().all(|(_, [key, value])| key == value));
    }
}
