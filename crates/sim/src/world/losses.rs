//! Packets that are lost on their way, and what streams do about it.
//!
//! A packet's fate is drawn when it reaches its receiver, so each receiver of a multicast result loses its own. A lost
//! datagram is gone: the protocol's machines repeat what it said, by their own timers. Of a stream, a lost packet comes
//! late, and all later ones of the same two hosts wait for it, as they do in TCP.

use std::collections::HashMap;

use super::cost::LossCosts;
use super::packet::Packet;
use crate::engine::{Picos, Random};
use crate::fabric::Vertex;

/// Most times that one packet is lost, so that virtual time stays bounded.
const LOSSES_MAX: u32 = 10;

/// The arrival of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Now,
    At(Picos),
    Never,
}

/// The streams between hosts that wait for a lost packet, and until when.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses {
    held_until: HashMap<(Vertex, Vertex), Picos>,
    lost: u64,
}

impl Losses {
    /// Draws what becomes of a packet that reaches its receiver now.
    pub(super) fn draw(
        &mut self,
        costs: LossCosts,
        random: &mut Random,
        packet: &Packet,
        now: Picos,
    ) -> Arrival {
        let is_datagram = packet.is_datagram();
        let sends_max = if is_datagram { 1 } else { LOSSES_MAX };
        let mut times = 0;
        while times < sends_max && random.unit() < costs.share {
            times += 1;
        }
        self.lost += u64::from(times);
        if is_datagram {
            return if times > 0 { Arrival::Never } else { Arrival::Now };
        }
        // Each repeat waits twice as long as the one before it.
        let late = Picos(costs.stream_repeat.0 * ((1 << times) - 1));
        let held = self.held_until.entry((packet.from, packet.to)).or_default();
        *held = (now + late).max(*held);
        if *held > now { Arrival::At(*held) } else { Arrival::Now }
    }

    /// Packets lost so far.
    pub(super) fn count(&self) -> u64 {
        self.lost
    }
}
