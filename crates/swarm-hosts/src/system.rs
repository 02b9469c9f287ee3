//! The whole of a run: its processes, communicators and connections, what is due, and what was found.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::RngExt;
use rand_pcg::Pcg64;

use crate::connections::{Connections, EndId, Files, Worker};
use crate::links::{Leader, LeaderId};
use crate::plan::Plan;
use crate::seats::{Seat, SeatId, Shared};
use crate::states::STATE_NAMES;
use crate::trace::Trace;
use crate::tree::Tree;
use crate::violation::Violation;

/// Something that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    Arrive { to: EndId },
    Knock { to: EndId, place: LeaderId },
    Told { place: LeaderId },
    Go { rank: u32 },
    Poll { rank: u32 },
    Look { rank: u32 },
    Fate { index: usize },
    WorkerEnds { worker: u32 },
}

pub(super) struct Process {
    pub(super) is_alive: bool,
    pub(super) files: Files,
    /// The step that its program is at.
    pub(super) act: usize,
    pub(super) is_going: bool,
    /// Its next step waits until it has left a communicator.
    pub(super) is_held: bool,
    pub(super) is_polling: bool,
}

pub(super) struct Communicator {
    pub(super) seats: Vec<Seat>,
    pub(super) hosts: Vec<Shared>,
    pub(super) has_tree: bool,
    /// The ranks that died or left while they were needed, and when.
    pub(super) gone: Vec<(u32, u64)>,
}

pub(super) struct System<'a> {
    pub(super) plan: &'a Plan,
    pub(super) now: u64,
    pub(super) random: Pcg64,
    pub(super) trace: Trace,
    pub(super) agenda: BinaryHeap<Reverse<(u64, u64, Item)>>,
    pub(super) entries: u64,
    pub(super) steps: u64,
    pub(super) processes: Vec<Process>,
    pub(super) communicators: Vec<Communicator>,
    pub(super) connections: Connections,
    pub(super) workers: Vec<Worker>,
    /// Calls that nobody will ever take, while a worker holds the listener.
    pub(super) stranded: Vec<(EndId, u32, u32)>,
    pub(super) tree: Tree,
    /// By number of the fate.
    pub(super) has_met: Vec<bool>,
    pub(super) states: [u64; STATE_NAMES.len()],
    pub(super) violation: Option<Violation>,
}

impl System<'_> {
    pub(super) fn put(&mut self, at: u64, item: Item) {
        self.entries += 1;
        self.agenda.push(Reverse((at, self.entries, item)));
    }

    pub(super) fn delay_ns(&mut self) -> u64 {
        self.random.random_range(1..=self.plan.delay_ns_max)
    }

    pub(super) fn report(&mut self, violation: Violation) {
        self.trace.note(self.now, || format!("VIOLATION: {violation}"));
        self.violation.get_or_insert(violation);
    }

    pub(super) fn seats_of_rank(&self, rank: u32) -> Vec<SeatId> {
        let in_one = |(number, communicator): (u32, &Communicator)| {
            let seat = communicator.seats.iter().position(|seat| seat.rank == rank)?;
            Some((number, seat))
        };
        (0..).zip(&self.communicators).filter_map(in_one).collect()
    }

    pub(super) fn seat_of(&self, rank: u32, communicator: u32) -> SeatId {
        let seats = &self.communicators[communicator as usize].seats;
        let seat = seats.iter().position(|seat| seat.rank == rank);
        (communicator, seat.expect("programs name their own communicators"))
    }

    pub(super) fn seat(&mut self, (communicator, number): SeatId) -> &mut Seat {
        &mut self.communicators[communicator as usize].seats[number]
    }

    pub(super) fn place(&mut self, id: SeatId) -> LeaderId {
        (id.0, self.seat(id).host)
    }

    pub(super) fn shared_mut(&mut self, (communicator, host): LeaderId) -> &mut Shared {
        &mut self.communicators[communicator as usize].hosts[host as usize]
    }

    pub(super) fn seats_of(&self, (communicator, host): LeaderId) -> impl Iterator<Item = &Seat> {
        let seats = &self.communicators[communicator as usize].seats;
        seats.iter().filter(move |seat| seat.host == host)
    }

    pub(super) fn links(&mut self, place: LeaderId) -> &mut Leader {
        let shared = &mut self.communicators[place.0 as usize].hosts[place.1 as usize];
        shared.leader.as_mut().expect("its set-up has begun")
    }

    pub(super) fn leading_rank(&self, (communicator, host): LeaderId) -> u32 {
        self.plan.communicators[communicator as usize].hosts[host as usize][0]
    }
}
