//! Every crash of every design, and schedules of its threads. One program, so that it is linked once.

mod baselines;
mod cclbtree;
mod collections;
mod corpus;
mod effort;
mod external_design;
mod figures;
mod loads;
mod lodgetree;
mod log;
mod media;
mod mutations;
mod nbtree;
mod nodes;
mod planned;
mod pool;
mod trees;
mod turns;
mod volumes;
mod wotree;
