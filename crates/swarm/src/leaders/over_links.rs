//! Operations over direct links in a tree's place, and the way back into a tree.

use std::ops::Range;

use tributary_protocol::failover::boundaries::{
    AfterAnnouncement, Announcement, GRANT_AGE_MAX_NS, Place,
};
use tributary_wire::frame::Abort;

use super::settling::over_links;
use super::{IDLE_MAX_NS, IDLE_MIN_NS, IDLE_OPERATIONS_MAX};
use crate::agenda::{Item, LeaderId};
use crate::job::WantState;
use crate::leader::{Course, Doing, How, Kind, Ongoing, Parts};
use crate::verdict::Violation;
use crate::world::World;

impl World<'_> {
    /// Begins a collective for a purpose.
    pub(super) fn begin(&mut self, id: LeaderId, doing: Doing, kind: Kind, bytes: Vec<u8>) {
        *self.doing(id) = doing;
        self.begin_collective(id, kind, bytes);
    }

    fn doing(&mut self, id: LeaderId) -> &mut Doing {
        match &mut self.leader(id).course {
            Course::Settling { doing, .. } | Course::OverLinks { doing, .. } => doing,
            Course::InTree => unreachable!("the tree carries what a leader does in it"),
        }
    }

    /// Goes on as far as messages have come.
    pub(super) fn advance_leader(&mut self, id: LeaderId) {
        if self.leader(id).is_settling()
            && self.leader(id).collective.is_none()
            && matches!(self.doing(id), Doing::Nothing)
        {
            self.next_task(id);
        }
        while self.leader(id).end.is_none() && self.leader(id).collective.is_some() {
            match self.poll_collective(id) {
                Ok(None) => return,
                Ok(Some(bytes)) => {
                    let doing = std::mem::replace(self.doing(id), Doing::Nothing);
                    if let Err(abort) = self.on_collective_over(id, doing, &bytes) {
                        return self.fail_leader(id, abort);
                    }
                }
                Err(abort) => return self.fail_leader(id, abort),
            }
        }
    }

    fn on_collective_over(
        &mut self,
        id: LeaderId,
        doing: Doing,
        bytes: &[u8],
    ) -> Result<(), Abort> {
        match doing {
            Doing::Announce => self.on_announced(id, bytes),
            Doing::Grant => self.on_grant(id, bytes),
            Doing::Places => self.on_places(id, Place::of_all(bytes[0])),
            Doing::Part { parts, part } => {
                let part = part.expect("it was ready");
                self.put_part(id, &part, bytes);
                self.begin_parts(id, Parts { done: part.end, ..parts });
            }
            settling => self.settle_one(id, settling, bytes)?,
        }
        Ok(())
    }

    /// The result of a part comes where the contribution lay.
    fn put_part(&mut self, id: LeaderId, part: &Range<usize>, bytes: &[u8]) {
        let ongoing = self.leader(id).ongoing.as_mut().expect("it is under way");
        if ongoing.is_reduction_to().is_none_or(|root| root == id.number) && !bytes.is_empty() {
            ongoing.vector[part.clone()].copy_from_slice(bytes);
        }
    }

    /// Goes on with a range of the vector, as far as it is ready.
    pub(super) fn begin_parts(&mut self, id: LeaderId, parts: Parts) {
        let Parts { done, end, part_bytes } = parts;
        let ongoing = self.leader(id).ongoing.as_ref().expect("it is under way");
        let is_empty = ongoing.plan.len_bytes() == 0;
        if done >= end && !is_empty || is_empty && done > 0 {
            return self.on_parts_over(id);
        }
        let next = (done + part_bytes).min(end);
        if next > ongoing.ready_bytes {
            *self.doing(id) = Doing::Part { parts, part: None };
            return;
        }
        let (kind, own) = (over_links(&ongoing.plan), ongoing.vector[done..next].to_vec());
        // One exchange is all of an operation without data.
        let part = done..if is_empty { 1 } else { next };
        self.begin(id, Doing::Part { parts, part: Some(part) }, kind, own);
    }

    fn on_parts_over(&mut self, id: LeaderId) {
        if self.leader(id).is_settling() {
            self.next_task(id);
        } else {
            self.complete_over_links(id);
        }
    }

    /// More bytes of a stream are ready.
    pub(crate) fn on_leader_ready(&mut self, id: LeaderId) {
        let Some(ongoing) = self.leader(id).ongoing.as_ref().filter(|it| it.has_more_to_come())
        else {
            return;
        };
        let (least, all) = (ongoing.ready_bytes, ongoing.plan.len_bytes());
        let ready_bytes = self.some_of(least, all);
        let leader = self.leader(id);
        let is_over = leader.end.is_some() || leader.is_in_tree();
        let ongoing = leader.ongoing.as_mut().expect("as above");
        if is_over {
            return;
        }
        ongoing.ready_bytes = ready_bytes;
        if ready_bytes < all {
            self.put_leader_ready(id);
        }
        if let Doing::Part { parts, part: None } = *self.doing(id) {
            self.begin_parts(id, parts);
            self.advance_leader(id);
        }
    }

    pub(super) fn put_leader_ready(&mut self, id: LeaderId) {
        let at = self.now + self.think_ns();
        self.agenda.put(at, Item::LeaderReady { leader: id });
    }

    /// The program goes on, or leaves.
    pub(super) fn put_leader_start(&mut self, id: LeaderId) {
        let communicator = &self.communicators[id.communicator as usize];
        let script = self.group_plan(communicator.job, communicator.group).script.len();
        let idle = self.leader(id).completed.checked_sub(script);
        let idle_ns = idle.map_or(0, |it| (IDLE_MIN_NS << it.min(20)).min(IDLE_MAX_NS));
        let at = self.now + self.think_ns() + idle_ns;
        if !std::mem::replace(&mut self.leader(id).is_start_put, true) {
            self.agenda.put(at, Item::LeaderStart { leader: id });
        }
    }

    /// The program starts its next operation, and does not know where it goes.
    pub(crate) fn on_leader_start(&mut self, id: LeaderId) {
        self.leader(id).is_start_put = false;
        if self.leader(id).end.is_some() || self.leader(id).ongoing.is_some() {
            return;
        }
        if self.leader(id).is_in_tree() {
            let member = self.leader(id).member;
            return self.put_start(member);
        }
        if self.is_leader_done(id) {
            // In a settlement, others may lack what it has.
            if !self.leader(id).is_settling() {
                self.leader_left(id);
            }
            return;
        }
        let communicator = &self.communicators[id.communicator as usize];
        let index = communicator.leaders[id.number as usize].completed;
        let script = self.group_plan(communicator.job, communicator.group).script.len();
        if index > script + IDLE_OPERATIONS_MAX {
            let key = communicator.key;
            let (group, member, operations) = (key.to_string(), id.number, index);
            return self.report(Some(key), Violation::Treeless { group, member, operations });
        }
        let communicator = &self.communicators[id.communicator as usize];
        let plan = self.operation_plan(communicator.job, communicator.group, index);
        let is_stream = plan.is_stream && communicator.stream.is_some();
        let ready_bytes = if is_stream { self.some_of(0, plan.len_bytes()) } else { usize::MAX };
        let ongoing = self.ongoing(id, index, plan);
        let ongoing = Ongoing { is_stream, ready_bytes, ..ongoing };
        let has_more = ongoing.has_more_to_come();
        self.leader(id).ongoing = Some(ongoing);
        let results = &mut self.communicator(id).results;
        results.resize(results.len().max(index + 1), None);
        if has_more {
            self.put_leader_ready(id);
        }
        // In a settlement it waits for its turn.
        if !self.leader(id).is_settling() {
            self.begin_operation_over_links(id);
            self.advance_leader(id);
        }
    }

    /// An operation is about to be carried over links: goes to the boundary before it, if there is one.
    pub(super) fn begin_operation_over_links(&mut self, id: LeaderId) {
        let time_ns = self.leader_time_ns(id);
        let Course::OverLinks { boundaries, .. } = &mut self.leader(id).course else { return };
        if !boundaries.on_operation() {
            return self.carry(id);
        }
        let mut announced = Vec::new();
        if id.number == 0 {
            let boundaries = boundaries.clone();
            let grant_bytes = self.grant_at_hand(id);
            announced = boundaries.announcement(time_ns, grant_bytes).encode().to_vec();
        }
        self.begin(id, Doing::Announce, Kind::Spread { from: 0 }, announced);
    }

    /// The length of leader 0's grant; 0 if it has none that is worth trying.
    fn grant_at_hand(&mut self, id: LeaderId) -> u32 {
        if self.leader(id).entering.is_some() {
            return 0;
        }
        let now = self.now;
        match self.communicator(id).granted {
            Some((_, at)) if now - at < GRANT_AGE_MAX_NS => 4,
            Some(_) => {
                self.communicator(id).granted = None;
                self.ask_for_tree(id.communicator);
                0
            }
            None => 0,
        }
    }

    fn on_announced(&mut self, id: LeaderId, bytes: &[u8]) {
        let time_ns = self.leader_time_ns(id);
        let place = self.leader(id).entering.map(|member| self.place(member));
        let announced = bytes.try_into().expect("an announcement has its length");
        let announcement = Announcement::decode(announced);
        let Course::OverLinks { boundaries, .. } = &mut self.leader(id).course else { return };
        match boundaries.on_announced(time_ns, announcement, place.is_some()) {
            AfterAnnouncement::Places => {
                let place = place.expect("places are exchanged while one is taken");
                let kind = Kind::Gather { at: 0, how: How::Or, is_for_all: true };
                self.begin(id, Doing::Places, kind, vec![place.bits()]);
            }
            AfterAnnouncement::Grant => {
                let granted = self.communicator(id).granted.filter(|_| id.number == 0);
                if let Some((run, _)) = granted {
                    self.communicator(id).granted = None;
                    self.add_places(run, id.communicator);
                }
                let run = granted.map_or(Vec::new(), |(run, _)| run.to_le_bytes().to_vec());
                self.begin(id, Doing::Grant, Kind::Spread { from: 0 }, run);
            }
            AfterAnnouncement::Nothing => self.carry(id),
        }
    }

    /// Begins to take the place of a grant.
    fn on_grant(&mut self, id: LeaderId, bytes: &[u8]) {
        let run = u32::from_le_bytes(bytes.try_into().expect("a grant has its length"));
        let member = self.runs[run as usize].members[id.number as usize];
        self.leader(id).entering = Some(member);
        let at = self.now + self.delay_ns();
        self.agenda.put(at, Item::Connect { member });
        self.carry(id);
    }

    fn place(&self, member: u32) -> Place {
        let entry = &self.members[member as usize];
        let fits = self.runs[entry.run as usize].grant.stream
            == entry.leader().and_then(|id| self.communicators[id.communicator as usize].stream);
        match (entry.has_joined(), entry.is_over()) {
            (true, _) if fits => Place::Taken,
            (false, false) if fits => Place::UnderWay,
            _ => Place::Failed,
        }
    }

    /// Every leader has said how far it is.
    fn on_places(&mut self, id: LeaderId, all: Place) {
        match (all, self.leader(id).entering) {
            (Place::Taken, Some(member)) => self.go_back(id, member),
            (Place::UnderWay, _) => self.carry(id),
            (_, place) => {
                self.leader(id).entering = None;
                if let Some(member) = place.filter(|it| !self.members[*it as usize].is_over()) {
                    self.give_up_place(member);
                }
                if let Course::OverLinks { boundaries, .. } = &mut self.leader(id).course {
                    boundaries.on_grant_failed();
                }
                if id.number == 0 {
                    self.ask_for_tree(id.communicator);
                }
                self.carry(id);
            }
        }
    }

    /// All leaders have their places: the tree carries the operation that is about to start.
    fn go_back(&mut self, id: LeaderId, member: u32) {
        let key = self.run_of(member).key;
        self.trace.note(self.now, Some(key), || format!("leader {} goes back", id.number));
        self.trees_regained += 1;
        let leader = self.leader(id);
        (leader.entering, leader.member, leader.course) = (None, member, Course::InTree);
        let (index, plan) =
            leader.ongoing.as_ref().map(|it| (it.index, it.plan)).expect("it begins");
        let ready_bytes =
            leader.ongoing.as_ref().filter(|it| it.is_stream).map(|it| it.ready_bytes);
        match self.start_in_tree(member, index, plan, ready_bytes) {
            true => self.leader_started(id),
            // It was lost since the place was taken.
            false => self.lose_tree(id),
        }
    }

    /// Carries the operation that is about to start over links.
    fn carry(&mut self, id: LeaderId) {
        let stream = self.communicator(id).stream;
        let ongoing = self.leader(id).ongoing.as_ref().expect("it is about to start");
        let end = ongoing.plan.len_bytes();
        let size = ongoing.plan.datatype.size_bytes();
        let part_bytes = match stream.filter(|_| ongoing.is_stream) {
            Some(terms) => {
                let chunk_bytes = (terms.chunk_bytes as usize / size * size).max(size);
                chunk_bytes * usize::from(terms.window)
            }
            None => end,
        };
        self.begin_parts(id, Parts { done: 0, end, part_bytes });
    }

    /// An operation is complete that links carried, or helped to.
    pub(super) fn complete_over_links(&mut self, id: LeaderId) {
        let Some(ongoing) = self.leader(id).ongoing.take() else {
            unreachable!("an operation is complete that is under way")
        };
        self.completions += 1;
        self.completions_over_links += 1;
        self.on_leader_completed(id, &ongoing);
        self.put_leader_start(id);
    }

    /// Leader 0 asks the manager for another group in the background.
    pub(super) fn ask_for_tree(&mut self, communicator: u32) {
        let first = LeaderId { communicator, number: 0 };
        let Course::OverLinks { boundaries, .. } = &self.leader(first).course else { return };
        let pause_ns = boundaries.pause_ns(0);
        let (job, group) = (self.communicator(first).job, self.communicator(first).group);
        let want = self.want(job, group);
        if matches!(want.state, WantState::Running(_)) {
            want.state = WantState::Idle;
            let at = self.now.saturating_add(pause_ns);
            self.agenda.put(at, Item::GroupRequest { job, group });
        }
    }

    /// A group was granted in place of one that was lost.
    pub(crate) fn on_regrant(&mut self, communicator: u32, run: u32) {
        let now = self.now;
        self.communicators[communicator as usize].granted = Some((run, now));
    }

    /// No group will be granted any more: the program ends over links.
    pub(crate) fn end_treeless(&mut self, communicator: u32) {
        self.communicators[communicator as usize].is_treeless = true;
    }
}
