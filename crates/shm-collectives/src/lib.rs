//! Collectives among the processes of one host, through shared memory.
//!
//! Owns the segment that a communicator's processes on one host share, and the operations on it:
//! allreduce, reduce, broadcast, transfer, barrier, reduce-scatter, allgather and scans. It must not
//! know datatypes or operators (they come as a [`Combine`]), other hosts, MPI, or how the caller's
//! processes found each other.
//! Start reading at [`HostGroup`]; the slots are in `ring`, the operations' steps in `operation`, and
//! those of the last three kinds in `rounds` and the files of their names.
//!
//! # Setting up
//!
//! The leader calls [`HostGroup::offer`] and carries the [`Offer`] to the others; all call
//! [`HostGroup::attach`], then tell each other that they did, then [`Attachment::settle`]; the
//! leader drops its [`SegmentHandle`]. If any got [`AttachError::NotPermitted`], the others tell the leader
//! where their [`Mailbox`]es are, and it delivers the segment there. The segment never has a name in
//! any file system, so nothing is left behind when processes are killed, whenever that is.
//!
//! # Slots and steps
//!
//! Every rank owns a ring of slots that it alone writes. All ranks execute the same operations in
//! the same order and cut them into the same *steps*, so they agree on step numbers without
//! exchanging them. In step `t` a rank that contributes fills its slot `t mod slots` and then
//! stores `t` into the slot's flag; the others wait until the flag is `t`. Flags are never reset.
//! Step numbers have 64 bits and count up from one: at a step every nanosecond they wrap after
//! 584 years, so wrapping is not considered.
//!
//! There are three rings, and two boxes that groups of two use for short exchanges: the line ring,
//! for one-way operations of up to 56 bytes, which share the flag's cache line; the short ring, where
//! up to 4,152 bytes follow the flag; and the long ring, whose 128 KiB pieces stay in the
//! second-level cache. A longer vector takes as many steps as it has pieces. Lengths are computed by each rank for
//! itself and never read from the segment. Address space used is 549 KiB a rank and group; memory,
//! only what was touched, and never more than that.
//!
//! # Why a slot is never overwritten too early
//!
//! Each rank keeps, per ring, a counter `done` in shared memory: it reads no slot of step `done` or
//! earlier any more. Before it fills its slot in step `t`, a rank makes sure that every other rank
//! has `done >= t - slots`, the step in which the slot was last filled. Ranks that a step does not
//! concern advance `done` past it as well, so the least counter tells all.
//!
//! Reading the counters would cost a line transfer each, so the least value known is remembered,
//! and raised for nothing by what is seen anyway: a rank fills a slot in step `t` only after it has
//! finished reading step `t - 1`, so whoever has seen all ranks' flags of step `t` knows that all
//! counters are at least `t - 1`. Operations that synchronise everybody therefore never look at a
//! counter (two slots would do). One-way operations look when the slots known to be free run out,
//! and then wait for half of them, so that they look once in `slots / 2` steps at most.
//!
//! # Line transfers
//!
//! Two ranks trade boxes: of two boxes, rank `r` fills box `(r + t) mod 2` in step `t` and reads the
//! other. So a rank always fills the box that it has just read. Its lines are in the rank's own
//! cache already, and the processor hands a single line over for writing at once: a step is one
//! line transfer each way, at the same time. Boxes that a rank keeps would cost two transfers one
//! behind the other, the first to take the line away from the peer that read it. No counter is
//! needed either: a rank can fill a box only after its own reading of it, and the peer reads it
//! before it publishes the step after. A rank must not look at its own box once it is published,
//! for the peer may be filling it already. Measured (two threads of a 2-core Xeon virtual machine,
//! no calls around it): 8 B 70 ns against 160 ns; 1 KiB 370 against 600; 4 KiB 800 against 1,350.
//! A rank that waits lets a moment pass before each look: a look at a line that is not written yet
//! takes it away from the writer, and costs two transfers more (decision record 10).
//!
//! A short allreduce among 3 to 8 ranks is one exchange: each rank writes one line and reads
//! `p - 1`, one transfer deep. While a rank waits in step `t` it prefetches (the first 16 lines of)
//! its slot of step `t + 1` for writing. Among more ranks it is a gather and a release, two
//! transfers deep, `2 (p - 1)` lines instead of `p (p - 1)`. A barrier is the same without data.
//!
//! Long vectors go from process to process where the kernel allows it and every rank has a core
//! (`direct`, `peer_memory`). Else they are staged: among two ranks piece by piece, where each reads the
//! other's whole piece, `n` bytes each way, as in a reduce-scatter, with half the synchronisation.
//! Among more, each rank reduces its share of all pieces (reads `n (p - 1) / p`) and then copies
//! the others' shares (the same again).
//!
//! # Order
//!
//! Every element is reduced in rank order, by whichever rank: equal inputs give equal bits, on every
//! rank and every run.
//!
//! # Failure
//!
//! A rank that waits long looks at the failure word of the segment and at the process it waits for.
//! It waits for a rank directly or for one that does, so some rank looks at the dead one; it
//! reports [`Lost`] to all through the failure word. A process that ends after having done its part
//! harms nobody.

mod allgather;
mod attach;
mod combine;
mod copy;
mod delivery;
mod direct;
mod exchange;
mod failure;
mod fast_path;
mod group;
mod job;
mod liveness;
#[cfg(test)]
mod model;
mod offer;
mod operation;
mod peer_memory;
mod process;
pub mod processor;
mod reduce_scatter;
mod ring;
mod rounds;
mod scan;
mod segment;
mod staged;
mod sync;
#[cfg(test)]
mod tests;
pub mod waiting;

pub use attach::{Attachment, SettleError};
pub use combine::{Combine, Wide};
pub use delivery::{DeliveryError, Mailbox, MailboxName};
pub use failure::{Lost, LostCause};
pub use group::HostGroup;
pub use offer::{AttachError, Offer, OfferError, OfferFormatError, SegmentHandle};
pub use operation::{Action, Blocks, EXCHANGE_RANKS_MAX, Operation};
pub use peer_memory::{Unreachable, UnreachableCause};
pub use segment::RANKS_MAX;

pub use waiting::{PEER_CHECK_INTERVAL, PeerCheck, Policy, Waiter};
