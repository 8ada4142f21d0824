//! Schedules of plans for a particular purpose.

use std::collections::BTreeMap;

use super::history::{Answer, Operation};
use super::plan::Plan;
use super::registers::Registers;
use crate::medium::sim::Sim;
use crate::model::memory::Memory;

/// Registers whose plan a function draws.
#[derive(Debug, Clone)]
pub struct Planned<R> {
    /// The structure that the threads share.
    pub registers: R,
    /// Draws the initial items, and the threads' operations.
    pub plan: fn(&mut dyn FnMut(usize) -> usize) -> Plan,
}

impl<R: Registers> Registers for Planned<R> {
    type Live = R::Live;

    fn memory(&self) -> Memory {
        self.registers.memory()
    }

    fn create(&self, sim: &Sim) -> Result<Self::Live, String> {
        self.registers.create(sim)
    }

    fn open(&self, sim: &Sim) -> Result<Self::Live, String> {
        self.registers.open(sim)
    }

    fn act(&self, live: &Self::Live, operation: &Operation) -> Result<Answer, String> {
        self.registers.act(live, operation)
    }

    fn contents(&self, live: &Self::Live) -> Result<BTreeMap<u64, u64>, String> {
        self.registers.contents(live)
    }

    fn plan(&self, draw: &mut dyn FnMut(usize) -> usize) -> Plan {
        (self.plan)(draw)
    }
}
