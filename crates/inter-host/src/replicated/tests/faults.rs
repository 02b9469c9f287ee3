//! Datagrams that are lost, repeated, or late and so overtaken, by a seed.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tributary_wire::frame::HEADER_BYTES;

use super::super::datagrams::Datagrams;

/// How many copies of one datagram meet with something, of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Rates {
    pub(in super::super) lost: u32,
    pub(in super::super) repeated: u32,
    pub(in super::super) late: u32,
}

pub(in super::super) struct Faults {
    random: Pcg64Mcg,
    rates: Rates,
    late: VecDeque<Late>,
    /// A host that nothing reaches.
    unreached: Option<u32>,
}

struct Late {
    host: u32,
    header: [u8; HEADER_BYTES],
    payload: Vec<u8>,
}

impl Faults {
    pub(in super::super) fn new(seed: u64, rates: Rates) -> Self {
        Self {
            random: Pcg64Mcg::seed_from_u64(seed),
            rates,
            late: VecDeque::new(),
            unreached: None,
        }
    }

    /// Everything to this host is lost, and nothing else.
    pub(in super::super) fn on_the_way_to(host: u32) -> Self {
        Self { unreached: Some(host), ..Self::new(0, Rates::default()) }
    }

    fn happens(&mut self, of_thousand: u32) -> bool {
        self.random.random_range(0..1000) < of_thousand
    }
}

/// The hosts whose copies of a datagram go out now. Late ones go out behind a later datagram.
pub(in super::super) fn survivors(
    datagrams: &mut Datagrams,
    hosts: impl Iterator<Item = u32>,
    header: &[u8; HEADER_BYTES],
    payload: &[u8],
) -> Vec<u32> {
    let Some(mut faults) = datagrams.faults.take() else { return hosts.collect() };
    let mut survivors = Vec::new();
    let overdue = faults.late.len();
    for host in hosts {
        if faults.unreached == Some(host) || faults.happens(faults.rates.lost) {
            continue;
        }
        if faults.happens(faults.rates.late) {
            faults.late.push_back(Late { host, header: *header, payload: payload.to_vec() });
            continue;
        }
        survivors.push(host);
        if faults.happens(faults.rates.repeated) {
            survivors.push(host);
        }
    }
    // In random order behind this one.
    for _ in 0..overdue {
        let Some(late) = faults.late.pop_front() else { break };
        if faults.happens(500) {
            faults.late.push_back(late);
        } else {
            datagrams.send_copies(std::iter::once(late.host), &late.header, &late.payload);
        }
    }
    datagrams.faults = Some(faults);
    survivors
}
