//! The tests of the whole library over every design, in one program: the designs are generic, and
//! compiling them again for every file of tests took longer than running the tests.

mod common;

mod concurrency;
mod corruption;
mod cut_short;
mod deleted;
mod figures;
mod full_pool;
mod kill;
mod lock_free;
mod model;
mod one_line;
mod read_only;
mod recovery;
mod salvage;
