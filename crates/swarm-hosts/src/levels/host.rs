//! One host: the product's machine, the memory that its places name, and where its program is.

use std::collections::VecDeque;

use tributary_replicated::{Datagram, Landing, Levels, Message, Place};

/// Datagrams that a socket holds for a program that is in no operation.
const HELD_MAX: usize = 256;

/// A datagram with its payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) from: u32,
    pub(super) tag: u32,
    pub(super) datagram: Datagram,
    pub(super) payload: u64,
    pub(super) previous: Option<u64>,
}

/// Why a host fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// This host is gone.
    Gone(u32),
    /// These two called differently in an operation.
    Disagreement { hosts: [u32; 2], operation: u64 },
}

/// Where a host's program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// It computes, or waits in an operation.
    Runs,
    /// It begins no operation any more, and others may need it.
    Leaves,
    /// Nobody needs it, or it has failed: its links have ended in order.
    Ended,
    Dead,
}

/// A place's contributions and sum.
#[derive(Clone, Debug)]
struct Slot {
    contributions: Vec<Option<u64>>,
    sum: Option<u64>,
}

pub(super) struct Host {
    pub(super) levels: Levels,
    pub(super) life: Life,
    /// Operations that the program has begun and that are complete.
    pub(super) begun: u64,
    pub(super) completed: u64,
    pub(super) waits_since: Option<u64>,
    pub(super) verdict: Option<Verdict>,
    pub(super) timer_at: Option<u64>,
    /// What has come by datagram and is not taken.
    held: VecDeque<Arrival>,
    /// By group, then by place.
    memory: Vec<Vec<Slot>>,
}

impl Host {
    pub(super) fn new(levels: Levels) -> Self {
        let memory = levels.groups().iter().map(|group| {
            let slot = Slot { contributions: vec![None; group.hosts().len()], sum: None };
            vec![slot; group.places()]
        });
        Self {
            memory: memory.collect(),
            levels,
            life: Life::Runs,
            begun: 0,
            completed: 0,
            waits_since: None,
            verdict: None,
            timer_at: None,
            held: VecDeque::new(),
        }
    }

    /// Whether it answers others.
    pub(super) fn is_there(&self) -> bool {
        matches!(self.life, Life::Runs | Life::Leaves) && self.verdict.is_none()
    }

    /// The other hosts of its groups.
    pub(super) fn others(&self, me: u32) -> Vec<u32> {
        let hosts = self.levels.groups().iter().flat_map(|group| group.hosts()).copied();
        let mut others: Vec<u32> = hosts.filter(|host| *host != me).collect();
        others.sort_unstable();
        others.dedup();
        others
    }

    pub(super) fn store(&mut self, group: usize, place: Option<Place>, value: Option<u64>) {
        match place {
            Some(Place::Contribution { place, member }) => {
                self.memory[group][place].contributions[usize::from(member)] = value;
            }
            Some(Place::Sum { place }) => self.memory[group][place].sum = value,
            None => {}
        }
    }

    pub(super) fn load(&self, group: usize, place: Place) -> Option<u64> {
        match place {
            Place::Contribution { place, member } => {
                self.memory[group][place].contributions[usize::from(member)]
            }
            Place::Sum { place } => self.memory[group][place].sum,
        }
    }

    /// Puts this host's contribution to a level where its groups begin from.
    pub(super) fn contribute(&mut self, level: usize, value: Option<u64>) {
        for group in self.levels.of_level(level) {
            let place = self.levels.groups()[group].next_place();
            self.store(group, Some(place), value);
        }
    }

    pub(super) fn fold(&mut self, group: usize, place: usize) {
        let slot = &mut self.memory[group][place];
        let values: Option<Vec<u64>> = slot.contributions.iter().copied().collect();
        slot.sum = values.map(|values| fold(&values));
    }

    /// A datagram comes to the socket. One that it has no room for is lost.
    pub(super) fn hold(&mut self, arrival: Arrival) {
        if self.held.len() < HELD_MAX {
            self.held.push_back(arrival);
        }
    }

    /// The program is in an operation, and takes what has come.
    pub(super) fn take_held(&mut self) {
        while let Some(Arrival { from, tag, datagram, payload, previous }) = self.held.pop_front() {
            let Some((group, member)) = self.levels.find(tag, from) else { continue };
            let Landing { current, previous: before } =
                self.levels.handle_datagram(group, member, &datagram);
            self.store(group, current, Some(payload));
            self.store(group, before, previous);
        }
    }

    /// A message comes over a link. Returns whether something was wanted that it brings.
    pub(super) fn take_message(
        &mut self,
        from: u32,
        tag: u32,
        message: Message,
        payload: Option<u64>,
    ) -> bool {
        let Some((group, member)) = self.levels.find(tag, from) else { return false };
        let place = self.levels.handle_message(group, member, message);
        self.store(group, place, payload);
        place.is_some()
    }
}

/// Neither commutes nor associates, as sums of floats.
pub(super) fn fold(values: &[u64]) -> u64 {
    let folded = values
        .iter()
        .copied()
        .reduce(|sum, value| sum.wrapping_mul(31).wrapping_add(value ^ sum >> 7));
    folded.unwrap_or(0)
}
