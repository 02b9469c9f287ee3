//! Injection of faults.
//!
//! A fault hits a target that exists at its time; without one, it misses. All that it may lead to
//! is written into the record of faults, so that any other failure is reported.

mod forgeries;
mod outages;
mod streams;

use tributary_wire::frame::{Edge, HEADER_BYTES};

use forgeries::{forged_multicast, intruding_frame, mistake, offensive_frame};

use super::agenda::End;
use super::fault_record::{DISAGREED, GAVE_UP, MEMBER_LOST, MISBEHAVED};
use super::link::Holder;
use super::scenario::{Disagreement, Fault, FaultKind, Intrusion, Offence};
use super::world::World;

/// Bytes of a header in which the receiver finds every flipped bit: magic, version, length, group,
/// epoch, child and capability. The rest describes the operation and is not checked.
const CHECKED_BYTES: [std::ops::Range<usize>; 4] = [0..5, 8..20, 44..46, 48..64];

/// Flips a bit of a frame's header that the receiver checks.
pub(super) fn flip(bytes: &mut [u8], bit: u16) {
    let checked: usize = CHECKED_BYTES.iter().map(ExactSizeIterator::len).sum();
    let at = usize::from(bit / 8) % checked;
    let index = CHECKED_BYTES.into_iter().flatten().nth(at).expect("within the checked bytes");
    bytes[index] ^= 1 << (bit % 8);
}

/// Flips a bit of what follows a frame's header, payload or code; false if nothing does.
pub(super) fn damage(bytes: &mut [u8], bit: u32) -> bool {
    let Some(payload) = bytes.get_mut(HEADER_BYTES..).filter(|payload| !payload.is_empty()) else {
        return false;
    };
    let at = bit as usize / 8 % payload.len();
    payload[at] ^= 1 << (bit % 8);
    true
}

impl World<'_> {
    pub(super) fn inject(&mut self, index: u32) {
        let Fault { at, kind } = self.scenario.faults[index as usize];
        // Faults that wait for their moment come back.
        if at == self.now {
            self.trace.note(self.now, None, || format!("FAULT {kind:?}"));
        }
        let has_hit = match kind {
            FaultKind::Cut { pick, resets } => self.cut(pick, resets),
            FaultKind::Corrupt { pick, bit } => self.corrupt(pick, bit),
            FaultKind::Slow { pick, for_ns } => self.slow(pick, for_ns),
            FaultKind::Partition { machines, for_ns } => self.part(index, machines, for_ns, false),
            FaultKind::OneWay { machines, for_ns } => self.part(index, machines, for_ns, true),
            FaultKind::NodeCrash { pick, is_silent, down_ns } => {
                let node = pick % self.nodes.len() as u32;
                let was_alive = self.node(node).is_alive;
                if was_alive {
                    self.trace.note(self.now, None, || format!("node {node} dies"));
                    self.crash_node(node, is_silent, down_ns);
                }
                was_alive
            }
            FaultKind::HostCrash { pick, is_silent } => self.crash_host(pick, is_silent),
            FaultKind::ProcessCrash { pick, resets } => {
                let member = self.pick_member(pick);
                member.map(|member| self.crash_process(member, resets)).is_some()
            }
            FaultKind::ManagerCrash { down_ns } => self.crash_manager(down_ns),
            FaultKind::Abort { pick } => {
                self.pick_member(pick).map(|member| self.abort_member(member)).is_some()
            }
            FaultKind::LeaveEarly { pick } => self.leave_early(pick),
            FaultKind::NeverJoin { pick } => self.never_join(pick),
            FaultKind::Disagree { pick, how } => self.disagree(pick, how),
            FaultKind::Offence { pick, offence } => self.offend(pick, offence),
            FaultKind::Spoof { pick, offence } => self.spoof(pick, offence),
            FaultKind::StreamTrouble { pick, holds, how } => {
                self.cut_stream_short(index, pick, holds, how)
            }
            FaultKind::DatagramsLost { pick, for_ns } => self.lose_datagrams(pick, for_ns),
            FaultKind::Intrusion { pick, intrusion } => self.intrude(pick, intrusion),
            FaultKind::NodeDiesBusy { pick, is_silent, down_ns } => {
                self.crash_busy_node(index, pick, is_silent, down_ns)
            }
            FaultKind::Damage { pick, bit } => self.damage(pick, bit),
            FaultKind::NodeDiesSettling { pick, is_silent, down_ns } => {
                self.crash_node_of_leaders(index, pick, is_silent, down_ns)
            }
            FaultKind::ProcessDiesSettling { pick } => self.crash_leader(index, pick),
            FaultKind::ClockJump { pick, by_ns } => self.jump(pick, by_ns),
        };
        self.hits[kind.index()] += u64::from(has_hit);
    }

    /// One of the members that have something left to do and a link.
    fn pick_member(&self, pick: u32) -> Option<u32> {
        let is_fit = |index: &u32| {
            let member = &self.members[*index as usize];
            let link = member.link.map(|link| &self.links[link as usize]);
            !member.is_over() && link.is_some_and(|link| link.is_whole())
        };
        let fit: Vec<u32> = (0..self.members.len() as u32).filter(is_fit).collect();
        (!fit.is_empty()).then(|| fit[pick as usize % fit.len()])
    }

    /// One of the links between living ends.
    fn pick_link(&self, pick: u32) -> Option<u32> {
        let is_fit = |index: &u32| {
            let link = &self.links[*index as usize];
            link.edge.is_some() && link.is_whole()
        };
        let fit: Vec<u32> = (0..self.links.len() as u32).filter(is_fit).collect();
        (!fit.is_empty()).then(|| fit[pick as usize % fit.len()])
    }

    fn cut(&mut self, pick: u32, resets: bool) -> bool {
        let Some(link) = self.pick_link(pick) else { return false };
        let at = self.now + self.scenario.network.delay_ns_max;
        self.blame_link(link, at);
        let end = if pick & 1 << 31 == 0 { End::Lower } else { End::Upper };
        if resets {
            self.reset(link, end);
        } else {
            self.close(link, end);
        }
        true
    }

    fn corrupt(&mut self, pick: u32, bit: u16) -> bool {
        let Some(link) = self.pick_link(pick) else { return false };
        self.link(link).flip[(pick >> 31) as usize] = Some(bit);
        true
    }

    fn damage(&mut self, pick: u32, bit: u32) -> bool {
        let Some(link) = self.pick_link(pick) else { return false };
        self.link(link).damage[(pick >> 31) as usize] = Some(bit);
        true
    }

    fn slow(&mut self, pick: u32, for_ns: u64) -> bool {
        let Some(link) = self.pick_link(pick) else { return false };
        self.link(link).held_until[(pick >> 31) as usize] = self.now + for_ns;
        true
    }

    fn crash_host(&mut self, pick: u32, is_silent: bool) -> bool {
        let host = pick % self.scenario.hosts;
        self.trace.note(self.now, None, || format!("host {host} dies"));
        for job in 0..self.jobs.len() as u32 {
            let plan = self.scenario.job(job as usize);
            if plan.hosts.contains(&host) && !self.jobs[job as usize].is_over {
                self.doom(job, host, is_silent);
            }
        }
        for member in 0..self.members.len() as u32 {
            if self.members[member as usize].host == host {
                self.kill_member(member, is_silent);
            }
        }
        self.kill_leaders(|_, leader| leader.host == host, is_silent);
        true
    }

    /// One process of a job dies, which may have been a member of several groups.
    fn crash_process(&mut self, member: u32, resets: bool) {
        let (host, job) = (self.members[member as usize].host, self.run_of(member).job);
        self.trace.note(self.now, None, || format!("job {job}'s process on host {host} dies"));
        self.doom(job, host, false);
        for member in 0..self.members.len() as u32 {
            if self.members[member as usize].host != host || self.run_of(member).job != job {
                continue;
            }
            // What lies in a socket that was closed before still arrives.
            let link = self.members[member as usize].link;
            let open = link.filter(|link| self.links[*link as usize].is_open(End::Lower));
            if resets && let Some(link) = open {
                self.lose_some(link, End::Upper);
            }
            self.kill_member(member, false);
        }
        self.kill_leaders(|it, leader| it.job == job && leader.host == host, false);
    }

    fn leave_early(&mut self, pick: u32) -> bool {
        let Some(member) = self.pick_member(pick) else { return false };
        let number = self.members[member as usize].number;
        let key = self.run_of(member).key;
        // Others notice when they wait for it, which may be much later.
        self.fault_record.entry(key).blame(u64::MAX / 2, GAVE_UP, number..number + 1);
        self.leave(member);
        true
    }

    fn never_join(&mut self, pick: u32) -> bool {
        let is_fit = |index: &u32| {
            let member = &self.members[*index as usize];
            !member.is_over() && member.link.is_none()
        };
        let fit: Vec<u32> = (0..self.members.len() as u32).filter(is_fit).collect();
        if fit.is_empty() {
            return false;
        }
        let member = fit[pick as usize % fit.len()];
        let number = self.members[member as usize].number;
        self.member(member).is_dead = true;
        self.never_set_up(member);
        let key = self.run_of(member).key;
        let at = self.now + super::timeouts::JOIN_TIMEOUT_NS;
        self.fault_record.entry(key).blame(at, MEMBER_LOST, number..number + 1);
        self.restless_members.push(member);
        true
    }

    /// A member mistakes the next operation for another one, or all members start an impossible
    /// one.
    fn disagree(&mut self, pick: u32, how: Disagreement) -> bool {
        let Some(member) = self.pick_member(pick) else { return false };
        let run = &self.runs[self.members[member as usize].run as usize];
        let (key, group) = (run.key, run.members.clone());
        let wrong = if how == Disagreement::Nobody { group.clone() } else { vec![member] };
        let started = |member: &u32| -> usize { self.members[*member as usize].next_operation() };
        let operation = wrong.iter().map(started).max().expect("a group has members");
        let script = &self.group_plan(run.job, run.group).script;
        let has_mistake = group.iter().any(|it| self.members[*it as usize].mistake.is_some());
        let is_alone = group.len() < 2 && how != Disagreement::Nobody;
        // Over direct links, leaders that differ are not played.
        let has_leaders = run.communicator.is_some();
        if is_alone || has_mistake || has_leaders || operation >= script.len() {
            return false;
        }
        let (payload_bytes, members) = (run.grant.payload_max_bytes, group.len() as u32);
        let Some(plan) = mistake(script[operation], how, payload_bytes, members) else {
            return false;
        };
        if how == Disagreement::Course && run.grant.stream.is_none() {
            return false;
        }
        for member in wrong {
            self.trace.note(self.now, Some(key), || {
                let number = self.members[member as usize].number;
                format!("member {number} mistakes operation {operation} for {plan:?}")
            });
            self.member(member).mistake = Some((operation, plan));
        }
        self.run_of(member).disputed = Some(operation);
        // It is noticed when the others come to that operation, which may be much later.
        self.fault_record.entry(key).blame(u64::MAX / 2, DISAGREED, 0..u32::MAX);
        true
    }

    /// A member breaks the protocol.
    fn offend(&mut self, pick: u32, offence: Offence) -> bool {
        let Some(member) = self.pick_member(pick) else { return false };
        let entry = &self.members[member as usize];
        let link = entry.link.expect("a picked member has a link");
        // A request again is none of an honest member's behind its leave.
        let is_unheard_of = matches!(offence, Offence::Replay { .. }) && entry.has_said_leave;
        if !self.links[link as usize].has_joined || is_unheard_of {
            return false;
        }
        let number = entry.number;
        let edge = self.edge_of(member);
        let key = self.run_of(member).key;
        self.trace.note(self.now, Some(key), || {
            format!("member {number} breaks the protocol: {offence:?}")
        });
        if let Offence::Replay { copies } = offence {
            let last = self.links[link as usize].last_request.clone();
            for _ in 0..if last.is_empty() { 0 } else { copies } {
                self.send(link, End::Upper, last.clone(), false);
            }
            return !last.is_empty();
        }
        let payload_bytes = self.run_of(member).grant.payload_max_bytes;
        let bytes = offensive_frame(offence, edge, payload_bytes);
        let at = self.now + self.scenario.network.delay_ns_max;
        self.fault_record.entry(key).blame(at, MISBEHAVED, number..number + 1);
        self.link(link).is_tampered = true;
        self.send(link, End::Upper, bytes, true);
        true
    }

    fn edge_of(&mut self, member: u32) -> Edge {
        let run = &self.run_of(member).grant;
        let (group, epoch, version) = (run.group, run.epoch, run.frame_version);
        let grant = &self.members[member as usize].grant;
        Edge { group, epoch, child: grant.child, capability: grant.capability, version }
    }

    /// A datagram in a member's name, from a stranger. It must cause no failure.
    fn spoof(&mut self, pick: u32, offence: Offence) -> bool {
        let Some(member) = self.pick_member(pick) else { return false };
        let link = self.members[member as usize].link.expect("a picked member has a link");
        // The network itself may repeat a datagram.
        if self.scenario.network.datagrams.is_none() || matches!(offence, Offence::Replay { .. }) {
            return false;
        }
        let (edge, run) = (self.edge_of(member), self.run_of(member));
        let (group, has_address) = (run.grant.group, run.grant.multicast.is_some());
        let bytes = offensive_frame(offence, edge, run.grant.payload_max_bytes);
        if has_address {
            // A member's capability is not valid in multicast frames.
            self.forge_multicast(group, &bytes);
            self.forge_multicast(group, &forged_multicast(edge));
        }
        self.put_datagram(link, End::Upper, bytes, true);
        true
    }

    fn lose_datagrams(&mut self, pick: u32, for_ns: u64) -> bool {
        let Some(link) = self.pick_link(pick) else { return false };
        self.link(link).datagrams_lost_until = self.now.saturating_add(for_ns);
        self.scenario.network.datagrams.is_some()
    }

    /// A process that belongs to no group connects to an aggregator.
    fn intrude(&mut self, pick: u32, intrusion: Intrusion) -> bool {
        let node = pick % self.nodes.len() as u32;
        if !self.node(node).is_alive {
            return false;
        }
        let joined = self.links.iter().rposition(|link| {
            link.has_joined
                && link.is_whole()
                && matches!(link.holder(End::Upper), Holder::Node { node: at, .. } if at == node)
        });
        let member = joined.and_then(|link| match self.links[link].holder(End::Lower) {
            Holder::Member(member) => Some(member),
            _ => None,
        });
        let stolen = member.map(|member| self.edge_of(member));
        let Some(bytes) = intruding_frame(intrusion, stolen) else { return false };
        let machine = pick % self.scenario.hosts;
        let link = self.connect((Holder::Stranger, machine), node, None);
        self.link(link).is_tampered = true;
        if intrusion != Intrusion::Silent {
            self.send(link, End::Upper, bytes, true);
        }
        true
    }
}
