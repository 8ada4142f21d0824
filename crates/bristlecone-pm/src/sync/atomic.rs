//! Atomics in DRAM, in one place: a model checker replaces them by its own, and with the feature
//! `turns` each access is a step at which a simulator may switch threads.
//!
//! Words of the pool are not such atomics: they pass through a [`Medium`](crate::Medium).

pub use std::sync::atomic::Ordering;

#[cfg(not(feature = "turns"))]
pub use std::sync::atomic::fence;
#[cfg(not(feature = "turns"))]
pub use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize};

#[cfg(feature = "turns")]
pub use self::turns::{AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence};

/// Whether each access is a step of a simulator.
pub const HAS_TURNS: bool = cfg!(feature = "turns");

#[cfg(feature = "turns")]
mod turns {
    use std::sync::atomic::Ordering;

    use crate::sync::wait::{Access, Use, charge, step};

    /// Orders memory like the fence of the standard library, and is a step of a cost model.
    #[inline(always)]
    pub fn fence(order: Ordering) {
        // A weaker fence is no instruction on x86.
        if order == Ordering::SeqCst {
            charge(Access::fence());
        }
        std::sync::atomic::fence(order);
    }

    /// Declares atomics with the methods of the standard library's atomics, each a step.
    macro_rules! atomics {
        ($($name:ident $(<$of:ident>)? of $value:ty: $($method:ident)*;)*) => { $(
            /// Like the atomic of the standard library, and a step of a simulated thread.
            #[derive(Debug, Default)]
            #[repr(transparent)]
            pub struct $name$(<$of>)?(std::sync::atomic::$name$(<$of>)?);

            impl$(<$of>)? $name$(<$of>)? {
                /// Creates an atomic.
                #[inline(always)]
                pub const fn new(value: $value) -> Self {
                    Self(std::sync::atomic::$name::new(value))
                }
                /// Loads the value.
                #[inline(always)]
                pub fn load(&self, order: Ordering) -> $value {
                    step(Access::of(self, Use::Load));
                    self.0.load(order)
                }
                /// Stores a value.
                #[inline(always)]
                pub fn store(&self, value: $value, order: Ordering) {
                    step(Access::of(self, Use::Store));
                    self.0.store(value, order);
                }
                /// Replaces the value if it equals `current`.
                ///
                /// # Errors
                ///
                /// The present value, if it differs.
                #[inline(always)]
                pub fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    step(Access::of(self, Use::Locked));
                    self.0.compare_exchange(current, new, success, failure)
                }
                /// Returns the value.
                #[inline(always)]
                pub fn into_inner(self) -> $value {
                    self.0.into_inner()
                }
                /// Returns a mutable reference to the value.
                #[inline(always)]
                pub fn get_mut(&mut self) -> &mut $value {
                    self.0.get_mut()
                }
                $(
                    /// Changes the value and returns the previous one.
                    #[inline(always)]
                    pub fn $method(&self, value: $value, order: Ordering) -> $value {
                        step(Access::of(self, Use::Locked));
                        self.0.$method(value, order)
                    }
                )*
            }
        )* };
    }

    atomics! {
        AtomicBool of bool: swap fetch_or fetch_and;
        AtomicU8 of u8: swap fetch_or fetch_and fetch_max;
        AtomicU32 of u32: swap fetch_add fetch_sub fetch_or fetch_and fetch_max;
        AtomicU64 of u64: swap fetch_add fetch_sub fetch_or fetch_and fetch_max;
        AtomicI64 of i64: swap fetch_add fetch_sub;
        AtomicUsize of usize: swap fetch_add fetch_sub fetch_max;
        AtomicPtr<T> of *mut T: swap;
    }
}
