//! Shared state in DRAM: atomics, locks, epochs, and thread numbers. All waiting passes through [`wait`], so
//! that a simulator can interleave several threads.

mod atomic;
mod barrier;
pub mod epoch;
pub(crate) mod pause;
pub(crate) mod raced;
pub(crate) mod spin_lock;
mod thread;
pub mod wait;

pub use self::atomic::*;
pub use self::barrier::AsymmetricFence;
pub(crate) use self::barrier::GlobalFence;
pub use self::thread::{assume_thread_index, own_thread_index, thread_index};
