//! What knobs choose between by name.

use serde::{Deserialize, Serialize};
use tributary_algorithms::Algorithm;

/// Something that is chosen by a word.
pub(super) trait Choice: Copy + 'static {
    /// Every choice and its word.
    const NAMED: &[(&str, Self)];
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
}

impl Choice for ChannelChoice {
    const NAMED: &[(&str, Self)] = &[("auto", Self::Auto), ("tcp", Self::Tcp), ("udp", Self::Udp)];
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

impl Choice for BetweenHosts {
    const NAMED: &[(&str, Self)] =
        &[("auto", Self::Auto), ("tree", Self::Tree), ("mesh", Self::Mesh)];
}

/// Who joins hosts where the manager refuses a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Host algorithms over direct links.
    Mesh,
    /// The MPI beneath.
    Mpi,
}

impl Choice for Fallback {
    const NAMED: &[(&str, Self)] = &[("mesh", Self::Mesh), ("mpi", Self::Mpi)];
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
    /// [`Algorithm::Linear`].
    Linear,
}

impl Choice for AlgorithmChoice {
    const NAMED: &[(&str, Self)] = &[
        ("auto", Self::Auto),
        ("recursive-doubling", Self::RecursiveDoubling),
        ("rabenseifner", Self::Rabenseifner),
        ("ring", Self::Ring),
        ("binomial", Self::Binomial),
        ("linear", Self::Linear),
    ];
}

impl AlgorithmChoice {
    /// Every choice.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::NAMED.iter().map(|(_, choice)| *choice)
    }

    /// As the knob and tuning files write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        let named = Self::NAMED.iter().find(|(_, choice)| *choice == self);
        named.expect("the table has every choice").0
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
            Self::Linear => Algorithm::Linear,
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

impl Choice for WaitChoice {
    const NAMED: &[(&str, Self)] =
        &[("auto", Self::Auto), ("spin", Self::Spin), ("sleep", Self::Sleep)];
}

/// Whether to do something where it can be done.
impl Choice for bool {
    const NAMED: &[(&str, Self)] = &[("auto", true), ("off", false)];
}
