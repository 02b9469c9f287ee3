//! Datagrams of groups whose aggregators run on hosts, and their results by multicast, as in the product.
//!
//! Results to a group's address leave the root once. Each switch passes them on over every link behind which somebody
//! listens. A member that listens says so to its aggregator, which then leaves out the reliable copy.

use tributary_protocol::endpoint::ShortVectors;
use tributary_protocol::node::PortId;

use super::ids::{AggregatorId, MemberId};
use crate::preset::Preset;

/// How datagrams are used.
#[derive(Clone, Copy, Debug)]
pub(super) struct DatagramTerms {
    pub(super) segment_max_bytes: u32,
    pub(super) vector_max_bytes: u64,
    pub(super) has_multicast: bool,
    pub(super) is_lossy: bool,
}

/// Where somebody listens to a group's address.
#[derive(Clone, Copy, Debug)]
pub(super) enum Listener {
    Member(MemberId),
    /// An aggregator below the root, with its port to the aggregator above.
    Node(AggregatorId, PortId),
}

impl DatagramTerms {
    /// Those of a preset; none if it has no datagrams.
    pub(super) fn of(preset: &Preset) -> Option<Self> {
        let datagrams = preset.datagrams.as_ref()?;
        Some(Self {
            // The product's datagrams fit one packet.
            segment_max_bytes: datagrams.segment_max.bytes().min(preset.packet.mtu.bytes()) as u32,
            vector_max_bytes: datagrams.vector_max.bytes() as u64,
            has_multicast: datagrams.multicast,
            is_lossy: preset.loss.as_ref().is_some_and(|loss| loss.share.value() > 0.0),
        })
    }

    /// How vectors are cut so that they go by datagram; none if as ever.
    pub(super) fn short_vectors(&self, is_multicast: bool) -> Option<ShortVectors> {
        let segment_max_bytes = self.segment_max_bytes;
        match (self.is_lossy, is_multicast) {
            (true, _) => Some(ShortVectors {
                vector_max_bytes: u64::MAX,
                may_exceed_window: true,
                segment_max_bytes,
            }),
            (false, true) => Some(ShortVectors {
                vector_max_bytes: self.vector_max_bytes,
                may_exceed_window: false,
                segment_max_bytes,
            }),
            (false, false) => None,
        }
    }
}
