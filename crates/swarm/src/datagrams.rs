//! The path for datagrams beside a link. It loses, doubles, delays and damages them at random.

use std::num::NonZeroU16;

use rand::RngExt;
use tributary_protocol::Carrier;

use super::agenda::{End, Item};
use super::datagram_store::Flying;
use super::world::World;
use tributary_protocol_testing::values::mix;

/// The UDP port of every process; the link tells which process is meant.
const UDP_PORT: NonZeroU16 = NonZeroU16::new(9).expect("9 is not 0");

/// Longest segment that fits a datagram, in scenarios where some are longer.
const SHORT_SEGMENT_BYTES: u32 = 64;

impl World<'_> {
    /// True with a probability of `parts` in a thousand.
    pub(super) fn happens(&mut self, parts: u32) -> bool {
        parts > 0 && self.random.random_range(0..1000) < parts
    }

    /// Every other scenario sends longer segments over the links, as drivers do.
    pub(super) fn datagram_segment_max_bytes(&self) -> u32 {
        let is_short = mix(self.scenario.seed ^ 0x5e6) & 1 == 1;
        if is_short { SHORT_SEGMENT_BYTES } else { u32::MAX }
    }

    /// Lets an aggregator take datagrams, if the scenario says so.
    pub(super) fn equip(&mut self, node: u32) {
        let Some(plan) = self.scenario.network.datagrams else { return };
        let chance = mix(self.scenario.seed ^ u64::from(node)) % 1000;
        if chance < u64::from(plan.takers) {
            let segment_max_bytes = self.datagram_segment_max_bytes();
            self.node(node).takes_datagrams = true;
            self.node(node).machine.take_datagrams(UDP_PORT, segment_max_bytes);
            self.equip_with_kernel_path(node);
        }
    }

    /// Lets a member offer datagrams, if the scenario says so.
    pub(super) fn offer_datagrams(&mut self, member: u32) {
        let Some(plan) = self.scenario.network.datagrams else { return };
        if self.happens(plan.takers) {
            let segment_max_bytes = self.datagram_segment_max_bytes();
            self.member(member).endpoint.offer_datagrams(UDP_PORT, segment_max_bytes);
            self.subscribe_multicast(member);
        }
    }

    /// Sends a frame over a link, or beside it.
    pub(super) fn send_by(&mut self, carrier: Carrier, link: u32, to: End, bytes: Vec<u8>) {
        match carrier {
            Carrier::Link => self.send(link, to, bytes, false),
            Carrier::Datagram => self.send_datagram(link, to, bytes),
            Carrier::Multicast => unreachable!("results to an address leave no port"),
        }
    }

    pub(super) fn send_datagram(&mut self, link: u32, to: End, mut bytes: Vec<u8>) {
        let plan =
            self.scenario.network.datagrams.expect("only a scenario with datagrams comes here");
        self.frames += 1;
        self.seal(&mut bytes);
        self.trace.note_number(self.now ^ u64::from(link) << 48 ^ (to as u64) << 47 ^ 1 << 46);
        self.trace.note_bytes(&bytes);
        let is_lost =
            self.happens(plan.lost) || self.now < self.links[link as usize].datagrams_lost_until;
        if is_lost {
            self.recycle(bytes);
            return;
        }
        if self.happens(plan.doubled) {
            let mut copy = self.buffer();
            copy.extend_from_slice(&bytes);
            self.put_datagram(link, to, copy, false);
        }
        let is_corrupted = self.happens(plan.corrupted);
        if is_corrupted {
            let bit = self.random.random();
            super::inject::flip(&mut bytes, bit);
        }
        self.put_datagram(link, to, bytes, is_corrupted);
    }

    /// A datagram is sent, honest or forged.
    pub(super) fn put_datagram(&mut self, link: u32, to: End, bytes: Vec<u8>, is_forged: bool) {
        let plan =
            self.scenario.network.datagrams.expect("only a scenario with datagrams comes here");
        let at = self.now + self.delay_ns() + self.random.random_range(0..plan.straggle_ns_max);
        let place = self.datagrams.add(bytes, is_forged);
        self.agenda.put(at, Item::Datagram { link, to, place });
    }

    pub(super) fn datagram_arrives(&mut self, link: u32, to: End, place: u32) {
        let entry = &self.links[link as usize];
        let (is_taken, until) = (
            entry.is_open(to) && entry.takes_datagrams[to as usize],
            entry.held_until[to as usize],
        );
        if is_taken && self.now < until {
            self.agenda.put(until, Item::Datagram { link, to, place });
            return;
        }
        let [from, at] = [to.other(), to].map(|end| entry.machines[end as usize]);
        let is_cut = self.cut_until(from, at).is_some();
        let Flying { bytes, is_forged } = self.datagrams.take(place);
        if is_taken && !is_cut {
            self.deliver(link, to, Carrier::Datagram, &bytes, is_forged);
        }
        self.recycle(bytes);
    }
}
