//! The run of a scenario from which all crashes are derived.

use crate::explore::system::{Scenario, System};
use crate::medium::sim::Sim;
use crate::model::trace::{Event, Mark};

/// The run of a scenario, and the state at each of its steps.
pub(crate) struct Run<'a, S: System> {
    pub(crate) system: &'a S,
    pub(crate) scenario: &'a Scenario<S::Op>,
    /// `states[i]` holds before operation `i`; `None` before creation.
    pub(crate) states: Vec<Option<S::State>>,
    pub(crate) ops: Vec<String>,
    pub(crate) trace: Vec<Event>,
}

impl<'a, S: System> Run<'a, S> {
    pub(crate) fn new(system: &'a S, scenario: &'a Scenario<S::Op>) -> Self {
        Self { system, scenario, states: Vec::new(), ops: Vec::new(), trace: Vec::new() }
    }

    /// Executes everything and records it.
    pub(crate) fn perform(&mut self, sim: &Sim) -> Result<(), String> {
        let Scenario { creation, setup, ops, .. } = self.scenario;
        if *creation {
            self.states.push(None);
            self.ops.push("creation".to_owned());
            sim.mark(Mark::Begin(0));
        }
        let mut live = self.system.create(sim)?;
        let mut state = self.system.fresh();
        if *creation {
            sim.mark(Mark::End(0));
        } else {
            for op in setup {
                self.step(&mut live, &mut state, op)?;
            }
            sim.forget_swap();
        }
        self.states.push(Some(state.clone()));
        let explored = setup.iter().filter(|_| *creation).chain(ops);
        for op in explored {
            let number = self.ops.len();
            self.ops.push(format!("{op:?}"));
            sim.mark(Mark::Begin(number));
            self.step(&mut live, &mut state, op)?;
            sim.mark(Mark::End(number));
            self.states.push(Some(state.clone()));
        }
        let seen = self.system.observe(&live)?;
        self.system.abandon(live);
        if seen != state {
            return Err(format!("before any crash: {seen:?} instead of {state:?}"));
        }
        Ok(())
    }

    /// Applies one operation to structure and model, and compares the results.
    pub(crate) fn step(&self, live: &mut S::Live, state: &mut S::State, op: &S::Op) -> Result<(), String> {
        let before = state.clone();
        let due = self.system.predict(state, op);
        let answer = self.system.apply(live, op).map_err(|what| format!("{op:?}: {what}"))?;
        if self.system.refusal(op).is_some_and(|refusal| refusal == answer) {
            *state = before;
            return Ok(());
        }
        if answer != due {
            return Err(format!("{op:?} answered {answer} instead of {due}"));
        }
        Ok(())
    }
}
