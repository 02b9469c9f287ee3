//! The knobs of the host library, and their typed form.
//!
//! Owns which environment variables there are ([`knobs`]), what each allows, and what a person is told who
//! sets something else. Must not know: what a setting does. Start at [`Settings`].

mod choice;
mod error;
pub mod knobs;
mod misspelt;
mod offload_max;
mod reach;
mod reader;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use tributary_algorithms::Radices;
use tributary_tuning::AlgorithmChoice;
use tributary_wire::StreamTerms;

pub use self::choice::{
    AvoidLosses, BetweenHosts, ChannelChoice, FabricChoice, Fallback, MulticastChoice,
    NetworkChoice, ReceiveChoice, Requirement, SharpFailure, Sums, Switch, TransportChoice,
    TuningChoice, WaitChoice,
};
pub use self::error::SettingError;
pub use self::misspelt::{Misspelt, misspelt};
pub use self::offload_max::{LongestBytes, OffloadMax};
pub use self::reach::{InterfaceChoice, Ports, share_bits};
use self::reader::Reader;

/// Most leaders per host.
pub const LEADERS_MAX: u32 = 16;
/// Most sub-partitions of a leader's share.
pub const SUB_PARTITIONS_MAX: u32 = 64;

/// What the host library does for one process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `HOST:PORT` of the manager; none where nothing may join hosts.
    pub manager: Option<String>,
    /// What joins the hosts of a job.
    pub fabric: FabricChoice,
    /// Where its token lies.
    pub token_file: Option<PathBuf>,
    /// Whether rank 0 hands its token on to ranks that can't read the file.
    pub hand_on_token: Switch,
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
    /// How leaders of different hosts meet.
    pub between_hosts: BetweenHosts,
    /// What the job must have to go on.
    pub requirement: Requirement,
    /// The kind of network between hosts.
    pub network: NetworkChoice,
    /// What carries operations between hosts where the manager refuses a group.
    pub fallback: Fallback,
    /// Which operations avoid links that lose packets.
    pub avoid_losses: AvoidLosses,
    /// How floats are added.
    pub sums: Sums,
    /// Host algorithm between hosts.
    pub direct_algorithm: AlgorithmChoice,
    /// Members of a replicated group at each level; none if they are to be chosen.
    pub groups: Option<Radices>,
    /// Whether members of a replicated group multicast where that is possible.
    pub multicast: MulticastChoice,
    /// Where hosts take the datagrams of replicated groups from.
    pub receive: ReceiveChoice,
    /// Where this host's service of rings takes connections.
    pub ring_service: String,
    /// Parts of each host with a leader of their own between hosts; none: the kernel's sockets.
    pub sockets: Option<u32>,
    /// Leaders per host; none if they are to be chosen.
    pub leaders: Option<u32>,
    /// Sub-partitions of each leader's share; none if they are to be chosen.
    pub sub_partitions: Option<u32>,
    /// Up to what length collectives are taken of which the MPI does longer ones faster.
    pub offload_max: OffloadMax,
    /// Which measurements of this system decide.
    pub tuning: TuningChoice,
    /// Where other hosts reach this one.
    pub host_address: Option<IpAddr>,
    /// Which of its addresses they may use.
    pub interface: Option<InterfaceChoice>,
    /// The leaf switch of this host, if the user names it.
    pub leaf: Option<String>,
    /// Where listeners for other hosts take their ports from; none: wherever the system does.
    pub ports: Option<Ports>,
    /// Where to write how an external receiver may read the world's results.
    pub external_receiver: Option<PathBuf>,
    /// How ranks wait.
    pub wait: WaitChoice,
    /// Whether ranks of a host may use each other's memory directly.
    pub cross_memory: bool,
    /// Communicators served at once.
    pub communicators_max: usize,
    /// Communicators set up when they are created.
    pub communicators_eager: usize,
    /// The blocking collective at which later ones are set up.
    pub communicators_after: u32,
    /// Whether a communicator outlives its aggregation nodes.
    pub failover: Switch,
    /// How long a rank may be waited for within its host before it is named; none for ever.
    pub late_after: Option<Duration>,
    /// What becomes of a nonblocking operation that failed, where its caller can't be told.
    pub sharp_failure: SharpFailure,
    /// Whether anything is offloaded.
    pub offload: Switch,
    /// Whether the report tells times.
    pub times: Switch,
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
        let read = Reader(environment);
        let fabric = read.choice(&knobs::FABRIC)?;
        let manager = read.parse(&knobs::MANAGER, reader::address)?;
        let (sums, external_receiver) =
            (read.choice(&knobs::SUMS)?, read.path(&knobs::EXTERNAL_RECEIVER));
        // What is added are integers then, and nobody tells a receiver which.
        if sums == Sums::Exact && external_receiver.is_some() {
            return Err(SettingError::without(&knobs::SUMS, &knobs::EXTERNAL_RECEIVER, "exact"));
        }
        Ok(Self {
            manager: manager.filter(|_| fabric != FabricChoice::Off),
            fabric,
            token_file: read.path(&knobs::TOKEN_FILE),
            hand_on_token: read.choice(&knobs::HAND_ON_TOKEN)?,
            hosts: read.number(&knobs::HOSTS, 1..=1024)?,
            osos: read.number(&knobs::OSOS, 1..=1024)?,
            payload_max_bytes: read.number(&knobs::PAYLOAD_MAX, 16..=1 << 20)?,
            stream: StreamTerms {
                chunk_bytes: read.number(&knobs::STREAM_CHUNK, 256..=1 << 20)?,
                window: read.number(&knobs::STREAM_WINDOW, 1..=256)?,
            },
            stream_min_bytes: read.number_unless(&knobs::STREAM_MIN, "never", 1..=u64::MAX)?,
            channel: read.choice(&knobs::CHANNEL)?,
            transport: read.choice(&knobs::TRANSPORT)?,
            between_hosts: read.choice(&knobs::BETWEEN_HOSTS)?,
            fallback: read.choice(&knobs::FALLBACK)?,
            requirement: read.choice(&knobs::REQUIRE)?,
            network: read.choice(&knobs::NETWORK)?,
            avoid_losses: read.choice(&knobs::AVOID_LOSSES)?,
            sums,
            direct_algorithm: read.choice(&knobs::DIRECT_ALGORITHM)?,
            groups: read.parse(&knobs::GROUPS, reader::groups)?.flatten(),
            multicast: read.choice(&knobs::MULTICAST)?,
            receive: read.choice(&knobs::RECEIVE)?,
            ring_service: read.parse(&knobs::RINGS, reader::socket)?.unwrap_or_default(),
            sockets: read.number_unless(&knobs::SOCKETS, "kernel", 1..=64)?,
            leaders: read.number_unless(&knobs::LEADERS, "auto", 1..=LEADERS_MAX)?,
            sub_partitions: read.number_unless(
                &knobs::SUB_PARTITIONS,
                "auto",
                1..=SUB_PARTITIONS_MAX,
            )?,
            offload_max: read.parse(&knobs::OFFLOAD_MAX, OffloadMax::parse)?.unwrap_or_default(),
            tuning: TuningChoice::of(&read.text(&knobs::TUNING)),
            host_address: read.parse(&knobs::HOST_ADDRESS, |text| text.parse().ok())?,
            interface: read.parse(&knobs::INTERFACE, InterfaceChoice::parse)?,
            leaf: Some(read.text(&knobs::LEAF)).filter(|leaf| !leaf.is_empty()),
            ports: read.parse(&knobs::PORTS, Ports::parse)?,
            external_receiver,
            wait: read.choice(&knobs::WAIT)?,
            cross_memory: read.choice(&knobs::CROSS_MEMORY)?,
            communicators_max: read.number(&knobs::COMMUNICATORS_MAX, 1..=1 << 16)?,
            communicators_eager: read.number(&knobs::COMMUNICATORS_EAGER, 0..=1 << 16)?,
            communicators_after: read.number(&knobs::COMMUNICATORS_AFTER, 1..=1 << 16)?,
            failover: read.choice(&knobs::FAILOVER)?,
            late_after: read
                .number_unless(&knobs::LATE_AFTER, "never", 1..=86_400)?
                .map(Duration::from_secs),
            sharp_failure: read.choice(&knobs::SHARP_FAILURE)?,
            offload: read.choice(&knobs::OFFLOAD)?,
            times: read.choice(&knobs::TIMES)?,
        })
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
        assert_eq!(settings.offload_max, OffloadMax::default());
    }

    #[test]
    fn exact_sums_have_no_external_receiver() {
        let set = |asked: &str| match asked {
            "TRIBUTARY_SUMS" => Some("exact".to_owned()),
            "TRIBUTARY_EXTERNAL_RECEIVER" => Some("/tmp/grant".to_owned()),
            _ => None,
        };
        let error = Settings::from_environment(set).unwrap_err().to_string();
        let told = r#"TRIBUTARY_SUMS is "exact"; allowed without TRIBUTARY_EXTERNAL_RECEIVER only"#;
        assert_eq!(error, told);
    }

    #[test]
    fn no_manager_is_asked_where_nothing_may_join_hosts() {
        for (fabric, has_manager) in [("job", true), ("manager", true), ("off", false)] {
            let set = |asked: &str| match asked {
                "TRIBUTARY_MANAGER" => Some("10.0.0.1:7470".to_owned()),
                "TRIBUTARY_FABRIC" => Some(fabric.to_owned()),
                _ => None,
            };
            let settings = Settings::from_environment(set).unwrap();
            assert_eq!(settings.manager.is_some(), has_manager, "{fabric}");
        }
    }

    #[test]
    fn a_bad_value_is_named_with_what_is_allowed() {
        for (name, value) in [
            ("TRIBUTARY_HOSTS", "0"),
            ("TRIBUTARY_OSOS", "many"),
            ("TRIBUTARY_FABRIC", "cluster"),
            ("TRIBUTARY_TRANSPORT", "pigeon"),
            ("TRIBUTARY_MANAGER", "nowhere"),
            ("TRIBUTARY_BETWEEN_HOSTS", "pigeon"),
            ("TRIBUTARY_HOST_ADDRESS", "here"),
            ("TRIBUTARY_INTERFACE", "10.0.0.0/40"),
            ("TRIBUTARY_PORTS", "9-5"),
            ("TRIBUTARY_LEADERS", "17"),
            ("TRIBUTARY_GROUPS", "4x1"),
            ("TRIBUTARY_GROUPS", "64"),
            ("TRIBUTARY_OFFLOAD_MAX", "scan:never"),
        ] {
            let set = |asked: &str| (asked == name).then(|| value.to_owned());
            let error = Settings::from_environment(set).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(value), "{error}");
            assert!(error.contains("allowed"), "{error}");
        }
    }
}
