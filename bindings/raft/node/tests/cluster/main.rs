//! Three nodes as processes: kills, partitions, changes of members, and whether the history is linearizable.

mod clients;
mod faults;
mod history;
mod hosts;
mod nodes;

mod command_line;
mod linearizable;
