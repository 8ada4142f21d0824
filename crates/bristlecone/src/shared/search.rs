//! Searching and sorting words without branches that depend on them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Keys are compared in groups of so many: a line of them.
pub const GROUP: usize = 8;

/// What the processor can compare at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Lines of keys, and their fingerprints: AVX-512 F and BW.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// Half lines.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// What every processor of its kind can.
    Portable,
}

impl Level {
    /// The best level of this machine.
    #[inline(always)]
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx512bw") && std::arch::is_x86_feature_detected!("popcnt") {
            return Self::Avx512;
        } else if std::arch::is_x86_feature_detected!("avx2") {
            return Self::Avx2;
        }
        Self::Portable
    }
}

/// How many of the ascending `keys` are at most `key` (less than it, if `strictly`). All keys are
/// compared, wherever the answer lies, so that no branch has to be guessed; a caller with fewer
/// fills up with `u64::MAX`, and takes no more than it has for the answer. Keys may change
/// meanwhile; then the answer is any number up to their count, and the caller's validation fails.
///
/// `level` is what [`Level::detect`] said.
#[inline(always)]
pub fn count_le(level: Level, keys: &[AtomicU64], key: u64, strictly: bool) -> usize {
    debug_assert!(keys.len().is_multiple_of(GROUP));
    // Less than is at most the predecessor, but for zero, which nothing is less than.
    if strictly && key == 0 {
        return 0;
    }
    let bound = key.wrapping_sub(u64::from(strictly));
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => {
            let (lines, _) = keys.as_chunks::<GROUP>();
            if let Ok(five) = lines.try_into() {
                return avx512::count_five(five, bound);
            }
            lines.iter().map(|line| avx512::count(line, bound)).sum()
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the feature was detected.
        Level::Avx2 => unsafe { count_avx2(keys, bound) },
        Level::Portable => count_portable(keys, bound),
    }
}

/// Wholly in assembly, so that it becomes part of its caller, and because other threads may store
/// to the keys: each lane is one of the values that stood there, as of a relaxed atomic load. Only
/// for processors with AVX-512. Registers above 15 leave no upper halves to be cleared.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{AtomicU64, GROUP};

    type Line = [AtomicU64; GROUP];

    /// Keys of a line that are at most `bound`.
    #[inline(always)]
    pub fn count(line: &Line, bound: u64) -> usize {
        let count: usize;
        // SAFETY: the load reads the line only.
        unsafe {
            std::arch::asm!(
                "vpbroadcastq zmm16, {bound}",
                "vpcmpuq k1, zmm16, [{line}], 5", // not less than
                "kmovw {count:e}, k1",
                "popcnt {count:e}, {count:e}",
                bound = in(reg) bound,
                line = in(reg) line,
                count = out(reg) count,
                out("xmm16") _,
                out("k1") _,
                options(readonly, nostack, pure),
            );
        }
        count
    }

    /// Keys of five lines, which is a node of 512 bytes.
    #[inline(always)]
    pub fn count_five(lines: &[Line; 5], bound: u64) -> usize {
        let (count, last): (usize, usize);
        // SAFETY: the loads read the lines only.
        unsafe {
            std::arch::asm!(
                "vpbroadcastq zmm16, {bound}",
                "vpcmpuq k1, zmm16, [{a}], 5",
                "vpcmpuq k2, zmm16, [{a} + 64], 5",
                "vpcmpuq k3, zmm16, [{a} + 128], 5",
                "vpcmpuq k4, zmm16, [{a} + 192], 5",
                "vpcmpuq k5, zmm16, [{a} + 256], 5",
                "kunpckbw k1, k1, k2",
                "kunpckbw k3, k3, k4",
                "kunpckwd k1, k1, k3",
                "kmovd {count:e}, k1",
                "kmovw {last:e}, k5",
                "popcnt {count:e}, {count:e}",
                "popcnt {last:e}, {last:e}",
                bound = in(reg) bound,
                a = in(reg) lines,
                count = out(reg) count,
                last = out(reg) last,
                out("xmm16") _,
                out("k1") _, out("k2") _, out("k3") _, out("k4") _, out("k5") _,
                options(readonly, nostack, pure),
            );
        }
        count + last
    }
}

/// Four keys at a time; loads are assembly as above.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
fn count_avx2(keys: &[AtomicU64], bound: u64) -> usize {
    use std::arch::x86_64::{
        __m256i, _mm256_castsi256_pd, _mm256_cmpgt_epi64, _mm256_movemask_pd, _mm256_set1_epi64x,
        _mm256_xor_si256,
    };
    // Comparison is signed: both sides are moved by half the range.
    let half = _mm256_set1_epi64x(i64::MIN);
    let bounds = _mm256_xor_si256(_mm256_set1_epi64x(bound as i64), half);
    let mut greater = 0;
    for group in keys.chunks_exact(4) {
        let values: __m256i;
        // SAFETY: the load reads the group's own 32 bytes.
        unsafe {
            std::arch::asm!(
                "vmovdqu {values}, [{start}]",
                values = lateout(ymm_reg) values,
                start = in(reg) group.as_ptr(),
                options(readonly, nostack, preserves_flags, pure),
            );
        }
        let lanes = _mm256_cmpgt_epi64(_mm256_xor_si256(values, half), bounds);
        greater += _mm256_movemask_pd(_mm256_castsi256_pd(lanes)).count_ones() as usize;
    }
    keys.len() - greater
}

/// One at a time, without a branch.
fn count_portable(keys: &[AtomicU64], bound: u64) -> usize {
    keys.iter().map(|key| usize::from(key.load(Relaxed) <= bound)).sum()
}

/// Most keys that are put in order at once.
pub const RANKS: usize = 64;

/// For each of the first `len` keys, how many of them come before it: `ranks[i]` is where the key
/// at `i` belongs in ascending order. The first `len` ranks are a permutation, also where keys are
/// equal; what stands behind them does not matter. `level` is what [`Level::detect`] said.
///
/// # Panics
///
/// If `len` is more than [`RANKS`].
pub fn rank_keys(level: Level, keys: &[u64; RANKS], len: usize, ranks: &mut [u32; RANKS]) {
    assert!(len <= RANKS);
    #[cfg(target_arch = "x86_64")]
    if level == Level::Avx512 {
        // SAFETY: the feature was detected.
        unsafe { rank_avx512(keys, len, ranks) };
        let places = ranks[..len].iter().fold(0_u64, |places, rank| places | 1 << rank);
        // Keys that look alike have the same rank.
        if places == u64::MAX.checked_shr(64 - len as u32).unwrap_or(0) {
            return;
        }
    }
    let _ = level;
    let mut order: [u8; RANKS] = std::array::from_fn(|at| at as u8);
    order[..len].sort_unstable_by_key(|&at| keys[at as usize]);
    for (rank, &at) in order[..len].iter().enumerate() {
        ranks[at as usize] = rank as u32;
    }
}

/// Ranks keys by 32 bits of theirs, from the highest in which they differ: each key is compared
/// with all others, sixteen at a time, and no branch depends on what they are.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn rank_avx512(keys: &[u64; RANKS], len: usize, ranks: &mut [u32; RANKS]) {
    let (mut least, mut most) = (u64::MAX, 0);
    for &key in &keys[..len] {
        (least, most) = (least.min(key), most.max(key));
    }
    let excess = 32_u32.saturating_sub(most.wrapping_sub(least).leading_zeros());
    let mut short = [0_u32; RANKS];
    for (short, key) in short.iter_mut().zip(keys).take(len) {
        *short = (key.wrapping_sub(least) >> excess) as u32;
    }
    match len.div_ceil(16) {
        0 => {}
        1 => rank_short::<1>(&short, len, ranks),
        2 => rank_short::<2>(&short, len, ranks),
        3 => rank_short::<3>(&short, len, ranks),
        _ => rank_short::<4>(&short, len, ranks),
    }
}

/// The same for keys of 32 bits in so many groups of sixteen.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn rank_short<const GROUPS: usize>(keys: &[u32; RANKS], len: usize, ranks: &mut [u32; RANKS]) {
    use std::arch::x86_64::{
        _mm512_cmplt_epu32_mask, _mm512_loadu_epi32, _mm512_mask_add_epi32, _mm512_set1_epi32,
        _mm512_setzero_si512, _mm512_storeu_epi32,
    };
    let one = _mm512_set1_epi32(1);
    // SAFETY: there are four groups of sixteen, and GROUPS is at most four.
    let groups: [_; GROUPS] =
        std::array::from_fn(|at| unsafe { _mm512_loadu_epi32(keys.as_ptr().add(at * 16).cast()) });
    let mut sums = [_mm512_setzero_si512(); GROUPS];
    for &key in &keys[..len] {
        let key = _mm512_set1_epi32(key as i32);
        for (sum, group) in sums.iter_mut().zip(groups) {
            *sum = _mm512_mask_add_epi32(*sum, _mm512_cmplt_epu32_mask(key, group), *sum, one);
        }
    }
    for (at, sum) in sums.into_iter().enumerate() {
        // SAFETY: as above.
        unsafe { _mm512_storeu_epi32(ranks.as_mut_ptr().add(at * 16).cast(), sum) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_sorted_keys() {
        let mut noise = 3_u64;
        for round in 0..8000_usize {
            let len = round % (RANKS + 1);
            let keys: [u64; RANKS] = std::array::from_fn(|at| {
                noise = noise.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                // Far apart, equal, close together, or in two clusters that look alike.
                match round % 4 {
                    0 => noise.rotate_left(at as u32),
                    1 => noise >> 60,
                    2 => u64::MAX - (noise >> 50),
                    _ => noise & (1 << 63 | 0xff),
                }
            });
            let mut sorted = keys[..len].to_vec();
            sorted.sort_unstable();
            for level in levels() {
                let mut ranks = [0; RANKS];
                rank_keys(level, &keys, len, &mut ranks);
                assert!(ranks[..len].iter().zip(keys).all(|(&rank, key)| sorted[rank as usize] == key));
                ranks[..len].sort_unstable();
                assert!(ranks[..len].iter().enumerate().all(|(at, &rank)| at == rank as usize));
            }
        }
    }

    /// The levels of this machine.
    fn levels() -> Vec<Level> {
        let best = Level::detect();
        #[cfg(target_arch = "x86_64")]
        match best {
            Level::Avx512 => return vec![best, Level::Avx2, Level::Portable],
            Level::Avx2 => return vec![best, Level::Portable],
            Level::Portable => {}
        }
        vec![best]
    }

    #[test]
    fn every_arm_agrees_with_the_naive_twin() {
        for len in (0..90_u64).step_by(GROUP) {
            let step = u64::MAX / 97;
            let values: Vec<u64> = (0..len).map(|i| i * step + i % 3).collect();
            let keys: Vec<AtomicU64> = values.iter().map(|&value| AtomicU64::new(value)).collect();
            let near = values.iter().flat_map(|&value| [value.wrapping_sub(1), value, value + 1]);
            for bound in near.chain([0, 1, u64::MAX - 1, u64::MAX, 1 << 63]) {
                let naive = values.iter().filter(|&&value| value <= bound).count();
                let less = values.iter().filter(|&&value| value < bound).count();
                for level in levels() {
                    assert_eq!(count_le(level, &keys, bound, false), naive, "{level:?}");
                    assert_eq!(count_le(level, &keys, bound, true), less, "{level:?}");
                }
            }
        }
    }
}
