//! Searching words without branches that depend on them.

use bristlecone_pm::sync::{AtomicU64, Ordering::Relaxed};

/// Keys are compared in groups of so many: a line of them.
pub const GROUP: usize = 8;

/// What the processor can compare at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Lines of keys, and their fingerprints: AVX-512 F and BW (and BMI, which is older).
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// Half lines.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// What every processor of its kind can.
    Portable,
}

impl Level {
    /// Returns the best level of this machine.
    #[inline(always)]
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("bmi1")
            && std::arch::is_x86_feature_detected!("bmi2")
            && std::arch::is_x86_feature_detected!("popcnt")
        {
            return Self::Avx512;
        } else if std::arch::is_x86_feature_detected!("avx2") {
            return Self::Avx2;
        }
        Self::Portable
    }
}

/// Returns how many of the ascending `keys` are at most `key`. All keys are
/// compared, wherever the answer lies, so that no branch has to be guessed; a caller with fewer
/// fills up with `u64::MAX`, and takes no more than it has for the answer. Keys may change
/// meanwhile; then the answer is any number up to their count, and the caller's validation fails.
///
/// `level` is what [`Level::detect`] said.
#[inline(always)]
pub fn count_le(level: Level, keys: &[AtomicU64], key: u64) -> usize {
    debug_assert!(keys.len().is_multiple_of(GROUP));
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => {
            let (lines, _) = keys.as_chunks::<GROUP>();
            if let Ok(five) = lines.try_into() {
                return avx512::count_five(five, key);
            }
            lines.iter().map(|line| avx512::count(line, key)).sum()
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the feature was detected.
        Level::Avx2 => unsafe { count_avx2(keys, key) },
        Level::Portable => count_portable(keys, key),
    }
}

/// Returns how many of the ascending `keys` are less than `key`. Otherwise as [`count_le`].
#[inline(always)]
pub fn count_lt(level: Level, keys: &[AtomicU64], key: u64) -> usize {
    // Less than is at most the predecessor, but for zero, which nothing is less than.
    key.checked_sub(1).map_or(0, |bound| count_le(level, keys, bound))
}

/// Returns which of up to 64 `keys` are at most `key`, a bit for each. Otherwise as [`count_le`].
#[inline(always)]
pub fn mask_le(level: Level, keys: &[AtomicU64], key: u64) -> u64 {
    debug_assert!(keys.len() <= 64 && keys.len().is_multiple_of(GROUP));
    let (lines, _) = keys.as_chunks::<GROUP>();
    let masks = lines.iter().enumerate().map(|(at, line)| {
        let mask: u64 = match level {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => avx512::mask(line, key),
            _ => {
                let bit = |(at, cell): (usize, &AtomicU64)| u64::from(cell.load(Relaxed) <= key) << at;
                line.iter().enumerate().map(bit).sum()
            }
        };
        mask << (GROUP * at)
    });
    masks.fold(0, |all, mask| all | mask)
}

/// Wholly in assembly, so that it becomes part of its caller, and because other threads may store
/// to the keys: each lane is one of the values that stood there, as of a relaxed atomic load. Only
/// for processors with AVX-512. Registers above 15 leave no upper halves to be cleared.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{AtomicU64, GROUP};

    type Line = [AtomicU64; GROUP];

    /// Returns the number of keys of a line that are at most `bound`.
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

    /// Returns which keys of a line are at most `bound`.
    #[inline(always)]
    pub fn mask(line: &Line, bound: u64) -> u64 {
        let mask: u64;
        // SAFETY: the load reads the line only.
        unsafe {
            std::arch::asm!(
                "vpbroadcastq zmm16, {bound}",
                "vpcmpuq k1, zmm16, [{line}], 5", // not less than
                "kmovw {mask:e}, k1",
                bound = in(reg) bound,
                line = in(reg) line,
                mask = out(reg) mask,
                out("xmm16") _,
                out("k1") _,
                options(readonly, nostack, pure, preserves_flags),
            );
        }
        mask
    }

    /// Counts keys of five lines, which is a node of 512 bytes.
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

/// Counts four keys at a time; loads are assembly as above.
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

/// Compares one at a time, without a branch.
fn count_portable(keys: &[AtomicU64], bound: u64) -> usize {
    keys.iter().map(|key| usize::from(key.load(Relaxed) <= bound)).sum()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns the levels of this machine.
    pub fn levels() -> Vec<Level> {
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
                    assert_eq!(count_le(level, &keys, bound), naive, "{level:?}");
                    assert_eq!(count_lt(level, &keys, bound), less, "{level:?}");
                    let keys = &keys[..keys.len().min(64)];
                    let bit = |(at, value): (usize, &u64)| u64::from(*value <= bound) << at;
                    let mask: u64 = values[..keys.len()].iter().enumerate().map(bit).sum();
                    assert_eq!(mask_le(level, keys, bound), mask, "{level:?}");
                }
            }
        }
    }
}
