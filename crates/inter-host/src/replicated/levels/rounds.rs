//! Rounds: what has come is taken, what follows from it done, and what there is room for sent.

use tributary_replicated::Failure as GroupFailure;
use tributary_transport::Sent;
use tributary_wire::EndpointId;
use tributary_wire::frame::Disagreement;

use super::super::group::{Event, Group, Unsaid};
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
            for group in &mut self.groups {
                if let Some(member) = group.member(host) {
                    group.handle_link_closed(member);
                }
            }
        }
    }

    /// One round: takes what has come, does what follows from it, and sends what there is room for.
    pub(super) fn go_on(&mut self) -> Result<(), Failure> {
        let groups = &mut self.groups;
        let mut has_come = false;
        let level = self.running.as_ref().map(|running| running.level);
        self.datagrams.take(level, |host, contribution, payload| {
            has_come = true;
            if let Some((group, member)) = find(groups, contribution.part.sequence.0, host) {
                groups[group].take_datagram(member, contribution, payload);
            }
        });
        self.rounds_to_look = self.rounds_to_look.saturating_sub(u32::from(!has_come));
        if self.groups.iter().any(|group| group.has_asked) {
            self.rounds_to_look = self.rounds_to_look.min(ROUNDS_PER_LOOK_FOR_ANSWERS);
        }
        if self.rounds_to_look == 0 {
            self.rounds_to_look = ROUNDS_PER_LOOK;
            self.look_at_links()?;
        }
        let now_ns = self.now_ns();
        self.groups.iter_mut().for_each(|group| group.handle_timer(now_ns));
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
        let Self { peers, groups, stats, .. } = self;
        let is_backed_up =
            |group: &Group| group.member(host).is_some_and(|it| group.is_backed_up(it));
        if self.ended[host as usize] || groups.iter().any(is_backed_up) {
            return Ok(false);
        }
        let heard = match peers.hear(host) {
            Ok(heard) => heard,
            Err(failure) => return self.note(host, Err(failure)).map(|()| false),
        };
        let Some((message, payload)) = heard else { return Ok(false) };
        stats.heard += 1;
        let whole = |tag, operation| match find(groups, tag, host) {
            Some((group, _)) => groups[group].whole(operation),
            // It is refused below, whatever it is about.
            None => Some(0),
        };
        let is_right = match wire_messages::from_wire(&message, whole) {
            Some((tag, message)) => find(groups, tag, host).is_some_and(|(group, member)| {
                groups[group].take_message(member, message, payload)
            }),
            // Long ago, and answered since.
            None => true,
        };
        if is_right { Ok(true) } else { Err(misbehaviour_of(host).into()) }
    }

    /// Does what the machines say. A level's sum is this host's contribution to the next.
    pub(super) fn act(&mut self) -> Result<(), Failure> {
        let now_ns = self.now_ns();
        let kernel = self.running.as_ref().and_then(|running| running.operation.kernel);
        // Groups of a level that this round begins lie behind the one that it completes.
        for index in 0..self.groups.len() {
            while let Some(event) = self.groups[index].act(kernel, &mut self.datagrams) {
                match event {
                    Event::Completed { place } => self.complete(index, place, now_ns),
                    Event::Failed { operation, failure } => {
                        return Err(self.failure(index, operation, failure));
                    }
                }
            }
        }
        Ok(())
    }

    /// The running operation is complete in a group: no other is under way.
    fn complete(&mut self, group: usize, place: usize, now_ns: u64) {
        let Some(running) = &mut self.running else { return };
        let of_level = self.levels[running.level].groups.clone();
        debug_assert!(of_level.contains(&group), "levels come one after the other");
        if group == of_level.start {
            running.sum_place = Some(place);
        }
        running.groups_left -= 1;
        let Some(place) = running.sum_place.filter(|_| running.groups_left == 0) else { return };
        running.sum_place = None;
        let (below, above) = self.groups.split_at_mut(of_level.end);
        let sum = below[of_level.start].sum(place);
        match self.levels.get(running.level + 1) {
            Some(next) => {
                running.level += 1;
                running.groups_left = next.groups.len();
                for group in &mut above[..next.groups.len()] {
                    // One that has failed says so in its outputs.
                    let _ = group.begin(running.call, sum, now_ns);
                }
            }
            None => {
                running.is_done = true;
                if !sum.is_empty() {
                    // SAFETY: the caller of `InterHost::start` keeps room for the whole vector at the target, which is as
                    // long as a sum: all members called the same. Sums are this driver's own memory.
                    unsafe {
                        running.operation.target.copy_from_nonoverlapping(sum.as_ptr(), sum.len());
                    }
                }
            }
        }
    }

    /// Why a group has failed, for all hosts.
    fn failure(&self, group: usize, operation: u64, failure: GroupFailure) -> Failure {
        let group = &self.groups[group];
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
        for index in 0..self.groups.len() {
            let mut full = 0_u64;
            for _ in 0..self.groups[index].unsaid.len() {
                let group = &mut self.groups[index];
                let Some(unsaid) = group.unsaid.pop_front() else { break };
                let (bit, host) = (1 << unsaid.member, group.host(unsaid.member));
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
                        self.groups[index].unsaid.push_back(unsaid);
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

/// The group that frames call so, and a host's number in it; none if it is not a member.
fn find(groups: &[Group], tag: u32, host: u32) -> Option<(usize, u8)> {
    let index = groups.iter().position(|group| group.tag == tag)?;
    Some((index, groups[index].member(host)?))
}
