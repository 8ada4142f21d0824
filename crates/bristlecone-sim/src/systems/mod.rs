//! What Bristlecone itself is explored as.

mod pool;

pub use pool::{BagOp, Bags};
