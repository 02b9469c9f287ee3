//! One reduction in the tree, at all members of one or several groups.

use tributary_protocol::endpoint::OperationSpec;
use tributary_wire::frame::Target;
use tributary_wire::{Datatype, Operator};

use crate::engine::Picos;
use crate::world::{Finished, MemberId, NoPayload, RunError, World};

/// Starts a sum of `bytes` bytes of 32-bit integers at every member, each at its time, and runs the
/// system until no event is left.
///
/// # Errors
/// [`RunError`], also if a member has not finished.
pub(super) fn sum_in_tree(
    world: &mut World<NoPayload>,
    starts: impl IntoIterator<Item = (MemberId, Picos)>,
    bytes: usize,
) -> Result<Vec<Finished>, RunError> {
    sum_towards(world, starts, bytes, |_| (Target::All, true))
}

/// The same with a result that not all members get: `whose` gives each member the group's target, and
/// whether this member receives the result.
///
/// # Errors
/// As [`sum_in_tree`].
pub(super) fn sum_towards(
    world: &mut World<NoPayload>,
    starts: impl IntoIterator<Item = (MemberId, Picos)>,
    bytes: usize,
    whose: impl Fn(MemberId) -> (Target, bool),
) -> Result<Vec<Finished>, RunError> {
    sum_by(World::start, world, starts, bytes, whose)
}

/// The same with a vector that goes as a stream, in a group that may.
///
/// # Errors
/// As [`sum_in_tree`].
pub(super) fn stream_towards(
    world: &mut World<NoPayload>,
    starts: impl IntoIterator<Item = (MemberId, Picos)>,
    bytes: usize,
    whose: impl Fn(MemberId) -> (Target, bool),
) -> Result<Vec<Finished>, RunError> {
    sum_by(World::start_stream, world, starts, bytes, whose)
}

fn sum_by(
    start: impl Fn(&mut World<NoPayload>, MemberId, Picos, OperationSpec),
    world: &mut World<NoPayload>,
    starts: impl IntoIterator<Item = (MemberId, Picos)>,
    bytes: usize,
    whose: impl Fn(MemberId) -> (Target, bool),
) -> Result<Vec<Finished>, RunError> {
    let mut members = 0;
    for (member, at) in starts {
        let (target, receives) = whose(member);
        let spec = OperationSpec {
            operator: Operator::Sum,
            datatype: Datatype::I32,
            elements: bytes.div_ceil(4) as u64,
            target,
            contributes: true,
            receives,
            digest: 0,
        };
        start(world, member, at, spec);
        members += 1;
    }
    world.run()?;
    let finished: Vec<_> = world.take_finished().collect();
    expect_all(finished.len(), members)?;
    Ok(finished)
}

/// # Errors
/// [`RunError::Stuck`], if fewer finished than took part.
pub(super) fn expect_all(got: usize, of: usize) -> Result<(), RunError> {
    if got == of { Ok(()) } else { Err(RunError::Stuck { waiting: of - got, of }) }
}
