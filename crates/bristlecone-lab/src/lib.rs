//! What the laboratory explores and measures: the library's trees, and those that they are compared with, as subjects of the
//! simulator; and what shows that each flush, fence and order of them is needed.

mod explained;
pub mod proofs;
pub mod targets;
mod turn;

pub use explained::EXPLAINED;
pub use turn::Turn;
