//! Generates key sets with the shapes of SOSD's, for use without its files.

use bristlecone_random::Generator;

/// The shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Generated {
    /// Consecutive, with occasional gaps (as `books` and `facebook` are locally)
    Dense,
    /// Clusters of neighbours, far from each other (as `osm`)
    Clustered,
    /// exp(N(0, 2)), scaled to 2^50 (SOSD's `logn`)
    Lognormal,
    /// Microseconds of events in bursts, by days (as `wiki`)
    Timestamps,
}

impl Generated {
    /// Generates `count` distinct keys, in order. The same seed gives the same keys.
    pub fn draw(self, count: u64, seed: u64) -> Vec<u64> {
        let mut random = Generator::new(seed ^ 0x05d0_05d0 ^ ((self as u64) << 32));
        match self {
            Self::Dense => gaps(count, 1 << 20, || {
                let word = random.word();
                // One key in 64 is followed by a gap of up to 4096.
                if word.is_multiple_of(64) { 2 + (word >> 32) % 4096 } else { 1 }
            }),
            Self::Clustered => {
                let (mut left, mut in_cluster) = (0, 0);
                gaps(count, 1 << 40, || {
                    if left == 0 {
                        left = 16 + random.word() % 4096;
                        in_cluster = 1 + random.word() % 256;
                        return (1 << 24) + random.word() % (1 << 36);
                    }
                    left -= 1;
                    1 + random.word() % in_cluster
                })
            }
            Self::Timestamps => {
                // A day has 86.4 G microseconds, and most of its events come in bursts.
                let (mut burst, mut now) = (0u64, 0);
                gaps(count, 1_000_000_000_000_000, || {
                    now += 1;
                    if burst == 0 {
                        burst = 1 + random.word() % 32;
                        let quiet = if now % 100_000 < 30_000 { 4_000_000 } else { 400_000 };
                        return 1 + random.word() % quiet;
                    }
                    burst -= 1;
                    1 + random.word() % 2_000
                })
            }
            Self::Lognormal => lognormal(count, &mut random),
        }
    }
}

/// Returns keys from `first` on, with these gaps.
fn gaps(count: u64, first: u64, mut gap: impl FnMut() -> u64) -> Vec<u64> {
    let mut key = first;
    (0..count)
        .map(|_| {
            key = key.wrapping_add(gap());
            key
        })
        .collect()
}

fn lognormal(count: u64, random: &mut Generator) -> Vec<u64> {
    let mut unit = move || ((random.word() >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
    let mut keys = Vec::with_capacity(count as usize);
    // Duplicates are drawn again; with 2^50 values they are rare.
    while keys.len() < count as usize {
        while keys.len() < count as usize {
            let (radius, angle) = ((-2.0 * unit().ln()).sqrt(), std::f64::consts::TAU * unit());
            let draw = (2.0 * radius * angle.cos()).exp() * (1u64 << 50) as f64;
            keys.push(draw as u64);
        }
        keys.sort_unstable();
        keys.dedup();
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn generated_keys_are_as_many_as_asked_for_in_order_and_the_same_for_a_seed() {
        for shape in Generated::value_variants() {
            let keys = shape.draw(20_000, 3);
            assert!(keys.len() == 20_000 && keys.is_sorted_by(|a, b| a < b), "{shape:?}");
            assert_eq!(keys, shape.draw(20_000, 3));
            assert_ne!(keys, shape.draw(20_000, 4), "{shape:?}");
        }
    }

    #[test]
    fn generated_shapes_are_what_they_are_named_after() {
        let next_to_each_other = |keys: &[u64]| {
            keys.windows(2).filter(|pair| pair[1] - pair[0] == 1).count() as f64 / keys.len() as f64
        };
        let middle = |mut gaps: Vec<u64>| {
            gaps.sort_unstable();
            (gaps[gaps.len() / 2], gaps[gaps.len() - 1])
        };
        let gaps = |keys: &[u64]| keys.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>();
        let dense = Generated::Dense.draw(50_000, 1);
        assert!((0.97..0.995).contains(&next_to_each_other(&dense)), "{}", next_to_each_other(&dense));
        let (usual, largest) = middle(gaps(&Generated::Clustered.draw(50_000, 1)));
        assert!(usual < 300 && largest > 1 << 30, "{usual}, {largest}");
        let lognormal = Generated::Lognormal.draw(50_000, 1);
        let (median, mean) =
            (lognormal[25_000] as f64, lognormal.iter().map(|key| *key as f64).sum::<f64>() / 5e4);
        // The mean of exp(N(0, 2)) is e^2, its median 1.
        assert!((5.0..10.0).contains(&(mean / median)), "{mean} / {median}");
        let (usual, largest) = middle(gaps(&Generated::Timestamps.draw(50_000, 1)));
        assert!(usual < 2_000 && largest > 1_000_000, "{usual}, {largest}");
    }
}
