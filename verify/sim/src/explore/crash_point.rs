//! The images of one crash point: each is verified, or known to be equivalent to a verified one.

use bristlecone_random::mix;

use crate::explore::explorer::{Explorer, Worker};
use crate::explore::points::Allowed;
use crate::explore::system::System;
use crate::explore::verify::{Case, Image, keep};
use crate::explore::visited::Standing;
use crate::model::cache::Cache;
use crate::model::image::{Kept, Mattered, Possible, Sample};
use crate::model::lines::{WordSet, difference};
use crate::model::memory::Line;
use crate::model::trace::Event;
use crate::report::describe::describe;

/// For crash points with more images than this, only visited images are counted.
const COUNTED_MAX: u64 = 1_000_000;

/// The hashes of the images of one crash point, as sums over lines.
struct ImageHashes {
    /// Hash of the lines with one choice.
    durable: u64,
    /// Hashes of each other line, for each choice.
    of_lines: Vec<Vec<u64>>,
}

impl ImageHashes {
    fn new(base: &[Line], durable: &Image, possible: &Possible) -> Self {
        let hash = |line: u32, contents: &Line| difference(base, line, contents);
        let of_durable = durable.iter().map(|(line, contents)| hash(*line, contents));
        let of_line = |kept: &Kept| kept.contents.iter().map(|contents| hash(kept.line, contents)).collect();
        Self {
            durable: of_durable.fold(0, u64::wrapping_add),
            of_lines: possible.lines.iter().map(of_line).collect(),
        }
    }

    fn of(&self, choice: &[usize]) -> u64 {
        let of_lines = self.of_lines.iter().zip(choice).map(|(of_line, at)| of_line[*at]);
        of_lines.fold(self.durable, u64::wrapping_add)
    }
}

impl<S: System> Explorer<'_, S> {
    /// Visits the images of one crash point: before event `at` of a trace.
    pub(crate) fn crash(
        &self,
        worker: &mut Worker,
        cache: &Cache,
        (trace, at): (&[Event], usize),
        allowed: Allowed,
        depth: u32,
    ) -> Result<(), String> {
        let possible = cache.possible();
        let base = cache.base();
        let mut image = cache.durable().clone();
        possible.lines.iter().for_each(|kept| _ = image.remove(&kept.line));
        let hashes = ImageHashes::new(base, &image, &possible);
        worker.report.covered = worker.report.covered.saturating_add(possible.images);
        let (exhaustive, sample) = self.sample(depth, possible.lines.len());
        let affordable = |runs| runs < exhaustive && !self.images.is_full();
        let seed = mix(self.budget.seed) ^ at as u64;
        // Recovery did not read the contents of such words from the image with which it began.
        let overwritten = match depth {
            1 => WordSet::none(worker.scratch.memory()),
            _ => cache.overwritten(worker.scratch.memory()),
        };
        let mut visited = 0;
        let truncated = possible.visit(affordable, sample, seed, |choice| {
            if self.is_over() {
                return Ok(Mattered::nothing(worker.scratch.memory()));
            }
            visited += 1;
            let hash = hashes.of(choice);
            match self.images.enter(hash, allowed, depth, worker.number) {
                Standing::New => {}
                Standing::UnderWay => return Ok(Mattered::Unknown),
                Standing::Elsewhere => {
                    worker.reads.add_everything();
                    return Ok(Mattered::Unknown);
                }
                Standing::Done(reads) => {
                    worker.reads.add_others(&reads, &overwritten);
                    return Ok(Mattered::These(reads));
                }
            }
            image = keep(&possible, choice, std::mem::take(&mut image));
            let case = Case { base, image: &image, allowed, depth };
            let fresh = WordSet::none(worker.scratch.memory());
            let outer = std::mem::replace(&mut worker.reads, fresh);
            if let Err(what) = self.verify(worker, &case) {
                let (choice, what) = match worker.crashes[..] {
                    [] => self.shrink(worker, &case, &possible, choice.to_vec(), what),
                    _ => (choice.to_vec(), what),
                };
                worker.crashes.insert(0, describe(&self.run.ops, &possible, &choice, (trace, at), depth));
                return Err(what);
            }
            outer.add_others(&worker.reads, &overwritten);
            let reads = std::mem::replace(&mut worker.reads, outer);
            Ok(Mattered::These(self.images.finish(hash, allowed, reads)))
        });
        let all_visited = truncated == Ok(false) && !self.is_over();
        let all = all_visited && possible.images <= COUNTED_MAX;
        let images = [&mut worker.report.images, &mut worker.report.nested_images];
        *images[usize::from(depth > 1)] += if all { possible.images } else { visited };
        let truncated = truncated?;
        worker.report.decided(depth as usize, !truncated);
        worker.report.points_beyond_memory += u64::from(truncated && self.images.is_full());
        Ok(())
    }

    /// Returns the maximum number of runs that exhaust a crash point, and how a point that needs
    /// more is sampled.
    fn sample(&self, depth: u32, dirty_lines: usize) -> (u64, Sample) {
        let budget = &self.budget;
        let (exhaustive, sampled) =
            if depth == 1 { (budget.exhaustive, budget.sampled) } else { budget.nested };
        // Images that cannot be remembered are explored repeatedly: then only few.
        let sample = match self.images.is_full() {
            false => {
                let each = sampled as usize / dirty_lines.max(1);
                let extremes = if depth == 1 { budget.extremes } else { each.clamp(8, 64) };
                Sample { extremes, lines: budget.lines, drawn: sampled }
            }
            true if depth == 1 => {
                Sample { extremes: budget.extremes.min(1), lines: budget.lines, drawn: sampled.min(16) }
            }
            true => Sample { extremes: 0, lines: 0, drawn: 1 },
        };
        (exhaustive, sample)
    }

    /// Searches for a smaller choice that fails, too; returns it with its failure.
    fn shrink(
        &self,
        worker: &mut Worker,
        case: &Case<'_>,
        possible: &Possible,
        mut choice: Vec<usize>,
        mut what: String,
    ) -> (Vec<usize>, String) {
        possible.shrink(&mut choice, |choice| {
            let image = keep(possible, choice, case.image.clone());
            let again = self.verify(worker, &Case { image: &image, ..*case });
            // A failure of a later crash is a different one.
            let same = std::mem::take(&mut worker.crashes).is_empty();
            match again {
                Err(again) if same => what = again,
                _ => return false,
            }
            true
        });
        (choice, what)
    }
}
