//! One operation: its schedule, step by step over the links.
//!
//! Messages travel in frames. A frame lands as soon as the same elements of our own messages are out,
//! so that two hosts that exchange whole vectors far longer than their sockets hold go on in step:
//! were both stuck, each would have landed all it was sent, and so have room. In recursive k-ing with
//! more than two to a group that argument fails, and selection does not offer it. What is sent from the
//! caller's own memory holds up nothing: it does not change.

use std::ops::Range;

use tributary_algorithms::{Action, Buffer, Collective, Landing, Span};
use tributary_shm_collectives::{Blocks, Combine};
use tributary_transport::Sent;
use tributary_wire::frame::{self, Part, RetransmitState, Target};
use tributary_wire::{Datatype, EndpointId, Operator, SegmentIndex, Sequence};

use super::calls::Call;
use super::contribution::Contribution;
use super::failure::{Failure, Verdict};
use super::options::FRAME_BYTES_MAX;
use super::peers::Peers;
use super::schedules::{Index, Schedules};
use crate::operation::InterHostOperation;

/// Contributions up to this length are copied into the vector beforehand: that takes less time than to
/// mind where they are.
const COPIED_BYTES_MAX: usize = 2048;

/// Memory kept from operation to operation.
#[derive(Default)]
pub(super) struct Workspace {
    pub(super) schedules: Schedules,
    /// The schedule's second vector.
    aside: Vec<u8>,
    /// A copy of what is about to become a right operand.
    operand: Vec<u8>,
    /// Room for the messages that are not sent whole.
    pub(super) unsent: Vec<Outgoing>,
}

/// An operation under way.
pub(super) struct Running {
    schedule: Index,
    /// Steps begun.
    steps: usize,
    /// The step that is next to do, or half done.
    step: Option<Action>,
    /// Messages that are not sent whole, in order.
    unsent: Vec<Outgoing>,
    /// Elements of the step's message that have landed.
    landed_elements: u64,
    what: What,
    /// Where the caller has this host's contribution, and what of it lies only there.
    source: *const u8,
    contribution: Contribution,
    vector: *mut u8,
    /// What of the vector is the result in the end, and not only partial ones.
    result: Span,
    aside_bytes: usize,
}

/// What the operation's frames say.
#[derive(Clone, Copy)]
struct What {
    call: Call,
    operator: Operator,
    datatype: Datatype,
    elements: u64,
    element_bytes: usize,
    kernel: Option<&'static dyn Combine>,
}

/// A message on its way out.
#[derive(Clone, Copy)]
pub(super) struct Outgoing {
    to: u32,
    span: Span,
    sent_elements: u64,
    /// From the caller's own memory, and not from the vector.
    is_from_source: bool,
}

impl Running {
    /// Stands before the first step.
    ///
    /// # Safety
    /// As [`InterHost::start`](crate::operation::InterHost::start).
    pub(super) unsafe fn new(
        operation: &InterHostOperation,
        me: u32,
        schedule: Index,
        call: Call,
        workspace: &mut Workspace,
    ) -> Self {
        let &InterHostOperation { operator, datatype, elements, element_bytes, kernel, .. } =
            operation;
        let len_bytes = operation.len_bytes();
        let needs_aside = workspace.schedules.needs_aside(schedule);
        let mut is_in_vector =
            operation.source == operation.target.cast_const() || operation.source.is_null();
        if !is_in_vector && len_bytes <= COPIED_BYTES_MAX {
            // SAFETY: the caller of `start` promises that both are `len_bytes` long, and equal or apart.
            unsafe { operation.target.copy_from_nonoverlapping(operation.source, len_bytes) };
            is_in_vector = true;
        }
        let mut unsent = std::mem::take(&mut workspace.unsent);
        unsent.clear();
        let mut running = Self {
            schedule,
            steps: 0,
            step: None,
            unsent,
            landed_elements: 0,
            what: What { call, operator, datatype, elements, element_bytes, kernel },
            source: operation.source,
            contribution: Contribution::whole(if is_in_vector { 0 } else { elements }),
            vector: operation.target,
            result: result_of(operation, me),
            aside_bytes: if needs_aside { len_bytes } else { 0 },
        };
        running.step_on(&workspace.schedules);
        running
    }

    fn step_on(&mut self, schedules: &Schedules) {
        self.step = schedules.action(self.schedule, self.steps);
        self.steps += 1;
        self.landed_elements = 0;
    }

    /// The memory, for the next.
    pub(super) fn into_room(self) -> Vec<Outgoing> {
        self.unsent
    }

    /// The host that the next step needs a frame from. None while the step waits for room to send: what
    /// has arrived must not end a sleep that it does not help.
    pub(super) fn awaited_host(&self) -> Option<u32> {
        match self.step {
            Some(Action::Receive { from, span, buffer, .. }) => {
                let piece = self.what.piece(span, self.landed_elements);
                let waits_for_room = buffer == Buffer::Vector && self.is_being_sent(piece);
                (!waits_for_room).then_some(from)
            }
            _ => None,
        }
    }

    /// What this host called.
    pub(super) fn call(&self) -> Call {
        self.what.call
    }

    /// The hosts that something is still to be sent to.
    pub(super) fn hosts_to_send_to(&self) -> impl Iterator<Item = u32> {
        self.unsent.iter().map(|outgoing| outgoing.to)
    }

    /// Goes as far as it can. `true` at the end.
    pub(super) fn advance(
        &mut self,
        peers: &mut Peers,
        workspace: &mut Workspace,
    ) -> Result<bool, Failure> {
        loop {
            let is_done = match self.step {
                None => {
                    self.send_on(peers)?;
                    self.settle(self.result);
                    return Ok(self.unsent.is_empty() && peers.flush() == Sent::Taken);
                }
                Some(Action::Send { to, span }) => {
                    let is_from_source = self.contribution.has_all(span);
                    if !is_from_source {
                        self.settle(span);
                    }
                    self.unsent.push(Outgoing { to, span, sent_elements: 0, is_from_source });
                    true
                }
                Some(Action::Receive { from, span, buffer, landing }) => {
                    self.receive(peers, workspace, from, span, buffer, landing)?
                }
                Some(Action::Fold { span }) => {
                    self.send_on(peers)?;
                    let holds_up = self.is_being_sent(span);
                    if !holds_up {
                        self.fold_aside(workspace, span);
                    }
                    !holds_up
                }
            };
            if !is_done {
                return Ok(false);
            }
            self.step_on(&workspace.schedules);
        }
    }

    /// Sends what there is room for. Messages to one host keep their order.
    fn send_on(&mut self, peers: &mut Peers) -> Result<(), Failure> {
        let mut index = 0;
        while index < self.unsent.len() {
            let to = self.unsent[index].to;
            let waits = self.unsent[..index].iter().any(|earlier| earlier.to == to);
            if !waits && self.send_message(peers, index)? {
                self.unsent.remove(index);
            } else {
                index += 1;
            }
        }
        Ok(())
    }

    /// Sends frames of one message. `true` once all of it is taken.
    fn send_message(&mut self, peers: &mut Peers, index: usize) -> Result<bool, Failure> {
        loop {
            let Outgoing { to, span, sent_elements, is_from_source } = self.unsent[index];
            let piece = self.what.piece(span, sent_elements);
            let part = self.what.part(span, sent_elements);
            let payload: &[u8] = match (part.has_data, is_from_source) {
                (false, _) => &[],
                (true, true) => self.source_slice(piece),
                // Nothing changes it until this message is out (`is_being_sent`).
                (true, false) => self.vector_slice(piece),
            };
            if peers.send(to, part, payload)? == Sent::Full {
                return Ok(false);
            }
            self.unsent[index].sent_elements += piece.elements;
            if self.unsent[index].sent_elements == span.elements {
                return Ok(true);
            }
        }
    }

    /// Lands frames of one message. `true` once all of it has landed.
    fn receive(
        &mut self,
        peers: &mut Peers,
        workspace: &mut Workspace,
        from: u32,
        span: Span,
        buffer: Buffer,
        landing: Landing,
    ) -> Result<bool, Failure> {
        loop {
            self.send_on(peers)?;
            let piece = self.what.piece(span, self.landed_elements);
            if buffer == Buffer::Vector && self.is_being_sent(piece) {
                return Ok(false);
            }
            let Some((part, payload)) = peers.receive(from)? else { return Ok(false) };
            if part != self.what.part(span, self.landed_elements) {
                let theirs = Call::told_by(&part);
                return Err(Verdict::of_calls(peers.me(), self.what.call, from, theirs).into());
            }
            if !piece.is_empty() {
                match buffer {
                    Buffer::Vector => self.land(workspace, piece, payload, landing),
                    Buffer::Aside => self.land_aside(workspace, piece, payload, landing),
                }
            }
            self.landed_elements += piece.elements;
            if self.landed_elements == span.elements {
                return Ok(true);
            }
        }
    }

    fn fold_aside(&mut self, workspace: &mut Workspace, span: Span) {
        // A barrier's vectors are nowhere, and it has no kernel.
        if span.is_empty() {
            return;
        }
        let aside = std::mem::take(&mut workspace.aside);
        self.land(workspace, span, &aside[self.what.bytes(span)], Landing::FoldAsLeft);
        workspace.aside = aside;
    }

    /// Lands elements in the vector, out of the caller's memory where this host's own are there alone.
    fn land(&mut self, workspace: &mut Workspace, span: Span, arrived: &[u8], landing: Landing) {
        let kernel = self.what.kernel;
        if landing != Landing::Store && self.contribution.has_all(span) {
            let kernel = kernel.expect("only reductions fold, and they have a kernel");
            let own = self.source_slice(span);
            let (left, right) =
                if landing == Landing::FoldAsLeft { (arrived, own) } else { (own, arrived) };
            kernel.combine_into(self.vector_slice(span), left, right);
        } else {
            if landing != Landing::Store {
                self.settle(span);
            }
            let target = self.vector_slice(span);
            land(target, arrived, landing, kernel, &mut workspace.operand);
        }
        self.note_in_vector(span);
    }

    fn land_aside(&self, workspace: &mut Workspace, span: Span, arrived: &[u8], landing: Landing) {
        let Workspace { aside, operand, .. } = workspace;
        if aside.len() < self.aside_bytes {
            aside.resize(self.aside_bytes, 0);
        }
        let target = &mut aside[self.what.bytes(span)];
        land(target, arrived, landing, self.what.kernel, operand);
    }

    /// Copies what of a span lies only at the caller's.
    fn settle(&mut self, span: Span) {
        while let Some(piece) = self.contribution.first_within(span) {
            self.copy_from_source(piece);
            self.note_in_vector(piece);
        }
    }

    fn note_in_vector(&mut self, span: Span) {
        if let Some(evicted) = self.contribution.remove(span) {
            self.copy_from_source(evicted);
        }
    }

    fn copy_from_source(&self, span: Span) {
        self.vector_slice(span).copy_from_slice(self.source_slice(span));
    }

    fn is_being_sent(&self, span: Span) -> bool {
        self.unsent
            .iter()
            .any(|outgoing| !outgoing.is_from_source && outgoing.rest().overlaps(span))
    }

    /// A span of what the caller contributes.
    fn source_slice<'a>(&self, span: Span) -> &'a [u8] {
        let bytes = self.what.bytes(span);
        // Wrapping: a barrier's vectors are nowhere. In any other, the span is within them.
        let first = self.source.wrapping_add(bytes.start);
        // SAFETY: within the source, which the caller of `InterHost::start` keeps valid and unchanged.
        unsafe { std::slice::from_raw_parts(first, bytes.len()) }
    }

    /// A span of the vector.
    fn vector_slice<'a>(&self, span: Span) -> &'a mut [u8] {
        let bytes = self.what.bytes(span);
        let first = self.vector.wrapping_add(bytes.start);
        // SAFETY: within the vector, which the caller of `InterHost::start` keeps valid and to itself; one
        // such slice is in use at a time.
        unsafe { std::slice::from_raw_parts_mut(first, bytes.len()) }
    }
}

/// The elements that host `me` has the result of.
fn result_of(operation: &InterHostOperation, me: u32) -> Span {
    let whole = Span::between(0, operation.elements);
    match (operation.collective, operation.parts) {
        (Collective::Reduce { root }, _) if root != me => Span::default(),
        (Collective::Exscan, _) if me == 0 => Span::default(),
        (Collective::ReduceScatter, Blocks::At(cuts)) => {
            // SAFETY: there is one more of them than there are hosts, valid until the operation is over, as
            // the caller of `InterHost::start` promises.
            let cut = |at: u32| unsafe { cuts.add(at as usize).read() };
            Span::between(cut(me), cut(me + 1))
        }
        _ => whole,
    }
}

impl Outgoing {
    fn rest(&self) -> Span {
        let Self { span, sent_elements, .. } = *self;
        Span::between(span.first + sent_elements, span.end())
    }
}

impl What {
    /// Where a span lies in a vector.
    fn bytes(&self, span: Span) -> Range<usize> {
        assert!(span.end() <= self.elements, "schedules stay within their vector");
        span.first as usize * self.element_bytes..span.end() as usize * self.element_bytes
    }

    /// The elements of a message's next frame, `done` elements into it.
    fn piece(&self, span: Span, done: u64) -> Span {
        let elements = (span.elements - done).min(self.frame_elements());
        Span { first: span.first + done, elements }
    }

    /// The header's part for that frame.
    fn part(&self, span: Span, done: u64) -> Part {
        let elements = self.piece(span, done).elements as u32;
        let shape = if elements == 0 {
            frame::Shape::BARRIER
        } else {
            // Of operators of the caller's own, frames have bytes.
            let in_datatype = (self.element_bytes / self.datatype.size_bytes()) as u32;
            frame::Shape::new(self.operator, self.datatype, elements * in_datatype)
                .expect("operations are checked before they start, frames are short")
        };
        Part {
            operation: self.call.number,
            segment: SegmentIndex((done / self.frame_elements()) as u32),
            sequence: Sequence(span.first as u32),
            shape,
            target: Target::Member(EndpointId(self.call.digest)),
            has_data: elements > 0,
            retransmit: RetransmitState { attempt: self.call.called.collective, behind: 0 },
        }
    }

    fn frame_elements(&self) -> u64 {
        u64::from(FRAME_BYTES_MAX) / self.element_bytes as u64
    }
}

fn land(
    target: &mut [u8],
    arrived: &[u8],
    landing: Landing,
    kernel: Option<&'static dyn Combine>,
    operand: &mut Vec<u8>,
) {
    let kernel = || kernel.expect("only reductions fold, and they have a kernel");
    match landing {
        Landing::Store => target.copy_from_slice(arrived),
        Landing::FoldAsRight => kernel().fold(target, arrived),
        Landing::FoldAsLeft => {
            operand.clear();
            operand.extend_from_slice(target);
            kernel().combine_into(target, arrived, operand);
        }
    }
}
