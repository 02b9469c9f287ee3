//! The operations that members start, and how many of their bytes are ready.

use rand::RngExt;
use tributary_protocol::endpoint::StartError;
use tributary_protocol_testing::Running;

use crate::agenda::Item;
use crate::member::Member;
use crate::scenario::OperationPlan;
use crate::world::World;

impl World<'_> {
    pub(crate) fn put_start(&mut self, member: u32) {
        let at = self.now + self.think_ns();
        let entry = self.member(member);
        if entry.is_over() {
            return;
        }
        let entry = &self.members[member as usize];
        let operations = entry.leader().map_or(entry.operations, |leader| {
            self.communicators[leader.communicator as usize].operations()
        });
        let entry = self.member(member);
        if entry.started < operations {
            if !std::mem::replace(&mut entry.is_start_put, true) {
                self.agenda.put(at, Item::Start { member });
            }
        } else if entry.completed == operations && !std::mem::replace(&mut entry.is_leave_put, true)
        {
            self.agenda.put(at, Item::Leave { member });
        }
    }

    pub(crate) fn start_operation(&mut self, member: u32) {
        let entry = self.member(member);
        entry.is_start_put = false;
        if entry.is_over() {
            return;
        }
        let operation = entry.started;
        let leader = entry.leader();
        if leader.is_some_and(|it| operation >= self.communicator(it).operations()) {
            // Meanwhile all have agreed to leave.
            return self.put_start(member);
        }
        let plan = self.plan_of(member, operation);
        let is_stream = self.streams(member, &plan);
        let ready_bytes = is_stream.then(|| self.some_of(0, plan.len_bytes()));
        let Member { endpoint, running, .. } = self.member(member);
        match running.start(endpoint, operation, plan, ready_bytes) {
            Ok(()) => {
                self.member(member).started += 1;
                if let Some(leader) = leader {
                    self.leader_started(leader);
                }
                if is_stream {
                    self.put_ready(member);
                }
                self.put_start(member);
                self.restless_members.push(member);
            }
            // The next completion schedules another start.
            Err(StartError::Busy { .. }) => {}
            Err(error) => panic!("{plan:?} is an operation of a living group, but: {error}"),
        }
    }

    /// Starts an operation that began elsewhere, of a stream's vector with so many bytes ready; false if the tree
    /// is lost.
    pub(crate) fn start_in_tree(
        &mut self,
        member: u32,
        operation: usize,
        plan: OperationPlan,
        ready_bytes: Option<usize>,
    ) -> bool {
        let Member { endpoint, running, .. } = self.member(member);
        let is_started = running.start(endpoint, operation, plan, ready_bytes).is_ok();
        let entry = self.member(member);
        (entry.started, entry.completed) = (operation + usize::from(is_started), operation);
        if is_started && ready_bytes.is_some_and(|ready| ready < plan.len_bytes()) {
            self.put_ready(member);
        }
        self.restless_members.push(member);
        is_started
    }

    /// Whether an operation goes as a stream, if the group was granted streams.
    fn streams(&self, member: u32, plan: &OperationPlan) -> bool {
        let run = &self.runs[self.members[member as usize].run as usize];
        plan.is_stream && run.grant.stream.is_some()
    }

    /// A number of bytes from `least` to `all`; often one of the two.
    pub(crate) fn some_of(&mut self, least: usize, all: usize) -> usize {
        match self.random.random_range(0..3) {
            0 => all,
            1 => least,
            _ => self.random.random_range(least..=all),
        }
    }

    fn put_ready(&mut self, member: u32) {
        let at = self.now + self.think_ns();
        self.agenda.put(at, Item::Ready { member });
    }

    /// More bytes of a member's stream are ready.
    pub(crate) fn on_ready(&mut self, member: u32) {
        if self.members[member as usize].is_over() {
            return;
        }
        let mut is_more_to_come = false;
        let is_unready = |it: &&Running| it.is_stream && it.ready_bytes < it.plan.len_bytes();
        let unready = self.members[member as usize].running.iter().filter(is_unready);
        for Running { number, ready_bytes, plan, .. } in unready.copied().collect::<Vec<_>>() {
            let ready_bytes = self.some_of(ready_bytes, plan.len_bytes());
            let Member { endpoint, running, .. } = self.member(member);
            running.make_ready(endpoint, number, ready_bytes);
            if let Some(leader) = self.members[member as usize].leader() {
                self.leader_made_ready(leader, ready_bytes);
            }
            is_more_to_come |= ready_bytes < plan.len_bytes();
        }
        if is_more_to_come {
            self.put_ready(member);
        }
        self.restless_members.push(member);
    }
}
