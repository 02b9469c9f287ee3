//! What knobs choose between by name.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tributary_algorithms::network::Network;
use tributary_tuning::AlgorithmChoice;

/// Something that is chosen by a word.
pub(super) trait Choice: Copy + 'static {
    /// Every choice and its word.
    const NAMED: &[(&str, Self)];

    /// The choice that a word asks for; none if there is no such word.
    fn of_word(text: &str) -> Option<Self> {
        Self::NAMED.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice)
    }
}

/// What joins the hosts of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricChoice {
    /// As [`Job`](Self::Job), but an MPI that has an RDMA network beneath it keeps communicators of several hosts.
    Auto,
    /// The manager, and where none is named direct links that the job makes itself.
    Job,
    /// The manager or nothing.
    Manager,
    /// Nothing.
    Off,
}

impl Choice for FabricChoice {
    const NAMED: &[(&str, Self)] =
        &[("auto", Self::Auto), ("job", Self::Job), ("manager", Self::Manager), ("off", Self::Off)];
}

impl FabricChoice {
    /// Whether the job makes links itself where no manager is named.
    #[must_use]
    pub fn joins_by_job(self) -> bool {
        matches!(self, Self::Auto | Self::Job)
    }
}

/// Which measurements of this system decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TuningChoice {
    /// The manager's, if it has any; else the user's own file, if there is one.
    #[default]
    Auto,
    /// None.
    Off,
    /// Those of a file.
    File(PathBuf),
}

impl TuningChoice {
    pub(super) fn of(text: &str) -> Self {
        match text {
            "" | "auto" => Self::Auto,
            "off" => Self::Off,
            path => Self::File(path.into()),
        }
    }

    /// The file that is named.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Auto | Self::Off => None,
        }
    }
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

impl Choice for TransportChoice {
    const NAMED: &[(&str, Self)] = &[("auto", Self::Auto), ("shm", Self::Shm), ("tcp", Self::Tcp)];
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
    /// As `Auto`, with datagrams past the host's network stack, by AF_XDP.
    Xdp,
}

impl Choice for ChannelChoice {
    const NAMED: &[(&str, Self)] =
        &[("auto", Self::Auto), ("tcp", Self::Tcp), ("udp", Self::Udp), ("xdp", Self::Xdp)];
}

/// How leaders of different hosts meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BetweenHosts {
    /// Direct links between two real hosts, aggregation nodes else.
    Auto,
    /// Aggregation nodes.
    Tree,
    /// Host algorithms over direct links.
    Direct,
    /// The same, and short allreduces and barriers by datagrams in replicated groups.
    Replicated,
}

impl Choice for BetweenHosts {
    const NAMED: &[(&str, Self)] = &[
        ("auto", Self::Auto),
        ("tree", Self::Tree),
        ("direct", Self::Direct),
        ("replicated", Self::Replicated),
    ];
}

/// What carries operations between hosts where the manager refuses a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Host algorithms over direct links.
    Direct,
    /// The underlying MPI.
    Mpi,
}

impl Choice for Fallback {
    const NAMED: &[(&str, Self)] = &[("direct", Self::Direct), ("mpi", Self::Mpi)];
}

/// What a job must have to go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requirement {
    /// Nothing: what can't be had is done without.
    #[default]
    Nothing,
    /// Communicators of one host are carried.
    InHost,
    /// Communicators of several hosts, too.
    Between,
    /// Those of several hosts have a tree when they are set up.
    Tree,
}

impl Choice for Requirement {
    const NAMED: &[(&str, Self)] = &[
        ("nothing", Self::Nothing),
        ("in_host", Self::InHost),
        ("between", Self::Between),
        ("tree", Self::Tree),
    ];
}

impl Requirement {
    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        let named = Self::NAMED.iter().find(|(_, choice)| *choice == self);
        named.map_or("", |(name, _)| name)
    }

    /// What a word asks for; none if there is no such word.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::of_word(text)
    }
}

/// Which operations avoid links that lose packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AvoidLosses {
    /// Those whose result is the same in whatever order values are combined.
    Exact,
    /// All.
    All,
    /// None.
    Off,
}

impl Choice for AvoidLosses {
    const NAMED: &[(&str, Self)] =
        &[("exact", Self::Exact), ("all", Self::All), ("off", Self::Off)];
}

/// How values of floats are added in a sum of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sums {
    /// In the order of the path; every addition rounds.
    Ordered,
    /// Without rounding but once, at the end.
    Exact,
}

impl Choice for Sums {
    const NAMED: &[(&str, Self)] = &[("ordered", Self::Ordered), ("exact", Self::Exact)];
}

impl Sums {
    /// What a word asks for; none if there is no such word.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::of_word(text)
    }
}

/// Whether members of a replicated group multicast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MulticastChoice {
    /// Where there is a network between them.
    Auto,
    /// Wherever multicasts come to all.
    On,
    /// Never.
    Off,
}

impl Choice for MulticastChoice {
    const NAMED: &[(&str, Self)] = &[("auto", Self::Auto), ("on", Self::On), ("off", Self::Off)];
}

/// Where a host takes the datagrams of replicated groups from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReceiveChoice {
    /// A ring of the host's service where there is one, else its sockets.
    Auto,
    /// Its sockets.
    Socket,
    /// A ring of the host's service. Where there is none its sockets, and the report says so.
    Ring,
}

impl Choice for ReceiveChoice {
    const NAMED: &[(&str, Self)] =
        &[("auto", Self::Auto), ("socket", Self::Socket), ("ring", Self::Ring)];
}

/// A kind of network, or that the kernel's description of the adapter tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkChoice {
    /// As rank 0's host has it.
    Auto,
    /// This kind.
    Named(Network),
}

impl Choice for NetworkChoice {
    const NAMED: &[(&str, Self)] = &[
        ("auto", Self::Auto),
        (Network::Ethernet10.name(), Self::Named(Network::Ethernet10)),
        (Network::Ethernet25.name(), Self::Named(Network::Ethernet25)),
        (Network::Ethernet100.name(), Self::Named(Network::Ethernet100)),
        (Network::Cloud.name(), Self::Named(Network::Cloud)),
        (Network::Bridge.name(), Self::Named(Network::Bridge)),
    ];
}

impl Choice for AlgorithmChoice {
    const NAMED: &[(&str, Self)] = AlgorithmChoice::NAMED;
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

impl Choice for WaitChoice {
    const NAMED: &[(&str, Self)] =
        &[("auto", Self::Auto), ("spin", Self::Spin), ("sleep", Self::Sleep)];
}

/// Whether to do something where it can be done.
impl Choice for bool {
    const NAMED: &[(&str, Self)] = &[("auto", true), ("off", false)];
}

/// Whether something is switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// It is.
    On,
    /// It is not.
    Off,
}

impl Choice for Switch {
    const NAMED: &[(&str, Self)] = &[("on", Self::On), ("off", Self::Off)];
}

/// What becomes of a nonblocking operation that failed and whose caller can't be told, as clients of
/// `libsharp_coll` can't.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharpFailure {
    /// The process is aborted.
    Abort,
    /// It is never over.
    Stall,
}

impl Choice for SharpFailure {
    const NAMED: &[(&str, Self)] = &[("abort", Self::Abort), ("stall", Self::Stall)];
}
