//! An aggregator's machine and the program in the kernel, as one: who completes which segment, and what each
//! must know of the other's.
//!
//! To the machine, what the program gathers looks like datagrams that are late. It hears of them in
//! three ways: as results, before it judges a request; as contributions, or as their sum, when it takes over a
//! segment; and all at once, when the program's service to the group ends. `docs/decisions/0038-kernel-path.md` argues
//! why nothing is lost or counted twice.

use std::net::SocketAddrV4;

use tributary_protocol::node::{
    ChildEdge, FrameError, Node, ParentEdge, PortId, SegmentState, Wait, WaitsFor,
};
use tributary_protocol::payloads::Payloads;
#[cfg(feature = "planted-bugs")]
use tributary_protocol::planted;
use tributary_protocol::{Carrier, Time};
use tributary_wire::frame::{Header, Message, Part};
use tributary_wire::{GroupId, Sequence};

use crate::layout::Counters;
use crate::tables::{
    AdmitError, Awaited, ChildTerms, Closed, CounterReader, Folded, GroupTerms, Held, Multicast,
    ParentTerms, PlaceId, Tables, Taken,
};
use crate::word::Phase;

/// See the module documentation.
pub struct Handover {
    tables: Tables,
    /// By group id.
    places: Vec<Option<PlaceId>>,
}

/// The two ends of the datagrams of a child or the parent.
#[derive(Clone, Copy, Debug)]
pub struct DatagramPath {
    /// The other's.
    pub peer: SocketAddrV4,
    /// This aggregator's.
    pub own: SocketAddrV4,
}

/// A frame for the machine, and how it came.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// When.
    pub now: Time,
    /// From whom.
    pub port: PortId,
    /// By what.
    pub carrier: Carrier,
    /// Its header.
    pub header: &'a Header,
    /// Exactly what its header announces.
    pub payload: &'a [u8],
}

impl Handover {
    /// With a program whose tables are empty.
    #[must_use]
    pub fn new(tables: Tables) -> Self {
        Self { tables, places: Vec::new() }
    }

    /// What became of packets, since the program was loaded.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.tables.counters()
    }

    /// Reads the same from wherever it is.
    #[must_use]
    pub fn counter_reader(&self) -> CounterReader {
        self.tables.counter_reader()
    }

    /// Whether the program serves a group.
    #[must_use]
    pub fn serves(&self, group: GroupId) -> bool {
        self.place(group).is_some()
    }

    /// What groups wait for among the segments that the program gathers, and the machine knows nothing of.
    pub fn waits(&self, node: &Node) -> impl Iterator<Item = Wait> {
        let places = (0..).map(GroupId).zip(&self.places);
        places.filter_map(|(group, place)| {
            let epoch = node.kernel_path().terms(group)?.epoch;
            let Awaited { operation, sequence, missing } =
                self.tables.segment_awaited((*place)?)?;
            let for_what = WaitsFor::Operation { operation, part: sequence.0 };
            Some(Wait { group, epoch, for_what, missing })
        })
    }

    /// Lets the program serve a group, if it can: the datagrams of every child and of the parent have a known path,
    /// and the machine says that nothing else stands against it. True if it does from now on. Where the machine multicasts
    /// results to `address`, so does the program.
    ///
    /// # Errors
    /// If its tables have no room for such a group.
    pub fn admit(
        &mut self,
        now: Time,
        node: &Node,
        group: GroupId,
        address: Option<SocketAddrV4>,
        path: impl Fn(PortId) -> Option<DatagramPath>,
    ) -> Result<bool, AdmitError> {
        let Some(terms) = node.kernel_path().terms(group).filter(|_| !self.serves(group)) else {
            return Ok(false);
        };
        let children = node.kernel_path().child_edges(group).map(|edge| {
            let DatagramPath { peer, own } = path(edge.port)?;
            let ChildEdge { capability, next, subscription, .. } = edge;
            Some(ChildTerms { capability, peer, own, next, subscription })
        });
        let Some(children) = children.collect::<Option<Vec<_>>>() else { return Ok(false) };
        let parent = match terms.parent {
            None => None,
            Some(ParentEdge { port, child, capability }) => match path(port) {
                Some(DatagramPath { peer, own }) => {
                    let may_be_overtaken = terms.multicast.is_some();
                    Some(ParentTerms { child, capability, peer, own, may_be_overtaken })
                }
                None => return Ok(false),
            },
        };
        let multicast =
            address.zip(terms.multicast).map(|(address, terms)| Multicast { address, terms });
        let terms = GroupTerms {
            group,
            epoch: terms.epoch,
            frame_version: terms.frame_version,
            window: terms.osos,
            payload_max_bytes: terms.payload_max_bytes,
            children,
            parent,
            multicast,
            floor: terms.floor,
            known: node
                .kernel_path()
                .segments(group)
                .map(|(sequence, state)| (sequence, state == SegmentState::Complete))
                .collect(),
        };
        let place = self.tables.admit(now, &terms)?;
        let index = group.0 as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, None);
        }
        self.places[index] = Some(place);
        Ok(true)
    }

    /// Hands the machine a frame, in place of [`Node::handle_frame`]. To be called before anything that
    /// the machine wants to send is sent.
    ///
    /// # Errors
    /// As [`Node::handle_frame`].
    pub fn handle_frame(
        &mut self,
        node: &mut Node,
        arrival: Arrival<'_>,
        payloads: &mut impl Payloads,
    ) -> Result<(), FrameError> {
        if let Some(group) = node.kernel_path().group_of_parent(arrival.port)
            && let Some(place) = self.place(group)
        {
            return self.handle_from_parent(node, group, place, arrival, payloads);
        }
        let group =
            node.kernel_path().group_of_child(arrival.port).filter(|group| self.serves(*group));
        let Some(group) = group else { return hand(node, arrival, payloads) };
        match &arrival.header.message {
            Message::Request(part) => self.handle_request(node, group, part, arrival, payloads),
            Message::Probe(_) | Message::Datagrams(_) => hand(node, arrival, payloads),
            Message::Subscribed(_) => {
                let taken = hand(node, arrival, payloads);
                if let Some(place) = self.place(group) {
                    self.tables.subscribe(
                        place,
                        node.kernel_path().child_edges(group).map(|it| it.subscription),
                    );
                }
                taken
            }
            // A child leaves, fails, streams or misbehaves: the machine has to know everything.
            _ => {
                self.end(node, group, arrival.now, payloads);
                hand(node, arrival, payloads)
            }
        }
    }

    /// Ends the program's service to a group, which goes on: the machine gets what the program has.
    pub fn end(
        &mut self,
        node: &mut Node,
        group: GroupId,
        now: Time,
        payloads: &mut impl Payloads,
    ) {
        let Some(place) = self.place(group) else { return };
        let Closed { results, forwarded, gathered } = self.tables.close(place);
        for folded in results {
            hand_result(node, group, &folded, payloads);
        }
        for folded in forwarded {
            hand_over_forwarded(node, group, now, &folded, payloads);
        }
        for held in gathered {
            hand_held(node, group, now, held, payloads);
        }
        self.forget(now, group);
    }

    /// Ends the program's service to the group below a parent that datagrams do not reach: everything goes over the link.
    pub fn end_below(
        &mut self,
        node: &mut Node,
        parent: PortId,
        now: Time,
        payloads: &mut impl Payloads,
    ) {
        if let Some(group) = node.kernel_path().group_of_parent(parent) {
            self.end(node, group, now, payloads);
        }
    }

    /// Ends the program's service to a group that is gone.
    pub fn forget(&mut self, now: Time, group: GroupId) {
        if let Some(place) = self.places.get_mut(group.0 as usize).and_then(Option::take) {
            self.tables.remove(now, place);
        }
    }

    fn place(&self, group: GroupId) -> Option<PlaceId> {
        self.places.get(group.0 as usize).copied().flatten()
    }

    /// Notes that a result has come to the machine by multicast, not by [`Self::handle_frame`].
    pub fn note_multicast(&self, node: &Node, group: GroupId, sequence: Sequence) {
        if let Some(place) = self.place(group) {
            self.finish(node, group, place, sequence);
        }
    }

    /// Notes that the machine hands down a segment's result, if it does.
    fn finish(&self, node: &Node, group: GroupId, place: PlaceId, sequence: Sequence) {
        if node.kernel_path().segment_state(group, sequence) == SegmentState::Complete {
            self.tables.finish(place, sequence);
        }
    }

    fn handle_from_parent(
        &self,
        node: &mut Node,
        group: GroupId,
        place: PlaceId,
        arrival: Arrival<'_>,
        payloads: &mut impl Payloads,
    ) -> Result<(), FrameError> {
        let Arrival { now, port, header, .. } = arrival;
        match header.message {
            Message::Result(part) => {
                // The program reads packets of one frame. Others, of several results, come to the machine.
                let is_from_parent = node.port_of_datagram(header) == Some(port);
                let folded = is_from_parent
                    .then(|| self.tables.take_forwarded(place, part.sequence))
                    .flatten();
                if let Some(folded) = &folded {
                    hand_forwarded(node, group, folded, payloads);
                }
                let taken = match hand(node, arrival, payloads) {
                    // A repeat. The machine can't know that, for it did not see the segment.
                    Err(FrameError::Unexpected { .. }) if self.has_had(place, part.sequence) => {
                        Ok(())
                    }
                    taken => taken,
                };
                if folded.is_some() {
                    // If it is not the segment's result after all, the machine asks for that.
                    node.kernel_path_mut().send_forwarded(now, group, part.sequence);
                }
                self.finish(node, group, place, part.sequence);
                taken
            }
            Message::Nack { sequence } => {
                hand(node, arrival, payloads)?;
                // If the program has sent it, that is lost. From here on the segment is the machine's.
                self.take_over(node, group, place, sequence, now, payloads);
                Ok(())
            }
            _ => hand(node, arrival, payloads),
        }
    }

    /// Whether the program has had the parent's result of a segment.
    fn has_had(&self, place: PlaceId, sequence: Sequence) -> bool {
        self.tables.result_of(place, sequence).is_some()
            || self.tables.is_past(place, &self.tables.words(place), sequence)
    }

    /// Lets the machine go on with a segment that the program has sent to the parent. False if there is no such segment.
    fn take_over(
        &self,
        node: &mut Node,
        group: GroupId,
        place: PlaceId,
        sequence: Sequence,
        now: Time,
        payloads: &mut impl Payloads,
    ) -> bool {
        let folded = self.tables.take_forwarded(place, sequence);
        if let Some(folded) = &folded {
            hand_over_forwarded(node, group, now, folded, payloads);
        }
        folded.is_some()
    }

    fn handle_request(
        &mut self,
        node: &mut Node,
        group: GroupId,
        part: &Part,
        arrival: Arrival<'_>,
        payloads: &mut impl Payloads,
    ) -> Result<(), FrameError> {
        let is_past = self.catch_up(node, group, part.sequence, payloads);
        self.catch_up_forwarded(node, group, part.sequence, arrival.now, payloads);
        match hand(node, arrival, payloads) {
            // A repeat that was long on its way. The machine can't know that, for it did not see the segment.
            Err(FrameError::OutsideWindow { .. }) if is_past => return Ok(()),
            judged => judged?,
        }
        self.claim_segment(node, group, part, arrival, payloads)
    }

    /// Tells the machine of all results that the program has made and the machine does not have.
    ///
    /// All words are read together. If the program went on in between, a slot that was read early may have got its
    /// result since, and one that was read late may hold a later sequence already: of neither would the machine
    /// hear, and it would refuse a child that goes by the later one. As long as children go on without the
    /// process, it only repeats what is cheap.
    ///
    /// True if the program has gone beyond a sequence.
    fn catch_up(
        &self,
        node: &mut Node,
        group: GroupId,
        sequence: Sequence,
        payloads: &mut impl Payloads,
    ) -> bool {
        #[cfg(feature = "planted-bugs")]
        if planted::is_planted(planted::Bug::ResultsUntold) {
            return false;
        }
        let Some(place) = self.place(group) else { return false };
        let mut words = self.tables.words(place);
        loop {
            let done = words.iter().filter(|word| word.phase() == Phase::Done);
            for sequence in done.map(|word| word.sequence()) {
                if node.kernel_path().segment_state(group, sequence) != SegmentState::Complete
                    && let Some(answered) = self.tables.result_of(place, sequence)
                {
                    hand_result(node, group, &answered, payloads);
                }
            }
            let now = self.tables.words(place);
            if now == words {
                return self.tables.is_past(place, &words, sequence);
            }
            words = now;
        }
    }

    /// Lets the machine take over what the program has sent upward of a segment that a child repeats, and of the one
    /// whose result a child must have to send it, which may have come by multicast.
    fn catch_up_forwarded(
        &self,
        node: &mut Node,
        group: GroupId,
        sequence: Sequence,
        now: Time,
        payloads: &mut impl Payloads,
    ) {
        let Some(place) = self.place(group) else { return };
        let before = Sequence(sequence.0.wrapping_sub(self.tables.window(place).into()));
        self.take_over(node, group, place, before, now, payloads);
        if self.take_over(node, group, place, sequence, now, payloads) {
            self.tables.forget_route(place);
        }
    }

    /// Claims the segment that the machine has just been handed a contribution to, if the machine keeps it.
    fn claim_segment(
        &mut self,
        node: &mut Node,
        group: GroupId,
        part: &Part,
        arrival: Arrival<'_>,
        payloads: &mut impl Payloads,
    ) -> Result<(), FrameError> {
        let sequence = part.sequence;
        let Some(place) = self.place(group) else { return Ok(()) };
        if node.kernel_path().segment_state(group, sequence) == SegmentState::Absent {
            // Refused, past, or the group has failed.
            return Ok(());
        }
        match self.tables.take(place, sequence) {
            Taken::Gathered(held) => {
                // The machine has just been handed this child's.
                let child = arrival.header.edge.child;
                for held in held.into_iter().filter(|held| held.child != child) {
                    hand_held(node, group, arrival.now, held, payloads);
                }
            }
            Taken::Before => {}
            // This child's is among the contributions: the frame is a repeat.
            Taken::Forwarded(folded) => {
                hand_over_forwarded(node, group, arrival.now, &folded, payloads);
            }
            Taken::Answered(answered) => {
                if node.kernel_path().segment_state(group, sequence) == SegmentState::Open {
                    hand_result(node, group, &answered, payloads);
                    // The program made the result meanwhile: this frame is a repeat.
                    hand(node, arrival, payloads)?;
                }
                return Ok(());
            }
            // The program has gone on since.
            Taken::Past => {
                if node.kernel_path().segment_state(group, sequence) == SegmentState::Open {
                    node.kernel_path_mut().skip_segment(group, part, payloads);
                }
                return Ok(());
            }
            // The machine's window is never ahead of the program's: it has just caught up.
            Taken::Busy => self.end(node, group, arrival.now, payloads),
        }
        let Some(place) = self.place(group) else { return Ok(()) };
        if node.kernel_path().segment_state(group, sequence) != SegmentState::Absent {
            self.tables.note_sent(place, arrival.header.edge.child, sequence);
        }
        if node.kernel_path().segment_state(group, sequence) == SegmentState::Complete {
            self.tables.finish(place, sequence);
        }
        Ok(())
    }
}

fn hand(
    node: &mut Node,
    arrival: Arrival<'_>,
    payloads: &mut impl Payloads,
) -> Result<(), FrameError> {
    let Arrival { now, port, carrier, header, payload } = arrival;
    node.handle_frame(now, port, carrier, header, payload, payloads)
}

/// Hands the machine a contribution that the program has held. As with any datagram, nothing happens if
/// the machine refuses it.
fn hand_held(node: &mut Node, group: GroupId, now: Time, held: Held, payloads: &mut impl Payloads) {
    let port =
        node.kernel_path().child_edges(group).nth(usize::from(held.child.0)).map(|edge| edge.port);
    let header = node.kernel_path().request_header(group, held.child, held.part);
    let (Some(port), Some(header)) = (port, header) else { return };
    let carrier = Carrier::Datagram;
    let _ = node.handle_frame(now, port, carrier, &header, &held.payload, payloads);
}

fn hand_result(node: &mut Node, group: GroupId, folded: &Folded, payloads: &mut impl Payloads) {
    let Folded { part, payload, attempts } = folded;
    node.kernel_path_mut().take_result(group, part, attempts, payload, payloads);
}

fn hand_forwarded(node: &mut Node, group: GroupId, folded: &Folded, payloads: &mut impl Payloads) {
    #[cfg(feature = "planted-bugs")]
    if planted::is_planted(planted::Bug::ForwardedUntold) {
        return;
    }
    let Folded { part, payload, attempts } = folded;
    node.kernel_path_mut().take_forwarded(group, part, attempts, payload, payloads);
}

/// Lets the machine take over what was sent to the parent, send it again, and go on until the result comes.
fn hand_over_forwarded(
    node: &mut Node,
    group: GroupId,
    now: Time,
    folded: &Folded,
    payloads: &mut impl Payloads,
) {
    hand_forwarded(node, group, folded, payloads);
    node.kernel_path_mut().send_forwarded(now, group, folded.part.sequence);
}
