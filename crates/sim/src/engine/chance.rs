//! Randomness, all from one seed.

use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A stream of random numbers that a seed determines, on every machine.
#[derive(Clone, Debug)]
pub struct Chance(Pcg64);

impl Chance {
    /// The stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Pcg64::seed_from_u64(seed))
    }

    /// Evenly spread over `0..bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        // Multiply-shift; the bias is below bound / 2^64.
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Evenly spread over `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About normal, mean 0 and deviation 1, never beyond 3.5: the sum of four even ones
    /// (Irwin-Hall), which costs one draw.
    pub fn bell(&mut self) -> f64 {
        let word = self.0.next_u64();
        let sum: u64 = (0..4).map(|part| word >> (16 * part) & 0xFFFF).sum();
        // Four even ones over [0, 1) have mean 2 and variance 1/3.
        (sum as f64 / 65_536.0 - 2.0) * 3.0_f64.sqrt()
    }

    /// Exponential of mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_as_promised() {
        let mut chance = Chance::new(1);
        let count = 100_000;
        let mean = |draw: &mut dyn FnMut() -> f64| {
            (0..count).map(|_| draw()).sum::<f64>() / f64::from(count)
        };
        assert!((mean(&mut || chance.exponential()) - 1.0).abs() < 0.02);
        assert!(mean(&mut || chance.bell()).abs() < 0.02);
        assert!((mean(&mut || chance.bell().powi(2)) - 1.0).abs() < 0.02);
        assert!((mean(&mut || chance.unit()) - 0.5).abs() < 0.01);
        assert!((0..1000).all(|_| chance.below(3) < 3));
    }

    #[test]
    fn a_seed_determines_the_stream() {
        let draw = |seed| (0..8).map(|_| Chance::new(seed).below(1 << 40)).collect::<Vec<_>>();
        assert_eq!(draw(9), draw(9));
        assert_ne!(draw(9), draw(10));
    }
}
