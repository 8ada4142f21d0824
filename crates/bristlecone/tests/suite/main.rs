//! The tests of the whole library over every design, in one program: the designs are generic, and
//! compiling them again for every file of tests took longer than running the tests.

mod common;

mod address_space;
mod backups;
mod bounds;
mod changes;
mod closing;
mod closures;
mod concurrency;
mod corruption;
mod counted;
mod cut_short;
mod damaged_logs;
mod deleted;
mod derived;
mod directory;
mod disturbed;
mod dynamic;
mod encoded;
mod examples;
mod figures;
mod full_pool;
mod gate;
mod hot_key;
mod kill;
mod kinds;
mod lock_free;
mod metrics;
mod model;
mod nbtree_full;
mod no_room;
mod one_line;
mod opening;
mod quick;
mod read_only;
mod recovery;
mod refused;
mod salvage;
mod signals;
mod threads;
mod told;
mod toy;
mod traced;
mod words;
mod wotree_full;
