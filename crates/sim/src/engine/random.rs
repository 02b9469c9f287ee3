//! Random numbers from one seed.

use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A stream of random numbers that depends on the seed alone, on every machine.
#[derive(Clone, Debug)]
pub struct Random(Pcg64);

impl Random {
    /// The stream of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Pcg64::seed_from_u64(seed))
    }

    /// Uniform over `0..bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        // Multiply-shift; the bias is below bound / 2^64.
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform over `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About normal, with mean 0, deviation 1, and at most 3.5 from 0: the sum of four uniform numbers
    /// (Irwin-Hall) from one draw.
    pub fn bell(&mut self) -> f64 {
        let word = self.0.next_u64();
        let sum: u64 = (0..4).map(|part| word >> (16 * part) & 0xFFFF).sum();
        // The sum of four uniform numbers over [0, 1) has mean 2 and variance 1/3.
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
        let mut random = Random::new(1);
        let count = 100_000;
        let mean = |draw: &mut dyn FnMut() -> f64| {
            (0..count).map(|_| draw()).sum::<f64>() / f64::from(count)
        };
        assert!((mean(&mut || random.exponential()) - 1.0).abs() < 0.02);
        assert!(mean(&mut || random.bell()).abs() < 0.02);
        assert!((mean(&mut || random.bell().powi(2)) - 1.0).abs() < 0.02);
        assert!((mean(&mut || random.unit()) - 0.5).abs() < 0.01);
        assert!((0..1000).all(|_| random.below(3) < 3));
    }

    #[test]
    fn a_seed_determines_the_stream() {
        let draw = |seed| (0..8).map(|_| Random::new(seed).below(1 << 40)).collect::<Vec<_>>();
        assert_eq!(draw(9), draw(9));
        assert_ne!(draw(9), draw(10));
    }
}
