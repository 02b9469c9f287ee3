//! How ranks carry out collectives by the schedules of host algorithms.

use super::event::Event;
use super::ids::{ProcessId, RankId, TransferId};
use super::payload::Data;
use super::rank::{HostCollective, Incoming, Posted, Rank, RankFinished, Team};
use super::state::World;
use super::transfer::Label;
use crate::engine::Picos;
use tributary_algorithms::{Action, Landing, Order, Schedule, Shape, Unsupported};

impl<D: Data> World<D> {
    /// Makes processes the ranks of a team, in order.
    pub fn add_team(&mut self, processes: &[ProcessId]) -> Team {
        let first = RankId(self.ranks.len() as u32);
        self.ranks.extend(processes.iter().map(|&process| Rank {
            process,
            first,
            schedule: None,
            has_entered: false,
            element_bytes: 1,
            round: None,
            groups: None,
            graph: None,
            posted: Vec::new(),
            inbox: Vec::new(),
            half_received: None,
            unanswered: 0,
            began_at: Picos::ZERO,
        }));
        Team { first, ranks: processes.len() as u32 }
    }

    /// Runs a collective on a team. Each rank has its own start.
    ///
    /// # Errors
    /// [`Unsupported`], as [`Schedule::new`].
    ///
    /// # Panics
    /// If there is not one start for each rank.
    pub fn enter(
        &mut self,
        team: &Team,
        operation: &HostCollective,
        starts: &[Picos],
    ) -> Result<(), Unsupported> {
        assert_eq!(starts.len(), team.ranks as usize, "one start for each rank");
        for (number, &start) in (0..).zip(starts) {
            self.enter_one(team, number, operation, start)?;
        }
        Ok(())
    }

    /// Lets one rank of a team start its part of a collective.
    ///
    /// # Errors
    /// [`Unsupported`], as [`Schedule::new`].
    pub fn enter_one(
        &mut self,
        team: &Team,
        number: u32,
        operation: &HostCollective,
        start: Picos,
    ) -> Result<(), Unsupported> {
        let shape = Shape { ranks: team.ranks, elements: operation.elements, order: Order::Any };
        let schedule = Schedule::new(operation.algorithm, operation.collective, shape, number)?;
        let id = team.rank(number);
        let rank = &mut self.ranks[id.index()];
        rank.schedule = Some(schedule.peekable());
        rank.has_entered = false;
        rank.element_bytes = operation.element_bytes;
        rank.round = None;
        self.events.schedule(start, Event::Enter(id));
        Ok(())
    }

    /// The ranks that finished since the last call.
    pub fn take_ranks_finished(&mut self) -> std::vec::Drain<'_, RankFinished> {
        self.ranks_finished.drain(..)
    }

    pub(super) fn start_collective(&mut self, id: RankId) {
        let now = self.events.now();
        self.ranks[id.index()].began_at = now;
        self.ranks[id.index()].has_entered = true;
        let process = self.ranks[id.index()].process;
        let called_at = self.work(process, now, self.costs.message.call);
        self.advance(id, called_at);
    }

    /// Runs a rank's schedule until it must wait.
    fn advance(&mut self, id: RankId, from: Picos) {
        let mut at = from;
        loop {
            let rank = &mut self.ranks[id.index()];
            let Some(schedule) = rank.schedule.as_mut().filter(|_| rank.has_entered) else {
                return;
            };
            let Some(step) = schedule.peek().copied() else {
                return self.finish(id, at);
            };
            if rank.round != Some(step.round) {
                rank.round = Some(step.round);
                at = self.post_receives(id, step.round, at);
            }
            let rank = &self.ranks[id.index()];
            let (process, first, element_bytes) = (rank.process, rank.first, rank.element_bytes);
            let bytes = |elements: u64| (elements * u64::from(element_bytes)) as u32;
            match step.action {
                Action::Send { to, span } => {
                    let to = RankId(first.0 + to);
                    at = self.send_message(id, to, bytes(span.elements), Label::default(), at);
                }
                Action::Receive { from, landing, .. } => {
                    let from = RankId(first.0 + from);
                    loop {
                        let Some((done_at, is_last)) = self.land(id, from, landing) else { return };
                        at = done_at;
                        if is_last {
                            break;
                        }
                    }
                }
                Action::Fold { span } => {
                    let cost = self.costs.message.reduce.of(bytes(span.elements));
                    at = self.work(process, at, cost);
                }
            }
            let schedule = self.ranks[id.index()].schedule.as_mut();
            schedule.expect("a rank that takes a step has a schedule").next();
        }
    }

    pub(super) fn finish(&mut self, id: RankId, at: Picos) {
        let rank = &mut self.ranks[id.index()];
        if rank.unanswered > 0 {
            return;
        }
        rank.schedule = None;
        let began_at = rank.began_at;
        self.ranks_finished.push(RankFinished { rank: id, began_at, ended_at: at });
    }

    /// Posts the receives of a round that the rank enters, and answers rendezvous requests.
    fn post_receives(&mut self, id: RankId, round: u32, at: Picos) -> Picos {
        let rank = &mut self.ranks[id.index()];
        let first = rank.first.0;
        let rest = rank.schedule.clone().expect("a rank in a round has a schedule");
        let sources = rest.take_while(|step| step.round == round).filter_map(|step| {
            if let Action::Receive { from, .. } = step.action {
                Some(Posted { from: Some(RankId(first + from)), tag: None, node: 0 })
            } else {
                None
            }
        });
        rank.posted.extend(sources);
        self.match_incoming(id, at)
    }

    /// Matches incoming messages with posted receives, and answers matched rendezvous requests. Returns
    /// when the core is done.
    pub(super) fn match_incoming(&mut self, id: RankId, from: Picos) -> Picos {
        let mut at = from;
        for index in 0..self.ranks[id.index()].inbox.len() {
            let incoming = self.ranks[id.index()].inbox[index];
            if incoming.taken_by.is_some() {
                continue;
            }
            let tag = self.label_of(incoming.transfer).tag;
            let rank = &mut self.ranks[id.index()];
            let is_wanted = |posted: &Posted| {
                posted.from.is_none_or(|from| from == incoming.from)
                    && posted.tag.is_none_or(|wanted| wanted == tag)
            };
            let Some(posted) = rank.posted.iter().position(is_wanted) else { continue };
            rank.inbox[index].taken_by = Some(rank.posted.remove(posted).node);
            if incoming.seen_at.is_none() {
                at = self.answer(id, incoming.transfer, at);
            }
        }
        at
    }

    /// Receives the next message from `from`, or a frame of it, if that is there. Returns when that is done, and whether it was
    /// the last of the message.
    fn land(&mut self, id: RankId, from: RankId, landing: Landing) -> Option<(Picos, bool)> {
        let rank = &mut self.ranks[id.index()];
        let is_next = |incoming: &Incoming| {
            incoming.from == from && rank.half_received.is_none_or(|half| half == incoming.transfer)
        };
        let place = rank.inbox.iter().position(is_next)?;
        let seen_at = rank.inbox[place].seen_at?;
        let process = rank.process;
        let incoming = rank.inbox.remove(place);
        rank.half_received = (!incoming.is_last).then_some(incoming.transfer);
        let cost = self.landing_cost(incoming, landing != Landing::Store);
        if incoming.is_last {
            self.end_transfer(incoming.transfer);
        }
        Some((self.work(process, seen_at, cost), incoming.is_last))
    }

    /// A message arrives: all of it, a frame of it, or the rendezvous request of a long one.
    pub(super) fn message_begins(&mut self, id: RankId, incoming: Incoming, now: Picos) {
        self.ranks[id.index()].inbox.push(incoming);
        self.match_incoming(id, now);
        if incoming.seen_at.is_some() {
            self.message_here(id, now);
        }
    }

    /// All of a message is here.
    fn message_here(&mut self, id: RankId, now: Picos) {
        if self.ranks[id.index()].graph.is_some() {
            self.pick(id, now);
        } else {
            self.advance(id, now);
        }
    }

    /// The receiver has asked for a rendezvous message that this rank sends.
    pub(super) fn message_taken(&mut self, id: RankId, label: Label, now: Picos) {
        if self.ranks[id.index()].graph.is_some() {
            self.finish_rendezvous(id, label.node, now);
        } else {
            self.advance(id, now);
        }
    }

    /// The data of a rendezvous message has arrived.
    pub(super) fn message_ends(&mut self, id: RankId, transfer: TransferId, seen_at: Picos) {
        let inbox = &mut self.ranks[id.index()].inbox;
        let incoming = inbox.iter_mut().find(|incoming| incoming.transfer == transfer);
        incoming.expect("the request of a message is in the inbox").seen_at = Some(seen_at);
        self.message_here(id, seen_at);
    }
}
