//! Counting the keys of a node that are not greater than a given one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many of the ascending `keys` are at most `key` (less than it, if `strictly`). Keys may
/// change meanwhile; then the answer is any number up to their count, and the caller's
/// validation fails.
#[inline(always)]
pub fn count_le(keys: &[AtomicU64], key: u64, strictly: bool) -> usize {
    // Less than is at most the predecessor, but for zero, which nothing is less than.
    let bound = if !strictly {
        key
    } else if key == 0 {
        return 0;
    } else {
        key - 1
    };
    count(keys, bound)
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn count(keys: &[AtomicU64], bound: u64) -> usize {
    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the feature was detected.
        unsafe { count_avx512(keys, bound) }
    } else if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the feature was detected.
        unsafe { count_avx2(keys, bound) }
    } else {
        count_portable(keys, bound)
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn count(keys: &[AtomicU64], bound: u64) -> usize {
    count_portable(keys, bound)
}

/// Eight keys at a time. The loads are assembly, because other threads may store to the keys:
/// each lane is one of the values that stood there, as of a relaxed atomic load.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn count_avx512(keys: &[AtomicU64], bound: u64) -> usize {
    use std::arch::asm;
    use std::arch::x86_64::{__m512i, _mm512_mask_cmple_epu64_mask, _mm512_set1_epi64};
    let bounds = _mm512_set1_epi64(bound as i64);
    let mut sum = 0;
    for group in keys.chunks(8) {
        let lanes = ((1_u32 << group.len()) - 1) as u8;
        let values: __m512i;
        // SAFETY: a masked load reads the group's own bytes only.
        unsafe {
            asm!(
                "kmovw k1, {lanes:e}",
                "vmovdqu64 {values}{{k1}}{{z}}, [{start}]",
                lanes = in(reg) u32::from(lanes),
                values = lateout(zmm_reg) values,
                start = in(reg) group.as_ptr(),
                out("k1") _,
                options(readonly, nostack, preserves_flags),
            );
        }
        sum += _mm512_mask_cmple_epu64_mask(lanes, values, bounds).count_ones() as usize;
    }
    sum
}

/// Four keys at a time; see `count_avx512`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn count_avx2(keys: &[AtomicU64], bound: u64) -> usize {
    use std::arch::asm;
    use std::arch::x86_64::{
        __m256i, _mm256_castsi256_pd, _mm256_cmpgt_epi64, _mm256_movemask_pd, _mm256_set1_epi64x,
        _mm256_xor_si256,
    };
    // Comparison is signed: both sides are moved by half the range.
    let half = _mm256_set1_epi64x(i64::MIN);
    let bounds = _mm256_xor_si256(_mm256_set1_epi64x(bound as i64), half);
    let groups = keys.chunks_exact(4);
    let mut sum = count_portable(groups.remainder(), bound);
    for group in groups {
        let values: __m256i;
        // SAFETY: the load reads the group's own 32 bytes.
        unsafe {
            asm!(
                "vmovdqu {values}, [{start}]",
                values = lateout(ymm_reg) values,
                start = in(reg) group.as_ptr(),
                options(readonly, nostack, preserves_flags),
            );
        }
        let greater = _mm256_cmpgt_epi64(_mm256_xor_si256(values, half), bounds);
        sum += 4 - (_mm256_movemask_pd(_mm256_castsi256_pd(greater))).count_ones() as usize;
    }
    sum
}

/// One at a time, without a branch.
fn count_portable(keys: &[AtomicU64], bound: u64) -> usize {
    keys.iter().map(|key| usize::from(key.load(Relaxed) <= bound)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_agrees_with_the_naive_twin() {
        for len in 0..90_u64 {
            let step = u64::MAX / 97;
            let values: Vec<u64> = (0..len).map(|i| i * step + i % 3).collect();
            let keys: Vec<AtomicU64> = values.iter().map(|&value| AtomicU64::new(value)).collect();
            let near = values.iter().flat_map(|&value| [value.wrapping_sub(1), value, value + 1]);
            for bound in near.chain([0, 1, u64::MAX - 1, u64::MAX, 1 << 63]) {
                let naive = values.iter().filter(|&&value| value <= bound).count();
                assert_eq!(count_le(&keys, bound, false), naive);
                assert_eq!(count_portable(&keys, bound), naive);
                #[cfg(target_arch = "x86_64")]
                if std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: the feature was detected.
                    assert_eq!(unsafe { count_avx2(&keys, bound) }, naive);
                }
                let less = values.iter().filter(|&&value| value < bound).count();
                assert_eq!(count_le(&keys, bound, true), less);
            }
        }
    }
}
