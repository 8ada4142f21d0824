//! Prefetches of volatile memory. Lines of a pool are prefetched through
//! its medium, see [`PoolFile::prefetch`](crate::PoolFile::prefetch).

use crate::sync::wait::{Access, Use, charge};

/// Prefetches the line of an address that is about to be stored to, and takes it from other cores. Only a hint.
#[inline(always)]
pub fn prefetch_to_write<T>(pointer: *const T) {
    charge(Access { address: pointer.addr(), by: Use::Prefetch });
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing that the program can observe, at any address. Processors without this
    // instruction do nothing for it.
    unsafe {
        std::arch::asm!("prefetchw [{0}]", in(reg) pointer, options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{0}]", in(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = pointer;
}

/// Prefetches the line of an address into all cache levels. Only a hint: it cannot fail.
#[inline(always)]
pub fn prefetch<T>(pointer: *const T) {
    charge(Access { address: pointer.addr(), by: Use::Prefetch });
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that the program can observe, at any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(pointer.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = pointer;
}
