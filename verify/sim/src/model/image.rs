//! The images that a crash may leave: a choice of contents for every dirty line.

use std::collections::HashSet;
use std::sync::Arc;

use bristlecone_random::Generator;

use crate::model::lines::{WordSet, line_hash};
use crate::model::memory::{LINE_WORDS, Line, Memory};
use crate::model::mode::Mode;

/// Maximum number of contents of one line that are considered before choices are sampled.
const LINE_CONTENTS_MAX: usize = 4096;
/// Number of lines drawn to be tried alone, if there are too many to try each, as in records of many lines.
const LINES_DRAWN: usize = 16;

/// Sampling of the images of a crash point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// Number of contents of each line that are tried alone, besides nothing and everything; 0: not even
    /// these.
    pub(crate) extremes: usize,
    /// If there are more lines than this, only some are tried alone.
    pub(crate) lines: usize,
    /// Number of random choices.
    pub(crate) drawn: u64,
}

/// A store that may be lost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unpromised {
    pub(crate) word: usize,
    pub(crate) value: u64,
    /// Its index among all stores.
    pub(crate) number: u64,
    /// The thread that stored.
    pub(crate) thread: u32,
    /// Stores of a lower group of the same thread to the same line persist first.
    pub(crate) group: u64,
}

/// The possible contents of one line.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) line: u32,
    /// The first one is the durable contents.
    pub(crate) contents: Vec<Line>,
    /// Index in `contents` of the one with all stores.
    pub(crate) all: usize,
    truncated: bool,
}

impl Kept {
    pub(crate) fn new(line: u32, durable: Line, stores: &[Unpromised], mode: Mode) -> Self {
        let mut kept = Self { line, contents: vec![durable], all: 0, truncated: false };
        let mut seen = HashSet::from([durable]);
        let mut now = durable;
        match mode {
            // If caches survive, this is the length of the file.
            Mode::Prefix | Mode::Eadr => {
                for store in stores {
                    now[store.word] = store.value;
                    kept.add(&mut seen, now);
                }
            }
            Mode::Subset if stores.iter().any(|store| store.thread != stores[0].thread) => {
                now = kept.add_of_threads(&mut seen, now, stores);
            }
            Mode::Subset => {
                for group in stores.chunk_by(|a, b| a.group == b.group) {
                    now = kept.add_choices(&mut seen, now, group);
                }
            }
        }
        kept.all = kept.contents.iter().position(|c| *c == now).expect("it was added last");
        kept
    }

    /// Returns contents that equal the chosen ones in the words `same`, and differ in the words `apart`: one
    /// for each choice of the latter.
    fn others(&self, chosen: usize, same: u8, apart: u8) -> impl Iterator<Item = usize> {
        let words = |contents: &Line, of: u8| -> Line {
            std::array::from_fn(|word| if of >> word & 1 == 1 { contents[word] } else { 0 })
        };
        let now = &self.contents[chosen];
        let mut seen = HashSet::from([words(now, apart)]);
        let all = self.contents.iter().enumerate();
        all.filter(move |(_, contents)| {
            words(contents, same) == words(now, same) && seen.insert(words(contents, apart))
        })
        .map(|(at, _)| at)
    }

    fn add(&mut self, seen: &mut HashSet<Line>, contents: Line) {
        if seen.insert(contents) {
            self.contents.push(contents);
        }
    }

    /// Adds all possible results of stores of several threads, each thread's in its own order, and returns
    /// the result of all of them.
    fn add_of_threads(&mut self, seen: &mut HashSet<Line>, from: Line, stores: &[Unpromised]) -> Line {
        // Number of stores to each word that have arrived; an overwritten store counts as arrived.
        type Arrived = [usize; LINE_WORDS];
        let to = |word: usize| stores.iter().filter(move |store| store.word == word);
        let has = |arrived: &Arrived, store: &Unpromised| {
            to(store.word).take(arrived[store.word]).any(|other| other.number == store.number)
        };
        let contents = |arrived: &Arrived| -> Line {
            std::array::from_fn(|word| match arrived[word] {
                0 => from[word],
                count => to(word).nth(count - 1).map_or(from[word], |store| store.value),
            })
        };
        let (mut reached, mut open) = (HashSet::from([[0; LINE_WORDS]]), vec![[0; LINE_WORDS]]);
        while let Some(arrived) = open.pop() {
            self.add(seen, contents(&arrived));
            for word in 0..LINE_WORDS {
                let Some(next) = to(word).nth(arrived[word]) else { continue };
                let first = |other: &&Unpromised| other.thread == next.thread && other.group < next.group;
                if stores.iter().filter(first).all(|other| has(&arrived, other)) {
                    let mut more = arrived;
                    more[word] += 1;
                    if reached.len() < LINE_CONTENTS_MAX && reached.insert(more) {
                        open.push(more);
                    }
                }
            }
        }
        self.truncated |= reached.len() == LINE_CONTENTS_MAX;
        let all = contents(&std::array::from_fn(|word| to(word).count()));
        self.add(seen, all);
        all
    }

    /// Adds every choice of one value per word among those of a group, and returns the last.
    fn add_choices(&mut self, seen: &mut HashSet<Line>, from: Line, group: &[Unpromised]) -> Line {
        let mut values = from.map(|word| vec![word]);
        for store in group {
            values[store.word].push(store.value);
        }
        let newest = values.each_ref().map(|of_word| of_word[of_word.len() - 1]);
        for of_word in &mut values {
            of_word.sort_unstable();
            of_word.dedup();
        }
        let total = values.iter().map(Vec::len).fold(1, usize::saturating_mul);
        if total <= LINE_CONTENTS_MAX {
            for number in 0..total {
                let mut rest = number;
                let contents = values.each_ref().map(|of_word| {
                    let value = of_word[rest % of_word.len()];
                    rest /= of_word.len();
                    value
                });
                self.add(seen, contents);
            }
        } else {
            self.truncated = true;
            let mut generator = Generator::new(line_hash(self.line, &from));
            for _ in 0..LINE_CONTENTS_MAX {
                self.add(seen, values.each_ref().map(|of_word| of_word[generator.index(of_word.len())]));
            }
        }
        self.add(seen, newest);
        newest
    }
}

/// Every image of one crash point.
#[derive(Debug, Clone)]
pub(crate) struct Possible {
    pub(crate) lines: Vec<Kept>,
    /// Their number, as far as it can be counted.
    pub(crate) images: u64,
    pub(crate) truncated: bool,
}

impl Possible {
    pub(crate) fn new(mut lines: Vec<Kept>) -> Self {
        let truncated = lines.iter().any(|kept| kept.truncated);
        lines.retain(|kept| kept.contents.len() > 1);
        let counts = lines.iter().map(|kept| kept.contents.len() as u64);
        let images = counts.fold(1, u64::saturating_mul);
        Self { lines, images, truncated }
    }

    /// Calls `visit` with choices (an index into the contents of each line) until they cover all images.
    /// `visit` returns the words that mattered, and only contents that differ in those are branched on. When
    /// `affordable`, called with the number of visits so far, returns `false`, the rest is sampled: the
    /// extremes (nothing, everything, each line alone, each line alone missing) and random choices; then the
    /// result is `true`. Stops when `visit` fails.
    pub(crate) fn visit(
        &self,
        affordable: impl Fn(u64) -> bool,
        sample: Sample,
        seed: u64,
        mut visit: impl FnMut(&[usize]) -> Result<Mattered, String>,
    ) -> Result<bool, String> {
        // A choice, and the words of each line in which it differs from earlier choices. It covers all
        // choices that agree with it in these.
        let mut open = vec![(vec![0; self.lines.len()], vec![0_u8; self.lines.len()])];
        let mut runs = 0;
        while let Some((choice, mut fixed)) = open.pop() {
            if !affordable(runs) {
                self.sample(sample, seed, &mut visit)?;
                return Ok(true);
            }
            runs += 1;
            let mattered = visit(&choice)?;
            for (at, kept) in self.lines.iter().enumerate() {
                let before = fixed[at];
                // From here on the line is fixed in all later branches.
                fixed[at] |= mattered.of_line(kept.line);
                if fixed[at] != before {
                    for contents in kept.others(choice[at], before, fixed[at]) {
                        let mut branch = choice.clone();
                        branch[at] = contents;
                        open.push((branch, fixed.clone()));
                    }
                }
            }
        }
        Ok(self.truncated)
    }

    /// Makes as many lines as possible keep nothing while it still `fails`.
    pub(crate) fn shrink(&self, choice: &mut [usize], mut fails: impl FnMut(&[usize]) -> bool) {
        for at in 0..choice.len() {
            let chosen = std::mem::take(&mut choice[at]);
            if chosen != 0 && !fails(choice) {
                choice[at] = chosen;
            }
        }
    }

    fn sample(
        &self,
        sample: Sample,
        seed: u64,
        visit: &mut impl FnMut(&[usize]) -> Result<Mattered, String>,
    ) -> Result<(), String> {
        let nothing = vec![0; self.lines.len()];
        let everything: Vec<_> = self.lines.iter().map(|kept| kept.all).collect();
        visit(&nothing)?;
        visit(&everything)?;
        let mut generator = Generator::new(seed);
        let count = self.lines.len();
        let alone: Vec<_> = match count > sample.lines {
            true => (0..LINES_DRAWN.min(sample.lines)).map(|_| generator.index(count)).collect(),
            false => (0..count).collect(),
        };
        for at in alone {
            let kept = &self.lines[at];
            for extreme in [&nothing, &everything] {
                let tried = |contents: &usize| {
                    *contents < sample.extremes || sample.extremes > 0 && [0, kept.all].contains(contents)
                };
                for contents in (0..kept.contents.len()).filter(tried) {
                    let mut choice = extreme.clone();
                    choice[at] = contents;
                    visit(&choice)?;
                }
            }
        }
        for _ in 0..sample.drawn {
            let choice: Vec<_> = self.lines.iter().map(|kept| generator.index(kept.contents.len())).collect();
            visit(&choice)?;
        }
        Ok(())
    }
}

/// The words on which an exploration depended.
pub(crate) enum Mattered {
    /// Unknown words.
    Unknown,
    /// Exactly these words.
    These(Arc<WordSet>),
}

impl Mattered {
    /// Returns that no word mattered.
    pub(crate) fn nothing(memory: &Memory) -> Self {
        Self::These(Arc::new(WordSet::none(memory)))
    }

    fn of_line(&self, line: u32) -> u8 {
        match self {
            Self::Unknown => u8::MAX,
            Self::These(words) => words.of_line(line),
        }
    }
}
