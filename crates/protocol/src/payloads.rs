//! Where payload lives while an operation runs.
//!
//! The driver owns every byte. Links receive into its buffers, it reduces contributions in its
//! arenas and sends results from there. The machine only names places and says what happens to
//! them, so payload is copied no more often than the reduction needs.

use tributary_wire::frame::Shape;
use tributary_wire::{ChildIndex, GroupId, TreeId};

/// A piece of the driver's memory on one aggregator, named by the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArenaId {
    /// A group's arena, for its segments.
    Group(GroupId),
    /// A tree's arena, for the chunks of the group that streams.
    Stream(TreeId),
}

/// How much memory a group, or the streams of a tree, need on an aggregator.
///
/// The driver allocates a group's arena when it installs the group, and may free it after
/// [`crate::node::Event::Released`]. It allocates a tree's arena with the first group that may
/// stream in it ([`crate::node::Node::stream_arena`]) and keeps it. All groups of the tree use that
/// arena one after the other, so it grows neither with their number nor with the length of their
/// vectors.
///
/// An arena holds `slots` accumulators of `payload_max_bytes` (twice that if 16-bit floats are
/// widened), and `slots * children` parking places of `payload_max_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arena {
    /// Its name in every [`Place`].
    pub id: ArenaId,
    /// Slots: a power of two.
    pub slots: u16,
    /// Children, and so parking places per slot.
    pub children: u16,
    /// Longest segment.
    pub payload_max_bytes: u32,
}

/// One payload's place in an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Which arena.
    pub arena: ArenaId,
    /// Which slot of it.
    pub slot: u16,
    /// Which payload of the slot.
    pub lane: Lane,
}

/// Which payload of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// The running reduction; after [`Payloads::finish`] or [`Payloads::store`], wire bytes.
    Accumulator,
    /// A contribution that came before those of earlier children.
    Parked(ChildIndex),
}

/// Where a contribution lies.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// In the frame that the driver just handed to the machine.
    Frame(&'a [u8]),
    /// Where an earlier [`Payloads::park`] put it.
    Parked(Place),
}

/// What the driver does with payload when the machine calls.
///
/// Lengths always agree: every slice holds exactly `shape.bytes()` bytes, and that is at most the
/// arena's `payload_max_bytes`. Per slot the calls come in this order: any number of `park`; one
/// `begin`, then `fold` for each further child, in child order, with more `park` between; one
/// `finish`. At an aggregator that isn't the root, `store` follows when the result comes down.
pub trait Payloads {
    /// Keeps a contribution until those of all earlier children are reduced.
    fn park(&mut self, at: Place, incoming: &[u8]);

    /// Starts the accumulator with the first contribution. 16-bit floats widen to 32 bits here.
    fn begin(&mut self, at: Place, shape: Shape, incoming: Source<'_>);

    /// Reduces the next contribution into the accumulator: `at = at OP incoming`.
    fn fold(&mut self, at: Place, shape: Shape, incoming: Source<'_>);

    /// Turns the accumulator into wire bytes: rounds widened 16-bit floats, once.
    fn finish(&mut self, at: Place, shape: Shape);

    /// Replaces the accumulator by wire bytes: the result, on its way down.
    fn store(&mut self, at: Place, incoming: &[u8]);
}
