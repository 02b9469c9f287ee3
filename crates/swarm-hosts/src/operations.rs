//! The operations of a rank inside its host, and the end of its part in a communicator.

use tributary_waits::awaited::WaitsFor;
use tributary_waits::pipeline::{Pipeline, Step};

use crate::frame::Frame;
use crate::links::{Failure, LeaderId};
use crate::plan::Carry;
use crate::seats::{End, Named, Operation, Phase, SeatId};
use crate::system::System;
use crate::violation::Violation;

impl System<'_> {
    /// A rank closes its communicator.
    pub(super) fn leave(&mut self, id: SeatId) {
        if self.seat(id).phase == Phase::Ready && self.seat(id).operation.is_none() {
            let operations = self.plan.communicators[id.0 as usize].operations.len();
            if self.seat(id).begun < operations {
                self.lose(id);
            }
            self.depart(id);
            self.end_seat(id, End::Left);
        }
    }

    pub(super) fn depart(&mut self, id: SeatId) {
        let (place, local) = (self.place(id), self.seat(id).local);
        self.shared_mut(place).departed[local] = true;
        if local == 0 && self.shared_mut(place).leader.is_some() {
            self.leave_links(place);
        }
        self.wake_host(place);
    }

    /// A rank begins its next operation.
    pub(super) fn begin(&mut self, id: SeatId) {
        if self.seat(id).phase != Phase::Ready {
            return;
        }
        let (now, place) = (self.now, self.place(id));
        let group = &self.plan.communicators[id.0 as usize];
        let carry = group.operations[self.seat(id).begun];
        let hosts = group.hosts.len() as u32;
        let own = group.hosts[place.1 as usize].iter().fold(0, |bits, rank| bits | 1 << rank);
        let seat = self.seat(id);
        seat.begun += 1;
        seat.waits_since = Some(now);
        let pipeline = Pipeline::new(carry.parts(), true);
        seat.operation = Some(Operation { carry, pipeline, has_come: false });
        if seat.local == 0 {
            self.links(place).begin(own, carry.course(), place.1, hosts);
        }
    }

    /// Goes on with whatever a seat waits for. `looks` from time to time, when it has waited for a while.
    pub(super) fn advance(&mut self, id: SeatId, looks: bool) {
        let seat = self.seat(id);
        match seat.phase {
            Phase::SettingUp { .. } => self.advance_set_up(id),
            Phase::Ready if seat.operation.is_some() => {
                if let Err((failure, named)) = self.operate(id, looks) {
                    self.fail(id, failure, named);
                }
            }
            _ => {}
        }
    }

    fn operate(&mut self, id: SeatId, looks: bool) -> Result<(), (Option<Failure>, Named)> {
        let place = self.place(id);
        let leads = self.seat(id).local == 0;
        loop {
            if self.shared_mut(place).has_failed {
                return Err((None, Named::Nobody));
            }
            if leads {
                self.advance_between_hosts(id, looks)?;
            }
            let came = self.come(id);
            let seat = self.seat(id);
            let Some(operation) = &mut seat.operation else { return Ok(()) };
            let step = operation.pipeline.step();
            let is_over = match step {
                Step::Done => {
                    (seat.operation, seat.waits_since) = (None, None);
                    return Ok(());
                }
                Step::Reduce(_) => !leads || self.have_all_come(place, came),
                Step::Spread(part) if leads => self.links(place).results > part,
                Step::Spread(_) => self.leads_over(place) >= came,
            };
            if !is_over {
                return if looks { self.look(id, step) } else { Ok(()) };
            }
            let seat = self.seat(id);
            seat.over += 1;
            if let Some(operation) = &mut seat.operation {
                operation.pipeline.on_step_over();
                operation.has_come = false;
            }
            if leads {
                self.wake_host(place);
            }
        }
    }

    /// Comes to the next step, if it has not. Returns how many steps it has come to.
    fn come(&mut self, id: SeatId) -> usize {
        let place = self.place(id);
        let seat = self.seat(id);
        let Some(operation) = &mut seat.operation else { return seat.came };
        let is_new = operation.pipeline.step() != Step::Done
            && !std::mem::replace(&mut operation.has_come, true);
        seat.came += usize::from(is_new);
        let (came, leads) = (seat.came, seat.local == 0);
        if is_new && !leads {
            self.wake_host(place);
        }
        came
    }

    fn have_all_come(&self, place: LeaderId, came: usize) -> bool {
        self.seats_of(place).all(|seat| seat.came >= came)
    }

    fn leads_over(&self, place: LeaderId) -> usize {
        self.seats_of(place).find(|seat| seat.local == 0).map_or(0, |seat| seat.over)
    }

    /// Looks whether the ranks that are waited for can still come.
    fn look(&mut self, id: SeatId, step: Step) -> Result<(), (Option<Failure>, Named)> {
        let (place, own) = (self.place(id), self.seat(id).came);
        let leads = self.seat(id).local == 0;
        let may_be_missed: Vec<(usize, u32)> = match (leads, step) {
            (false, _) => self.seats_of(place).filter(|it| it.local == 0).collect::<Vec<_>>(),
            (true, Step::Reduce(_)) => self.seats_of(place).filter(|it| it.came < own).collect(),
            (true, _) if WaitsFor::InterHost.looks_at_host() => self.seats_of(place).collect(),
            (true, _) => Vec::new(),
        }
        .into_iter()
        .map(|seat| (seat.local, seat.rank))
        .collect();
        let waits_for_host = !leads || matches!(step, Step::Reduce(_));
        for (local, rank) in may_be_missed {
            let has_departed = self.shared_mut(place).departed[local];
            let is_dead = !self.processes[rank as usize].is_alive;
            if has_departed && waits_for_host || is_dead && !has_departed {
                return Err((Some(Failure::Known(place.1)), Named::Rank(rank)));
            }
        }
        Ok(())
    }

    /// A leader's part between hosts.
    fn advance_between_hosts(
        &mut self,
        id: SeatId,
        looks: bool,
    ) -> Result<(), (Option<Failure>, Named)> {
        let place = self.place(id);
        let Some(operation) = &self.seat(id).operation else { return Ok(()) };
        let (carry, pipeline) = (operation.carry, operation.pipeline.clone());
        let named = |failure| (Some(failure), Named::Nobody);
        match carry {
            Carry::Tree | Carry::Stream { .. } => {
                self.advance_in_tree(place, carry, &pipeline).map_err(named)
            }
            Carry::Links(_) if pipeline.reduced_parts() > 0 && self.links(place).results == 0 => {
                if looks {
                    self.check_links(place).map_err(named)?;
                }
                if self.advance_links(place).map_err(named)? {
                    self.links(place).results = 1;
                    self.check_result(id);
                }
                Ok(())
            }
            Carry::Links(_) => Ok(()),
        }
    }

    fn advance_in_tree(
        &mut self,
        place: LeaderId,
        carry: Carry,
        pipeline: &Pipeline,
    ) -> Result<(), Failure> {
        let Some(aggregator) = self.links(place).aggregator else { return Ok(()) };
        while let Some(frame) = self.next_frame(aggregator) {
            match frame {
                Frame::Grant => self.links(place).is_granted = true,
                Frame::Results { parts } => self.links(place).results = parts,
                Frame::Abort { at_fault } => return Err(Failure::Known(at_fault)),
                _ => return Ok(()),
            }
        }
        let is_stream = matches!(carry, Carry::Stream { .. });
        let links = self.links(place);
        if is_stream && pipeline.may_ask_for_lock() && !links.has_asked {
            links.has_asked = true;
            self.send(aggregator, Frame::Ask);
        }
        let links = self.links(place);
        let may_send = links.is_granted || !is_stream;
        if may_send && pipeline.reduced_parts() > links.told_parts {
            links.told_parts = pipeline.reduced_parts();
            let (parts, total) = (links.told_parts, carry.parts());
            self.send(aggregator, Frame::Ready { parts, total });
        }
        Ok(())
    }

    fn check_result(&mut self, id: SeatId) {
        let place = self.place(id);
        let all = self.plan.communicators[id.0 as usize].ranks();
        let all = all.fold(0, |bits, rank| bits | 1 << rank);
        if self.links(place).brought != all {
            let (communicator, rank) = (id.0, self.seat(id).rank);
            let operation = self.seat(id).begun - 1;
            self.report(Violation::WrongResult { communicator, rank, operation });
        }
    }

    /// A rank can't go on. It tells the ranks of its host and, at a leader, the other hosts.
    fn fail(&mut self, id: SeatId, failure: Option<Failure>, named: Named) {
        let place = self.place(id);
        let leads = self.seat(id).local == 0;
        self.shared_mut(place).has_failed = true;
        let mut named = named;
        if leads {
            // Even if another rank of the host has reported it, the host is at fault.
            let at_fault = self.fail_links(place, failure.unwrap_or(Failure::Known(place.1)));
            if named == Named::Nobody && failure.is_some() {
                named = Named::Host(at_fault);
            }
        }
        self.end_failed(id, named);
        self.wake_host(place);
    }

    pub(super) fn end_failed(&mut self, id: SeatId, named: Named) {
        self.check_named(id, named);
        self.end_seat(id, End::Failed);
    }

    pub(super) fn end_seat(&mut self, id: SeatId, end: End) {
        let now = self.now;
        let seat = self.seat(id);
        (seat.phase, seat.ended_at) = (Phase::Over(end), Some(now));
        (seat.operation, seat.waits_since) = (None, None);
    }

    fn wake_host(&mut self, place: LeaderId) {
        let ranks: Vec<u32> = self.seats_of(place).map(|seat| seat.rank).collect();
        ranks.into_iter().for_each(|rank| self.wake(rank));
    }
}
