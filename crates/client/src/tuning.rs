//! What was measured on a system, in a file: the model's constants, and times of whole operations.
//!
//! `tributary tune` writes the file, `tributary model` shows it beside the model, and communicators
//! choose by it (`TRIBUTARY_TUNING`). Must not know how operations run.

mod measure;
mod system;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use tributary_algorithms::model::Costs;

pub use measure::{MeasureError, measure_costs};
pub use system::{Partner, PartnerWaits, SystemCosts, keep_to_cores, measure_system, on_cores};

use crate::report::Kind;
use crate::settings::AlgorithmChoice;

/// A tuning file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    /// The machine that it was measured on.
    #[serde(default)]
    pub machine: String,
    /// What moving and combining cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<CostsRow>,
    /// What system calls and switches cost, for the simulator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<SystemCosts>,
    /// A barrier between two ranks over a direct link, both on one core: what the product's own code
    /// adds to its system calls is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub barrier_ns: Option<f64>,
    /// Times of whole operations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measurements: Vec<Measurement>,
}

/// [`Costs`], as the file has them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "the fields are those of `Costs`, and documented there")]
pub struct CostsRow {
    pub network_startup_ns: f64,
    pub network_ns_per_byte: f64,
    pub memory_startup_ns: f64,
    pub memory_ns_per_byte: f64,
    pub reduce_ns_per_byte: f64,
}

/// What joined the hosts in a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Joint {
    /// Aggregation nodes.
    Tree,
    /// Host algorithms over direct links.
    Mesh,
}

/// How long one operation took one way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// Which collective.
    pub collective: Kind,
    /// Hosts of the communicator.
    pub hosts: u32,
    /// Its ranks, on all hosts.
    pub ranks: u32,
    /// Length of the vector.
    pub len_bytes: u64,
    /// What joined the hosts.
    pub joint: Joint,
    /// The host algorithm, of a mesh.
    pub algorithm: AlgorithmChoice,
    /// Leaders per host.
    pub leaders: u32,
    /// Sub-partitions of each leader's share.
    pub sub_partitions: u32,
    /// Median time.
    pub time_us: f64,
}

/// Why a tuning file can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TuningError {
    /// It can't be read or written.
    #[error("tuning file {}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's words.
        problem: String,
    },
    /// It is no tuning file.
    #[error("tuning file {}: {problem}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong in it, and where.
        problem: String,
    },
}

/// 8 hosts at 10 Gb/s: one host in the middle takes 0.02 ms each way for so much, 0.4 ms for 64 KiB.
const ROOTED_BYTES_MAX: u64 = 4096;

impl Tuning {
    /// Of each constant the middle one of several measurements of one machine, so that what disturbed
    /// the machine for a while has no say. Times of whole operations are not taken along. None if there
    /// is no measurement, or one that lacks constants.
    #[must_use]
    pub fn middle_constants(measured: &[Self]) -> Option<Self> {
        let machine = measured.first()?.machine.clone();
        let costs: Option<Vec<CostsRow>> = measured.iter().map(|tuning| tuning.costs).collect();
        let system: Option<Vec<SystemCosts>> =
            measured.iter().map(|tuning| tuning.system).collect();
        let barriers: Option<Vec<f64>> = measured.iter().map(|tuning| tuning.barrier_ns).collect();
        Some(Self {
            machine,
            costs: Some(CostsRow::middle(&costs?)),
            system: Some(SystemCosts::middle(&system?)),
            barrier_ns: Some(median(barriers?)),
            measurements: Vec::new(),
        })
    }

    /// What holds where nobody has measured: the figures of docs/decisions/0022, taken on a lab.
    #[must_use]
    pub fn built_in() -> &'static Self {
        static BUILT_IN: LazyLock<Tuning> = LazyLock::new(|| {
            toml::from_str(include_str!("tuning/built_in.toml"))
                .expect("a test reads the built-in figures")
        });
        &BUILT_IN
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it can't be read, or is no tuning file, or has a cost or a time that is no positive number.
    pub fn read(path: &Path) -> Result<Self, TuningError> {
        let text = std::fs::read_to_string(path).map_err(|error| TuningError::File {
            path: path.to_owned(),
            problem: error.to_string(),
        })?;
        let format = |problem: String| TuningError::Format { path: path.to_owned(), problem };
        let tuning: Self = toml::from_str(&text)
            .map_err(|error| format(error.to_string().trim_end().replace('\n', " ")))?;
        tuning.check().map_err(format)?;
        Ok(tuning)
    }

    /// Writes a file.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn write(&self, path: &Path) -> Result<(), TuningError> {
        let text = toml::to_string(self).expect("a tuning is plain data");
        std::fs::write(path, text).map_err(|error| TuningError::File {
            path: path.to_owned(),
            problem: error.to_string(),
        })
    }

    fn check(&self) -> Result<(), String> {
        let costs = self.costs.iter().flat_map(|costs| {
            let CostsRow { network_startup_ns, network_ns_per_byte, memory_startup_ns, .. } =
                *costs;
            let rest = [costs.memory_ns_per_byte, costs.reduce_ns_per_byte];
            [network_startup_ns, network_ns_per_byte, memory_startup_ns].into_iter().chain(rest)
        });
        let times = self.measurements.iter().map(|row| row.time_us);
        let system = self.system.iter().flat_map(|system| system.values());
        match costs
            .chain(system)
            .chain(self.barrier_ns)
            .chain(times)
            .find(|value| !(value.is_finite() && *value >= 0.0))
        {
            Some(value) => Err(format!("{value} is neither a cost nor a time")),
            None => Ok(()),
        }
    }

    /// The same with the measurements of one joint only.
    #[must_use]
    pub fn of(&self, joint: Joint) -> Self {
        self.only(|row| row.joint == joint)
    }

    /// The same for hosts with a network between them: without one host in the middle where vectors are
    /// longer than [`ROOTED_BYTES_MAX`]. Its link carries a vector once for every other host, and on the
    /// built-in figures' machine that is no link but memory.
    #[must_use]
    pub fn across_links(&self) -> Self {
        self.only(|row| {
            row.algorithm != AlgorithmChoice::Linear || row.len_bytes <= ROOTED_BYTES_MAX
        })
    }

    fn only(&self, suits: impl Fn(&Measurement) -> bool) -> Self {
        let measurements = self.measurements.iter().filter(|row| suits(row));
        Self { measurements: measurements.copied().collect(), ..self.clone() }
    }

    /// The fastest measurement for every collective and measured length, of the nearest number of
    /// hosts and ranks, in the order of lengths.
    #[must_use]
    pub fn rules(&self, hosts: u32, ranks: u32) -> Vec<Measurement> {
        let mut lengths: Vec<_> =
            self.measurements.iter().map(|row| (row.len_bytes, row.collective)).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let fastest = lengths.into_iter().filter_map(|(len_bytes, kind)| {
            self.best(kind, hosts, ranks, len_bytes).filter(|row| row.len_bytes == len_bytes)
        });
        fastest.copied().collect()
    }

    /// What was measured for such operations: of the nearest number of hosts and ranks, and of those
    /// the longest length that is not longer, else the shortest; the fastest of them.
    #[must_use]
    pub fn best(
        &self,
        collective: Kind,
        hosts: u32,
        ranks: u32,
        len_bytes: u64,
    ) -> Option<&Measurement> {
        let distance = |row: &Measurement| {
            octaves(row.hosts.into(), hosts.into()) + octaves(row.ranks.into(), ranks.into())
        };
        let of_kind =
            || self.measurements.iter().filter(|row| row.collective == collective && row.hosts > 1);
        let nearest = of_kind().min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
        let near =
            || of_kind().filter(|row| (row.hosts, row.ranks) == (nearest.hosts, nearest.ranks));
        let lengths = || near().map(|row| row.len_bytes);
        let shorter = lengths().filter(|measured| *measured <= len_bytes).max();
        let measured = shorter.or_else(|| lengths().min())?;
        near()
            .filter(|row| row.len_bytes == measured)
            .min_by(|a, b| a.time_us.total_cmp(&b.time_us))
    }
}

/// How many doublings two numbers are apart.
fn octaves(one: u64, other: u64) -> f64 {
    (one.max(1) as f64 / other.max(1) as f64).log2().abs()
}

impl CostsRow {
    /// Of each constant the middle one.
    fn middle(measured: &[Self]) -> Self {
        let of = |constant: fn(&Self) -> f64| median(measured.iter().map(constant).collect());
        Self {
            network_startup_ns: of(|costs| costs.network_startup_ns),
            network_ns_per_byte: of(|costs| costs.network_ns_per_byte),
            memory_startup_ns: of(|costs| costs.memory_startup_ns),
            memory_ns_per_byte: of(|costs| costs.memory_ns_per_byte),
            reduce_ns_per_byte: of(|costs| costs.reduce_ns_per_byte),
        }
    }
}

/// The middle one.
///
/// # Panics
/// If there is none.
fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    samples[samples.len() / 2]
}

impl From<CostsRow> for Costs {
    fn from(row: CostsRow) -> Self {
        Self {
            network_startup_ns: row.network_startup_ns,
            network_ns_per_byte: row.network_ns_per_byte,
            memory_startup_ns: row.memory_startup_ns,
            memory_ns_per_byte: row.memory_ns_per_byte,
            reduce_ns_per_byte: row.reduce_ns_per_byte,
        }
    }
}

impl From<Costs> for CostsRow {
    fn from(costs: Costs) -> Self {
        Self {
            network_startup_ns: costs.network_startup_ns,
            network_ns_per_byte: costs.network_ns_per_byte,
            memory_startup_ns: costs.memory_startup_ns,
            memory_ns_per_byte: costs.memory_ns_per_byte,
            reduce_ns_per_byte: costs.reduce_ns_per_byte,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(hosts: u32, ranks: u32, len_bytes: u64, joint: Joint, time_us: f64) -> Measurement {
        Measurement {
            collective: Kind::Allreduce,
            hosts,
            ranks,
            len_bytes,
            joint,
            algorithm: AlgorithmChoice::Auto,
            leaders: 1,
            sub_partitions: 1,
            time_us,
        }
    }

    fn tuning() -> Tuning {
        Tuning {
            machine: "lab".into(),
            costs: None,
            system: None,
            barrier_ns: None,
            measurements: vec![
                row(2, 4, 8, Joint::Tree, 30.0),
                row(2, 4, 8, Joint::Mesh, 20.0),
                row(2, 4, 4096, Joint::Tree, 40.0),
                row(2, 4, 4096, Joint::Mesh, 50.0),
                row(8, 8, 8, Joint::Tree, 90.0),
            ],
        }
    }

    #[test]
    fn what_is_built_in_has_both_ways_and_the_tree_for_short_vectors_of_many_hosts() {
        let built_in = Tuning::built_in();
        assert_eq!(built_in.check(), Ok(()));
        for joint in [Joint::Tree, Joint::Mesh] {
            assert!(built_in.measurements.iter().any(|row| row.joint == joint));
        }
        let best = |hosts, len_bytes| built_in.best(Kind::Allreduce, hosts, hosts, len_bytes);
        for (hosts, len_bytes, joint) in [
            (3, 8, Joint::Mesh),
            (8, 8, Joint::Tree),
            (16, 8, Joint::Tree),
            (8, 1 << 24, Joint::Mesh),
        ] {
            assert_eq!(
                best(hosts, len_bytes).unwrap().joint,
                joint,
                "{hosts} hosts, {len_bytes} B"
            );
        }
    }

    #[test]
    fn across_links_no_long_vector_goes_through_one_host() {
        let built_in = Tuning::built_in();
        let across = built_in.across_links();
        let best = |tuning: &Tuning, hosts, len_bytes| {
            *tuning.best(Kind::Allreduce, hosts, hosts, len_bytes).unwrap()
        };
        for hosts in [4, 8] {
            assert_eq!(best(built_in, hosts, 1 << 14).algorithm, AlgorithmChoice::Linear);
            assert_ne!(best(&across, hosts, 1 << 14).algorithm, AlgorithmChoice::Linear);
            assert_eq!(best(&across, hosts, 8), best(built_in, hosts, 8));
        }
    }

    #[test]
    fn the_fastest_of_the_nearest_is_taken() {
        let tuning = tuning();
        let best = |hosts, ranks, len_bytes| {
            tuning.best(Kind::Allreduce, hosts, ranks, len_bytes).unwrap().time_us
        };
        assert_eq!([best(2, 4, 8), best(2, 4, 4095), best(2, 4, 1 << 20)], [20.0, 20.0, 40.0]);
        assert_eq!([best(2, 4, 1), best(3, 5, 8), best(9, 9, 4096)], [20.0, 20.0, 90.0]);
        assert_eq!(tuning.best(Kind::Barrier, 2, 4, 0), None);
        let rules = tuning.rules(2, 4);
        let times: Vec<f64> = rules.iter().map(|rule| rule.time_us).collect();
        assert_eq!(times, [20.0, 40.0]);
    }

    #[test]
    fn a_file_survives_writing_and_a_bad_one_is_refused_with_its_name() {
        let path = std::env::temp_dir().join(format!("tributary-tuning-{}", std::process::id()));
        let tuning = tuning();
        tuning.write(&path).unwrap();
        assert_eq!(Tuning::read(&path), Ok(tuning));
        for text in ["costs = 3", "speed = 1", "[costs]\nnetwork_startup_ns = -1.0"] {
            std::fs::write(&path, text).unwrap();
            let error = Tuning::read(&path).unwrap_err();
            assert!(matches!(error, TuningError::Format { .. }), "{text}");
            assert!(error.to_string().contains("tributary-tuning-"), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(Tuning::read(&path), Err(TuningError::File { .. })));
    }

    #[test]
    fn of_several_measurements_the_middle_of_each_constant_counts() {
        let system = |send_ns: f64, wait_ns: f64| {
            toml::from_str::<SystemCosts>(&format!(
                "cores = 2\nsend_ns = {send_ns}\nsend_ns_per_byte = 1.0\nreceive_ns = 1.0\n\
                 receive_ns_per_byte = 1.0\nmiss_ns = 1.0\nremote_ns = 1.0\ngive_way_ns = 1.0\n\
                 switch_ns = 1.0\ncold_ns = 1.0\ncrowd_ns = 1.0\nwait_ns = {wait_ns}\n\
                 wake_ns = 1.0\nwake_idle_ns = 1.0\n"
            ))
            .unwrap()
        };
        let measured = |send_ns, wait_ns, barrier_ns| Tuning {
            costs: Some(CostsRow {
                network_startup_ns: send_ns,
                network_ns_per_byte: 1.0,
                memory_startup_ns: 1.0,
                memory_ns_per_byte: 1.0,
                reduce_ns_per_byte: wait_ns,
            }),
            system: Some(system(send_ns, wait_ns)),
            barrier_ns: Some(barrier_ns),
            ..Tuning::default()
        };
        // No single measurement has all of the middle.
        let rounds =
            [measured(5.0, 900.0, 70.0), measured(700.0, 3.0, 71.0), measured(4.0, 2.0, 9e9)];
        let middle = Tuning::middle_constants(&rounds).unwrap();
        assert_eq!(middle, measured(5.0, 3.0, 71.0));
        assert_eq!(Tuning::middle_constants(&[]), None);
        assert_eq!(Tuning::middle_constants(&[rounds[0].clone(), Tuning::default()]), None);
    }
}
