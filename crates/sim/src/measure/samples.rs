//! Times of many operations, and their statistics.

/// Times of a collective, in microseconds: of every process in every operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// The mean over the processes, for each operation.
    operations: Vec<f64>,
    /// The time of every process in every operation.
    processes: Vec<f64>,
}

/// Minimum, quartiles and maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quartiles {
    /// Minimum.
    pub min: f64,
    /// First quartile.
    pub q1: f64,
    /// Median.
    pub q2: f64,
    /// Third quartile.
    pub q3: f64,
    /// Maximum.
    pub max: f64,
}

/// Statistics of a collective, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Mean over everything.
    pub avg: f64,
    /// Over the operations, each with the mean of its processes.
    pub operations: Quartiles,
    /// Over the times of single processes.
    pub processes: Quartiles,
}

impl Samples {
    /// Adds one operation, with the time of each process.
    pub fn add(&mut self, times_us: &[f64]) {
        if times_us.is_empty() {
            return;
        }
        self.operations.push(times_us.iter().sum::<f64>() / times_us.len() as f64);
        self.processes.extend_from_slice(times_us);
    }

    /// The time of every process in every operation.
    #[must_use]
    pub fn times_us(&self) -> &[f64] {
        &self.processes
    }

    /// Mean over everything.
    #[must_use]
    pub fn avg(&self) -> f64 {
        self.processes.iter().sum::<f64>() / self.processes.len().max(1) as f64
    }

    /// Their statistics.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary {
            avg: self.avg(),
            operations: Quartiles::of(&self.operations),
            processes: Quartiles::of(&self.processes),
        }
    }
}

impl Quartiles {
    /// Of these values, by linear interpolation between neighbours.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        assert!(!values.is_empty(), "quartiles of nothing");
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| {
            let place = share * (sorted.len() - 1) as f64;
            let (low, part) = (place.floor() as usize, place.fract());
            let high = (low + 1).min(sorted.len() - 1);
            sorted[low] * (1.0 - part) + sorted[high] * part
        };
        Self { min: at(0.0), q1: at(0.25), q2: at(0.5), q3: at(0.75), max: at(1.0) }
    }

    /// As an array, minimum first.
    #[must_use]
    pub fn to_array(self) -> [f64; 5] {
        [self.min, self.q1, self.q2, self.q3, self.max]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_interpolate() {
        let quartiles = Quartiles::of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!(quartiles.to_array(), [1.0, 1.75, 2.5, 3.25, 4.0]);
        assert_eq!(Quartiles::of(&[7.0]).to_array(), [7.0; 5]);
    }

    #[test]
    fn operations_and_processes_are_kept_apart() {
        let mut samples = Samples::default();
        samples.add(&[1.0, 3.0]);
        samples.add(&[5.0, 7.0]);
        let summary = samples.summary();
        assert_eq!(summary.operations.to_array(), [2.0, 3.0, 4.0, 5.0, 6.0]);
        assert!((summary.avg - 4.0).abs() < 1e-12);
        assert!((summary.processes.max - 7.0).abs() < 1e-12);
    }
}
