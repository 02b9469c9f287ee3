//! Mistaken operations and forged frames.

use tributary_protocol_testing::frames;
use tributary_wire::frame::{EVERYONE, Edge, Header, Message, Part, Shape, Target, Versions};
use tributary_wire::{
    Capability, ChildIndex, Datatype, EndpointId, Epoch, GroupId, OperationNumber, Operator,
    Sequence,
};

use crate::scenario::{Disagreement, Intrusion, Offence, OperationPlan};

/// An operation as a mistaken member sees it; none if it cannot be mistaken in this way.
pub(super) fn mistake(
    plan: OperationPlan,
    how: Disagreement,
    payload_bytes: u32,
    members: u32,
) -> Option<OperationPlan> {
    let is_barrier = plan.operator == Operator::Barrier;
    let wrong = match how {
        Disagreement::Length { .. }
        | Disagreement::Segments
        | Disagreement::Target
        | Disagreement::Nobody
            if is_barrier =>
        {
            return None;
        }
        // Its endpoint refuses to stream these.
        Disagreement::Course if plan.elements == 0 || !plan.target.takes_streams() => return None,
        Disagreement::Course => OperationPlan { is_stream: !plan.is_stream, ..plan },
        Disagreement::Length { longer: true } => {
            OperationPlan { elements: plan.elements + 1, ..plan }
        }
        Disagreement::Length { longer: false } => {
            OperationPlan { elements: plan.elements.checked_sub(1)?, ..plan }
        }
        Disagreement::Segments => {
            let segment = u64::from(payload_bytes) / plan.datatype.size_bytes() as u64;
            let whole = plan.elements.is_multiple_of(segment);
            OperationPlan { elements: plan.elements + if whole { segment } else { 0 }, ..plan }
        }
        Disagreement::Barrier => OperationPlan {
            operator: Operator::Barrier,
            datatype: Datatype::U8,
            elements: 0,
            target: Target::All,
            is_stream: false,
            ..plan
        },
        Disagreement::Target | Disagreement::Nobody => {
            // One past the last member, which does not exist.
            OperationPlan { target: Target::Member(EndpointId(members)), ..plan }
        }
    };
    (wrong != plan && (wrong.elements > 0 || wrong.operator == Operator::Barrier)).then_some(wrong)
}

/// A sum of bytes, of an operation that no member has under way.
fn part(elements: u32, sequence: Sequence) -> Part {
    let shape = Shape::new(Operator::Sum, Datatype::U8, elements).expect("a sum of bytes");
    frames::part(OperationNumber(0x7FFF_FFF0), sequence, shape)
}

fn frame(header: &Header) -> Vec<u8> {
    frames::encode(header, &vec![0x5A; header.payload_bytes()])
}

/// A frame that a member must not send.
pub(super) fn offensive_frame(offence: Offence, edge: Edge, payload_bytes: u32) -> Vec<u8> {
    let forged = Edge { capability: Capability::from_bytes([0xEE; 16]), ..edge };
    let (edge, message) = match offence {
        Offence::ForgedCapability => (forged, Message::Request(part(1, Sequence::FIRST))),
        Offence::Oversized => (edge, Message::Request(part(payload_bytes + 1, Sequence::FIRST))),
        // Ahead of every sequence number that a group reaches here, by less than 2^31.
        Offence::OutsideWindow => (edge, Message::Request(part(1, Sequence(1 << 30)))),
        Offence::WrongDirection => (edge, Message::Result(part(1, Sequence::FIRST))),
        Offence::AnotherChild => {
            let child = ChildIndex(edge.child.0 ^ 1);
            (Edge { child, ..edge }, Message::Leave)
        }
        Offence::JoinAgain => (edge, Message::Join),
        Offence::Garbage | Offence::Replay { .. } => return b"no frame at all".repeat(8),
    };
    frame(&Header { edge, message })
}

/// A result in the root's name, from a sender that knows only a member's capability.
pub(super) fn forged_multicast(edge: Edge) -> Vec<u8> {
    let message = Message::Result(part(1, Sequence::FIRST));
    frame(&Header { edge: Edge { child: EVERYONE, ..edge }, message })
}

/// What a stranger sends; none if there is nothing to steal.
pub(super) fn intruding_frame(intrusion: Intrusion, stolen: Option<Edge>) -> Option<Vec<u8>> {
    let nowhere = Edge {
        group: GroupId(40),
        epoch: Epoch(1),
        child: ChildIndex(0),
        capability: Capability::from_bytes([0x77; 16]),
        version: Versions::SPOKEN.newest,
    };
    let forged = |edge: Edge| Edge { capability: nowhere.capability, ..edge };
    let (edge, message) = match intrusion {
        Intrusion::Forged => (forged(stolen?), Message::Join),
        Intrusion::Stolen => (stolen?, Message::Join),
        Intrusion::Nowhere => (nowhere, Message::Join),
        Intrusion::Unjoined => {
            (stolen.unwrap_or(nowhere), Message::Request(part(1, Sequence::FIRST)))
        }
        Intrusion::Garbage => return Some(vec![0xA5; 100]),
        Intrusion::Silent => return Some(Vec::new()),
    };
    Some(frame(&Header { edge, message }))
}
