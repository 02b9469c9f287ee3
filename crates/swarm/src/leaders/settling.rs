//! The settlement of a lost tree at one leader.

use tributary_protocol::failover::boundaries::Boundaries;
use tributary_protocol::failover::settler::Task;
use tributary_protocol::failover::{Action, Cut, Receivers, Step};
use tributary_wire::frame::{Abort, AbortReason};
use tributary_wire::{EndpointId, OperationNumber};

use crate::agenda::LeaderId;
use crate::leader::{Course, Doing, How, Kind, Leader, Ongoing, Parts, reduction_to};
use crate::scenario::OperationPlan;
use crate::world::World;

impl Leader {
    /// An operation as this leader knows it in the tree that is lost: its plan, and how it was cut.
    fn whole(&self, number: OperationNumber) -> Option<(OperationPlan, Cut)> {
        match &self.ongoing {
            Some(Ongoing { plan, in_tree: Some((own, cut)), .. }) if *own == number => {
                Some((*plan, *cut))
            }
            _ => {
                let tail = self.retained.as_ref().filter(|tail| tail.number == number)?;
                Some((tail.plan, tail.cut))
            }
        }
    }
}

impl World<'_> {
    /// What follows when a collective of a settlement is over.
    pub(super) fn settle_one(
        &mut self,
        id: LeaderId,
        doing: Doing,
        bytes: &[u8],
    ) -> Result<(), Abort> {
        match doing {
            Doing::Exchange => self.decide(id, bytes)?,
            Doing::Supply { from, step } => self.take_supplied(id, from, &step, bytes),
            _ => {}
        }
        self.next_task(id);
        Ok(())
    }

    /// Begins the next task of a settlement.
    pub(super) fn next_task(&mut self, id: LeaderId) {
        let leaders = self.communicator(id).leaders.len();
        let Course::Settling { settler, .. } = &mut self.leader(id).course else { return };
        match settler.poll_task() {
            Task::Call => self.begin(id, Doing::Call, Kind::Spread { from: 0 }, vec![0]),
            Task::Exchange => {
                let slot_bytes = settler.slot_bytes();
                let mut slots = vec![0; slot_bytes * leaders];
                let first = slot_bytes * id.number as usize;
                settler.write_slot(&mut slots[first..first + slot_bytes]);
                let kind = Kind::Gather { at: 0, how: How::Or, is_for_all: true };
                self.begin(id, Doing::Exchange, kind, slots);
            }
            Task::Step(step) => self.begin_step(id, step),
            Task::Over => self.go_over_links(id),
        }
    }

    fn decide(&mut self, id: LeaderId, slots: &[u8]) -> Result<(), Abort> {
        let leader = self.leader(id);
        let whole = |number| leader.whole(number);
        let known: Vec<_> = [leader.ongoing.as_ref().and_then(|it| it.in_tree).map(|it| it.0)]
            .into_iter()
            .chain([leader.retained.as_ref().map(|tail| tail.number)])
            .flatten()
            .filter_map(|number| Some((number, whole(number)?)))
            .collect();
        let whole = |number: OperationNumber| {
            let (_, (plan, cut)) = known.iter().find(|(known, _)| *known == number)?;
            let to = reduction_to(plan);
            Some((cut.segments, to.map_or(Receivers::All, |it| Receivers::Member(it as usize))))
        };
        let Course::Settling { settler, .. } = &mut leader.course else { return Ok(()) };
        let at_fault = EndpointId(id.number);
        let disagreement = Abort { reason: AbortReason::Disagreement, at_fault };
        settler.decide(slots, whole).map_err(|_| disagreement)
    }

    fn begin_step(&mut self, id: LeaderId, step: Step) {
        let stream = self.communicator(id).stream;
        let leader = self.leader(id);
        let Course::Settling { settler, .. } = &leader.course else { return };
        let operation = settler.finished_operation().expect("only what is finished has steps");
        let (is_behind, has_some_completed) = (settler.is_behind(), settler.has_some_completed());
        let (plan, cut) = leader.whole(operation).expect("known since it was decided");
        let bytes = cut.bytes(&step.segments);
        if bytes.is_empty() {
            return self.next_task(id);
        }
        let first = cut.bytes(&cut.tail()).start;
        let held = || match (&leader.ongoing, &leader.retained) {
            (Some(ongoing), _) if is_behind => ongoing.vector[bytes.clone()].to_vec(),
            (_, Some(tail)) => tail.bytes[bytes.start - first..bytes.end - first].to_vec(),
            _ => unreachable!("it is under way, or was kept"),
        };
        match step.action {
            Action::Supply { from } => {
                let from = from as u32;
                let own = if from == id.number { held() } else { Vec::new() };
                self.begin(id, Doing::Supply { from, step }, Kind::Spread { from }, own);
            }
            Action::Redo if is_behind => {
                let is_stream = leader.ongoing.as_ref().is_some_and(|it| it.is_stream);
                let part_bytes = match stream {
                    Some(_) if is_stream && !has_some_completed => {
                        cut.segment_bytes * usize::from(cut.window)
                    }
                    _ => bytes.len(),
                };
                self.begin_parts(id, Parts { done: bytes.start, end: bytes.end, part_bytes });
            }
            Action::Redo => {
                let own = held();
                self.begin(id, Doing::RedoFromTail, over_links(&plan), own);
            }
        }
    }

    fn take_supplied(&mut self, id: LeaderId, from: u32, step: &Step, bytes: &[u8]) {
        let leader = self.leader(id);
        let Course::Settling { settler, .. } = &leader.course else { return };
        let Some(Ongoing { plan, vector, in_tree: Some((_, cut)), .. }) = &mut leader.ongoing
        else {
            return;
        };
        if from == id.number || !plan.spec(EndpointId(id.number)).receives {
            return;
        }
        let first = cut.bytes(&step.segments).start;
        for segment in step.segments.clone().filter(|segment| settler.lacks(*segment)) {
            let place = cut.bytes(&(segment..segment + 1));
            vector[place.clone()].copy_from_slice(&bytes[place.start - first..place.end - first]);
        }
    }

    /// All is settled: what is complete is, and the rest goes over links.
    fn go_over_links(&mut self, id: LeaderId) {
        let time_ns = self.leader_time_ns(id);
        let doing = Doing::Nothing;
        let over_links = Course::OverLinks { boundaries: Boundaries::new(time_ns), doing };
        let settled = std::mem::replace(&mut self.leader(id).course, over_links);
        let Course::Settling { settler, .. } = settled else { unreachable!("it was settling") };
        let key = self.communicator(id).key;
        let finished = settler.finished_operation();
        self.trace.note(self.now, Some(key), || {
            format!("leader {}: the loss is settled, finished is {finished:?}", id.number)
        });
        if id.number == 0 {
            self.ask_for_tree(id.communicator);
        }
        self.leader(id).retained = None;
        if settler.is_behind() {
            self.check_settled(id);
            self.complete_over_links(id);
        } else if let Some(ongoing) = &mut self.leader(id).ongoing {
            ongoing.in_tree = None;
            self.begin_operation_over_links(id);
        } else {
            self.put_leader_start(id);
        }
    }

    pub(super) fn leader_time_ns(&mut self, id: LeaderId) -> u64 {
        let host = self.leader(id).host;
        self.time_at(host).0
    }
}

/// The collective that does for a piece what the operation does for its vector.
pub(super) fn over_links(plan: &OperationPlan) -> Kind {
    use tributary_wire::Operator;
    match (plan.operator, reduction_to(plan)) {
        (Operator::Broadcast, _) => Kind::Spread { from: plan.source.0 },
        (_, Some(at)) => Kind::Gather { at, how: How::As(*plan), is_for_all: false },
        (_, None) => Kind::Gather { at: 0, how: How::As(*plan), is_for_all: true },
    }
}
