//! Ranks by Zipf's law.

/// Ranks by Zipf's law, after Gray et al., *Quickly Generating Billion-Record Synthetic
/// Databases* (SIGMOD 1994), as in YCSB.
#[derive(Debug)]
pub struct Zipf {
    count: u64,
    theta: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    /// Prepares to draw from `count` ranks.
    pub fn new(count: u64, theta: f64) -> Self {
        let zeta = zeta(count, theta);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - zeta_of_two(theta) / zeta);
        Self { count, theta, zeta, alpha: 1.0 / (1.0 - theta), eta }
    }

    /// Returns the rank selected by a number in [0, 1).
    pub fn rank(&self, unit: f64) -> u64 {
        let product = unit * self.zeta;
        if product < 1.0 || self.count == 1 {
            return 0;
        }
        if product < zeta_of_two(self.theta) || self.count == 2 {
            return 1;
        }
        let rank = self.count as f64 * (self.eta * unit - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.count - 1)
    }
}

fn zeta_of_two(theta: f64) -> f64 {
    1.0 + 0.5f64.powf(theta)
}

/// Returns the sum of `k^-theta` for `k` of 1 to `count`. Beyond the first terms it uses the integral
/// and its first corrections (Euler and Maclaurin), which is exact to all relevant digits.
fn zeta(count: u64, theta: f64) -> f64 {
    const EXACT: u64 = 1000;
    let term = |k: u64| (k as f64).powf(-theta);
    let exact: f64 = (1..=count.min(EXACT)).map(term).sum();
    if count <= EXACT {
        return exact;
    }
    let (from, to) = (EXACT as f64, count as f64);
    let integral = (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta);
    let ends = (term(count) - term(EXACT)) / 2.0;
    let slopes = theta / 12.0 * (from.powf(-theta - 1.0) - to.powf(-theta - 1.0));
    exact + integral + ends + slopes
}

#[cfg(test)]
mod tests {
    use super::*;
    use bristlecone_random::Generator;

    #[test]
    fn stream_zeta_equals_the_sum() {
        for theta in [0.01, 0.5, 0.99, 0.999] {
            let sum: f64 = (1..=1_000_000u64).map(|k| (k as f64).powf(-theta)).sum();
            assert!((zeta(1_000_000, theta) / sum - 1.0).abs() < 1e-10, "{theta}");
        }
    }

    #[test]
    fn stream_zipf_gives_each_rank_its_share() {
        let zipf = Zipf::new(10_000, 0.99);
        let mut random = Generator::new(1);
        let mut counts = [0u64; 3];
        let draws = 1_000_000;
        for _ in 0..draws {
            let rank = zipf.rank((random.word() >> 11) as f64 / (1u64 << 53) as f64);
            assert!(rank < 10_000);
            if let Some(count) = counts.get_mut(rank as usize) {
                *count += 1;
            }
        }
        // The first two ranks are exact in this method; the others are approximate.
        for (rank, count) in counts.iter().enumerate() {
            let share = ((rank + 1) as f64).powf(-0.99) / zipf.zeta;
            let off = *count as f64 / draws as f64 / share - 1.0;
            assert!(off.abs() < if rank < 2 { 0.02 } else { 0.3 }, "rank {rank}: {off}");
        }
    }
}
