//! Where a rank stands in a communicator: its host, its place there, and what joins the hosts.
//!
//! Knows placement and terms; must not know how operations run.

use tributary_wire::{EndpointId, StreamTerms};

use crate::context::Placement;
use crate::on_host::Longest;
use crate::ways::Ways;

/// Where this rank stands.
pub(crate) struct Seat {
    pub(crate) rank: u32,
    pub(crate) placement: Placement,
    /// Endpoint number of each host's leader, by host index.
    pub(crate) endpoints: Vec<EndpointId>,
    /// What joins the hosts, where there are several, and when.
    pub(crate) ways: Ways,
    /// What the tree streams; none if it streams nothing.
    pub(crate) stream: Option<StreamUse>,
    /// Up to what lengths collectives are worth it that run inside one host only.
    pub(crate) longest: Longest,
    /// Why they are not joined in the way they should be.
    pub(crate) note: Option<String>,
    /// What carries data between leaders and the tree, for the report; none without a tree.
    pub(crate) carriers: Option<String>,
    /// What the ranks of a host have to do without among themselves, and why, for the report.
    pub(crate) memory_notes: Vec<String>,
}

/// Which vectors are streamed, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamUse {
    pub(crate) min_bytes: u64,
    pub(crate) terms: StreamTerms,
}

impl Seat {
    pub(crate) fn ranks(&self) -> u32 {
        self.placement.host_of.len() as u32
    }

    pub(crate) fn host(&self) -> u32 {
        self.placement.host_of[self.rank as usize]
    }

    pub(crate) fn local_rank(&self) -> u32 {
        self.placement.local_of[self.rank as usize]
    }

    pub(crate) fn local_ranks(&self) -> u32 {
        self.placement.ranks_on[self.host() as usize]
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.local_rank() == 0
    }

    pub(crate) fn spans_hosts(&self) -> bool {
        self.placement.hosts.len() > 1
    }

    /// The rank in the communicator of a rank of this host.
    pub(crate) fn rank_of_local(&self, local_rank: u32) -> u32 {
        let is_it = |rank: &usize| {
            self.placement.host_of[*rank] == self.host()
                && self.placement.local_of[*rank] == local_rank
        };
        (0..self.ranks() as usize).find(is_it).map_or(self.rank, |rank| rank as u32)
    }

    /// The host whose leader has this endpoint number; none if it is no leader's.
    pub(crate) fn host_of_endpoint(&self, endpoint: EndpointId) -> Option<&str> {
        let host = self.endpoints.iter().position(|other| *other == endpoint)?;
        Some(&self.placement.hosts[host])
    }

    pub(crate) fn is_on_this_host(&self, rank: u32) -> bool {
        self.placement.host_of[rank as usize] == self.host()
    }
}
