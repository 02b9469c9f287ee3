//! What must hold: a rank that waits gets its result, or hears in time that somebody is gone, and who.

use crate::seats::{Named, Phase, Seat, SeatId};
use crate::system::{Communicator, System};
use crate::violation::Violation;

/// How long a rank that waits may still do so once it can know that somebody is gone.
const PROMISE_NS: u64 = 1_000_000_000;

impl System<'_> {
    /// A rank that waits for one that is gone may not wait for long.
    pub(super) fn check_promise(&mut self, id: SeatId) {
        let communicator = &self.communicators[id.0 as usize];
        let hub = self.plan.communicators[id.0 as usize].hub;
        let seat = &communicator.seats[id.1];
        let Some(since) = communicator.is_due_to_hear_since(seat, hub) else { return };
        if self.now > since + PROMISE_NS {
            let (communicator, rank, late_ns) = (id.0, seat.rank, self.now - since);
            self.report(Violation::Late { communicator, rank, late_ns });
        }
    }

    /// A rank that fails must have cause, and name somebody who is gone.
    pub(super) fn check_named(&mut self, id: SeatId, whom: Named) {
        let entry = &self.communicators[id.0 as usize];
        let (communicator, rank) = (id.0, entry.seats[id.1].rank);
        let told = || format!("rank {rank} fails in communicator {communicator}: {whom:?}");
        self.trace.note(self.now, told);
        let hosts = &self.plan.communicators[id.0 as usize].hosts;
        // A rank that has failed in this communicator may die before the others have heard why.
        let is_dead = |rank: u32| !self.processes[rank as usize].is_alive;
        let is_gone =
            |rank: &u32| is_dead(*rank) || entry.gone.iter().any(|(gone, _)| gone == rank);
        let is_true = match whom {
            Named::Rank(rank) => is_gone(&rank),
            // A host that has failed ends its links. A host that calls it later for the first time can't know why. It calls others
            // when all its own ranks have come.
            Named::Host(host) => {
                let own = entry.seats[id.1].host;
                let of_own_host = entry.seats.iter().filter(|seat| seat.host == own);
                let since = of_own_host.filter_map(|seat| seat.waits_since).max();
                let had_failed = |seat: &Seat| seat.has_failed() && seat.ended_at <= since;
                let of_host = |seat: &&Seat| seat.host == host && seat.local == 0;
                entry.seats.iter().find(of_host).is_some_and(had_failed)
                    || hosts[host as usize].iter().any(is_gone)
            }
            Named::Nobody => true,
        };
        let named = format!("{whom:?}");
        if entry.gone.is_empty() {
            self.report(Violation::Unfounded { communicator, rank, named });
        } else if !is_true {
            self.report(Violation::Misnamed { communicator, rank, named });
        }
    }

    /// At the end nobody waits.
    pub(super) fn check_over(&mut self) {
        let stuck = (0..).zip(&self.communicators).find_map(|(number, communicator)| {
            let seat = communicator.seats.iter().find(|seat| !seat.is_over())?;
            Some((number, seat))
        });
        if let Some((communicator, seat)) = stuck {
            let (rank, completed) = (seat.rank, seat.completed_operations());
            self.report(Violation::Stuck { communicator, rank, completed });
        }
    }
}

impl Communicator {
    /// Since when a rank that waits can know that somebody is gone: all have come that it takes to find that out.
    fn is_due_to_hear_since(&self, seat: &Seat, hub: u32) -> Option<u64> {
        let own = seat.waits_since?;
        // Since when all of these wait, too, or are over.
        let all = |has_to: &dyn Fn(&Seat) -> bool| {
            let those = self.seats.iter().filter(|seat| has_to(seat));
            let at = those.map(|seat| seat.waits_since.or(seat.ended_at));
            at.into_iter().try_fold(own, |latest, at| Some(latest.max(at?)))
        };
        let is_of_host = |other: &Seat| other.host == seat.host;
        let gone = |is_meant: &dyn Fn(&Seat) -> bool| {
            let is_one = |rank: u32| self.seats.iter().any(|it| it.rank == rank && is_meant(it));
            self.gone.iter().find(|(rank, _)| is_one(*rank)).map(|(_, at)| *at)
        };
        let heard = |at: Option<u64>, since: Option<u64>| Some(at?.max(since?));
        if matches!(seat.phase, Phase::SettingUp { .. }) {
            return heard(gone(&|_| true), all(&|other| other.rank == hub));
        }
        let leads = |other: &Seat| other.local == 0;
        let causes = [
            // Ranks of a host look after each other, and a tree's aggregator after leaders, however late others are.
            heard(gone(&is_of_host), all(&is_of_host)),
            heard(gone(&leads).filter(|_| self.has_tree), all(&is_of_host)),
            heard(gone(&|_| true), all(&|_| true)),
        ];
        causes.into_iter().flatten().min()
    }
}
