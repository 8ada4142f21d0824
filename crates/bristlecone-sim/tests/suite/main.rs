//! The tests of the simulator, and the designs under it, in one program: the designs are generic over
//! the medium, and are compiled once for all tests.

mod baselines;
mod cabinet;
mod cclbtree;
mod collections;
mod corpus;
mod device;
mod figures;
mod lodgetree;
mod log;
mod loops;
mod media;
mod mutations;
mod nbtree;
mod planned;
mod pool;
mod schedules;
mod trees;
mod volumes;
mod wotree;
