//! All that a simulated system consists of.

use super::aggregator::Aggregator;
use super::cores::Cores;
use super::cost::Costs;
use super::event::Event;
use super::frames::Frames;
use super::group::Group;
use super::host::{Adapter, Process};
use super::losses::Losses;
use super::member::Member;
use super::multicast::DatagramTerms;
use super::notices::Notices;
use super::outcome::{Finished, RunError};
use super::payload::Data;
use super::rank::{Rank, RankFinished};
use super::transfer::Transfers;
use crate::engine::{EventQueue, Random};
use crate::fabric::Network;

/// A simulated system. `D` is the payload model: [`NoPayload`](super::NoPayload) or
/// [`RealPayload`](super::RealPayload).
pub struct World<D: Data> {
    pub(super) events: EventQueue<Event>,
    pub(super) network: Network,
    pub(super) costs: Costs,
    pub(super) random: Random,
    pub(super) frames: Frames<D>,
    pub(super) adapters: Vec<Adapter>,
    pub(super) processes: Vec<Process>,
    pub(super) cores: Cores,
    pub(super) losses: Losses,
    /// How datagrams are used where they are; none in a system without.
    pub(super) datagrams: Option<DatagramTerms>,
    /// Whether any group does. Without, no machine has anything to repeat.
    pub(super) uses_datagrams: bool,
    pub(super) aggregators: Vec<Aggregator<D>>,
    pub(super) members: Vec<Member<D>>,
    pub(super) groups: Vec<Group>,
    pub(super) finished: Vec<Finished>,
    pub(super) ranks: Vec<Rank>,
    pub(super) transfers: Transfers,
    pub(super) notices: Notices,
    pub(super) ranks_finished: Vec<RankFinished>,
    /// How many members have joined their aggregation node.
    pub(super) joined: usize,
    pub(super) fault: Option<RunError>,
}
