//! Members: the endpoint machine, its application and its link.

mod frames;
mod operations;

use tributary_protocol::endpoint::Event;
use tributary_protocol::failover::Standing;
use tributary_protocol_testing::Running;
use tributary_wire::frame::{Abort, AbortReason};
use tributary_wire::{EndpointId, OperationNumber};

use super::agenda::{End, Item};
use super::fault_record::{GAVE_UP, MEMBER_LOST};
use super::link::{EdgeOf, Holder};
use super::member::Member;
use super::scenario::OperationPlan;
use super::timeouts::{JOIN_TIMEOUT_NS, SILENCE_NS};
use super::verdict::{Violation, words};
use super::world::World;

/// A member must be told within this time of the moment at which the cause can be seen.
const TOLD_WITHIN_NS: u64 = 1_000_000_000;

impl World<'_> {
    pub(super) fn member(&mut self, member: u32) -> &mut Member {
        &mut self.members[member as usize]
    }

    pub(super) fn run_of(&mut self, member: u32) -> &mut super::job::Run {
        let run = self.members[member as usize].run;
        &mut self.runs[run as usize]
    }

    pub(super) fn connect_member(&mut self, member: u32) {
        let entry = &self.members[member as usize];
        if entry.is_over() || entry.link.is_some() {
            return;
        }
        let (node, host, number) = (entry.node, entry.host, entry.number);
        self.member(member).asked_at = self.now;
        let run = self.run_of(member);
        let (key, osos, stream) = (run.key, run.grant.osos, run.grant.stream);
        let apart = self.apart_until(host, self.node_machine(node));
        if !self.node(node).is_alive || apart.is_some() {
            let now = self.now;
            let at = now + JOIN_TIMEOUT_NS;
            self.fault_record.entry(key).blame(at, MEMBER_LOST, number..number + 1);
            self.member(member).endpoint.handle_link_closed();
            self.restless_members.push(member);
            return;
        }
        let edge = EdgeOf::new(key, number..number + 1, osos, stream);
        let link = self.connect((Holder::Member(member), host), node, Some(edge));
        self.member(member).link = Some(link);
        self.offer_datagrams(member);
        self.restless_members.push(member);
    }

    /// Sends what a member has to send, and takes its machine's events.
    pub(super) fn pump_member(&mut self, member: u32) {
        loop {
            self.transmit(member);
            let Some(event) = self.member(member).endpoint.poll_event() else { break };
            self.on_member_event(member, event);
        }
        let entry = &self.members[member as usize];
        if entry.is_over()
            && let Some(link) = entry.link
        {
            // A failed member sends nothing more; a member that leaves says so first.
            if entry.is_dead || entry.endpoint.is_drained() {
                self.close(link, End::Lower);
            }
        }
        self.set_timer(member);
        if self.members[member as usize].is_over() {
            let run = self.members[member as usize].run;
            self.check_run_over(run);
        }
    }

    /// An operation as a member understands it.
    fn plan_of(&self, member: u32, operation: usize) -> OperationPlan {
        match self.members[member as usize].mistake {
            Some((mistaken, plan)) if mistaken == operation => plan,
            _ => {
                let run = &self.runs[self.members[member as usize].run as usize];
                self.operation_plan(run.job, run.group, operation)
            }
        }
    }

    fn on_member_event(&mut self, member: u32, event: Event) {
        match event {
            Event::Joined => {
                self.member(member).has_joined = true;
                match self.members[member as usize].leader {
                    Some(leader) => self.leader_joined(leader),
                    None => self.put_start(member),
                }
            }
            Event::Completed(number) => {
                self.on_completed(member, number);
                self.put_start(member);
            }
            Event::Failed(abort) => self.on_member_failed(member, abort),
            Event::AllHaveLeft => {
                if !self.member(member).is_over() {
                    self.end_in_order(member);
                }
            }
            Event::Multicast(reachability) => {
                let key = self.run_of(member).key;
                let number = self.member(member).number;
                self.trace.note(self.now, Some(key), || {
                    format!("member {number}: multicast {reachability:?}")
                });
            }
            Event::DatagramPeer(_) => {
                if let Some(link) = self.member(member).link {
                    self.link(link).takes_datagrams[End::Lower as usize] = true;
                }
            }
            Event::Datagrams(reachability) => {
                let key = self.run_of(member).key;
                let number = self.member(member).number;
                self.trace.note(self.now, Some(key), || {
                    format!("member {number}: datagrams {reachability:?}")
                });
            }
        }
    }

    pub(super) fn leave(&mut self, member: u32) {
        let entry = self.member(member);
        if entry.is_over() {
            return;
        }
        entry.endpoint.leave();
        entry.has_said_leave = true;
        self.restless_members.push(member);
        // A leader that is done stays in its tree until all have left: others may lack what it has.
        let stays = self.members[member as usize].leader.is_some_and(|it| self.is_leader_done(it));
        if !stays {
            self.end_in_order(member);
        }
    }

    fn end_in_order(&mut self, member: u32) {
        self.member(member).has_left = true;
        if let Some(leader) = self.members[member as usize].leader {
            self.leader_left(leader);
        }
    }

    /// A member gives up its place without a word to its group's other members.
    pub(super) fn withdraw(&mut self, member: u32) {
        let entry = self.member(member);
        entry.has_left = true;
        entry.endpoint.leave();
        self.restless_members.push(member);
    }

    /// A member cuts itself off from its tree: how far it has come.
    pub(super) fn cut_off(&mut self, member: u32) -> Standing {
        let entry = self.member(member);
        entry.is_cut_off = true;
        entry.endpoint.abort(AbortReason::NodeLost);
        self.restless_members.push(member);
        self.members[member as usize].endpoint.standing()
    }

    fn on_completed(&mut self, member: u32, number: OperationNumber) {
        let entry = self.member(member);
        let (index, group) = (entry.number, entry.run);
        let running = entry.running.complete(number);
        let key = self.runs[group as usize].key;
        let Some(running) = running else {
            let violation = Violation::OutOfOrder { group: key.to_string(), member: index };
            return self.report(Some(key), violation);
        };
        self.member(member).completed += 1;
        self.completions += 1;
        let Running { operation, got_bytes, .. } = running;
        self.trace.note(self.now, Some(key), || format!("member {index} completes {operation}"));
        self.trace.note_number(u64::from(member) << 32 ^ operation as u64);
        let need_bytes = running.need_bytes(EndpointId(index));
        if got_bytes != need_bytes {
            let group = key.to_string();
            let member = index;
            let violation =
                Violation::Incomplete { group, member, operation, got_bytes, need_bytes };
            self.report(Some(key), violation);
        }
        if self.runs[group as usize].disputed == Some(operation) {
            let group = key.to_string();
            self.report(Some(key), Violation::AgreedToDiffer { group, member: index, operation });
        }
        if let Some(leader) = self.members[member as usize].leader {
            self.leader_completed_in_tree(leader);
        }
    }

    fn on_member_failed(&mut self, member: u32, abort: Abort) {
        let entry = self.member(member);
        if entry.is_cut_off || entry.has_left {
            return;
        }
        // The manager hears from the root that all have left, and may be sooner with that than the parents in between.
        let is_end = entry.has_said_leave && abort.reason == AbortReason::Withdrawn;
        entry.failed = Some(abort);
        let (index, key) = (entry.number, self.run_of(member).key);
        self.trace.note(self.now, Some(key), || format!("member {index} fails: {}", words(abort)));
        if !is_end {
            self.check_failure(member, abort);
        }
        if let Some(leader) = self.members[member as usize].leader {
            self.leader_told(leader, member, abort);
        }
    }

    /// Checks that what a member is told of its group's failure has a cause, names it, and comes in time.
    fn check_failure(&mut self, member: u32, abort: Abort) {
        let entry = self.member(member);
        let (index, has_joined, asked_at) = (entry.number, entry.has_joined, entry.asked_at);
        let key = self.run_of(member).key;
        let is_slow = self.scenario.is_slow();
        let entry = self.fault_record.entry(key);
        // A communicator may take a grant up long after it got it.
        let late_ns = self.now.saturating_sub(entry.noticed_by.max(asked_at));
        let is_own_word = match abort.reason {
            AbortReason::MemberAborted => true,
            // If a group has failed before a member joins, it is not there any more, and the member
            // learns only that its join was refused.
            AbortReason::NodeLost => !has_joined,
            _ => false,
        } && abort.at_fault.0 == index;
        let is_explained = entry.explains(abort, index)
            || is_own_word
            || (is_slow && abort.reason == AbortReason::Withdrawn && !entry.blames.is_empty());
        let has_cause = !entry.blames.is_empty();
        let (group, told) = (key.to_string(), words(abort));
        if !has_cause {
            self.report(Some(key), Violation::Unfounded { group, member: index, abort: told });
        } else if !is_explained {
            self.report(Some(key), Violation::Misnamed { group, member: index, abort: told });
        } else if late_ns > TOLD_WITHIN_NS && !is_slow {
            self.report(Some(key), Violation::Late { group, member: index, late_ns });
        }
    }

    pub(super) fn on_member_timer(&mut self, member: u32) {
        let time = self.time_at(self.members[member as usize].host);
        let now = self.now;
        let entry = self.member(member);
        // One that was set before an earlier one.
        if entry.timer_at != Some(now) {
            return;
        }
        entry.timer_at = None;
        if !entry.is_dead && entry.endpoint.poll_timeout().is_some_and(|due| due <= time) {
            entry.endpoint.handle_timeout(time);
        }
        self.restless_members.push(member);
    }

    fn set_timer(&mut self, member: u32) {
        let entry = &self.members[member as usize];
        let due = entry.endpoint.poll_timeout();
        let wakes_at = due.map(|due| self.wakes_at(entry.host, due));
        let entry = self.member(member);
        if let Some(at) = wakes_at
            && !entry.is_dead
            && entry.timer_at.is_none_or(|set| at < set)
        {
            entry.timer_at = Some(at);
            self.agenda.put(at, Item::MemberTimer { member });
        }
    }

    /// A member's end of its link was closed.
    pub(super) fn member_unplugs(&mut self, member: u32, is_refused: bool) {
        let entry = self.member(member);
        if is_refused {
            entry.endpoint.handle_link_refused();
        } else {
            entry.endpoint.handle_link_closed();
        }
        self.restless_members.push(member);
    }

    /// A member's process died.
    pub(super) fn kill_member(&mut self, member: u32, is_silent: bool) {
        let entry = self.member(member);
        if entry.is_dead {
            return;
        }
        let was_over = entry.is_over();
        entry.is_dead = true;
        let (number, link) = (entry.number, entry.link);
        let key = self.run_of(member).key;
        let noticed_at =
            self.now + if is_silent { SILENCE_NS } else { self.scenario.network.delay_ns_max };
        let is_open = link.is_some_and(|link| self.links[link as usize].is_open(End::Lower));
        match link {
            Some(link) if is_open => self.blame_link(link, noticed_at),
            _ if was_over => {}
            _ => {
                let at = self.now + JOIN_TIMEOUT_NS;
                self.fault_record.entry(key).blame(at, MEMBER_LOST, number..number + 1);
            }
        }
        match link {
            Some(link) if is_silent => self.vanish(link, End::Lower, noticed_at),
            Some(link) => self.die(link, End::Lower),
            None => {}
        }
        self.restless_members.push(member);
        self.kill_leaders(
            |_, leader| leader.member == member || leader.is_entering_as(member),
            is_silent,
        );
    }

    /// A member's application gives up.
    pub(super) fn abort_member(&mut self, member: u32) {
        let number = self.member(member).number;
        let key = self.run_of(member).key;
        let noticed_at = self.now + self.scenario.network.delay_ns_max;
        self.fault_record.entry(key).blame(noticed_at, GAVE_UP, number..number + 1);
        self.member(member).endpoint.abort(AbortReason::MemberAborted);
        self.restless_members.push(member);
    }
}
