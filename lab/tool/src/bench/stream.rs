//! The operations of a phase, generated before its clock starts: the measured loop only reads consecutive
//! words.

use std::sync::Arc;

use bristlecone_random::{GOLDEN_RATIO, Generator, mix};

use super::input::trace::Trace;
use super::workload::{Distribution, Mix, Op, Phase};
use super::zipf::Zipf;

/// Operations of one thread in a phase.
#[derive(Debug, Default)]
pub struct Stream {
    /// The key of each operation.
    pub ids: Vec<u64>,
    /// The kind of each; empty if the phase has only one kind.
    pub ops: Vec<Op>,
    /// Length of each scan; empty if the phase determines it.
    pub scans: Vec<u32>,
}

/// The keys of a run, and their order.
#[derive(Clone, Debug)]
pub struct Keys {
    pub seed: u64,
    pub order: Order,
    /// Indices below this are existing keys.
    pub count: u64,
}

/// Distribution of the keys' identities in their domain, which order like the keys.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Uniform, in random order.
    Scattered,
    /// In the order of their index.
    Sequential,
    /// The `loaded` ones uniformly. Of added keys, the fraction `ops` lies in the first part of the domain, of
    /// size `keys`; uniform within both parts.
    Hotspot { loaded: u64, keys: f64, ops: f64 },
    /// Listed identities, in an order determined by the seed.
    Listed(Arc<[u64]>),
}

impl Keys {
    /// Returns the identity of the key with this index: a bijection, so that identities are distinct. Keys
    /// compressed into a hotspot are distinct like random words of that many bits.
    #[inline]
    pub fn id(&self, index: u64) -> u64 {
        let id = mix(index.wrapping_add(self.seed.wrapping_mul(GOLDEN_RATIO)));
        match &self.order {
            Order::Sequential => index,
            Order::Listed(keys) => keys[Permutation::new(keys.len() as u64, self.seed).at(index) as usize],
            &Order::Hotspot { loaded, keys, ops } if index >= loaded => {
                let (end, scale) =
                    ((keys * DOMAIN) as u64, |to: u64| (u128::from(id) * u128::from(to)) >> 64);
                let is_hot = (mix(id) as f64) < ops * DOMAIN;
                if is_hot { scale(end) as u64 } else { end + scale(u64::MAX - end) as u64 }
            }
            _ => id,
        }
    }
}

/// Number of words.
const DOMAIN: f64 = (1_u128 << 64) as f64;

/// Random words and fractions, from a seed.
struct Random(Generator);

impl Random {
    fn word(&mut self) -> u64 {
        self.0.word()
    }

    /// Returns a number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Generates the streams of a phase, one for each thread, and the number of keys it adds. The same phase, keys,
/// seed and threads give the same streams.
pub fn draw(phase: &Phase, keys: &Keys, threads: usize, salt: u64) -> (Vec<Stream>, u64) {
    if let Some(trace) = &phase.trace {
        return (deal(trace, threads), 0);
    }
    let per_thread = |thread: u64| {
        let (of, all) = (threads as u64, phase.operations);
        all * thread / of..all * (thread + 1) / of
    };
    let zipf = match phase.distribution {
        Distribution::Zipf(theta) | Distribution::Latest(theta) => Some(Zipf::new(keys.count.max(1), theta)),
        _ => None,
    };
    let streams: Vec<Stream> = std::thread::scope(|scope| {
        let drawing: Vec<_> = (0..threads as u64)
            .map(|thread| {
                let range = per_thread(thread);
                let random = Random(Generator::new(mix(keys.seed
                    ^ salt.wrapping_mul(GOLDEN_RATIO)
                    ^ mix(thread + 1))));
                let mut builder =
                    StreamBuilder { phase, keys, zipf: zipf.as_ref(), random, start: range.start, added: 0 };
                scope.spawn(move || builder.draw(range))
            })
            .collect();
        drawing.into_iter().map(|drawing| drawing.join().unwrap_or_default()).collect()
    });
    let added = if phase.mix.single().is_some_and(Op::adds) {
        phase.operations
    } else {
        // Threads draw their new keys from separate ranges, which then have gaps; keys behind the first gap do
        // not count as existing.
        streams.first().map_or(0, |stream| stream.ops.iter().filter(|op| op.adds()).count() as u64)
    };
    (streams, added)
}

/// Distributes the operations of a trace to threads in contiguous parts.
fn deal(trace: &Trace, threads: usize) -> Vec<Stream> {
    let all = trace.ids.len();
    let part = |thread: usize| all * thread / threads..all * (thread + 1) / threads;
    let stream = |range: std::ops::Range<usize>| Stream {
        ids: trace.ids[range.clone()].to_vec(),
        ops: trace.ops[range.clone()].to_vec(),
        scans: trace.lengths[range].to_vec(),
    };
    (0..threads).map(|thread| stream(part(thread))).collect()
}

struct StreamBuilder<'a> {
    phase: &'a Phase,
    keys: &'a Keys,
    zipf: Option<&'a Zipf>,
    random: Random,
    /// Start of this thread's new keys, counted from the first new one.
    start: u64,
    added: u64,
}

impl StreamBuilder<'_> {
    fn draw(&mut self, range: std::ops::Range<u64>) -> Stream {
        let mix: &Mix = &self.phase.mix;
        let single = mix.single();
        let count = (range.end - range.start) as usize;
        let mut stream = Stream { ids: Vec::with_capacity(count), ..Stream::default() };
        stream.ops.reserve_exact(if single.is_some() { 0 } else { count });
        let order = Permutation::new(self.keys.count.max(1), self.keys.seed);
        for at in range {
            let op = single.unwrap_or_else(|| mix.pick(self.random.word()));
            let index = if op.adds() {
                self.added += 1;
                self.keys.count + self.start + self.added - 1
            } else if self.phase.each_once {
                order.at(at % self.keys.count.max(1))
            } else {
                self.pick(at, &order)
            };
            stream.ids.push(self.keys.id(index));
            if single.is_none() {
                stream.ops.push(op);
            }
        }
        stream
    }

    /// Draws the index of an existing key.
    fn pick(&mut self, at: u64, order: &Permutation) -> u64 {
        let count = self.keys.count.max(1);
        match self.phase.distribution {
            Distribution::Uniform => self.random.below(count),
            Distribution::Sequential => at % count,
            Distribution::Zipf(_) => order.at(self.zipf_rank()),
            Distribution::SelfSimilar(skew) => {
                let power = skew.ln() / (1.0 - skew).ln();
                order.at(((count as f64 * self.random.unit().powf(power)) as u64).min(count - 1))
            }
            Distribution::Hotspot { keys, ops } => {
                let hot = ((count as f64 * keys) as u64).clamp(1, count);
                let is_hot = hot == count || self.random.unit() < ops;
                let rank = if is_hot { self.random.below(hot) } else { hot + self.random.below(count - hot) };
                order.at(rank)
            }
            Distribution::Latest(_) => {
                let age = self.zipf_rank();
                // First this thread's own new keys, the last one first, then those before the phase.
                match self.added.checked_sub(age + 1) {
                    Some(own) => self.keys.count + self.start + own,
                    None => count - 1 - (age - self.added),
                }
            }
        }
    }

    fn zipf_rank(&mut self) -> u64 {
        let unit = self.random.unit();
        self.zipf.map_or(0, |zipf| zipf.rank(unit))
    }
}

/// A bijection of the numbers below `count`: a Feistel network on the next even number of bits, iterated until
/// the result is below.
struct Permutation {
    count: u64,
    half_bits: u32,
    seed: u64,
}

impl Permutation {
    fn new(count: u64, seed: u64) -> Self {
        let bits = 64 - (count - 1).leading_zeros();
        Self { count, half_bits: bits.div_ceil(2).max(1), seed }
    }

    fn at(&self, index: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let mut word = index;
        loop {
            let (mut left, mut right) = (word >> self.half_bits, word & mask);
            for round in 0..4 {
                let next = left ^ mix(right ^ self.seed.wrapping_add(round << 56)) & mask;
                (left, right) = (right, next);
            }
            word = left << self.half_bits | right;
            if word < self.count {
                return word;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::ScanLength;
    use super::*;
    use std::collections::HashSet;

    fn phase(mix: &str, distribution: Distribution, operations: u64) -> Phase {
        Phase {
            name: String::new(),
            mix: mix.parse().unwrap(),
            distribution,
            operations,
            scan: ScanLength::of_length(1),
            each_once: false,
            all_found: true,
            trace: None,
        }
    }

    #[test]
    fn stream_permutation_is_a_bijection() {
        for count in [1, 2, 3, 64, 1000, 4097] {
            let permutation = Permutation::new(count, 7);
            let images: HashSet<u64> = (0..count).map(|index| permutation.at(index)).collect();
            assert_eq!(images.len() as u64, count);
            assert!(images.iter().all(|image| *image < count));
        }
    }

    #[test]
    fn stream_draw_of_reads_takes_keys_that_are_there() {
        let keys = Keys { seed: 3, order: Order::Scattered, count: 1000 };
        let there: HashSet<u64> = (0..1000).map(|index| keys.id(index)).collect();
        for text in ["uniform", "sequential", "zipf:0.9", "selfsimilar:0.2", "hotspot:0.2:0.8", "latest:0.9"]
        {
            let (streams, added) = draw(&phase("get=1", text.parse().unwrap(), 10_000), &keys, 3, 1);
            assert_eq!(added, 0);
            assert_eq!(streams.iter().map(|stream| stream.ids.len()).sum::<usize>(), 10_000);
            assert!(streams.iter().flat_map(|stream| &stream.ids).all(|id| there.contains(id)), "{text}");
        }
    }

    #[test]
    fn stream_draw_from_a_list_takes_each_key_once_in_an_order_of_the_seed() {
        let listed: Arc<[u64]> = (0..3000).map(|key| key * key).collect();
        let order = |seed| {
            let keys = Keys { seed, order: Order::Listed(listed.clone()), count: 0 };
            let load = Phase { each_once: true, ..phase("insert=1", Distribution::Uniform, 3000) };
            draw(&load, &keys, 2, 0).0.into_iter().flat_map(|stream| stream.ids).collect::<Vec<u64>>()
        };
        let mut drawn = order(1);
        assert!(drawn != order(2) && !drawn.is_sorted());
        drawn.sort_unstable();
        assert_eq!(drawn, *listed);
    }

    #[test]
    fn stream_of_a_trace_is_dealt_in_parts() {
        let trace = Trace { ids: vec![1, 2, 3, 4, 5], ops: vec![Op::Get; 5], lengths: vec![0, 0, 7, 0, 0] };
        let streams = deal(&trace, 2);
        assert_eq!((&streams[0].ids[..], &streams[1].ids[..]), (&[1, 2][..], &[3, 4, 5][..]));
        assert_eq!(streams[1].scans, [7, 0, 0]);
    }

    #[test]
    fn stream_draw_of_inserts_takes_new_keys() {
        let keys = Keys { seed: 3, order: Order::Scattered, count: 1000 };
        let (streams, added) = draw(&phase("insert=1", Distribution::Uniform, 5000), &keys, 4, 1);
        assert_eq!(added, 5000);
        let drawn: HashSet<u64> = streams.iter().flat_map(|stream| stream.ids.iter().copied()).collect();
        assert_eq!(drawn, (1000..6000).map(|index| keys.id(index)).collect());
    }

    #[test]
    fn stream_draw_of_inserts_into_a_hotspot_lies_there() {
        let order = Order::Hotspot { loaded: 1000, keys: 0.2, ops: 0.8 };
        let keys = Keys { seed: 3, order, count: 1000 };
        let drawn = |distribution: &str| {
            let phase = phase("insert=1", distribution.parse().unwrap(), 100_000);
            draw(&phase, &keys, 2, 1).0.into_iter().flat_map(|stream| stream.ids).collect::<HashSet<u64>>()
        };
        let ids = drawn("hotspot:0.2:0.8");
        assert_eq!(ids.len(), 100_000);
        let below = |share: f64| ids.iter().filter(|id| (**id as f64) < share * DOMAIN).count();
        for (share, want) in [(0.05, 20_000), (0.1, 40_000), (0.2, 80_000), (0.6, 90_000)] {
            assert!(below(share).abs_diff(want) < 1000, "{share}: {}", below(share));
        }
        // Loaded keys keep their place.
        let scattered = Keys { order: Order::Scattered, ..keys.clone() };
        assert!((0..1000).all(|index| keys.id(index) == scattered.id(index)));
    }

    #[test]
    fn stream_draw_of_latest_reads_keys_of_the_own_thread() {
        let keys = Keys { seed: 3, order: Order::Scattered, count: 10 };
        let (streams, added) = draw(&phase("get=1,insert=1", Distribution::Latest(0.9), 3000), &keys, 3, 1);
        let mut there: HashSet<u64> = (0..10).map(|index| keys.id(index)).collect();
        for stream in &streams {
            let mut there = there.clone();
            for (id, op) in stream.ids.iter().zip(&stream.ops) {
                assert!(if *op == Op::Insert { there.insert(*id) } else { there.contains(id) });
            }
        }
        there.extend((0..added).map(|index| keys.id(10 + index)));
        let inserted = streams[0].ids.iter().zip(&streams[0].ops).filter(|(_, op)| op.adds());
        assert!(inserted.clone().count() > 0 && inserted.clone().all(|(id, _)| there.contains(id)));
    }

    #[test]
    fn stream_draw_of_skewed_distributions_keeps_their_shares() {
        let keys = Keys { seed: 3, order: Order::Sequential, count: 1000 };
        for text in ["hotspot:0.2:0.8", "selfsimilar:0.2"] {
            let (streams, _) = draw(&phase("get=1", text.parse().unwrap(), 100_000), &keys, 1, 1);
            let mut counts = vec![0u32; 1000];
            streams[0].ids.iter().for_each(|id| counts[*id as usize] += 1);
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let hottest: u32 = counts[..200].iter().sum();
            assert!((78_000..83_000).contains(&hottest), "{text}: {hottest}");
        }
    }
}
