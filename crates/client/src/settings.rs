//! The knobs, typed and checked.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tributary_algorithms::Algorithm;
use tributary_wire::StreamTerms;

use crate::knobs::{self, Knob};
use crate::ways::{LEADERS_MAX, SUB_PARTITIONS_MAX};

/// What the host library does for one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `HOST:PORT` of the manager.
    pub manager: Option<String>,
    /// Where its token lies.
    pub token_file: Option<PathBuf>,
    /// How many hosts the ranks of one machine act as.
    pub hosts: u32,
    /// Outstanding operations to ask for per group.
    pub osos: u16,
    /// Longest segment to ask for.
    pub payload_max_bytes: u32,
    /// Streams to ask for.
    pub stream: StreamTerms,
    /// Shortest vector that is streamed; none if none is.
    pub stream_min_bytes: Option<u64>,
    /// How a leader reaches its aggregation node.
    pub transport: TransportChoice,
    /// What carries data beside a link over TCP.
    pub channel: ChannelChoice,
    /// What joins hosts.
    pub between_hosts: BetweenHosts,
    /// Who joins hosts where the manager refuses a group.
    pub fallback: Fallback,
    /// Host algorithm between hosts.
    pub mesh_algorithm: AlgorithmChoice,
    /// Leaders per host; none if they are to be chosen.
    pub leaders: Option<u32>,
    /// Sub-partitions of each leader's share; none if they are to be chosen.
    pub sub_partitions: Option<u32>,
    /// Longest vector of a reduce-scatter that is worth it.
    pub reduce_scatter_max_bytes: u64,
    /// Longest contribution to an allgather that is worth it.
    pub allgather_max_bytes: u64,
    /// Longest vector of a scan that is worth it.
    pub scan_max_bytes: u64,
    /// What was measured on this system.
    pub tuning: Option<PathBuf>,
    /// Where other hosts reach this one.
    pub host_address: Option<IpAddr>,
    /// How ranks wait.
    pub wait: WaitChoice,
    /// Whether ranks of a host may use each other's memory directly.
    pub cross_memory: bool,
    /// Communicators served at once.
    pub communicators_max: usize,
    /// Communicators set up when they are created.
    pub communicators_eager: usize,
}

/// How a leader reaches its aggregation node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportChoice {
    /// Shared memory on the same machine, TCP else.
    Auto,
    /// Shared memory or nothing.
    Shm,
    /// TCP, even on the same machine.
    Tcp,
}

/// What carries data where the link is TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelChoice {
    /// Datagrams for segments that cross the network in one piece, TCP for longer ones.
    Auto,
    /// TCP.
    Tcp,
    /// Datagrams for all segments that fit one.
    Udp,
}

/// What joins hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BetweenHosts {
    /// Direct links between two real hosts, aggregation nodes else.
    Auto,
    /// Aggregation nodes.
    Tree,
    /// Host algorithms over direct links.
    Mesh,
}

/// Who joins hosts where the manager refuses a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Host algorithms over direct links.
    Mesh,
    /// The MPI beneath.
    Mpi,
}

/// Host algorithm between hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlgorithmChoice {
    /// By collective, hosts and length.
    Auto,
    /// [`Algorithm::RecursiveDoubling`].
    RecursiveDoubling,
    /// [`Algorithm::Rabenseifner`].
    Rabenseifner,
    /// [`Algorithm::Ring`].
    Ring,
    /// [`Algorithm::Binomial`].
    Binomial,
    /// [`Algorithm::Sequential`].
    Sequential,
}

impl AlgorithmChoice {
    /// Every choice.
    pub const ALL: [Self; 6] = [
        Self::Auto,
        Self::RecursiveDoubling,
        Self::Rabenseifner,
        Self::Ring,
        Self::Binomial,
        Self::Sequential,
    ];

    /// As the knob and tuning files write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::RecursiveDoubling => "recursive-doubling",
            Self::Rabenseifner => "rabenseifner",
            Self::Ring => "ring",
            Self::Binomial => "binomial",
            Self::Sequential => "sequential",
        }
    }

    /// The algorithm, unless it is to be chosen.
    #[must_use]
    pub fn algorithm(self) -> Option<Algorithm> {
        Some(match self {
            Self::Auto => return None,
            Self::RecursiveDoubling => Algorithm::RecursiveDoubling,
            Self::Rabenseifner => Algorithm::Rabenseifner,
            Self::Ring => Algorithm::Ring,
            Self::Binomial => Algorithm::Binomial,
            Self::Sequential => Algorithm::Sequential,
        })
    }
}

/// How ranks wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitChoice {
    /// By the cores granted.
    Auto,
    /// Always spin.
    Spin,
    /// Yield, then sleep.
    Sleep,
}

/// A knob's value that can't be. One line that says which, what it was and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is {value:?}; allowed: {}", knob.name, knob.allowed)]
pub struct SettingError {
    /// The knob.
    pub knob: &'static Knob,
    /// What it was set to.
    pub value: String,
}

impl Settings {
    /// Reads every knob from the process's environment.
    ///
    /// # Errors
    /// If one is set to what it can't be.
    pub fn from_env() -> Result<Self, SettingError> {
        Self::from_environment(|name| std::env::var(name).ok())
    }

    /// Reads every knob from `environment`.
    ///
    /// # Errors
    /// If one is set to what it can't be.
    pub fn from_environment(
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, SettingError> {
        let text = |knob: &'static Knob| {
            Some(knob.value(&environment).value).filter(|value| !value.is_empty())
        };
        Ok(Self {
            manager: text(&knobs::MANAGER).map(|value| address(&value)).transpose()?,
            token_file: text(&knobs::TOKEN_FILE).map(PathBuf::from),
            hosts: number(&knobs::HOSTS, &environment, 1..=1024)?,
            osos: number(&knobs::OSOS, &environment, 1..=1024)?,
            payload_max_bytes: number(&knobs::PAYLOAD_MAX, &environment, 16..=1 << 20)?,
            stream: StreamTerms {
                chunk_bytes: number(&knobs::STREAM_CHUNK, &environment, 256..=1 << 20)?,
                window: number(&knobs::STREAM_WINDOW, &environment, 1..=256)?,
            },
            stream_min_bytes: match knobs::STREAM_MIN.value(&environment).value.as_str() {
                "never" => None,
                _ => Some(number(&knobs::STREAM_MIN, &environment, 1..=u64::MAX)?),
            },
            channel: choice(
                &knobs::CHANNEL,
                &environment,
                &[
                    ("auto", ChannelChoice::Auto),
                    ("tcp", ChannelChoice::Tcp),
                    ("udp", ChannelChoice::Udp),
                ],
            )?,
            transport: choice(
                &knobs::TRANSPORT,
                &environment,
                &[
                    ("auto", TransportChoice::Auto),
                    ("shm", TransportChoice::Shm),
                    ("tcp", TransportChoice::Tcp),
                ],
            )?,
            between_hosts: choice(
                &knobs::BETWEEN_HOSTS,
                &environment,
                &[
                    ("auto", BetweenHosts::Auto),
                    ("tree", BetweenHosts::Tree),
                    ("mesh", BetweenHosts::Mesh),
                ],
            )?,
            fallback: choice(
                &knobs::FALLBACK,
                &environment,
                &[("mesh", Fallback::Mesh), ("mpi", Fallback::Mpi)],
            )?,
            mesh_algorithm: choice(
                &knobs::MESH_ALGORITHM,
                &environment,
                &AlgorithmChoice::ALL.map(|choice| (choice.name(), choice)),
            )?,
            leaders: number_unless_auto(&knobs::LEADERS, &environment, LEADERS_MAX)?,
            sub_partitions: number_unless_auto(
                &knobs::SUB_PARTITIONS,
                &environment,
                SUB_PARTITIONS_MAX,
            )?,
            reduce_scatter_max_bytes: number_or_always(&knobs::REDUCE_SCATTER_MAX, &environment)?,
            allgather_max_bytes: number_or_always(&knobs::ALLGATHER_MAX, &environment)?,
            scan_max_bytes: number_or_always(&knobs::SCAN_MAX, &environment)?,
            tuning: text(&knobs::TUNING).map(PathBuf::from),
            host_address: text(&knobs::HOST_ADDRESS)
                .map(|value| {
                    let knob = &knobs::HOST_ADDRESS;
                    value.parse().map_err(|_| SettingError { knob, value })
                })
                .transpose()?,
            wait: choice(
                &knobs::WAIT,
                &environment,
                &[
                    ("auto", WaitChoice::Auto),
                    ("spin", WaitChoice::Spin),
                    ("sleep", WaitChoice::Sleep),
                ],
            )?,
            cross_memory: choice(
                &knobs::CROSS_MEMORY,
                &environment,
                &[("auto", true), ("off", false)],
            )?,
            communicators_max: number(&knobs::COMMUNICATORS_MAX, &environment, 1..=1 << 16)?,
            communicators_eager: number(&knobs::COMMUNICATORS_EAGER, &environment, 0..=1 << 16)?,
        })
    }
}

fn address(value: &str) -> Result<String, SettingError> {
    let is_address = value
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if is_address {
        Ok(value.to_owned())
    } else {
        Err(SettingError { knob: &knobs::MANAGER, value: value.to_owned() })
    }
}

fn number<T: FromStr + PartialOrd>(
    knob: &'static Knob,
    environment: impl Fn(&str) -> Option<String>,
    allowed: std::ops::RangeInclusive<T>,
) -> Result<T, SettingError> {
    let value = knob.value(environment).value;
    match value.parse() {
        Ok(number) if allowed.contains(&number) => Ok(number),
        _ => Err(SettingError { knob, value }),
    }
}

fn number_unless_auto(
    knob: &'static Knob,
    environment: impl Fn(&str) -> Option<String>,
    max: u32,
) -> Result<Option<u32>, SettingError> {
    if knob.value(&environment).value == "auto" {
        return Ok(None);
    }
    number(knob, environment, 1..=max).map(Some)
}

fn number_or_always(
    knob: &'static Knob,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<u64, SettingError> {
    if knob.value(&environment).value == "always" {
        return Ok(u64::MAX);
    }
    number(knob, environment, 0..=u64::MAX)
}

fn choice<T: Copy>(
    knob: &'static Knob,
    environment: impl Fn(&str) -> Option<String>,
    choices: &[(&str, T)],
) -> Result<T, SettingError> {
    let value = knob.value(environment).value;
    match choices.iter().find(|(name, _)| *name == value) {
        Some((_, choice)) => Ok(*choice),
        None => Err(SettingError { knob, value }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_allowed_values() {
        let settings = Settings::from_environment(|_| None).unwrap();
        assert_eq!(settings.manager, None);
        assert_eq!(settings.hosts, 1);
        assert_eq!(settings.transport, TransportChoice::Auto);
        let always = |name: &str| (name == "TRIBUTARY_SCAN_MAX").then(|| "always".to_owned());
        let settings = Settings::from_environment(always).unwrap();
        assert_eq!(settings.scan_max_bytes, u64::MAX);
    }

    #[test]
    fn a_bad_value_is_named_with_what_is_allowed() {
        for (name, value) in [
            ("TRIBUTARY_HOSTS", "0"),
            ("TRIBUTARY_OSOS", "many"),
            ("TRIBUTARY_TRANSPORT", "pigeon"),
            ("TRIBUTARY_MANAGER", "nowhere"),
            ("TRIBUTARY_BETWEEN_HOSTS", "pigeon"),
            ("TRIBUTARY_HOST_ADDRESS", "here"),
            ("TRIBUTARY_LEADERS", "17"),
            ("TRIBUTARY_SCAN_MAX", "never"),
        ] {
            let set = |asked: &str| (asked == name).then(|| value.to_owned());
            let error = Settings::from_environment(set).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
            assert!(error.contains("allowed"), "{error}");
        }
    }
}
