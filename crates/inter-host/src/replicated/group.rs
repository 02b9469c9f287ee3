//! One level's group: the machine of this host, its memory, and what waits to be said over links.

use std::collections::VecDeque;

use tributary_algorithms::plan::HostGroup;
use tributary_replicated::{Call, Datagram, Failure, Landing, Member, Message, Output, Place};
use tributary_shm_collectives::Combine;
use tributary_wire::OperationNumber;
use tributary_wire::frame::{self, Contribution, RepeatedHead};

use super::datagrams::{Datagrams, Receivers, Repeated};
use super::memory::Memory;
use super::wire_messages;

/// Operations of a communicator run one by one.
const WINDOW: u16 = 1;

/// Most messages that wait for room on a link while more is heard from its other end.
const UNSAID_MAX: usize = 16;

/// A member that asks for this host's contributions to so many of so many operations gets no multicasts any more: it asks for
/// all. Where a network loses one datagram in ten, which happens to copies as well, a member asks for one of ten. One that asks
/// because this host begins late may be heard after this host has begun, so that not every question is of a loss.
const JUDGED_OPERATIONS: u64 = 32;
const ASKED_OPERATIONS_MIN: u32 = 28;

/// Bits of a group's tag that tell the level: a plan has 12 at most. The others tell groups apart in which the same hosts meet.
const LEVEL_BITS: u32 = 8;

/// A message that its link has no room for yet.
pub(super) struct Unsaid {
    pub(super) member: u8,
    pub(super) message: frame::Message,
    pub(super) payload: Vec<u8>,
}

/// What the machine has come to.
pub(super) enum Event {
    Completed { place: usize },
    Failed { operation: u64, failure: Failure },
}

pub(super) struct Group {
    pub(super) level: usize,
    /// What frames call it.
    pub(super) tag: u32,
    /// By member.
    hosts: Vec<u32>,
    /// Those but this one, from the next member on, and so in another order at each: copies go out in this order, one after the
    /// other, and nobody gets all of them first or all of them last.
    pub(super) others: Vec<u32>,
    me: u8,
    machine: Member,
    memory: Memory,
    /// Operations begun.
    begun: u64,
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

impl Group {
    /// Of the host `me`, at a level.
    pub(super) fn new(level: usize, group: HostGroup, me: u32, ask_after_ns: u64) -> Self {
        let HostGroup { round, hosts } = group;
        let place = hosts.iter().position(|host| *host == me);
        let place = place.expect("a host is a member of its groups");
        let others = [&hosts[place + 1..], &hosts[..place]].concat();
        let me = place as u8;
        let machine = Member::new(me, hosts.len() as u8, WINDOW, ask_after_ns);
        let memory = Memory::new(machine.places(), hosts.len());
        Self {
            level,
            tag: level as u32 | round << LEVEL_BITS,
            multicasts: false,
            asked: vec![0; hosts.len()],
            hosts,
            others,
            me,
            machine,
            memory,
            begun: 0,
            unsaid: VecDeque::new(),
            has_asked: false,
        }
    }

    pub(super) fn host(&self, member: u8) -> u32 {
        self.hosts[usize::from(member)]
    }

    /// The number of another host as a member.
    pub(super) fn member(&self, host: u32) -> Option<u8> {
        let member = self.hosts.binary_search(&host).ok()? as u8;
        (member != self.me).then_some(member)
    }

    /// The whole number of an operation, which is near those under way.
    pub(super) fn whole(&self, number: OperationNumber) -> Option<u64> {
        let distance = number.0.wrapping_sub(self.begun as u32) as i32;
        self.begun.checked_add_signed(distance.into())
    }

    /// Begins the next operation. False if the group has failed.
    pub(super) fn begin(&mut self, call: Call, contribution: &[u8], now_ns: u64) -> bool {
        self.memory.put(self.machine.next_place(), contribution);
        let has_begun = self.machine.begin(call, now_ns).is_ok();
        self.begun += u64::from(has_begun);
        self.has_asked = false;
        if self.multicasts && self.begun.is_multiple_of(JUDGED_OPERATIONS) {
            self.judge_multicasts();
        }
        has_begun
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

    /// A member's contribution has come as a datagram.
    pub(super) fn take_datagram(
        &mut self,
        member: u8,
        contribution: &Contribution,
        payload: &[u8],
    ) {
        let Some(operation) = self.whole(contribution.part.operation) else { return };
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
        let landing = self.machine.handle_datagram(member, &datagram);
        if let Some(place) = landing.current {
            self.memory.put(place, current);
        }
        if let (Landing { previous: Some(place), .. }, Some((_, bytes))) = (landing, repeated) {
            self.memory.put(place, bytes);
        }
    }

    /// A member has said something over its link. False if it is nothing that a member may say.
    pub(super) fn take_message(&mut self, member: u8, message: Message, payload: &[u8]) -> bool {
        if let Message::Ask { operation } = message {
            // Asked before this host has begun, it was not sent yet.
            self.asked[usize::from(member)] += u32::from(operation < self.begun);
        }
        if let Message::Sum { operation } = message {
            let own = self.machine.call(operation, self.me).map(|call| call.len_bytes as usize);
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
        if let Some(place) = self.machine.handle_message(member, message) {
            self.memory.put(place, &payload[..len_bytes as usize]);
        }
        true
    }

    pub(super) fn handle_link_closed(&mut self, member: u8) {
        self.unsaid.retain(|unsaid| unsaid.member != member);
        self.machine.handle_link_closed(member);
    }

    /// Whether so much waits to be said to a member that it has to read first.
    pub(super) fn is_backed_up(&self, member: u8) -> bool {
        self.unsaid.iter().filter(|unsaid| unsaid.member == member).count() >= UNSAID_MAX
    }

    pub(super) fn handle_timer(&mut self, now_ns: u64) {
        if self.machine.next_timer_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.machine.handle_timer(now_ns);
        }
    }

    pub(super) fn next_timer_ns(&self) -> Option<u64> {
        self.machine.next_timer_ns()
    }

    /// How many contributions of other members the operation under way lacks.
    pub(super) fn lacking(&self) -> u32 {
        self.machine.lacking()
    }

    /// What a member called in an operation.
    pub(super) fn call(&self, operation: u64, member: u8) -> Option<Call> {
        self.machine.call(operation, member)
    }

    pub(super) fn sum(&self, place: usize) -> &[u8] {
        self.memory.at(Place::Sum { place })
    }

    /// Does what the machine says, up to the next event.
    pub(super) fn act(
        &mut self,
        kernel: Option<&dyn Combine>,
        datagrams: &mut Datagrams,
    ) -> Option<Event> {
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Send { datagram, payload, previous } => {
                    let part = wire_messages::part(datagram.operation, self.tag, datagram.call);
                    let repeated = datagram.previous.zip(previous).map(|(call, place)| Repeated {
                        head: wire_messages::repeated_head(call),
                        bytes: self.memory.at(place),
                    });
                    let receivers = match self.multicasts {
                        true => Receivers::Level(self.level),
                        false => Receivers::Hosts(&self.others),
                    };
                    datagrams.send(receivers, part, self.memory.at(payload), repeated);
                }
                Output::Tell { to, message, payload } => self.tell(to, message, payload),
                Output::Fold { place } => self.memory.fold(place, kernel),
                Output::Completed { place, .. } => return Some(Event::Completed { place }),
                Output::Failed { operation, failure } => {
                    return Some(Event::Failed { operation, failure });
                }
            }
        }
        None
    }

    /// The payload is copied: a place may be another operation's when the link has room.
    fn tell(&mut self, member: u8, message: Message, payload: Option<Place>) {
        self.has_asked |= matches!(message, Message::Ask { .. } | Message::AskFor { .. });
        let own = match message {
            Message::Sum { operation } => self.machine.call(operation, self.me),
            _ => None,
        };
        if let Some(message) = wire_messages::to_wire(message, self.tag, own) {
            let payload = payload.map_or_else(Vec::new, |place| self.memory.at(place).to_vec());
            self.unsaid.push_back(Unsaid { member, message, payload });
        }
    }

    /// Begins no operation any more, and says so to the others.
    pub(super) fn leave(&mut self) {
        self.machine.leave();
    }

    /// Whether no other member needs this one any more.
    pub(super) fn is_left(&self) -> bool {
        self.machine.may_end() && self.unsaid.is_empty()
    }
}
