//! Replicated groups: ranks send their contributions to one another as datagrams, and each folds them all.
//!
//! Members are the product's own machines, one for each level of a plan. What they ask each other goes over links. A rank takes
//! all datagrams that have come with one call, as `recvmmsg` does, and sends the copies for a group with one.

use std::sync::Arc;

use tributary_algorithms::plan::Plan;
use tributary_replicated::{Call, Datagram, Member, Output};

use super::event::Event;
use super::ids::{NoticeId, RankId};
use super::notices::{Groups, Level, Notice, Said};
use super::packet::{Cargo, Packet};
use super::payload::Data;
use super::rank::Team;
use super::state::World;
use crate::engine::Picos;
use crate::fabric::Flow;

/// How long the product lets a contribution be late before it asks.
const ASK_AFTER_NS: u64 = 2_000_000;

/// The product's operations run one by one.
const WINDOW: u16 = 1;

impl<D: Data> World<D> {
    /// Makes the ranks of a team, one on each host, members of replicated groups, which multicast or send copies.
    ///
    /// # Panics
    /// If the plan has not as many hosts as the team has ranks, or uneven groups.
    pub fn add_groups(&mut self, team: &Team, plan: &Arc<Plan>, multicast: bool) {
        assert_eq!(plan.hosts(), team.ranks, "a rank for each host of the plan");
        for number in 0..team.ranks {
            let levels = plan.groups_of(number).expect("groups of a level are equal");
            let level = |hosts: Vec<u32>| {
                let me = hosts.iter().position(|host| *host == number);
                let me = me.expect("a host is a member of its groups") as u8;
                let machine = Member::new(me, hosts.len() as u8, WINDOW, ASK_AFTER_NS);
                let ranks = hosts.into_iter().map(|host| team.rank(host)).collect();
                Level { machine, ranks, timer_at: None }
            };
            let levels = levels.into_iter().map(level).collect();
            let groups =
                Groups { levels, multicast, call: None, inbox: Vec::new(), is_taking: false };
            self.ranks[team.rank(number).index()].groups = Some(Box::new(groups));
        }
    }

    /// Runs an allreduce of `bytes`, or a barrier of none, by the groups of a team. Each rank has its own start.
    ///
    /// # Panics
    /// If there is not one start for each rank.
    pub fn enter_groups(&mut self, team: &Team, bytes: u32, starts: &[Picos]) {
        assert_eq!(starts.len(), team.ranks as usize, "one start for each rank");
        for (number, &start) in (0..).zip(starts) {
            self.events.schedule(start, Event::Contribute(team.rank(number), bytes));
        }
    }

    /// A rank begins an operation.
    pub(super) fn contribute(&mut self, id: RankId, bytes: u32) {
        let now = self.events.now();
        let rank = &mut self.ranks[id.index()];
        rank.began_at = now;
        let process = rank.process;
        let called_at = self.work(process, now, self.costs.message.call);
        let call = Call { kind: 1, len_bytes: bytes };
        self.groups_of(id).call = Some(call);
        self.begin_level(id, 0, call, called_at);
        let at = self.act_in_groups(id, called_at);
        self.take_later(id, at);
    }

    fn groups_of(&mut self, id: RankId) -> &mut Groups {
        self.ranks[id.index()].groups.as_mut().expect("a rank in groups has a place in them")
    }

    fn begin_level(&mut self, id: RankId, level: usize, call: Call, at: Picos) {
        let begun = self.groups_of(id).levels[level].machine.begin(call, ns(at));
        begun.expect("operations run one by one, and nobody dies");
    }

    /// Does what the machines say. Returns when the core is done.
    fn act_in_groups(&mut self, id: RankId, from: Picos) -> Picos {
        let mut at = from;
        for level in 0..self.groups_of(id).levels.len() {
            while let Some(output) = self.groups_of(id).levels[level].machine.poll() {
                at = self.act_on(id, level, output, at);
            }
            self.set_group_timer(id, level);
        }
        at
    }

    fn act_on(&mut self, id: RankId, level: usize, output: Output, at: Picos) -> Picos {
        match output {
            Output::Send { datagram, .. } if self.groups_of(id).multicast => {
                self.multicast(id, level, datagram, at)
            }
            Output::Send { datagram, .. } => self.send_copies(id, level, datagram, at),
            Output::Tell { to, message, payload } => {
                let bytes = payload.and(self.groups_of(id).call).map_or(0, |call| call.len_bytes);
                let to = self.groups_of(id).levels[level].ranks[usize::from(to)];
                let process = self.ranks[id.index()].process;
                let done_at = self.work(process, at, self.costs.message.send.of(bytes));
                self.post_notice(id, to, level, Said::Message(message), bytes, done_at);
                done_at
            }
            Output::Fold { .. } => {
                let groups = self.groups_of(id);
                let others = groups.levels[level].ranks.len() as u32 - 1;
                let bytes = groups.call.map_or(0, |call| call.len_bytes);
                let process = self.ranks[id.index()].process;
                self.work(process, at, self.costs.message.reduce.of(others * bytes))
            }
            Output::Completed { .. } => {
                let groups = self.groups_of(id);
                let call = groups.call.expect("nothing else completes");
                if level + 1 < groups.levels.len() {
                    self.begin_level(id, level + 1, call, at);
                } else {
                    groups.call = None;
                    self.finish(id, at);
                }
                at
            }
            Output::Failed { failure, .. } => unreachable!("{failure:?}: nobody dies"),
        }
    }

    /// One call sends the copies, one after the other, from the next member on as in the product.
    fn send_copies(&mut self, id: RankId, level: usize, datagram: Datagram, at: Picos) -> Picos {
        let bytes = bytes_of(&datagram);
        let process = self.ranks[id.index()].process;
        let me = usize::from(self.member_of(id, level));
        let ranks = &self.groups_of(id).levels[level].ranks;
        let others = [&ranks[me + 1..], &ranks[..me]].concat();
        let mut cost = self.costs.message.send.of(bytes);
        let mut at = at;
        for to in others {
            at = self.work(process, at, cost);
            self.post_notice(id, to, level, Said::Datagram(datagram), bytes, at);
            cost = self.costs.copies.send.of(bytes);
        }
        at
    }

    /// One datagram goes out, to all other members of the level's group.
    fn multicast(&mut self, id: RankId, level: usize, datagram: Datagram, at: Picos) -> Picos {
        let bytes = bytes_of(&datagram);
        let process = self.ranks[id.index()].process;
        let at = self.work(process, at, self.costs.message.send.of(bytes));
        let from = self.member_of(id, level);
        let members = self.groups_of(id).levels[level].ranks.len();
        let receivers = (u64::MAX >> (64 - members)) & !(1 << from);
        let notice = Notice { to: id, level, from, said: Said::Datagram(datagram) };
        let cargo = Cargo::Multicast { notice: self.notices.put(notice), receivers };
        let here = self.host_of(process);
        let packet = Packet { from: here, at: here, to: here, bytes, cargo };
        self.events.schedule(at, Event::Emit(packet));
        at
    }

    /// A host or switch sends a multicast on: one packet over each link behind which there are receivers.
    pub(super) fn split(&mut self, packet: Packet, id: NoticeId, receivers: u64) {
        let now = self.events.now();
        let notice = self.notices.take(id);
        let ranks = self.groups_of(notice.to).levels[notice.level].ranks.clone();
        let mut left = receivers;
        while left != 0 {
            let first = left.trailing_zeros() as usize;
            let host = self.host_of(self.ranks[ranks[first].index()].process);
            let to = |host| Flow { from: packet.from, to: host };
            let next = self.network.next(packet.at, to(host));
            let mut beyond = 0_u64;
            for (member, rank) in ranks.iter().enumerate().filter(|(at, _)| left >> at & 1 == 1) {
                let host = self.host_of(self.ranks[rank.index()].process);
                let goes_there = self.network.next(packet.at, to(host)) == next;
                beyond |= u64::from(goes_there) << member;
            }
            left &= !beyond;
            let cargo = if beyond.is_power_of_two() {
                let notice = self.notices.put(Notice { to: ranks[first], ..notice });
                Cargo::Notice { notice, is_datagram: true }
            } else {
                Cargo::Multicast { notice: self.notices.put(notice), receivers: beyond }
            };
            self.forward(Packet { to: host, cargo, ..packet }, now);
        }
    }

    /// A rank's number in a level's group.
    fn member_of(&mut self, id: RankId, level: usize) -> u8 {
        let ranks = &self.groups_of(id).levels[level].ranks;
        let member = ranks.iter().position(|rank| *rank == id);
        member.expect("a rank is a member of its groups") as u8
    }

    fn post_notice(
        &mut self,
        from: RankId,
        to: RankId,
        level: usize,
        said: Said,
        bytes: u32,
        at: Picos,
    ) {
        let member = self.member_of(from, level);
        let notice = self.notices.put(Notice { to, level, from: member, said });
        let [here, there] = [from, to].map(|rank| self.host_of(self.ranks[rank.index()].process));
        let is_datagram = matches!(said, Said::Datagram(_));
        let cargo = Cargo::Notice { notice, is_datagram };
        let packet = Packet { from: here, at: here, to: there, bytes, cargo };
        self.events.schedule(at, Event::Post(packet));
    }

    /// Something that a member said can be seen at its receiver.
    pub(super) fn notice_receives(&mut self, seen_at: Picos, id: NoticeId) {
        self.events.schedule(seen_at, Event::Notice(id));
    }

    pub(super) fn see_notice(&mut self, id: NoticeId) {
        let notice = self.notices.take(id);
        self.groups_of(notice.to).inbox.push(notice);
        self.take_later(notice.to, self.events.now());
    }

    /// Schedules when a rank takes what has come. What comes over a link, a thread of its own looks after while the program
    /// is in no operation.
    fn take_later(&mut self, id: RankId, at: Picos) {
        let groups = self.groups_of(id);
        let is_message = |notice: &Notice| matches!(notice.said, Said::Message(_));
        let is_due = groups.is_datagram_awaited() || groups.inbox.iter().any(is_message);
        if is_due && !groups.inbox.is_empty() && !std::mem::replace(&mut groups.is_taking, true) {
            let process = self.ranks[id.index()].process;
            let at = at.max(self.processes[process.index()].free_at);
            self.events.schedule(at, Event::TakeNotices(id));
        }
    }

    /// A rank takes all that has come.
    pub(super) fn take_notices(&mut self, id: RankId) {
        let now = self.events.now();
        let groups = self.groups_of(id);
        groups.is_taking = false;
        let taken = std::mem::take(&mut groups.inbox);
        if taken.is_empty() {
            return;
        }
        let mut at = now;
        let process = self.ranks[id.index()].process;
        let datagrams = || {
            taken.iter().filter_map(|notice| match notice.said {
                Said::Datagram(datagram) => Some(datagram.call.len_bytes),
                Said::Message(_) => None,
            })
        };
        if datagrams().next().is_some() {
            at = self.work(process, at, self.costs.copies.receive_call);
        }
        for bytes in datagrams() {
            at = self.work(process, at, self.costs.copies.receive.of(bytes));
        }
        for Notice { level, from, said, .. } in taken {
            match said {
                Said::Datagram(datagram) => {
                    self.groups_of(id).levels[level].machine.handle_datagram(from, &datagram);
                }
                Said::Message(message) => {
                    at = self.work(process, at, self.costs.message.control);
                    self.groups_of(id).levels[level].machine.handle_message(from, message);
                }
            }
        }
        let at = self.act_in_groups(id, at);
        // What comes until then is taken next.
        self.groups_of(id).is_taking = true;
        self.events.schedule(at, Event::TakeNotices(id));
    }

    fn set_group_timer(&mut self, id: RankId, level: usize) {
        let now = self.events.now();
        let level_state = &mut self.groups_of(id).levels[level];
        let Some(due_ns) = level_state.machine.next_timer_ns() else { return };
        let at = Picos(due_ns.saturating_mul(1000)).max(now);
        if level_state.timer_at.is_none_or(|set| at < set) {
            level_state.timer_at = Some(at);
            self.events.schedule(at, Event::GroupTimer(id, level as u32));
        }
    }

    /// A contribution may be late.
    pub(super) fn group_timer(&mut self, id: RankId, level: u32) {
        let now = self.events.now();
        let state = &mut self.groups_of(id).levels[level as usize];
        if state.timer_at != Some(now) {
            return;
        }
        state.timer_at = None;
        if state.machine.next_timer_ns().is_some_and(|due_ns| due_ns <= ns(now)) {
            state.machine.handle_timer(ns(now));
        }
        self.act_in_groups(id, now);
    }
}

/// Of a contribution and the one that it repeats.
fn bytes_of(datagram: &Datagram) -> u32 {
    datagram.call.len_bytes + datagram.previous.map_or(0, |previous| previous.len_bytes)
}

fn ns(at: Picos) -> u64 {
    at.0 / 1000
}
