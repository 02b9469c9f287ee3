//! The cost model of collectives: it chooses where no table was measured.
//!
//! The model of Bayatpour et al., "Scalable Reduction Collectives with Data Partitioning-based
//! Multi-Leader Design" (SC 2017), section 5, and for the host algorithms the closed forms of
//! Thakur, Rabenseifner, Gropp (IJHPCA 2005). Pure functions of measured constants. All times are
//! nanoseconds, all lengths bytes. The model ranks designs; it does not predict exact times.

use crate::request::Algorithm;

/// The cost of data movement and reduction on this system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// `a`: between hosts, the time before the first byte.
    pub network_startup_ns: f64,
    /// `b`: between hosts, per byte.
    pub network_ns_per_byte: f64,
    /// `a'`: in shared memory, the time before the first byte.
    pub memory_startup_ns: f64,
    /// `b'`: in shared memory, per byte copied.
    pub memory_ns_per_byte: f64,
    /// `c`: combining, per byte of input.
    pub reduce_ns_per_byte: f64,
}

/// The operation and where its processes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// `p`: processes in all.
    pub processes: u32,
    /// `h`: hosts, each with the same number of processes.
    pub hosts: u32,
    /// `n`: length of the vector.
    pub len_bytes: u64,
}

/// How the vector is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Design {
    /// `l`: leaders per host, each with its share of the vector.
    pub leaders: u32,
    /// `k`: sub-partitions of each leader's share; 1 is DPML without pipelining.
    pub sub_partitions: u32,
}

/// The time of an allreduce by data-partitioned leaders (DPML), phase by phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Every process copies its vector to the leaders: `l (a' + b' n / l)`.
    pub copy_in_ns: f64,
    /// Each leader combines the vectors of its host's processes: `(p / (h l) - 1) n c`, or 0 where that
    /// is negative. At l = p / h the paper's formula gives 0, though every leader still combines p / h
    /// shares. The model keeps this simplification.
    pub reduce_ns: f64,
    /// Between the hosts: `ceil(lg h) (a k + n b / l + n c / l)`.
    pub network_ns: f64,
    /// Every process copies the result out: as much as in.
    pub copy_out_ns: f64,
    /// `k`, from the design.
    pub sub_partitions: u32,
}

impl Prediction {
    /// The phases one after another: the paper's sum.
    #[must_use]
    pub fn sum_ns(&self) -> f64 {
        self.copy_in_ns + self.reduce_ns + self.network_ns + self.copy_out_ns
    }

    /// The time with sub-partitions that overlap: while one is between the hosts, the next is
    /// combined and the one before copied out. Equal to [`Self::sum_ns`] for one sub-partition.
    ///
    /// The paper's sum never prefers k > 1, because k only adds startups to it. This is our model of its
    /// pipelining: the first part passes all stages, and each further part adds the slowest stage.
    #[must_use]
    pub fn overlapped_ns(&self) -> f64 {
        let parts = f64::from(self.sub_partitions.max(1));
        let slowest = [self.copy_in_ns + self.reduce_ns, self.network_ns, self.copy_out_ns]
            .into_iter()
            .fold(0.0, f64::max);
        self.sum_ns() / parts + slowest * (parts - 1.0) / parts
    }
}

impl Costs {
    /// The predicted time of a design.
    ///
    /// # Panics
    /// If the job has no host, or the design no leader.
    #[must_use]
    pub fn predict(&self, job: Job, design: Design) -> Prediction {
        assert!(job.hosts > 0 && design.leaders > 0, "a job runs on hosts, led by leaders");
        let bytes = job.len_bytes as f64;
        let (leaders, parts) = (f64::from(design.leaders), f64::from(design.sub_partitions.max(1)));
        let copy = leaders * (self.memory_startup_ns + self.memory_ns_per_byte * bytes / leaders);
        let per_leader = f64::from(job.processes) / (f64::from(job.hosts) * leaders);
        let share = bytes / leaders;
        let step = self.network_startup_ns * parts
            + share * (self.network_ns_per_byte + self.reduce_ns_per_byte);
        Prediction {
            copy_in_ns: copy,
            reduce_ns: (per_leader - 1.0).max(0.0) * bytes * self.reduce_ns_per_byte,
            network_ns: f64::from(log2_up(job.hosts)) * step,
            copy_out_ns: copy,
            sub_partitions: design.sub_partitions.max(1),
        }
    }

    /// Plain recursive doubling over all processes: `ceil(lg p) (a + n b + n c)`.
    #[must_use]
    pub fn recursive_doubling_ns(&self, job: Job) -> f64 {
        let bytes = job.len_bytes as f64;
        let step =
            self.network_startup_ns + bytes * (self.network_ns_per_byte + self.reduce_ns_per_byte);
        f64::from(log2_up(job.processes)) * step
    }

    /// The design with the least [`Prediction::overlapped_ns`]: leaders by powers of two up to the
    /// processes of a host, sub-partitions by powers of two up to `sub_partitions_max`. Of equals, the
    /// one with fewer leaders and parts.
    #[must_use]
    pub fn best_design(&self, job: Job, sub_partitions_max: u32) -> Design {
        let mut best = Design { leaders: 1, sub_partitions: 1 };
        let mut least_ns = self.predict(job, best).overlapped_ns();
        let leaders_max = (job.processes / job.hosts.max(1)).max(1);
        for leaders in powers_of_two(leaders_max) {
            for sub_partitions in powers_of_two(sub_partitions_max.max(1)) {
                let design = Design { leaders, sub_partitions };
                let time_ns = self.predict(job, design).overlapped_ns();
                if time_ns < least_ns {
                    (best, least_ns) = (design, time_ns);
                }
            }
        }
        best
    }

    /// An allreduce of `len_bytes` among `ranks` hosts by a host algorithm; `None` where there is no
    /// closed form.
    #[must_use]
    pub fn allreduce_ns(&self, algorithm: Algorithm, ranks: u32, len_bytes: u64) -> Option<f64> {
        let (bytes, p) = (len_bytes as f64, f64::from(ranks.max(1)));
        let (startup, rounds) = (self.network_startup_ns, f64::from(log2_up(ranks)));
        let (byte, combine) = (self.network_ns_per_byte, self.reduce_ns_per_byte);
        let all_but_own = (p - 1.0) / p * bytes;
        // Ranks beyond the power of two send their vector before, and receive the result after.
        let uneven = if ranks.is_power_of_two() { 0.0 } else { 1.0 };
        let outside = uneven * (2.0 * (startup + bytes * byte) + bytes * combine);
        let whole = f64::from(ranks.max(1).ilog2());
        Some(match algorithm {
            Algorithm::RecursiveDoubling => whole * (startup + bytes * (byte + combine)) + outside,
            Algorithm::Rabenseifner => {
                let powers = f64::from(1_u32 << ranks.max(1).ilog2());
                let share = (powers - 1.0) / powers * bytes;
                2.0 * whole * startup + 2.0 * share * byte + share * combine + outside
            }
            Algorithm::Ring => {
                2.0 * (p - 1.0) * startup + 2.0 * all_but_own * byte + all_but_own * combine
            }
            Algorithm::Binomial => rounds * (2.0 * (startup + bytes * byte) + bytes * combine),
            Algorithm::Linear => (p - 1.0) * (2.0 * (startup + bytes * byte) + bytes * combine),
            _ => return None,
        })
    }

    /// The algorithm with the least [`Self::allreduce_ns`], of those that combine in rank order if
    /// `in_rank_order`.
    #[must_use]
    pub fn best_allreduce(&self, ranks: u32, len_bytes: u64, in_rank_order: bool) -> Algorithm {
        let mut best = Algorithm::RecursiveDoubling;
        let mut least_ns = f64::INFINITY;
        for algorithm in [
            Algorithm::RecursiveDoubling,
            Algorithm::Rabenseifner,
            Algorithm::Ring,
            Algorithm::Binomial,
            Algorithm::Linear,
        ] {
            let time_ns = self.allreduce_ns(algorithm, ranks, len_bytes);
            let may = !in_rank_order || algorithm.keeps_rank_order();
            if let Some(time_ns) = time_ns.filter(|time_ns| may && *time_ns < least_ns) {
                (best, least_ns) = (algorithm, time_ns);
            }
        }
        best
    }
}

/// The base-2 logarithm, rounded up.
fn log2_up(number: u32) -> u32 {
    number.max(1).checked_next_power_of_two().map_or(32, u32::trailing_zeros)
}

fn powers_of_two(max: u32) -> impl Iterator<Item = u32> {
    (0..32).map(|exponent| 1 << exponent).take_while(move |power| *power <= max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs {
        network_startup_ns: 1_000.0,
        network_ns_per_byte: 0.08,
        memory_startup_ns: 200.0,
        memory_ns_per_byte: 0.05,
        reduce_ns_per_byte: 0.02,
    };

    fn job(len_bytes: u64) -> Job {
        Job { processes: 448, hosts: 16, len_bytes }
    }

    /// Every term by hand: p = 448, h = 16, l = 4, n = 4000.
    #[test]
    fn phases_are_the_papers_formulas() {
        let prediction = COSTS.predict(job(4_000), Design { leaders: 4, sub_partitions: 1 });
        let close = |got: f64, expected: f64| assert!((got - expected).abs() < 1e-6, "{got}");
        close(prediction.copy_in_ns, 4.0 * (200.0 + 0.05 * 1_000.0));
        close(prediction.reduce_ns, (7.0 - 1.0) * 4_000.0 * 0.02);
        close(prediction.network_ns, 4.0 * (1_000.0 + 1_000.0 * 0.08 + 1_000.0 * 0.02));
        close(prediction.copy_out_ns, prediction.copy_in_ns);
        close(prediction.overlapped_ns(), prediction.sum_ns());
        close(COSTS.recursive_doubling_ns(job(4_000)), 9.0 * (1_000.0 + 4_000.0 * 0.1));
        let piped = COSTS.predict(job(4_000), Design { leaders: 4, sub_partitions: 8 });
        close(piped.network_ns, 4.0 * (8_000.0 + 1_000.0 * 0.1));
    }

    /// The paper's finding: one leader for short vectors, and more for longer ones.
    #[test]
    fn longer_vectors_take_more_leaders() {
        let best = |len_bytes| COSTS.best_design(job(len_bytes), 1).leaders;
        assert_eq!(best(8), 1);
        let leaders: [u32; 4] = [8, 4 << 10, 64 << 10, 1 << 20].map(best);
        assert!(leaders.is_sorted() && leaders[3] == 16, "{leaders:?}");
    }

    #[test]
    fn sub_partitions_pay_only_for_long_vectors() {
        assert_eq!(COSTS.best_design(job(64), 16).sub_partitions, 1);
        assert!(COSTS.best_design(job(16 << 20), 16).sub_partitions > 1);
    }

    #[test]
    fn short_vectors_take_few_rounds_and_long_ones_few_bytes() {
        let best = |len_bytes| COSTS.best_allreduce(8, len_bytes, false);
        assert_eq!(best(8), Algorithm::RecursiveDoubling);
        assert!(matches!(best(64 << 20), Algorithm::Rabenseifner | Algorithm::Ring));
        assert_eq!(COSTS.best_allreduce(2, 8, true), Algorithm::RecursiveDoubling);
        assert!(COSTS.best_allreduce(7, 64 << 20, true).keeps_rank_order());
        assert_eq!(COSTS.best_allreduce(7, 64 << 20, false), Algorithm::Ring);
    }

    #[test]
    fn logarithms_round_up() {
        assert_eq!([1, 2, 3, 4, 5, 1 << 31, u32::MAX].map(log2_up), [0, 1, 2, 2, 3, 31, 32]);
    }
}
