//! Rounds: what has come is taken, what follows from it done, and what there is room for sent.

use tributary_replicated::{Failure as GroupFailure, Step};
use tributary_transport::Sent;
use tributary_wire::frame::Disagreement;
use tributary_wire::{EndpointId, OperationNumber};

use super::super::group::Unsaid;
use super::super::wire_messages;
use super::{ROUNDS_PER_LOOK, ROUNDS_PER_LOOK_FOR_ANSWERS, ReplicatedLevels};
use crate::direct::{Failure, misbehaviour_of};

/// Most messages taken of one link in one round.
const HEARD_MAX: u32 = 64;

impl ReplicatedLevels {
    /// Calls all others, once: a member that nothing is lost of needs its link only to tell that it is there.
    pub(super) fn call_others(&mut self) -> Result<(), Failure> {
        if std::mem::replace(&mut self.has_called, true) {
            return Ok(());
        }
        for index in 0..self.others.len() {
            let host = self.others[index];
            let called = self.peers.call(host);
            self.note(host, called)?;
        }
        // Hosts that came first have called, and may have asked. The thread that watches was woken for it before there was an
        // operation, and is not woken for it again.
        self.look_at_links()?;
        self.act()
    }

    /// Notes the end of a link; every other failure is one of the whole.
    fn note(&mut self, host: u32, outcome: Result<(), Failure>) -> Result<(), Failure> {
        match outcome {
            Err(Failure::Ended(_)) => {
                self.end(host);
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn end(&mut self, host: u32) {
        if !std::mem::replace(&mut self.ended[host as usize], true) {
            for (traffic, group) in self.traffic.iter_mut().zip(self.groups.groups()) {
                if let Some(member) = group.member(host) {
                    traffic.drop_unsaid(member);
                }
            }
            self.groups.handle_link_closed(host);
        }
    }

    /// One round: takes what has come, does what follows from it, and sends what there is room for.
    pub(super) fn go_on(&mut self) -> Result<(), Failure> {
        let Self { groups, traffic, .. } = self;
        let mut has_come = false;
        self.datagrams.take(groups.running_level(), |host, contribution, payload| {
            has_come = true;
            if let Some(member) = groups.find(contribution.part.sequence.0, host) {
                traffic[member.0].take_datagram(groups, member, contribution, payload);
            }
        });
        self.rounds_to_look = self.rounds_to_look.saturating_sub(u32::from(!has_come));
        if self.traffic.iter().any(|group| group.has_asked) {
            self.rounds_to_look = self.rounds_to_look.min(ROUNDS_PER_LOOK_FOR_ANSWERS);
        }
        if self.rounds_to_look == 0 {
            self.rounds_to_look = ROUNDS_PER_LOOK;
            self.look_at_links()?;
        }
        let now_ns = self.now_ns();
        if self.groups.next_timer_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            // Something is lost, or somebody late: that is seldom enough to ask the kernel about each link.
            self.groups.set_round_trip(self.peers.round_trip().as_nanos() as u64);
            self.groups.handle_timer(now_ns);
        }
        self.act()?;
        let _ = self.datagrams.flush();
        self.say()?;
        let _ = self.peers.flush();
        Ok(())
    }

    /// Takes what others say over their links, and finds those that have ended.
    fn look_at_links(&mut self) -> Result<(), Failure> {
        for index in 0..self.others.len() {
            let host = self.others[index];
            for _ in 0..HEARD_MAX {
                if !self.hear(host)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Takes one message of another host of the groups. False if there is none.
    fn hear(&mut self, host: u32) -> Result<bool, Failure> {
        let Self { peers, groups, traffic, stats, .. } = self;
        let is_backed_up = traffic
            .iter()
            .zip(groups.groups())
            .any(|(traffic, group)| group.member(host).is_some_and(|it| traffic.is_backed_up(it)));
        if self.ended[host as usize] || is_backed_up {
            return Ok(false);
        }
        let heard = match peers.hear(host) {
            Ok(heard) => heard,
            Err(failure) => return self.note(host, Err(failure)).map(|()| false),
        };
        let Some((message, payload)) = heard else { return Ok(false) };
        stats.heard += 1;
        let whole = |tag, OperationNumber(number)| match groups.find(tag, host) {
            Some((group, _)) => groups.groups()[group].whole(number),
            // It is refused below, whatever it is about.
            None => Some(0),
        };
        let is_right = match wire_messages::from_wire(&message, whole) {
            Some((tag, message)) => groups.find(tag, host).is_some_and(|member| {
                traffic[member.0].take_message(groups, member, message, payload)
            }),
            // Long ago, and answered since.
            None => true,
        };
        if is_right { Ok(true) } else { Err(misbehaviour_of(host).into()) }
    }

    /// Does what the machine says.
    pub(super) fn act(&mut self) -> Result<(), Failure> {
        let now_ns = self.now_ns();
        let kernel = self.running.as_ref().and_then(|running| running.operation.kernel);
        while let Some(step) = self.groups.poll(now_ns) {
            let groups = self.groups.groups();
            match step {
                Step::Send { group, datagram, payload, previous } => self.traffic[group].send(
                    &groups[group],
                    datagram,
                    (payload, previous),
                    &mut self.datagrams,
                ),
                Step::Tell { group, to, message, payload } => {
                    self.traffic[group].tell(&groups[group], to, message, payload);
                }
                Step::Fold { group, place } => self.traffic[group].fold(place, kernel),
                Step::Raise { group, place, to } => self.raise(group, place, to),
                Step::Completed { group, place } => self.complete(group, place),
                Step::Failed { group, operation, failure } => {
                    return Err(self.failure(group, operation, failure));
                }
            }
        }
        Ok(())
    }

    /// A group's sum is this host's contribution to the next level, whose groups lie behind it.
    fn raise(&mut self, group: usize, place: usize, to: usize) {
        let of_level = self.groups.of_level(to);
        let (below, above) = self.traffic.split_at_mut(of_level.start);
        let sum = below[group].sum(place);
        for (traffic, group) in above.iter_mut().zip(&self.groups.groups()[of_level]) {
            traffic.begin(group, sum);
        }
    }

    /// The running operation is complete: no other is under way.
    fn complete(&mut self, group: usize, place: usize) {
        let Some(running) = &mut self.running else { return };
        running.is_done = true;
        let sum = self.traffic[group].sum(place);
        if !sum.is_empty() {
            // SAFETY: the caller of `InterHost::start` keeps room for the whole vector at the target, which is as
            // long as a sum: all members called the same. Sums are this driver's own memory.
            unsafe {
                running.operation.target.copy_from_nonoverlapping(sum.as_ptr(), sum.len());
            }
        }
    }

    /// Why a group has failed, for all hosts.
    fn failure(&self, group: usize, operation: u64, failure: GroupFailure) -> Failure {
        let group = &self.groups.groups()[group];
        match failure {
            GroupFailure::Dead(member) => Failure::Ended(group.host(member)),
            GroupFailure::Disagreement(one, other) => {
                let called = [one, other].map(|member| {
                    let call = group.call(operation, member);
                    wire_messages::called_in(
                        call.expect("a disagreement is found when all calls are there"),
                    )
                    .0
                });
                let members = [one, other].map(|member| EndpointId(group.host(member)));
                Failure::Known(Disagreement { members, called }.into())
            }
        }
    }

    /// Says what links have room for.
    pub(super) fn say(&mut self) -> Result<(), Failure> {
        for index in 0..self.traffic.len() {
            let mut full = 0_u64;
            for _ in 0..self.traffic[index].unsaid.len() {
                let Some(unsaid) = self.traffic[index].unsaid.pop_front() else { break };
                let (bit, host) =
                    (1 << unsaid.member, self.groups.groups()[index].host(unsaid.member));
                if self.ended[host as usize] {
                    continue;
                }
                let said = match full & bit {
                    0 => self.say_one(host, &unsaid),
                    _ => Ok(Sent::Full),
                };
                match said {
                    Ok(Sent::Taken) => self.stats.said += 1,
                    Ok(Sent::Full) => {
                        full |= bit;
                        self.traffic[index].unsaid.push_back(unsaid);
                    }
                    Err(failure) => self.note(host, Err(failure))?,
                }
            }
        }
        Ok(())
    }

    fn say_one(&mut self, host: u32, unsaid: &Unsaid) -> Result<Sent, Failure> {
        self.peers.tell(host, unsaid.message, &unsaid.payload)
    }
}
