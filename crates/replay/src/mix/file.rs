//! What a mix file holds: every key, with the type of its value.

use serde::Deserialize;
use tributary_algorithms::CollectiveKind;
use tributary_workload::Distribution;

/// The communicator that every mix has.
pub(super) const WORLD: &str = "world";

/// A described program. It takes any number of ranks.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Its name.
    pub name: String,
    /// What it stands for.
    #[serde(default)]
    pub about: String,
    /// Where its shape is from.
    #[serde(default)]
    pub source: String,
    /// How many ranks it has if nobody says otherwise.
    pub ranks: u32,
    /// How many of them are on each host if nobody says otherwise.
    pub processes_per_host: u32,
    /// How often it goes through its phases.
    pub iterations: u32,
    /// How much later than the first a rank begins.
    #[serde(default = "nothing")]
    pub skew: Distribution,
    /// Standard deviation, over ranks, of a factor on the computing of each.
    #[serde(default)]
    pub imbalance: f64,
    /// Communicators besides `world`.
    #[serde(default)]
    pub communicator: Vec<MixCommunicator>,
    /// The phases of an iteration.
    pub phase: Vec<MixPhase>,
}

/// Communicators that divide the world.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixCommunicator {
    /// Its name, for phases.
    pub name: String,
    /// So many neighbouring ranks each.
    #[serde(default)]
    pub blocks_of: Option<u32>,
    /// The number of communicators, n; each takes every n-th rank.
    #[serde(default)]
    pub stride: Option<u32>,
}

/// Computing, then a collective.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixPhase {
    /// How long each rank computes before.
    #[serde(default = "nothing")]
    pub compute: Distribution,
    /// The collective.
    pub operation: CollectiveKind,
    /// A rank's contribution.
    #[serde(default)]
    pub bytes: u64,
    /// The root, for those that have one.
    #[serde(default)]
    pub root: u32,
    /// Over whom.
    #[serde(default = "world")]
    pub communicator: String,
    /// How often in a row.
    #[serde(default = "once")]
    pub repeat: u32,
    /// Only in each iteration whose number is a multiple of this.
    #[serde(default = "once")]
    pub every: u32,
}

fn nothing() -> Distribution {
    Distribution::NONE
}

fn world() -> String {
    WORLD.to_owned()
}

fn once() -> u32 {
    1
}
