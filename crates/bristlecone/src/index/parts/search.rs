//! Branch-free search in arrays of words.

use bristlecone_pm::sync::{AtomicU64, Ordering::Relaxed};

/// Number of keys compared together: one line.
pub const GROUP: usize = 8;

/// The SIMD level of the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Compares lines of keys and of fingerprints: AVX-512 F and BW (and BMI, which is older).
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// Compares half lines.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Supported by every processor of the architecture.
    Portable,
}

impl Level {
    /// Returns the highest level of this machine.
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

/// Returns the number of ascending `keys` that are at most `key`. All keys are compared, wherever
/// the answer lies, so that no branch can be mispredicted. A caller with fewer keys fills up with
/// `u64::MAX`, and limits the answer to its count. If keys change concurrently, the answer is any
/// number up to their count, and the caller's validation fails.
///
/// `level` must be the result of [`Level::detect`].
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

/// Returns the number of ascending `keys` that are less than `key`. Otherwise like [`count_le`].
#[inline(always)]
pub fn count_lt(level: Level, keys: &[AtomicU64], key: u64) -> usize {
    // Less than means at most the predecessor, except for zero: no key is less than zero.
    key.checked_sub(1).map_or(0, |bound| count_le(level, keys, bound))
}

/// Returns which of up to 64 `keys` are at most `key`, one bit each. Otherwise like [`count_le`].
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

/// Written entirely in assembly, so that it is inlined into its caller, and because other threads
/// may store to the keys: each lane is a value that was stored there, as with a relaxed atomic
/// load. Only for processors with AVX-512. Registers above 15 avoid the need to clear upper halves.
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

    /// Counts the keys of five lines, which is a node of 512 bytes.
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
    // The comparison is signed: both sides are offset by half the range.
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

/// Compares one key at a time, without a branch.
fn count_portable(keys: &[AtomicU64], bound: u64) -> usize {
    keys.iter().map(|key| usize::from(key.load(Relaxed) <= bound)).sum()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns the supported levels of this machine.
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
