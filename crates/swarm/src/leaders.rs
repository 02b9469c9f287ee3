//! Leaders: members that go on when their tree is lost, as the host library's do.
//!
//! A communicator's leaders hold places in one tree after the other, and direct links to each other. Owns their state,
//! how they lose a tree, and how they end. What they decide is the product's
//! ([`tributary_protocol::failover`]); what they do with vectors and messages is modelled after the host library.

mod direct;
mod over_links;
mod settling;

use tributary_protocol::failover::is_tree_lost;
use tributary_protocol::failover::settler::Settler;
use tributary_protocol_testing::values::{Below, Contribution, TreeShape};
use tributary_protocol_testing::workload::OperationPlan;
use tributary_wire::EndpointId;
use tributary_wire::frame::{Abort, AbortReason};

use crate::agenda::LeaderId;
use crate::fault_record::{CUT_OFF, GAVE_UP, MEMBER_LOST};
use crate::leader::{Communicator, Course, Direct, Doing, Ending, Leader, Message, Ongoing, Tail};
use crate::timeouts::{JOIN_TIMEOUT_NS, SILENCE_NS};
use crate::verdict::{Violation, words};
use crate::world::World;

/// How long a program without anything left to do waits for its tree between two barriers: at first, and at most.
const IDLE_MIN_NS: u64 = 5_000_000;
const IDLE_MAX_NS: u64 = 1_000_000_000;
/// More of these barriers than it takes to be granted a group that others hold for as long as they may.
const IDLE_OPERATIONS_MAX: usize = 4_000;

impl World<'_> {
    pub(super) fn leader(&mut self, id: LeaderId) -> &mut Leader {
        &mut self.communicators[id.communicator as usize].leaders[id.number as usize]
    }

    pub(super) fn communicator(&mut self, id: LeaderId) -> &mut Communicator {
        &mut self.communicators[id.communicator as usize]
    }

    fn leaders_of(&self, communicator: u32) -> impl Iterator<Item = LeaderId> + use<> {
        let leaders = self.communicators[communicator as usize].leaders.len() as u32;
        (0..leaders).map(move |number| LeaderId { communicator, number })
    }

    /// The leaders of a group that was granted for the first time.
    pub(super) fn add_communicator(&mut self, run: u32, members: &[u32]) -> u32 {
        let entry = &self.runs[run as usize];
        let (grant, script) = (&entry.grant, &self.group_plan(entry.job, entry.group).script);
        let leaders = members.iter().map(|member| Leader {
            host: self.members[*member as usize].host,
            job: entry.job,
            member: *member,
            entering: None,
            course: Course::InTree,
            lost: 0,
            collective: None,
            ongoing: None,
            retained: None,
            completed: 0,
            is_start_put: false,
            end: None,
        });
        let communicator = Communicator {
            key: entry.key,
            job: entry.job,
            group: entry.group,
            tag: entry.tag,
            leaders: leaders.collect(),
            direct: Direct::new(members.len()),
            results: vec![None; script.len()],
            is_open: false,
            granted: None,
            last: None,
            is_treeless: false,
            window: grant.osos.max(grant.stream.map_or(0, |terms| terms.window)),
            stream: grant.stream,
            has_cause: false,
            is_over: false,
        };
        self.communicators.push(communicator);
        self.communicators.len() as u32 - 1
    }

    /// A leader's place in a tree is taken.
    pub(super) fn leader_joined(&mut self, id: LeaderId) {
        let communicator = &self.communicators[id.communicator as usize];
        if communicator.is_open {
            return;
        }
        let has_joined = |it: &Leader| self.members[it.member as usize].has_joined();
        // The exchange of outcomes that ends every step of setting a communicator up.
        if communicator.leaders.iter().all(has_joined) {
            self.communicator(id).is_open = true;
            for id in self.leaders_of(id.communicator) {
                let member = self.leader(id).member;
                self.put_start(member);
            }
        }
    }

    /// A leader's member starts its next operation in the tree.
    pub(super) fn leader_started(&mut self, id: LeaderId) {
        let member = self.leader(id).member;
        let entry = &self.members[member as usize];
        let running = *entry.running().last().expect("it has just been started");
        let number = running.number;
        let cut = entry.endpoint.cut(number).expect("it has just been started");
        let results = &mut self.communicator(id).results;
        results.resize(results.len().max(running.operation + 1), None);
        let in_tree = Some((number, cut));
        match &mut self.leader(id).ongoing {
            // It was waiting to go on in a tree.
            Some(ongoing) => ongoing.in_tree = in_tree,
            None => {
                let ongoing = self.ongoing(id, running.operation, running.plan);
                let ready_bytes = if running.is_stream { running.ready_bytes } else { usize::MAX };
                let is_stream = running.is_stream;
                self.leader(id).ongoing =
                    Some(Ongoing { is_stream, ready_bytes, in_tree, ..ongoing });
            }
        }
    }

    /// An operation that is about to begin, with this leader's contribution.
    fn ongoing(&self, id: LeaderId, index: usize, plan: OperationPlan) -> Ongoing {
        let tag = self.communicators[id.communicator as usize].tag;
        let contribution = Contribution { tag, operation: index as u32, member: id.number };
        let vector = match plan.spec(EndpointId(id.number)).contributes {
            true => plan.vector(contribution),
            false => vec![0; plan.len_bytes()],
        };
        Ongoing { index, plan, vector, is_stream: false, ready_bytes: usize::MAX, in_tree: None }
    }

    /// More of a stream's bytes are ready while the tree carries it.
    pub(super) fn leader_made_ready(&mut self, id: LeaderId, ready_bytes: usize) {
        if let Some(ongoing) = &mut self.leader(id).ongoing {
            ongoing.ready_bytes = ready_bytes;
        }
    }

    /// A piece of a result has come by the tree.
    pub(super) fn leader_takes(&mut self, id: LeaderId, first: usize, payload: &[u8]) {
        if let Some(ongoing) = &mut self.leader(id).ongoing {
            ongoing.vector[first..first + payload.len()].copy_from_slice(payload);
        }
    }

    /// The tree has completed an operation.
    pub(super) fn leader_completed_in_tree(&mut self, id: LeaderId) {
        let Some(ongoing) = self.leader(id).ongoing.take() else { return };
        let (number, cut) = ongoing.in_tree.expect("the tree carried it");
        let plan = ongoing.plan;
        let spec = plan.spec(EndpointId(id.number));
        let tail = cut.bytes(&cut.tail());
        let is_kept = plan.target.member().is_none() || !spec.receives;
        let bytes = if is_kept { ongoing.vector[tail].to_vec() } else { Vec::new() };
        self.leader(id).retained = Some(Tail { number, plan, cut, bytes });
        self.on_leader_completed(id, &ongoing);
    }

    /// An operation is complete at a leader, however it was carried.
    fn on_leader_completed(&mut self, id: LeaderId, ongoing: &Ongoing) {
        let Ongoing { index, plan, vector, .. } = ongoing;
        let key = self.communicator(id).key;
        let group = key.to_string();
        if self.leader(id).completed != *index {
            let violation = Violation::OutOfOrder { group, member: id.number };
            return self.report(Some(key), violation);
        }
        self.leader(id).completed += 1;
        if plan.spec(EndpointId(id.number)).receives && plan.len_bytes() > 0 {
            let result = &mut self.communicator(id).results[*index];
            if result.get_or_insert_with(|| vector.clone()) != vector {
                let violation =
                    Violation::Different { group, member: id.number, operation: *index };
                return self.report(Some(key), violation);
            }
            let communicator = self.communicator(id);
            let members = communicator.leaders.len() as u32;
            let all = Contribution::of_all(communicator.tag, *index, members);
            if !plan.is_sound(vector, all) {
                let violation =
                    Violation::WrongResult { group, member: id.number, operation: *index };
                return self.report(Some(key), violation);
            }
        }
        self.end_of_script(id);
    }

    /// Once all are in a tree with their scripts done, they agree on a last operation.
    fn end_of_script(&mut self, id: LeaderId) {
        let communicator = &self.communicators[id.communicator as usize];
        let script = self.group_plan(communicator.job, communicator.group).script.len();
        let is_home =
            communicator.leaders.iter().all(Leader::is_in_tree) || communicator.is_treeless;
        let completed = communicator.leaders[id.number as usize].completed;
        if communicator.last.is_none() && is_home && completed >= script {
            let begun = |it: &Leader| it.completed + usize::from(it.ongoing.is_some());
            let begun = communicator.leaders.iter().map(begun).max();
            self.communicator(id).last = Some(begun.expect("there are leaders").max(1) - 1);
        }
    }

    /// The place of a leader in its tree failed.
    pub(super) fn leader_told(&mut self, id: LeaderId, member: u32, abort: Abort) {
        let communicator = &self.communicators[id.communicator as usize];
        let leader = &communicator.leaders[id.number as usize];
        if leader.end.is_some() || leader.entering == Some(member) || leader.member != member {
            return;
        }
        match communicator.is_open {
            false => self.give_up_set_up(id.communicator),
            true if leader.is_in_tree() && is_tree_lost(abort.reason) => self.lose_tree(id),
            true => self.fail_leader(id, abort),
        }
    }

    /// A member will never join. If its communicator is not set up, its leader is lost.
    pub(super) fn never_set_up(&mut self, member: u32) {
        if let Some(id) = self.members[member as usize].leader()
            && !self.communicator(id).is_open
            && self.leader(id).end.is_none()
        {
            self.end_leader(id, Ending::Dead);
        }
    }

    /// Living leaders that have no tree.
    pub(super) fn leaders_between_trees(&self) -> impl Iterator<Item = &Leader> {
        let leaders = self.communicators.iter().flat_map(|it| &it.leaders);
        leaders.filter(|leader| leader.end.is_none() && !leader.is_in_tree())
    }

    /// A communicator can't be set up: leaders that have joined leave.
    fn give_up_set_up(&mut self, communicator: u32) {
        for id in self.leaders_of(communicator) {
            if self.leader(id).end.is_some() {
                continue;
            }
            self.leader(id).end = Some(Ending::Failed);
            let member = self.leader(id).member;
            self.give_up_place(member);
        }
        self.check_communicator_over(communicator);
    }

    /// A place in a tree is given up.
    fn give_up_place(&mut self, member: u32) {
        let number = self.member(member).number;
        let key = self.run_of(member).key;
        let at = self.now + self.scenario.network.delay_ns_max;
        let has_link = self.members[member as usize].link.is_some();
        let entry = self.fault_record.entry(key);
        entry.blame(at, GAVE_UP, number..number + 1);
        if !has_link {
            entry.blame(at + JOIN_TIMEOUT_NS, MEMBER_LOST, number..number + 1);
        }
        entry.may_withdraw = true;
        self.withdraw(member);
    }

    /// A leader cuts itself off from its tree, and begins to settle its loss.
    fn lose_tree(&mut self, id: LeaderId) {
        let member = self.leader(id).member;
        let key = self.run_of(member).key;
        self.trace.note(self.now, Some(key), || format!("leader {} loses its tree", id.number));
        let at = self.now + self.scenario.network.delay_ns_max;
        let entry = self.fault_record.entry(key);
        entry.blame(at, CUT_OFF, 0..u32::MAX);
        entry.may_withdraw = true;
        let standing = self.cut_off(member);
        let window = self.communicator(id).window;
        let leader = self.leader(id);
        leader.lost += 1;
        let epoch = leader.lost;
        let has_more = leader.ongoing.as_ref().is_some_and(Ongoing::has_more_to_come);
        leader.course =
            Course::Settling { settler: Settler::new(standing, window), doing: Doing::Nothing };
        let is_idle = leader.ongoing.is_none();
        if has_more {
            self.put_leader_ready(id);
        }
        if is_idle {
            self.put_leader_start(id);
        }
        if id.number != 0 {
            self.raise_alarm(id, epoch);
        }
        self.advance_leader(id);
    }

    /// Another leader speaks to this one, or calls because of the loss of tree `epoch`.
    fn on_called(&mut self, id: LeaderId) {
        let is_open = self.communicator(id).is_open;
        let leader = self.leader(id);
        if leader.end.is_some() || !is_open {
            return;
        }
        if leader.is_in_tree() { self.lose_tree(id) } else { self.advance_leader(id) }
    }

    pub(super) fn on_alarm(&mut self, id: LeaderId, epoch: u32) {
        let leader = self.leader(id);
        if leader.is_in_tree() && leader.lost + 1 == epoch {
            self.on_called(id);
        }
    }

    /// Whether a leader has completed its last operation.
    pub(super) fn is_leader_done(&self, id: LeaderId) -> bool {
        let communicator = &self.communicators[id.communicator as usize];
        communicator.leaders[id.number as usize].completed >= communicator.operations()
    }

    /// A leader can't go on, and tells the others.
    fn fail_leader(&mut self, id: LeaderId, abort: Abort) {
        if self.is_leader_done(id) {
            // It stayed for others, some of which are gone. Those that lack something have a reason to fail, or none.
            self.tell_leaders(id, &Message::Failed(abort));
            return self.end_leader(id, Ending::Left);
        }
        let communicator = &self.communicators[id.communicator as usize];
        let (key, has_cause) = (communicator.key, communicator.has_cause);
        let told = words(abort);
        self.trace.note(self.now, Some(key), || format!("leader {} fails: {told}", id.number));
        // The tree may say that a member broke the protocol, or gave up. Any other end has a cause of its own.
        let is_told = matches!(abort.reason, AbortReason::Misbehaved | AbortReason::MemberAborted);
        if !is_told && !has_cause {
            let group = key.to_string();
            self.report(Some(key), Violation::Unfounded { group, member: id.number, abort: told });
        }
        self.communicator(id).has_cause = true;
        self.tell_leaders(id, &Message::Failed(abort));
        self.end_leader(id, Ending::Failed);
    }

    /// A leader is over, one way or another.
    fn end_leader(&mut self, id: LeaderId, end: Ending) {
        let leader = self.leader(id);
        leader.end = Some(end);
        let places = [Some(leader.member), leader.entering.take()];
        for member in places.into_iter().flatten() {
            if end != Ending::Dead && !self.members[member as usize].is_over() {
                self.give_up_place(member);
            }
        }
        self.check_communicator_over(id.communicator);
    }

    /// A leader leaves: with its work done, or before.
    pub(super) fn leader_left(&mut self, id: LeaderId) {
        if self.leader(id).end.is_none() {
            self.communicator(id).has_cause |= !self.is_leader_done(id);
            self.tell_leaders(id, &Message::Closed);
            self.end_leader(id, Ending::Left);
            // The exchange of outcomes that ends every step of setting a communicator up comes to nothing.
            if !self.communicator(id).is_open {
                self.give_up_set_up(id.communicator);
            }
        }
    }

    /// Processes die, with the leaders in them.
    pub(super) fn kill_leaders(
        &mut self,
        is_hit: impl Fn(&Communicator, &Leader) -> bool,
        is_silent: bool,
    ) {
        for communicator in 0..self.communicators.len() as u32 {
            for id in self.leaders_of(communicator) {
                let entry = &self.communicators[communicator as usize];
                let leader = &entry.leaders[id.number as usize];
                if leader.end.is_some() || !is_hit(entry, leader) {
                    continue;
                }
                let places = [Some(leader.member), leader.entering];
                self.communicator(id).has_cause = true;
                let after_ns = if is_silent { SILENCE_NS } else { 0 };
                self.tell_leaders_after(id, &Message::Closed, after_ns);
                self.end_leader(id, Ending::Dead);
                for member in places.into_iter().flatten() {
                    self.kill_member(member, is_silent);
                }
            }
        }
    }

    /// Direct links across a partition end that are in use.
    pub(super) fn part_leaders(&mut self) {
        for communicator in 0..self.communicators.len() as u32 {
            for one in self.leaders_of(communicator) {
                for other in self.leaders_of(communicator) {
                    let [from, to] = [one, other].map(|id| self.leader(id).host);
                    let is_used = [one, other].iter().any(|id| !self.leader(*id).is_in_tree());
                    if one != other && is_used && self.apart_until(from, to).is_some() {
                        self.communicator(one).has_cause = true;
                        self.tell_leader(one, other.number, Message::Closed, 0);
                    }
                }
            }
        }
    }

    fn check_communicator_over(&mut self, communicator: u32) {
        let entry = &mut self.communicators[communicator as usize];
        if entry.is_over || !entry.leaders.iter().all(|leader| leader.end.is_some()) {
            return;
        }
        entry.is_over = true;
        entry.granted = None;
        // Places that nobody came to take.
        for member in 0..self.members.len() as u32 {
            let entry = &self.members[member as usize];
            if entry.leader().is_some_and(|id| id.communicator == communicator) && !entry.is_over()
            {
                self.give_up_place(member);
            }
        }
        let entry = &self.communicators[communicator as usize];
        let (job, group, is_done) = (entry.job, entry.group, entry.is_done());
        self.want(job, group).communicator = None;
        self.conclude(job, group, is_done);
    }

    /// The bits of an operation that was settled: every element the tree's, or that of one reduction of all members.
    fn check_settled(&mut self, id: LeaderId) {
        let leader = self.leader(id);
        let member = leader.member;
        let Some(Ongoing { index, plan, vector, .. }) = &leader.ongoing else { return };
        if !plan.spec(EndpointId(id.number)).receives || plan.len_bytes() == 0 {
            return;
        }
        let (index, plan, vector) = (*index, *plan, vector.clone());
        let run = self.members[member as usize].run;
        let flat = self.over_links(id, &plan, index);
        let tree = &self.expected_result(run, index).bytes;
        let size = plan.datatype.size_bytes();
        let elements =
            vector.chunks_exact(size).zip(tree.chunks_exact(size).zip(flat.chunks_exact(size)));
        if elements.into_iter().any(|(got, (tree, flat))| got != tree && got != flat) {
            let key = self.communicator(id).key;
            let group = key.to_string();
            self.report(
                Some(key),
                Violation::WrongResult { group, member: id.number, operation: index },
            );
        }
    }

    /// The result of an operation that is carried over links.
    fn over_links(&self, id: LeaderId, plan: &OperationPlan, index: usize) -> Vec<u8> {
        let communicator = &self.communicators[id.communicator as usize];
        let members = (0..communicator.leaders.len() as u32).map(Below::Member).collect();
        TreeShape { nodes: vec![members] }.expected_result(plan, communicator.tag, index)
    }

    /// An operation as all leaders mean it. Behind the script they only wait for each other.
    pub(super) fn operation_plan(&self, job: u32, group: u32, index: usize) -> OperationPlan {
        let script = &self.group_plan(job, group).script;
        script.get(index).copied().unwrap_or(OperationPlan::barrier())
    }
}

/// What a leader says whose link to another has ended.
const fn member_lost(host: u32) -> Abort {
    Abort { reason: AbortReason::MemberLost, at_fault: EndpointId(host) }
}
