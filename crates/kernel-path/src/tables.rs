//! The tables, as the aggregator's process uses them: groups come and go, and sequences change hands.
//!
//! A sequence belongs to the side that changed its slot's word first. The program opens a slot for
//! a segment that it takes; the process opens one for every other. The process may take over what the
//! program gathers, until the last lane is filled. It waits for a run of the program that is writing in
//! the slot, in a soft interrupt on another core: so the side that has a slot is the only one that writes in it.

use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use tributary_protocol::Time;
use tributary_protocol::node::MulticastTerms;
use tributary_wire::frame::{Part, RetransmitState, Shape, Subscription, Target, Version};
use tributary_wire::{
    Capability, ChildIndex, Datatype, Epoch, GroupId, OperationNumber, Operator, SegmentIndex,
    Sequence,
};

use crate::layout::{
    self, CHILDREN_MAX, Counters, Edge, FRAME_VERSION, Lane, Mark, PAYLOAD_BYTES_MAX, PLACES,
    SLOTS_PER_PLACE, Segment,
};
pub use crate::memory::Memory;
use crate::steps;
use crate::word::{Phase, Word};

/// How long a place rests before another group gets it. A run of the program that began before the group
/// was removed is over long before.
const REST_NS: u64 = 1_000_000_000;

/// Finds a group's place by its number and epoch.
pub trait Directory: Send {
    /// Enters a place.
    ///
    /// # Errors
    /// If the directory has no room.
    fn enter(&mut self, key: u64, place: u32) -> io::Result<()>;

    /// Takes it out.
    ///
    /// # Errors
    /// If it is not there.
    fn leave(&mut self, key: u64) -> io::Result<()>;
}

/// One child of a group.
#[derive(Clone, Copy, Debug)]
pub struct ChildTerms {
    /// What its requests show.
    pub capability: Capability,
    /// Where it takes and sends datagrams.
    pub peer: SocketAddrV4,
    /// Where this aggregator takes them from it.
    pub own: SocketAddrV4,
    /// The number after the highest it has sent.
    pub next: Sequence,
    /// The receivers of multicast at or below it.
    pub subscription: Subscription,
}

/// Where a group's results go by multicast.
#[derive(Clone, Copy, Debug)]
pub struct Multicast {
    /// The address.
    pub address: SocketAddrV4,
    /// What the machine says of it.
    pub terms: MulticastTerms,
}

/// The aggregator above a group's aggregator.
#[derive(Clone, Copy, Debug)]
pub struct ParentTerms {
    /// Which of its children this aggregator is.
    pub child: ChildIndex,
    /// What frames between the two show.
    pub capability: Capability,
    /// Where it takes and sends datagrams.
    pub peer: SocketAddrV4,
    /// Where this aggregator takes them from it.
    pub own: SocketAddrV4,
    /// Whether members may have results before this aggregator has them.
    pub may_be_overtaken: bool,
}

/// A group that the program is to serve.
#[derive(Clone, Debug)]
pub struct GroupTerms {
    /// The group.
    pub group: GroupId,
    /// Its incarnation.
    pub epoch: Epoch,
    /// The layout of its frames.
    pub frame_version: Version,
    /// Segments in flight at most.
    pub window: u16,
    /// Longest segment.
    pub payload_max_bytes: u32,
    /// Its children, in reduction order.
    pub children: Vec<ChildTerms>,
    /// The aggregator above; none at the root.
    pub parent: Option<ParentTerms>,
    /// Its multicast. At the root it is used if this aggregator has one address for all children, from which results
    /// are to come.
    pub multicast: Option<Multicast>,
    /// The earliest sequence whose result is not here.
    pub floor: Sequence,
    /// The sequences that the process has in slots, and whether their results are here.
    pub known: Vec<(Sequence, bool)>,
}

/// Why the program can't serve a group. The process does.
#[derive(Debug, thiserror::Error)]
pub enum AdmitError {
    /// Too many children.
    #[error("{children} children, the kernel path serves {CHILDREN_MAX}")]
    TooManyChildren {
        /// How many it has.
        children: usize,
    },
    /// Frames of another layout.
    #[error("frames of version {needed}, the kernel path reads version {FRAME_VERSION}")]
    OtherVersion {
        /// The version of its frames.
        needed: Version,
    },
    /// Too wide a window.
    #[error("{window} segments in flight, the kernel path holds {}", SLOTS_PER_PLACE / 2)]
    TooWide {
        /// How wide it is.
        window: u16,
    },
    /// No place is free.
    #[error("all {PLACES} places of the kernel path are taken")]
    Full,
    /// The kernel refuses the entry.
    #[error("the kernel refuses the entry: {0}")]
    Directory(#[from] io::Error),
}

/// The place of a group in the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceId(usize);

/// A contribution that the program has counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The child that it is of.
    pub child: ChildIndex,
    /// Its header's part.
    pub part: Part,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// What the program has made of all contributions to a segment, or has got from the parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folded {
    /// The segment.
    pub part: Part,
    /// Its result; of a segment that waits for the parent, the sum of what is below this aggregator.
    pub payload: Vec<u8>,
    /// The newest attempt of each child.
    pub attempts: Vec<u8>,
}

/// What became of an attempt to take a sequence for the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The process has it, with all that the program had gathered.
    Gathered(Vec<Held>),
    /// The process had it before.
    Before,
    /// The program has the result.
    Answered(Box<Folded>),
    /// The process has it, and the parent what the program has sent there.
    Forwarded(Box<Folded>),
    /// The slot holds a later sequence: every child has had the result.
    Past,
    /// The slot holds an earlier sequence, which is not done.
    Busy,
}

/// Reads what became of packets.
#[derive(Clone)]
pub struct CounterReader(Arc<Memory>);

impl CounterReader {
    /// The counters now.
    #[must_use]
    pub fn read(&self) -> Counters {
        self.0.counters()
    }

    /// Groups that the program serves now.
    #[must_use]
    pub fn groups(&self) -> u64 {
        (0..PLACES).filter(|place| self.0.is_on(*place).load(Ordering::Relaxed) != 0).count() as u64
    }
}

/// A segment that lacks contributions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// Its operation.
    pub operation: OperationNumber,
    /// Its number.
    pub sequence: Sequence,
    /// The children whose contribution has not come.
    pub missing: Vec<ChildIndex>,
}

/// The tables.
pub struct Tables {
    memory: Arc<Memory>,
    directory: Box<dyn Directory>,
    places: [Use; PLACES],
}

#[derive(Clone, Copy)]
enum Use {
    Free { since: Option<Time> },
    Taken { key: u64, shape: PlaceShape },
}

/// What a group's place has.
#[derive(Clone, Copy, Default)]
struct PlaceShape {
    slots: usize,
    children: usize,
    window: u16,
    may_be_overtaken: bool,
}

/// What the program had of a group.
#[derive(Debug, Default)]
pub struct Closed {
    /// Results.
    pub results: Vec<Folded>,
    /// What it had sent to the parent.
    pub forwarded: Vec<Folded>,
    /// Contributions to segments that were not complete.
    pub gathered: Vec<Held>,
}

impl Tables {
    /// Tables without a group.
    #[must_use]
    pub fn new(memory: Arc<Memory>, directory: Box<dyn Directory>) -> Self {
        Self { memory, directory, places: [Use::Free { since: None }; PLACES] }
    }

    /// Lets the program serve a group from now on.
    ///
    /// # Errors
    /// If it can't; the tables are as before.
    pub fn admit(&mut self, now: Time, terms: &GroupTerms) -> Result<PlaceId, AdmitError> {
        if terms.frame_version != FRAME_VERSION {
            return Err(AdmitError::OtherVersion { needed: terms.frame_version });
        }
        let children = terms.children.len();
        if children > CHILDREN_MAX {
            return Err(AdmitError::TooManyChildren { children });
        }
        let slots = (2 * usize::from(terms.window)).next_power_of_two();
        if slots > SLOTS_PER_PLACE {
            return Err(AdmitError::TooWide { window: terms.window });
        }
        let is_rested = |place: &Use| match place {
            Use::Free { since } => since.is_none_or(|since| now.since_ns(since) >= REST_NS),
            Use::Taken { .. } => false,
        };
        let index = self.places.iter().position(is_rested).ok_or(AdmitError::Full)?;
        self.write_slots(index, slots, terms);
        self.write_place(index, slots, terms);
        let key = key(terms.group, terms.epoch);
        self.directory.enter(key, index as u32)?;
        let shape = PlaceShape {
            slots,
            children,
            window: terms.window,
            may_be_overtaken: terms.parent.is_some_and(|parent| parent.may_be_overtaken),
        };
        self.places[index] = Use::Taken { key, shape };
        self.switch(index, true);
        Ok(PlaceId(index))
    }

    /// Ends the program's service to a group. What it had gathered is gone.
    ///
    /// # Panics
    /// If the place is not taken.
    pub fn remove(&mut self, now: Time, PlaceId(index): PlaceId) {
        let Use::Taken { key, .. } = self.places[index] else { panic!("a place is removed once") };
        self.switch(index, false);
        // If the entry is gone already, the program does not find the place either.
        let _ = self.directory.leave(key);
        self.places[index] = Use::Free { since: Some(now) };
    }

    /// What became of packets, since the tables were made.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.memory.counters()
    }

    /// Reads the counters from wherever it is.
    #[must_use]
    pub fn counter_reader(&self) -> CounterReader {
        CounterReader(Arc::clone(&self.memory))
    }

    /// The words of a group's slots, one read after the other. Slots that the group does not have are empty.
    #[must_use]
    pub fn words(&self, PlaceId(place): PlaceId) -> [Word; SLOTS_PER_PLACE] {
        let mut words = [Word(0); SLOTS_PER_PLACE];
        for (index, word) in words.iter_mut().enumerate().take(self.slots(place)) {
            *word = self.word(place, index);
        }
        words
    }

    /// How many segments of a group may be in flight.
    #[must_use]
    pub fn window(&self, PlaceId(place): PlaceId) -> u16 {
        self.shape(place).window
    }

    /// Whether a group has gone beyond a sequence, by words that were read together: every child has had its result.
    #[must_use]
    pub fn is_past(&self, PlaceId(place): PlaceId, words: &[Word], sequence: Sequence) -> bool {
        words[self.index(place, sequence)].is_past(sequence)
    }

    /// The result of a sequence, if the program has it and it is still there.
    #[must_use]
    pub fn result_of(&self, PlaceId(place): PlaceId, sequence: Sequence) -> Option<Folded> {
        let index = self.index(place, sequence);
        let word = self.word(place, index);
        if word.phase() != Phase::Done || word.sequence() != sequence {
            return None;
        }
        let answered = self.read_folded(place, index, sequence);
        // What was read is not younger than the word that is read next.
        fence(Ordering::Acquire);
        // If the slot was opened again meanwhile, what was read is mixed, and nobody needs it.
        (self.word(place, index) == word).then_some(answered).flatten()
    }

    /// The earliest segment that the program gathers for a group.
    #[must_use]
    pub fn segment_awaited(&self, PlaceId(place): PlaceId) -> Option<Awaited> {
        let words: Vec<_> = (0..self.slots(place)).map(|index| self.word(place, index)).collect();
        let gathering = words.iter().filter(|word| word.phase() == Phase::Gathering);
        // All lie within two windows of each other.
        let index = self.index(place, Sequence::earliest(gathering.map(|word| word.sequence()))?);
        let word = words[index];
        let slot = self.memory.slot(place, index);
        // SAFETY: the slot lies in the mapping.
        let segment = unsafe { (&raw const (*slot).segment).read_volatile() };
        // If the slot was opened again meanwhile, this is another segment's: nothing waited for long.
        let is_same = self.word(place, index).sequence() == word.sequence();
        let missing = (0..self.children(place)).filter(|child| !word.has_claim(*child));
        is_same.then(|| Awaited {
            operation: OperationNumber(segment.operation),
            sequence: word.sequence(),
            missing: missing.map(|child| ChildIndex(child as u16)).collect(),
        })
    }

    /// Takes a sequence for the process, with what the program has gathered for it.
    pub fn take(&self, place_id: PlaceId, sequence: Sequence) -> Taken {
        let PlaceId(place) = place_id;
        let index = self.index(place, sequence);
        loop {
            let word = self.word(place, index);
            if word.holds(sequence) {
                match word.phase() {
                    Phase::OfProcess | Phase::DoneByProcess => return Taken::Before,
                    Phase::Done => match self.result_of(place_id, sequence) {
                        Some(answered) => return Taken::Answered(Box::new(answered)),
                        None => continue,
                    },
                    // In a soft interrupt on another core.
                    _ if word.is_being_written(self.children(place)) => {
                        steps::wait();
                        continue;
                    }
                    _ => {}
                }
            } else if word.is_past(sequence) {
                return Taken::Past;
            } else if word.phase() == Phase::Writing {
                // The result of a segment that its members have overtaken.
                steps::wait();
                continue;
            } else if !word.is_free_for(sequence, self.shape(place).may_be_overtaken) {
                return Taken::Busy;
            }
            let next = Word::new(sequence, Phase::OfProcess);
            if self.swap(place, index, word, next) {
                return match word.phase() {
                    _ if !word.holds(sequence) => Taken::Gathered(Vec::new()),
                    Phase::Forwarded => match self.read_folded(place, index, sequence) {
                        Some(folded) => Taken::Forwarded(Box::new(folded)),
                        None => Taken::Gathered(Vec::new()),
                    },
                    _ => Taken::Gathered(self.collect_lanes(place, index, word)),
                };
            }
        }
    }

    /// Takes a sequence for the process if the program has sent it to the parent and waits for the result. Returns what
    /// was sent.
    #[must_use]
    pub fn take_forwarded(&self, place_id: PlaceId, sequence: Sequence) -> Option<Folded> {
        let PlaceId(place) = place_id;
        let word = self.word(place, self.index(place, sequence));
        // If its result comes at this moment, the process gets that.
        if !word.holds(sequence) || word.phase() != Phase::Forwarded {
            return None;
        }
        match self.take(place_id, sequence) {
            Taken::Forwarded(folded) => Some(*folded),
            _ => None,
        }
    }

    /// Lets the program learn the route to the parent anew, because what goes by the one that it knows is not answered.
    pub fn forget_route(&self, PlaceId(place): PlaceId) {
        let place = self.memory.place(place);
        // SAFETY: the place lies in the mapping; both sides change the number as a whole.
        let route = unsafe { AtomicU64::from_ptr(&raw mut (*place).parent.route) };
        // Relaxed: a request that still goes by the old route is lost, as any may be.
        route.store(layout::ROUTE_UNKNOWN, Ordering::Relaxed);
    }

    /// Notes that the process hands down a sequence's result: members may go on after that.
    pub fn finish(&self, PlaceId(place): PlaceId, sequence: Sequence) {
        let index = self.index(place, sequence);
        let before = Word::new(sequence, Phase::OfProcess);
        self.swap(place, index, before, Word::new(sequence, Phase::DoneByProcess));
    }

    /// Notes that a child has sent a sequence to the process, so that the program does not call it lost.
    pub fn note_sent(&self, PlaceId(place): PlaceId, child: ChildIndex, sequence: Sequence) {
        assert!(usize::from(child.0) < self.children(place));
        let place = self.memory.place(place);
        // SAFETY: the place lies in the mapping, and has that many edges. What the program writes at the
        // same time is as good: it decides only what is repeated early.
        let next =
            unsafe { AtomicU32::from_ptr(&raw mut (*place).edges[usize::from(child.0)].next) };
        let ahead = sequence.next().distance_from(Sequence(next.load(Ordering::Relaxed)));
        if (1..1 << 31).contains(&ahead) {
            next.store(sequence.next().0, Ordering::Relaxed);
        }
    }

    /// Notes who at or below each child receives multicast.
    pub fn subscribe(
        &self,
        PlaceId(place): PlaceId,
        subscriptions: impl Iterator<Item = Subscription>,
    ) {
        let Receivers { spared, has_subscriber } = receivers(subscriptions);
        // SAFETY: the place lies in the mapping; while it is on, both sides touch these as a whole only.
        let (spared_now, has_subscriber_now, unreceived) = unsafe {
            let multicast = &raw mut (*self.memory.place(place)).multicast;
            (
                AtomicU32::from_ptr(&raw mut (*multicast).spared),
                AtomicU32::from_ptr(&raw mut (*multicast).has_subscriber),
                AtomicU32::from_ptr(&raw mut (*multicast).unreceived),
            )
        };
        // Relaxed: whatever the program sees, members recover from.
        spared_now.store(spared, Ordering::Relaxed);
        has_subscriber_now.store(has_subscriber, Ordering::Relaxed);
        if has_subscriber != 0 {
            // Also if it withdraws before there is a result.
            unreceived.store(0, Ordering::Relaxed);
        }
    }

    /// Takes every slot of a group from the program, which can then neither open nor complete one. Returns
    /// what it had.
    pub fn close(&self, place_id: PlaceId) -> Closed {
        let PlaceId(place) = place_id;
        let mut closed = Closed::default();
        self.switch(place, false);
        for index in 0..self.slots(place) {
            loop {
                let word = self.word(place, index);
                if word.is_being_written(self.children(place)) {
                    steps::wait();
                    continue;
                }
                let next = Word::new(word.sequence(), Phase::OfProcess);
                if self.swap(place, index, word, next) {
                    match word.phase() {
                        Phase::Done => {
                            closed.results.extend(self.read_folded(place, index, word.sequence()))
                        }
                        Phase::Forwarded => {
                            closed.forwarded.extend(self.read_folded(place, index, word.sequence()))
                        }
                        Phase::Gathering | Phase::Gathered => {
                            closed.gathered.extend(self.collect_lanes(place, index, word))
                        }
                        _ => {}
                    }
                    break;
                }
            }
        }
        closed
    }

    fn switch(&self, index: usize, is_on: bool) {
        // Release: what was written before is seen by a reader that sees that it is on.
        self.memory.is_on(index).store(u32::from(is_on), Ordering::Release);
    }

    fn write_place(&self, index: usize, slots: usize, terms: &GroupTerms) {
        let place = self.memory.place(index);
        // SAFETY: the place lies in the mapping; it is off and rested, so the program does not read it.
        let place = unsafe { &mut *place };
        place.group = terms.group.0;
        place.epoch = terms.epoch.0;
        place.window = u32::from(terms.window);
        place.first_slot = (index * SLOTS_PER_PLACE) as u32;
        place.slot_mask = slots as u32 - 1;
        place.children = terms.children.len() as u32;
        place.payload_max_bytes = terms.payload_max_bytes.min(PAYLOAD_BYTES_MAX as u32);
        place.floor = terms.floor.0;
        for (edge, child) in place.edges.iter_mut().zip(&terms.children) {
            *edge = edge_of(child.capability, child.peer, child.own, child.next);
        }
        place.multicast = multicast_of(terms).unwrap_or_default();
        place.parent = terms.parent.as_ref().map(parent_of).unwrap_or_default();
        let may_be_overtaken = terms.parent.is_some_and(|parent| parent.may_be_overtaken);
        place.may_be_overtaken = u32::from(may_be_overtaken);
    }

    fn write_slots(&self, index: usize, slots: usize, terms: &GroupTerms) {
        for slot in 0..slots {
            self.memory.word(index, slot).store(0, Ordering::Relaxed);
            let slot = self.memory.slot(index, slot);
            for lane in 0..CHILDREN_MAX {
                // SAFETY: the slot lies in the mapping; its place is off and rested, so the program uses none
                // of its lanes.
                unsafe { (&raw mut (*slot).lanes[lane].mark).write_volatile(Mark::EMPTY) };
            }
        }
        for (sequence, is_done) in &terms.known {
            let phase = if *is_done { Phase::DoneByProcess } else { Phase::OfProcess };
            let word = Word::new(*sequence, phase);
            let slot = sequence.0 as usize & (slots - 1);
            self.memory.word(index, slot).store(word.0, Ordering::Relaxed);
        }
    }

    fn word(&self, place: usize, index: usize) -> Word {
        steps::step();
        // Acquire: pairs with the program's swaps, so lanes and result are read after them.
        Word(self.memory.word(place, index).load(Ordering::Acquire))
    }

    fn swap(&self, place: usize, index: usize, before: Word, next: Word) -> bool {
        steps::step();
        let word = self.memory.word(place, index);
        // Acquire, as in `word`; Release: pairs with the program's reads of the word.
        word.compare_exchange(before.0, next.0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// All zero where there is no group.
    fn shape(&self, place: usize) -> PlaceShape {
        match self.places[place] {
            Use::Taken { shape, .. } => shape,
            Use::Free { .. } => PlaceShape::default(),
        }
    }

    fn slots(&self, place: usize) -> usize {
        self.shape(place).slots
    }

    fn children(&self, place: usize) -> usize {
        self.shape(place).children
    }

    fn index(&self, place: usize, sequence: Sequence) -> usize {
        sequence.0 as usize & (self.slots(place) - 1)
    }

    /// The filled lanes of a slot that has just been taken over. No run of the program writes in it any more.
    fn collect_lanes(&self, place: usize, index: usize, word: Word) -> Vec<Held> {
        steps::step();
        let sequence = word.sequence();
        let slot = self.memory.slot(place, index);
        // SAFETY: the slot lies in the mapping.
        let segment = unsafe { (&raw const (*slot).segment).read_volatile() };
        let mut held = Vec::new();
        for child in (0..self.children(place)).filter(|child| word.has_claim(*child)) {
            // SAFETY: there are as many lanes as children at most.
            let lane = unsafe { (&raw const (*slot).lanes[child]).read_volatile() };
            held.extend(contribution(child, sequence, &segment, &lane));
        }
        held
    }

    fn read_folded(&self, place: usize, index: usize, sequence: Sequence) -> Option<Folded> {
        steps::step();
        let slot = self.memory.slot(place, index);
        // SAFETY: the slot lies in the mapping. The program writes neither segment nor result of a slot that is
        // done until it is opened again, which the caller looks for, nor of one that the process has.
        let (segment, result) = unsafe {
            (
                (&raw const (*slot).segment).read_volatile(),
                (&raw const (*slot).result).read_volatile(),
            )
        };
        let attempts = (0..self.children(place)).map(|child| {
            // SAFETY: there are as many lanes as children at most.
            unsafe { (&raw const (*slot).lanes[child].mark).read_volatile() }.attempt()
        });
        let part = part(sequence, &segment, 0)?;
        let payload = result[..part.payload_bytes()].to_vec();
        Some(Folded { part, payload, attempts: attempts.collect() })
    }
}

fn edge_of(capability: Capability, peer: SocketAddrV4, own: SocketAddrV4, next: Sequence) -> Edge {
    Edge {
        capability: capability.to_bytes(),
        peer_address: peer.ip().octets(),
        own_address: own.ip().octets(),
        peer_port: peer.port().to_be_bytes(),
        own_port: own.port().to_be_bytes(),
        next: next.0,
    }
}

fn parent_of(parent: &ParentTerms) -> layout::Parent {
    let ParentTerms { child, capability, peer, own, .. } = *parent;
    let edge = edge_of(capability, peer, own, Sequence(0));
    layout::Parent { edge, child: child.0.into(), ..layout::Parent::default() }
}

/// A group's multicast as the program has it; none if results can't come from one address.
fn multicast_of(terms: &GroupTerms) -> Option<layout::Multicast> {
    let Multicast { address, terms: MulticastTerms { capability, longest_bytes, unreceived } } =
        terms.multicast?;
    let own = terms.children.first()?.own;
    let edge = match terms.parent {
        // The root sends them.
        Some(_) => Edge::default(),
        None if terms.children.iter().any(|child| child.own != own) => return None,
        None => edge_of(capability, address, own, Sequence(0)),
    };
    let Receivers { spared, has_subscriber } =
        receivers(terms.children.iter().map(|child| child.subscription));
    Some(layout::Multicast {
        edge,
        longest_bytes,
        spared,
        has_subscriber,
        unreceived: unreceived.into(),
    })
}

/// The receivers of multicast, as the program has them.
struct Receivers {
    spared: u32,
    has_subscriber: u32,
}

fn receivers(subscriptions: impl Iterator<Item = Subscription>) -> Receivers {
    let mut receivers = Receivers { spared: 0, has_subscriber: 0 };
    for (child, subscription) in subscriptions.enumerate() {
        receivers.spared |= u32::from(subscription == Subscription::Here) << child;
        receivers.has_subscriber |= u32::from(subscription != Subscription::Nobody);
    }
    receivers
}

fn contribution(child: usize, sequence: Sequence, segment: &Segment, lane: &Lane) -> Option<Held> {
    let part = part(sequence, segment, lane.mark.attempt())?;
    let payload = lane.payload[..part.payload_bytes()].to_vec();
    Some(Held { child: ChildIndex(child as u16), part, payload })
}

fn part(sequence: Sequence, segment: &Segment, attempt: u8) -> Option<Part> {
    let operator = Operator::from_code(segment.operator).ok()?;
    let datatype = Datatype::from_code(segment.datatype).ok()?;
    let shape = Shape::new(operator, datatype, segment.elements).ok()?;
    Some(Part {
        operation: OperationNumber(segment.operation),
        segment: SegmentIndex(segment.number),
        sequence,
        shape,
        target: Target::All,
        has_data: segment.has_data == 1,
        retransmit: RetransmitState { attempt, behind: 0 },
    })
    .filter(|part| part.payload_bytes() <= PAYLOAD_BYTES_MAX)
}

fn key(group: GroupId, epoch: Epoch) -> u64 {
    u64::from(epoch.0) << 32 | u64::from(group.0)
}
