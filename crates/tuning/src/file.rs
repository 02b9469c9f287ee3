//! The tuning file.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tributary_algorithms::model::Costs;
use tributary_algorithms::network::NetworkPrices;
use tributary_algorithms::{CollectiveKind, Radices};

use crate::choice::{AlgorithmChoice, MessageCarrier, Method};

/// A tuning file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    /// The machine that it was measured on.
    #[serde(default)]
    pub machine: String,
    /// The constants of the cost model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<CostsRow>,
    /// Where and how it was measured over the hosts of a launcher; none if processes of one machine acted as hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<Site>,
    /// What messages cost between the hosts, as the measurements tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<NetworkPrices>,
    /// Times of whole operations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub measurements: Vec<Measurement>,
}

/// Where and how the measurements over a launcher's hosts were made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// Hosts that took part.
    pub hosts: u32,
    /// Their ranks.
    pub ranks: u32,
    /// Whether all hosts share a kernel, as in a lab or among containers of one machine.
    pub one_kernel: bool,
    /// The MPI, as it names itself.
    pub mpi: String,
    /// The kernels of the hosts.
    pub kernels: Vec<String>,
    /// The adapters that carried most: driver, speed and MTU.
    pub adapters: Vec<String>,
    /// This program's version.
    pub tributary: String,
    /// Starts of the launcher for each path.
    pub rounds: u32,
    /// By how much the prices miss the measurements that they are made of: the mean and the worst, as shares. None without
    /// prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices_miss: Option<[f64; 2]>,
}

/// [`Costs`], as the file stores them.
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

/// The time of one operation with one inter-host method.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// Which collective.
    pub collective: CollectiveKind,
    /// Hosts of the communicator.
    pub hosts: u32,
    /// Its ranks, on all hosts.
    pub ranks: u32,
    /// Length of the vector.
    pub len_bytes: u64,
    /// The inter-host method.
    pub method: Method,
    /// What carries messages, without a tree.
    #[serde(default, skip_serializing_if = "is_default")]
    pub carrier: MessageCarrier,
    /// The host algorithm, over direct links.
    pub algorithm: AlgorithmChoice,
    /// Members of a group at each level, of replicated groups; none over links, and where nobody noted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Radices>,
    /// Leaders per host.
    pub leaders: u32,
    /// Sub-partitions of each leader's share.
    pub sub_partitions: u32,
    /// Median time.
    pub time_us: f64,
    /// The quartiles of the times, if they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quartiles_us: Option<[f64; 2]>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
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
        /// The operating system's message.
        problem: String,
    },
    /// The text is not a valid tuning file.
    #[error(
        "tuning file {}: {problem} (if another version wrote the file, measure again: tributary tune)",
        path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong in it, and where.
        problem: String,
    },
}

/// How many times as many hosts, or ranks, a table still holds for, where prices tell the rest.
const NEAR: f64 = 1.5;

/// Longest tuning file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What a file holds, of which there may be no end.
fn read_bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let message = format!("it has more than {FILE_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(text)
}

impl Tuning {
    /// Reads a file.
    ///
    /// # Errors
    /// If it can't be read, if it is not a tuning file, or if a cost or time is negative or not finite.
    pub fn read(path: &Path) -> Result<Self, TuningError> {
        let text = read_bounded(path).map_err(|error| TuningError::File {
            path: path.to_owned(),
            problem: error.to_string(),
        })?;
        let format = |problem: String| TuningError::Format { path: path.to_owned(), problem };
        Self::from_toml(&text).map_err(format)
    }

    /// Where a user's own file is, for jobs without a manager: `tributary/tuning.toml` in the folder for settings. None where
    /// nothing says which folder that is.
    #[must_use]
    pub fn own_file() -> Option<PathBuf> {
        let folder =
            |name: &str| std::env::var_os(name).filter(|it| !it.is_empty()).map(PathBuf::from);
        let settings = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
        Some(settings?.join("tributary/tuning.toml"))
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// As [`read`](Self::read), as one line.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let tuning: Self = toml::from_str(text)
            .map_err(|error| error.to_string().trim_end().replace('\n', " "))?;
        tuning.check()?;
        Ok(tuning)
    }

    /// A file's text.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("plain data always serializes")
    }

    /// Whether it was measured among hosts such as these: of one kernel, or with a network between them.
    #[must_use]
    pub fn is_of(&self, one_kernel: bool) -> bool {
        // Without a site, processes of one machine were the hosts.
        self.site.as_ref().is_none_or(|site| site.one_kernel) == one_kernel
    }

    /// Writes a file.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn write(&self, path: &Path) -> Result<(), TuningError> {
        std::fs::write(path, self.to_toml()).map_err(|error| TuningError::File {
            path: path.to_owned(),
            problem: error.to_string(),
        })
    }

    /// Whether something was measured among about as many hosts and ranks; or nothing tells what another number of hosts would
    /// change, so that whatever was measured is the nearest.
    #[must_use]
    pub fn has_shape_near(&self, hosts: u32, ranks: u32) -> bool {
        let is_near = |one: u32, other: u32| {
            let (less, more) = (one.min(other), one.max(other));
            f64::from(more) <= NEAR * f64::from(less)
        };
        let is_like = |row: &Measurement| is_near(row.hosts, hosts) && is_near(row.ranks, ranks);
        match self.prices {
            Some(_) => self.measurements.iter().any(is_like),
            None => !self.measurements.is_empty(),
        }
    }

    fn check(&self) -> Result<(), String> {
        let costs = self.costs.iter().flat_map(|costs| {
            let CostsRow { network_startup_ns, network_ns_per_byte, memory_startup_ns, .. } =
                *costs;
            let rest = [costs.memory_ns_per_byte, costs.reduce_ns_per_byte];
            [network_startup_ns, network_ns_per_byte, memory_startup_ns].into_iter().chain(rest)
        });
        let times = self.measurements.iter().map(|row| row.time_us);
        let prices = self.prices.iter().flat_map(NetworkPrices::times);
        if self.prices.is_some_and(|prices| !prices.has_packets()) {
            return Err("a packet or a segment without bytes is not valid".to_owned());
        }
        match costs.chain(times).chain(prices).find(|value| !(value.is_finite() && *value >= 0.0)) {
            Some(value) => Err(format!("{value} is not a valid cost or time")),
            None => Ok(()),
        }
    }
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
    use tributary_algorithms::network::Network;

    use super::*;

    fn tuning() -> Tuning {
        let row = Measurement {
            collective: CollectiveKind::Broadcast,
            hosts: 2,
            ranks: 4,
            len_bytes: 8,
            method: Method::Direct,
            carrier: MessageCarrier::Links,
            algorithm: AlgorithmChoice::Linear,
            groups: None,
            leaders: 1,
            sub_partitions: 1,
            time_us: 20.0,
            quartiles_us: Some([18.5, 21.0]),
        };
        Tuning { machine: "lab".into(), measurements: vec![row], ..Tuning::default() }
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
    fn a_table_holds_for_about_as_many_hosts_and_prices_for_all() {
        let near = |tuning: &Tuning| {
            [(2, 4), (3, 6), (4, 4), (8, 64)]
                .map(|(hosts, ranks)| tuning.has_shape_near(hosts, ranks))
        };
        assert_eq!(near(&tuning()), [true; 4], "there is nothing else");
        let priced = Tuning { prices: Some(Network::Cloud.into()), ..tuning() };
        assert_eq!(near(&priced), [true, true, false, false]);
        assert_eq!(near(&Tuning::default()), [false; 4]);
    }

    #[test]
    fn prices_survive_writing_and_are_checked() {
        let priced = Tuning { prices: Some(Network::Ethernet25.into()), ..tuning() };
        let text = toml::to_string(&priced).unwrap();
        assert_eq!(Tuning::from_toml(&text), Ok(priced));
        for (right, wrong) in [
            ("send_ns = 2000.0", "send_ns = -1.0"),
            ("packet_max_bytes = 8936", "packet_max_bytes = 0"),
        ] {
            assert!(text.contains(right), "{text}");
            assert!(Tuning::from_toml(&text.replace(right, wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_in_files_are_those_of_commands_and_reports() {
        let text = toml::to_string(&tuning()).unwrap();
        for line in ["collective = \"bcast\"", "method = \"direct\"", "algorithm = \"linear\""] {
            assert!(text.contains(line), "{text}");
        }
    }
}
