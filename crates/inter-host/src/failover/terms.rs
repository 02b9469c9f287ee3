//! What every tree of a communicator has in common.

use tributary_wire::StreamTerms;
use tributary_wire::control::GroupGrant;

use crate::tree::{Approach, TreeMember};

/// What a leader needs to take another place in a tree.
#[derive(Clone, Debug)]
pub struct Terms {
    /// How it may reach its aggregator.
    pub approach: Approach,
    /// This machine's name.
    pub machine: String,
    /// Shortest vector that is streamed.
    pub stream_min_bytes: Option<u64>,
    /// What every group of this communicator streams: ranks that know nothing of the tree cut vectors by it.
    pub stream: Option<StreamTerms>,
    /// Most segments that a group may have in flight.
    pub osos_max: u16,
}

impl Terms {
    /// Most segments or chunks that a member may have in flight.
    pub(super) fn window_max(&self) -> u16 {
        self.osos_max.max(self.stream.map_or(0, |terms| terms.window))
    }

    /// How a vector of this length is streamed; none if it is not.
    pub(super) fn stream_of(&self, len_bytes: usize) -> Option<StreamTerms> {
        let is_long = self.stream_min_bytes.is_some_and(|least| len_bytes as u64 >= least);
        self.stream.filter(|_| is_long)
    }

    /// Takes a place by a grant that fits; none if there is no such place.
    pub(super) fn enter(&self, grant: &GroupGrant, host: u32) -> Option<Box<TreeMember>> {
        let fits = grant.stream == self.stream
            && grant.osos <= self.osos_max
            && grant.endpoints.len() > host as usize;
        let Self { approach, machine, stream_min_bytes, .. } = self;
        let entered = fits
            .then(|| TreeMember::enter(grant, host, approach, machine, *stream_min_bytes).ok())
            .flatten();
        entered.map(|mut member| {
            member.retain_results();
            Box::new(member)
        })
    }
}
