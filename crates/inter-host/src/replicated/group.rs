//! What the machine of one group does not know: the payload of its places, and what waits to be said over links.

use std::collections::VecDeque;

use tributary_replicated::{Datagram, Group, Landing, Levels, Message, Place};
use tributary_shm_collectives::Combine;
use tributary_wire::OperationNumber;
use tributary_wire::frame::{self, Contribution, RepeatedHead};

use super::datagrams::{Datagrams, Receivers, Repeated};
use super::memory::Memory;
use super::wire_messages;

/// Most messages that wait for room on a link while more is heard from its other end.
const UNSAID_MAX: usize = 16;

/// A member that asks for this host's contributions to so many of so many operations gets no multicasts any more: it asks for
/// all. Where a network loses one datagram in ten, which happens to copies as well, a member asks for one of ten. One that asks
/// because this host begins late may be heard after this host has begun, so that not every question is of a loss.
const JUDGED_OPERATIONS: u64 = 32;
const ASKED_OPERATIONS_MIN: u32 = 28;

/// A message that its link has no room for yet.
pub(super) struct Unsaid {
    pub(super) member: u8,
    pub(super) message: frame::Message,
    pub(super) payload: Vec<u8>,
}

/// One group's payload and messages.
pub(super) struct Traffic {
    /// The other members' hosts, from the next member on, and so in another order at each: copies go out in this order, one after
    /// the other, and nobody gets all of them first or all of them last.
    pub(super) others: Vec<u32>,
    memory: Memory,
    /// Contributions go out by multicast.
    multicasts: bool,
    /// By member: operations since the last judgement to which it has asked for a contribution that was multicast.
    asked: Vec<u32>,
    /// In order. Bounded: the machine asks each member once for each operation that it remembers, and a member whose answers
    /// pile up is not heard ([`Self::is_backed_up`]).
    pub(super) unsaid: VecDeque<Unsaid>,
    /// This group has asked, and waits for answers over links.
    pub(super) has_asked: bool,
}

impl Traffic {
    pub(super) fn new(group: &Group) -> Self {
        let (hosts, me) = (group.hosts(), usize::from(group.me()));
        Self {
            others: [&hosts[me + 1..], &hosts[..me]].concat(),
            memory: Memory::new(group.places(), hosts.len()),
            multicasts: false,
            asked: vec![0; hosts.len()],
            unsaid: VecDeque::new(),
            has_asked: false,
        }
    }

    /// The group begins its next operation with this contribution.
    pub(super) fn begin(&mut self, group: &Group, contribution: &[u8]) {
        self.memory.put(group.next_place(), contribution);
        self.has_asked = false;
        if self.multicasts && (group.begun_count() + 1).is_multiple_of(JUDGED_OPERATIONS) {
            self.judge_multicasts();
        }
    }

    /// Sends contributions by multicast from now on, or as copies.
    pub(super) fn set_multicasts(&mut self, multicasts: bool) {
        self.multicasts = multicasts;
    }

    #[cfg(test)]
    pub(super) fn multicasts(&self) -> bool {
        self.multicasts
    }

    /// Goes back to copies for good if some member gets no multicasts: switches forget who subscribes where nobody asks them to
    /// remember. Every host decides for what it sends; all take both.
    fn judge_multicasts(&mut self) {
        self.multicasts = self.asked.iter().all(|asked| *asked < ASKED_OPERATIONS_MIN);
        self.asked.fill(0);
    }

    /// A member's contribution to a group has come as a datagram.
    pub(super) fn take_datagram(
        &mut self,
        levels: &mut Levels,
        (group, member): (usize, u8),
        contribution: &Contribution,
        payload: &[u8],
    ) {
        let OperationNumber(number) = contribution.part.operation;
        let Some(operation) = levels.groups()[group].whole(number) else { return };
        let call = wire_messages::call_told_by(&contribution.part);
        if !wire_messages::is_possible(call) {
            return;
        }
        let (current, behind) = payload.split_at(call.len_bytes as usize);
        // What is no contribution is as good as not repeated.
        let repeated = RepeatedHead::decode(behind).unwrap_or(None);
        let previous = repeated
            .map(|(head, bytes)| wire_messages::repeated_call(head, bytes.len()))
            .filter(|call| wire_messages::is_possible(*call));
        let datagram = Datagram { operation, call, previous };
        let landing = levels.handle_datagram(group, member, &datagram);
        if let Some(place) = landing.current {
            self.memory.put(place, current);
        }
        if let (Landing { previous: Some(place), .. }, Some((_, bytes))) = (landing, repeated) {
            self.memory.put(place, bytes);
        }
    }

    /// A member of a group has said something over its link. False if it is nothing that a member may say.
    pub(super) fn take_message(
        &mut self,
        levels: &mut Levels,
        (group, member): (usize, u8),
        message: Message,
        payload: &[u8],
    ) -> bool {
        let known = &levels.groups()[group];
        if let Message::Ask { operation } = message {
            // Asked before this host has begun, it was not sent yet. Questions that are heard long after belong to no judgement.
            let judged = known.begun_count() / JUDGED_OPERATIONS * JUDGED_OPERATIONS;
            let counts = (judged..known.begun_count()).contains(&operation);
            self.asked[usize::from(member)] += u32::from(counts);
        }
        if let Message::Sum { operation } = message {
            let own = known.call(operation, known.me()).map(|call| call.len_bytes as usize);
            if own.is_some_and(|own| own != payload.len()) {
                return false;
            }
        }
        let len_bytes = match message {
            Message::Contribution { call, .. } | Message::Passed { call, .. } => {
                if !wire_messages::is_possible(call) {
                    return false;
                }
                call.len_bytes
            }
            _ => payload.len() as u32,
        };
        if let Some(place) = levels.handle_message(group, member, message) {
            self.memory.put(place, &payload[..len_bytes as usize]);
        }
        true
    }

    /// A member is gone: nothing is said to it any more.
    pub(super) fn drop_unsaid(&mut self, member: u8) {
        self.unsaid.retain(|unsaid| unsaid.member != member);
    }

    /// Whether so much waits to be said to a member that it has to read first.
    pub(super) fn is_backed_up(&self, member: u8) -> bool {
        self.unsaid.iter().filter(|unsaid| unsaid.member == member).count() >= UNSAID_MAX
    }

    pub(super) fn sum(&self, place: usize) -> &[u8] {
        self.memory.at(Place::Sum { place })
    }

    pub(super) fn fold(&mut self, place: usize, kernel: Option<&dyn Combine>) {
        self.memory.fold(place, kernel);
    }

    /// Sends a contribution to all other members, with the one before it.
    pub(super) fn send(
        &self,
        group: &Group,
        datagram: Datagram,
        (payload, previous): (Place, Option<Place>),
        datagrams: &mut Datagrams,
    ) {
        let part = wire_messages::part(datagram.operation, group.tag(), datagram.call);
        let repeated = datagram.previous.zip(previous).map(|(call, place)| Repeated {
            head: wire_messages::repeated_head(call),
            bytes: self.memory.at(place),
        });
        let receivers = match self.multicasts {
            true => Receivers::Level(group.level()),
            false => Receivers::Hosts(&self.others),
        };
        datagrams.send(receivers, part, self.memory.at(payload), repeated);
    }

    /// Says something to a member as soon as its link has room. The payload is copied: a place may be another operation's then.
    pub(super) fn tell(
        &mut self,
        group: &Group,
        member: u8,
        message: Message,
        payload: Option<Place>,
    ) {
        self.has_asked |= matches!(message, Message::Ask { .. } | Message::AskFor { .. });
        let own = match message {
            Message::Sum { operation } => group.call(operation, group.me()),
            _ => None,
        };
        if let Some(message) = wire_messages::to_wire(message, group.tag(), own) {
            let payload = payload.map_or_else(Vec::new, |place| self.memory.at(place).to_vec());
            self.unsaid.push_back(Unsaid { member, message, payload });
        }
    }
}
