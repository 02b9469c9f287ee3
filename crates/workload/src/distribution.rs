//! Times that vary.

use serde::Deserialize;

/// How the times of one phase are distributed, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(tag = "distribution", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Distribution {
    /// Always the same.
    Constant {
        /// The time.
        us: f64,
    },
    /// Every time between two is as likely.
    Uniform {
        /// The shortest.
        min_us: f64,
        /// The longest.
        max_us: f64,
    },
    /// The bell curve, cut off at 0.
    Normal {
        /// Its mean.
        mean_us: f64,
        /// Its standard deviation.
        deviation_us: f64,
    },
    /// Waiting for a rare event.
    Exponential {
        /// Its mean.
        mean_us: f64,
    },
    /// The logarithm has a bell curve: a long tail of slow ones.
    LogNormal {
        /// Its median.
        median_us: f64,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
    },
}

impl Distribution {
    /// No time at all.
    pub const NONE: Self = Self::Constant { us: 0.0 };

    /// One time, in microseconds, from numbers that are uniform over `[0, 1)`.
    pub fn sample(&self, uniform: &mut dyn FnMut() -> f64) -> f64 {
        let us = match *self {
            Self::Constant { us } => us,
            Self::Uniform { min_us, max_us } => min_us + (max_us - min_us) * uniform(),
            Self::Normal { mean_us, deviation_us } => mean_us + deviation_us * bell(uniform),
            Self::Exponential { mean_us } => -mean_us * (1.0 - uniform()).ln(),
            Self::LogNormal { median_us, sigma } => median_us * (sigma * bell(uniform)).exp(),
        };
        us.max(0.0)
    }

    /// The mean, without the cut at 0.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        match *self {
            Self::Constant { us } => us,
            Self::Uniform { min_us, max_us } => f64::midpoint(min_us, max_us),
            Self::Normal { mean_us, .. } | Self::Exponential { mean_us } => mean_us,
            Self::LogNormal { median_us, sigma } => median_us * (sigma * sigma / 2.0).exp(),
        }
    }

    /// Its numbers, each with its name.
    pub fn numbers(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let (first, second) = match *self {
            Self::Constant { us } => (("us", us), None),
            Self::Uniform { min_us, max_us } => (("min_us", min_us), Some(("max_us", max_us))),
            Self::Normal { mean_us, deviation_us } => {
                (("mean_us", mean_us), Some(("deviation_us", deviation_us)))
            }
            Self::Exponential { mean_us } => (("mean_us", mean_us), None),
            Self::LogNormal { median_us, sigma } => {
                (("median_us", median_us), Some(("sigma", sigma)))
            }
        };
        core::iter::once(first).chain(second)
    }
}

/// A number of mean 0 and deviation 1 (Box and Muller's method).
fn bell(uniform: &mut dyn FnMut() -> f64) -> f64 {
    let radius = (-2.0 * (1.0 - uniform()).ln()).sqrt();
    radius * (core::f64::consts::TAU * uniform()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that fill `[0, 1)` evenly: the multiples of the golden ratio, in two sequences that don't
    /// follow each other.
    fn even() -> impl FnMut() -> f64 {
        let mut at = [0.0_f64, 0.0];
        let mut which = 0;
        move || {
            let step = [0.754_877_666_246_693, 0.569_840_290_998_053][which];
            at[which] = (at[which] + step).fract();
            which = 1 - which;
            at[1 - which]
        }
    }

    #[test]
    fn the_mean_of_many_is_the_mean() {
        let all = [
            Distribution::Constant { us: 3.0 },
            Distribution::Uniform { min_us: 1.0, max_us: 5.0 },
            Distribution::Normal { mean_us: 10.0, deviation_us: 2.0 },
            Distribution::Exponential { mean_us: 4.0 },
            Distribution::LogNormal { median_us: 2.0, sigma: 0.5 },
        ];
        for distribution in all {
            let mut uniform = even();
            let count = 100_000;
            let sum: f64 = (0..count).map(|_| distribution.sample(&mut uniform)).sum();
            let (mean, expected) = (sum / f64::from(count), distribution.mean_us());
            assert!((mean / expected - 1.0).abs() < 0.02, "{distribution:?}: {mean}, {expected}");
        }
    }

    #[test]
    fn no_time_is_negative() {
        let distribution = Distribution::Normal { mean_us: 0.1, deviation_us: 10.0 };
        let mut uniform = even();
        assert!((0..1000).all(|_| distribution.sample(&mut uniform) >= 0.0));
    }
}
