//! Totals of a run, and their report.

use std::collections::BTreeSet;
use std::time::Instant;

use bristlecone_cli::failure::Outcome;
use bristlecone_cli::output::{Output, counted, grouped};
use serde_json::json;

use super::order::Ran;

/// Totals so far.
pub struct Tally {
    started: Instant,
    rounds: u64,
    total: Ran,
    cells: BTreeSet<String>,
}

impl Tally {
    pub fn new() -> Self {
        Self { started: Instant::now(), rounds: 0, total: Ran::default(), cells: BTreeSet::new() }
    }

    /// Adds a round.
    pub fn add(&mut self, ran: Ran) {
        let total = &mut self.total;
        total.kills += ran.kills;
        total.kills_in_opening += ran.kills_in_opening;
        total.acknowledged += ran.acknowledged;
        total.refused += ran.refused;
        total.reopens += ran.reopens;
        total.keys_compared += ran.keys_compared;
        self.rounds += 1;
        self.cells.insert(ran.cell);
    }

    /// Reports progress.
    pub fn report(&self, verdict: &str, output: &mut Output) -> Outcome {
        let Self { started, rounds, total, cells } = self;
        let (seconds, cells) = (started.elapsed().as_secs(), cells.len() as u64);
        let value = json!({
            "seconds": seconds, "rounds": rounds, "kills": total.kills,
            "kills_in_opening": total.kills_in_opening, "acknowledged": total.acknowledged,
            "refused": total.refused, "reopens": total.reopens, "keys_compared": total.keys_compared,
            "cells": cells, "verdict": verdict,
        });
        let text = format!(
            "{} min: {} in {}, {} ({} amid opening), {} operations acknowledged, {} without room, {}, {} keys compared: {verdict}",
            seconds / 60,
            counted(*rounds, "round", "rounds"),
            counted(cells, "cell", "cells"),
            counted(total.kills, "kill", "kills"),
            grouped(total.kills_in_opening),
            grouped(total.acknowledged),
            grouped(total.refused),
            counted(total.reopens, "pool opened", "pools opened"),
            grouped(total.keys_compared),
        );
        output.either(&value, text)?;
        // The output of a run without end is read while it runs.
        output.finish()
    }
}
