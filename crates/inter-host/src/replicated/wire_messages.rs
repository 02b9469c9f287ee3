//! What members call and say, in the terms of the machine and in those of the wire.

use tributary_replicated::{Call, Message};
use tributary_wire::frame::{
    self, Called, Contribution, Part, Question, RepeatedHead, RetransmitState, Shape, Target,
};
use tributary_wire::{Datatype, EndpointId, OperationNumber, Operator, SegmentIndex, Sequence};

use crate::direct;
use crate::operation::InterHostOperation;

/// What this host calls, with a digest of all that it has called up to it.
pub(super) fn call_of(operation: &InterHostOperation, digest: u32) -> Call {
    let len_bytes = operation.len_bytes() as u32;
    // Nothing has no operator on the wire.
    let (operator, datatype) = match len_bytes {
        0 => (Operator::Barrier, Datatype::U8),
        _ => (operation.operator, operation.datatype),
    };
    let called = Called { collective: operation.called as u8, operator, datatype };
    Call { kind: kind(called, digest), len_bytes }
}

fn kind(called: Called, digest: u32) -> u64 {
    let Called { collective, operator, datatype } = called;
    let codes = [collective, operator.code(), datatype.code(), 0];
    u64::from(digest) << 32 | u64::from(u32::from_le_bytes(codes))
}

/// What a call says to a user, and its digest.
pub(super) fn called_in(call: Call) -> (Called, u32) {
    let [collective, operator, datatype, _] = (call.kind as u32).to_le_bytes();
    let operator = Operator::from_code(operator).expect("a call is made of an operator");
    let datatype = Datatype::from_code(datatype).expect("a call is made of a datatype");
    (Called { collective, operator, datatype }, (call.kind >> 32) as u32)
}

/// What the sender of a part called.
pub(super) fn call_told_by(part: &Part) -> Call {
    let direct::Call { called, digest, .. } = direct::Call::told_by(part);
    Call { kind: kind(called, digest), len_bytes: part.payload_bytes() as u32 }
}

/// Whether some host may have called that: a call has a shape, and bytes if that has elements. Whatever else a host says is
/// neither kept nor passed on.
pub(super) fn is_possible(call: Call) -> bool {
    let (called, _) = called_in(call);
    let size_bytes = called.datatype.size_bytes() as u32;
    let elements = call.len_bytes / size_bytes;
    let is_nothing = called.operator == Operator::Barrier;
    call.len_bytes.is_multiple_of(size_bytes)
        && is_nothing == (elements == 0)
        && Shape::new(called.operator, called.datatype, elements).is_ok()
}

/// What tells of a call in the next contribution.
pub(super) fn repeated_head(call: Call) -> RepeatedHead {
    let (called, digest) = called_in(call);
    RepeatedHead { called, digest }
}

/// The call that a repeated contribution of so many bytes tells of.
pub(super) fn repeated_call(head: RepeatedHead, len_bytes: usize) -> Call {
    Call { kind: kind(head.called, head.digest), len_bytes: len_bytes as u32 }
}

/// The part of a header that tells of a call.
pub(super) fn part(operation: u64, group: u32, call: Call) -> Part {
    let (called, digest) = called_in(call);
    let elements = call.len_bytes / called.datatype.size_bytes() as u32;
    Part {
        operation: OperationNumber(operation as u32),
        segment: SegmentIndex(0),
        sequence: Sequence(group),
        shape: Shape::new(called.operator, called.datatype, elements)
            .expect("operations are checked before they start"),
        target: Target::Member(EndpointId(digest)),
        has_data: call.len_bytes > 0,
        retransmit: RetransmitState { attempt: called.collective, behind: 0 },
    }
}

/// What a member of a group says over a link, for the wire; `own` is what this host called. None for what the driver says by other means.
pub(super) fn to_wire(message: Message, group: u32, own: Option<Call>) -> Option<frame::Message> {
    let question = |operation: u64, of| Question {
        operation: OperationNumber(operation as u32),
        level: group,
        of,
    };
    Some(match message {
        Message::Ask { operation } => frame::Message::Ask(question(operation, None)),
        Message::AskFor { operation, of } => frame::Message::Ask(question(operation, Some(of))),
        Message::AskForSum { operation } => {
            frame::Message::AskForSum { operation: OperationNumber(operation as u32), level: group }
        }
        Message::NotYet { operation, lacks } => frame::Message::NotYet(question(operation, lacks)),
        Message::Contribution { operation, call } => {
            let part = part(operation, group, call);
            frame::Message::Contribution(Contribution { part, repeated_bytes: 0 })
        }
        Message::Passed { operation, of, call } => {
            frame::Message::Passed { part: part(operation, group, call), of }
        }
        Message::Sum { operation } => frame::Message::LevelSum(part(operation, group, own?)),
        Message::Leave { before } => {
            frame::Message::Departure { before: OperationNumber(before as u32), level: group }
        }
        Message::Farewell => frame::Message::Farewell { level: group },
        // A failure is said to the members of all levels.
        Message::Failed { .. } => return None,
    })
}

/// The tag of the group that a message of the wire is about, and what it says; none if it is not of a replicated group. `whole` tells the
/// whole number of an operation of that group.
pub(super) fn from_wire(
    message: &frame::Message,
    whole: impl Fn(u32, OperationNumber) -> Option<u64>,
) -> Option<(u32, Message)> {
    let of_part = |part: &Part| {
        let level = part.sequence.0;
        Some((level, whole(level, part.operation)?, call_told_by(part)))
    };
    Some(match message {
        frame::Message::Ask(Question { operation, level, of }) => {
            let operation = whole(*level, *operation)?;
            let ask = of.map_or(Message::Ask { operation }, |of| Message::AskFor { operation, of });
            (*level, ask)
        }
        frame::Message::AskForSum { operation, level } => {
            (*level, Message::AskForSum { operation: whole(*level, *operation)? })
        }
        frame::Message::NotYet(Question { operation, level, of }) => {
            (*level, Message::NotYet { operation: whole(*level, *operation)?, lacks: *of })
        }
        frame::Message::Contribution(Contribution { part, .. }) => {
            let (level, operation, call) = of_part(part)?;
            (level, Message::Contribution { operation, call })
        }
        frame::Message::Passed { part, of } => {
            let (level, operation, call) = of_part(part)?;
            (level, Message::Passed { operation, of: *of, call })
        }
        frame::Message::LevelSum(part) => {
            let (level, operation, _) = of_part(part)?;
            (level, Message::Sum { operation })
        }
        frame::Message::Departure { before, level } => {
            (*level, Message::Leave { before: whole(*level, *before)? })
        }
        frame::Message::Farewell { level } => (*level, Message::Farewell),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_operations_are_possible_and_have_a_part() {
        let mut operation = InterHostOperation::BARRIER;
        let barrier = call_of(&operation, 7);
        (operation.operator, operation.datatype) = (Operator::MinLoc, Datatype::F64Index);
        (operation.elements, operation.element_bytes) = (3, Datatype::F64Index.size_bytes());
        for call in [barrier, call_of(&operation, u32::MAX)] {
            assert!(is_possible(call));
            assert_eq!(call_told_by(&part(1 << 33 | 5, 2, call)), call);
            assert_eq!(repeated_call(repeated_head(call), call.len_bytes as usize), call);
        }
    }

    #[test]
    fn whatever_has_no_shape_is_no_call() {
        let call = |operator, datatype, len_bytes| {
            let called = Called { collective: 1, operator, datatype };
            Call { kind: kind(called, 7), len_bytes }
        };
        assert!(is_possible(call(Operator::Sum, Datatype::F32, 8)));
        assert!(!is_possible(call(Operator::Sum, Datatype::F32, 6)));
        assert!(!is_possible(call(Operator::Sum, Datatype::F32, 0)));
        assert!(!is_possible(call(Operator::Broadcast, Datatype::U8, 0)));
        assert!(!is_possible(call(Operator::Barrier, Datatype::U8, 1)));
        assert!(!is_possible(call(Operator::MinLoc, Datatype::F32, 8)));
    }
}
