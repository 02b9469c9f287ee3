//! A rank's part in a communicator: its set-up, its operations inside the host, and its end.

use tributary_waits::awaited::WaitsFor;
use tributary_waits::exchange::Exchange;
use tributary_waits::pipeline::{Pipeline, Step};

use super::connections::{EndId, Owner};
use super::links::{Failure, Leader, Place};
use super::plan::{Carry, Course};
use super::{Frame, System};
use crate::violation::Violation;

/// Exchanges of a set-up.
const EXCHANGES: u32 = 2;

/// A rank's part in a communicator.
pub(super) struct Seat {
    pub(super) rank: u32,
    pub(super) host: u32,
    /// Its number among the host's ranks; 0 leads.
    pub(super) local: usize,
    pub(super) phase: Phase,
    pub(super) operation: Option<Operation>,
    /// Operations begun.
    pub(super) begun: usize,
    /// Since when it waits for others.
    pub(super) waits_since: Option<u64>,
    /// When it was over.
    pub(super) ended_at: Option<u64>,
    /// At a hub: by number of the others, its connections. At others: the one to the hub.
    hub: Vec<EndId>,
    exchange: Option<Exchange>,
    /// Steps inside the host that it has come to, and that are over.
    came: usize,
    over: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Out,
    SettingUp { exchange: u32 },
    Ready,
    Over(End),
}

/// How a rank's part ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Left,
    Failed,
    Dead,
}

pub(super) struct Operation {
    carry: Carry,
    pipeline: Pipeline,
    has_come: bool,
}

/// What the ranks of a host share.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) leader: Option<Leader>,
    has_failed: bool,
    /// By local number.
    departed: Vec<bool>,
}

/// The party that is named when a rank's part fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Rank(u32),
    Host(u32),
    /// Another rank of the host was told who it is.
    Nobody,
}

impl Seat {
    pub(super) fn new(rank: u32, host: u32, local: usize) -> Self {
        Self {
            rank,
            host,
            local,
            phase: Phase::Out,
            operation: None,
            begun: 0,
            waits_since: None,
            ended_at: None,
            hub: Vec::new(),
            exchange: None,
            came: 0,
            over: 0,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }

    pub(super) fn has_failed(&self) -> bool {
        self.phase == Phase::Over(End::Failed)
    }

    /// Operations completed.
    pub(super) fn completed(&self) -> usize {
        self.begun - usize::from(self.operation.is_some())
    }

    pub(super) fn is_streaming(&self) -> bool {
        let carry = self.operation.as_ref().map(|operation| operation.carry);
        matches!(carry, Some(Carry::Stream { .. }))
    }
}

impl Shared {
    pub(super) fn new(ranks: usize) -> Self {
        Self { departed: vec![false; ranks], ..Self::default() }
    }
}

impl Carry {
    const fn parts(self) -> usize {
        match self {
            Self::Stream { parts } => parts,
            Self::Tree | Self::Links(_) => 1,
        }
    }

    pub(super) const fn course(self) -> Option<Course> {
        match self {
            Self::Links(course) => Some(course),
            Self::Tree | Self::Stream { .. } => None,
        }
    }
}

/// A seat: its communicator, and its number there.
pub(super) type SeatId = (u32, usize);

impl System<'_> {
    pub(super) fn seat(&mut self, (communicator, number): SeatId) -> &mut Seat {
        &mut self.communicators[communicator as usize].seats[number]
    }

    fn place(&mut self, id: SeatId) -> Place {
        (id.0, self.seat(id).host)
    }

    fn shared(&mut self, (communicator, host): Place) -> &mut Shared {
        &mut self.communicators[communicator as usize].hosts[host as usize]
    }

    /// A rank comes to the set-up.
    pub(super) fn begin_set_up(&mut self, id: SeatId) {
        let (now, place) = (self.now, self.place(id));
        let seat = self.seat(id);
        let (rank, leads) = (seat.rank, seat.local == 0);
        (seat.phase, seat.waits_since) = (Phase::SettingUp { exchange: 0 }, Some(now));
        if leads {
            let hosts = self.plan.communicators[id.0 as usize].hosts.len() as u32;
            let mut leader = Leader::new(place.1, hosts);
            if self.communicators[id.0 as usize].has_tree {
                let end = self.connect([Owner::Rank(rank), Owner::Node]);
                self.tree.join(id.0, place.1, end.other());
                leader.node = Some(end);
            }
            self.shared(place).leader = Some(leader);
            self.listen(rank, id.0);
        }
        self.begin_exchange(id);
    }

    /// The launcher's connections, by which set-up exchanges go: from every rank to the hub.
    pub(super) fn connect_hub(&mut self, communicator: u32) {
        let hub = self.plan.communicators[communicator as usize].hub;
        let seats = self.communicators[communicator as usize].seats.len();
        let (hubs, others): (Vec<usize>, Vec<usize>) =
            (0..seats).partition(|number| self.seat((communicator, *number)).rank == hub);
        for number in others {
            let rank = self.seat((communicator, number)).rank;
            let end = self.connect([Owner::Rank(rank), Owner::Rank(hub)]);
            self.seat((communicator, number)).hub.push(end);
            self.seat((communicator, hubs[0])).hub.push(end.other());
        }
    }

    fn is_hub(&mut self, id: SeatId) -> bool {
        self.seat(id).rank == self.plan.communicators[id.0 as usize].hub
    }

    fn begin_exchange(&mut self, id: SeatId) {
        if self.is_hub(id) {
            let seat = self.seat(id);
            seat.exchange = Some(Exchange::new(seat.hub.len()));
        } else {
            let hub = self.seat(id).hub[0];
            self.send(hub, Frame::SetUpPart);
        }
    }

    fn advance_set_up(&mut self, id: SeatId) {
        let gone = if self.is_hub(id) { self.gather(id) } else { self.await_answer(id) };
        match gone {
            Ok(false) => {}
            Ok(true) => {
                let now = self.now;
                let seat = self.seat(id);
                let Phase::SettingUp { exchange } = seat.phase else { return };
                if exchange + 1 < EXCHANGES {
                    seat.phase = Phase::SettingUp { exchange: exchange + 1 };
                    seat.waits_since = Some(now);
                    self.begin_exchange(id);
                    self.advance_set_up(id);
                } else {
                    (seat.phase, seat.waits_since) = (Phase::Ready, None);
                }
            }
            Err(rank) => self.give_up_set_up(id, rank),
        }
    }

    /// At the hub: whether all parts have come, or who is gone.
    fn gather(&mut self, id: SeatId) -> Result<bool, u32> {
        let seat = self.seat(id);
        let (ends, Some(mut exchange)) = (seat.hub.clone(), seat.exchange.clone()) else {
            return Ok(false);
        };
        let watched: Vec<usize> = exchange.watched().collect();
        for at in watched {
            match self.front(ends[at]) {
                Some(Frame::SetUpPart) if exchange.awaits(at) => {
                    let _ = self.next_frame(ends[at]);
                    exchange.on_part(at);
                }
                Some(Frame::Fin) => {
                    let Owner::Rank(gone) = self.owner(ends[at].other()) else { continue };
                    let told = Frame::Answer { gone: Some(gone) };
                    ends.iter().for_each(|end| self.send(*end, told));
                    return Err(gone);
                }
                _ => {}
            }
        }
        let is_complete = exchange.is_complete();
        if is_complete {
            ends.iter().for_each(|end| self.send(*end, Frame::Answer { gone: None }));
        }
        self.seat(id).exchange = Some(exchange);
        Ok(is_complete)
    }

    fn await_answer(&mut self, id: SeatId) -> Result<bool, u32> {
        let hub = self.seat(id).hub[0];
        match self.next_frame(hub) {
            Some(Frame::Answer { gone }) => gone.map_or(Ok(true), Err),
            Some(_) => Err(self.plan.communicators[id.0 as usize].hub),
            None => Ok(false),
        }
    }

    /// A set-up failed at a rank. Others may have seen it succeed.
    fn give_up_set_up(&mut self, id: SeatId, gone: u32) {
        self.lose(id);
        self.depart(id);
        self.close_hub(id);
        self.end_failed(id, Named::Rank(gone));
    }

    fn close_hub(&mut self, id: SeatId) {
        let ends = std::mem::take(&mut self.seat(id).hub);
        ends.into_iter().for_each(|end| self.close(end));
    }

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

    fn depart(&mut self, id: SeatId) {
        let (place, local) = (self.place(id), self.seat(id).local);
        self.shared(place).departed[local] = true;
        if local == 0 && self.shared(place).leader.is_some() {
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
            if self.shared(place).has_failed {
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

    fn seats_of(&self, (communicator, host): Place) -> impl Iterator<Item = &Seat> {
        let seats = &self.communicators[communicator as usize].seats;
        seats.iter().filter(move |seat| seat.host == host)
    }

    fn have_all_come(&self, place: Place, came: usize) -> bool {
        self.seats_of(place).all(|seat| seat.came >= came)
    }

    fn leads_over(&self, place: Place) -> usize {
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
            let has_departed = self.shared(place).departed[local];
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
            Carry::Links(_) if pipeline.reduced() > 0 && self.links(place).results == 0 => {
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
        place: Place,
        carry: Carry,
        pipeline: &Pipeline,
    ) -> Result<(), Failure> {
        let Some(node) = self.links(place).node else { return Ok(()) };
        while let Some(frame) = self.next_frame(node) {
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
            self.send(node, Frame::Ask);
        }
        let links = self.links(place);
        let may_send = links.is_granted || !is_stream;
        if may_send && pipeline.reduced() > links.told_parts {
            links.told_parts = pipeline.reduced();
            let (parts, total) = (links.told_parts, carry.parts());
            self.send(node, Frame::Ready { parts, total });
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
        self.shared(place).has_failed = true;
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

    fn end_failed(&mut self, id: SeatId, named: Named) {
        self.check_named(id, named);
        self.end_seat(id, End::Failed);
    }

    pub(super) fn end_seat(&mut self, id: SeatId, end: End) {
        let now = self.now;
        let seat = self.seat(id);
        (seat.phase, seat.ended_at) = (Phase::Over(end), Some(now));
        (seat.operation, seat.waits_since) = (None, None);
    }

    fn wake_host(&mut self, place: Place) {
        let ranks: Vec<u32> = self.seats_of(place).map(|seat| seat.rank).collect();
        ranks.into_iter().for_each(|rank| self.wake(rank));
    }
}
