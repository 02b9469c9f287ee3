//! How a rank comes to a communicator: its set-up, by exchanges over the launcher's connections.

use tributary_waits::exchange::Exchange;

use crate::connections::Owner;
use crate::frame::Frame;
use crate::links::Leader;
use crate::seats::{Named, Phase, SeatId};
use crate::system::System;

/// Exchanges of a set-up.
const EXCHANGES: u32 = 2;

impl System<'_> {
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
                let end = self.connect([Owner::Rank(rank), Owner::Aggregator]);
                self.tree.join(id.0, place.1, end.other());
                leader.aggregator = Some(end);
            }
            self.shared_mut(place).leader = Some(leader);
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

    pub(super) fn advance_set_up(&mut self, id: SeatId) {
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
        let watched: Vec<usize> = exchange.peers_to_watch().collect();
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
}
