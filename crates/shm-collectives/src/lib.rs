//! Collectives among the processes of one host, through shared memory.
//!
//! A [`HostGroup`] is one process's membership in a group of up to [`RANKS_MAX`] processes on the
//! same host. The group performs allreduce, reduce, broadcast, transfer, barrier, reduce-scatter,
//! allgather, gather, scatter and scans ([`Action`]) on vectors of bytes. This crate does not know datatypes or
//! operators: a caller brings them as a [`Combine`]. It does not know other hosts or MPI either,
//! nor how the processes found each other. It depends on no other crate of Tributary.
//!
//! Ranks may be threads of one process, as in this example:
//!
//! ```
//! use std::sync::Barrier;
//! use tributary_shm_collectives::{Action, Combine, HostGroup, Operation};
//!
//! /// The sum of `u32` elements.
//! struct SumU32;
//!
//! impl Combine for SumU32 {
//!     fn element_bytes(&self) -> usize {
//!         4
//!     }
//!
//!     fn combine_into(&self, target: &mut [u8], left: &[u8], right: &[u8]) {
//!         target.copy_from_slice(left);
//!         self.fold(target, right);
//!     }
//!
//!     fn fold(&self, target: &mut [u8], source: &[u8]) {
//!         let sources = source.as_chunks::<4>().0;
//!         for (target, source) in target.as_chunks_mut::<4>().0.iter_mut().zip(sources) {
//!             let sum = u32::from_ne_bytes(*target).wrapping_add(u32::from_ne_bytes(*source));
//!             *target = sum.to_ne_bytes();
//!         }
//!     }
//! }
//!
//! const RANKS: u32 = 2;
//! let (offer, handle) = HostGroup::offer(RANKS)?;
//! let all_attached = Barrier::new(RANKS as usize);
//! let body = |local_rank| {
//!     let attachment = HostGroup::attach(&offer, local_rank, RANKS).unwrap();
//!     all_attached.wait();
//!     let mut group = attachment.settle(RANKS).unwrap();
//!
//!     let source = [local_rank + 1; 8];
//!     let mut target = [0_u32; 8];
//!     let operation = Operation {
//!         action: Action::Allreduce(&SumU32),
//!         source: source.as_ptr().cast(),
//!         target: target.as_mut_ptr().cast(),
//!         len_bytes: size_of_val(&source),
//!     };
//!     // SAFETY: both arrays have `len_bytes` bytes, and they do not overlap.
//!     unsafe { group.run(&operation) }.unwrap();
//!     assert_eq!(target, [1 + 2; 8]);
//! };
//! std::thread::scope(|scope| (0..RANKS).for_each(|rank| drop(scope.spawn(move || body(rank)))));
//! drop(handle);
//! # Ok::<(), tributary_shm_collectives::OfferError>(())
//! ```
//!
//! # Setting up
//!
//! The caller needs some way to carry a few bytes between the processes, once.
//!
//! 1. One process, the leader, calls [`HostGroup::offer`]. It gets an [`Offer`] and a
//!    [`SegmentHandle`], and sends the bytes of the offer ([`Offer::to_bytes`]) to the others.
//! 2. All call [`HostGroup::attach`], which maps the segment and registers the caller in it. A process
//!    that gets [`AttachError::NotPermitted`] makes a [`Mailbox`] and sends its name to the leader; the
//!    leader calls [`SegmentHandle::deliver`], and the process [`HostGroup::attach_delivered`].
//! 3. All tell each other that they have attached; then all call [`Attachment::settle`]. The leader
//!    drops the handle.
//! 4. All perform the same operations in the same order, each with [`HostGroup::run`], or with
//!    [`HostGroup::start`] and [`HostGroup::poll`].
//!
//! The segment never has a name in any file system, so nothing is left behind when processes are
//! killed, whenever that is.
//!
//! # Rings, slots and steps
//!
//! In the code, `segment` and `ring` hold what this section explains; `group` drives an operation and
//! waits, `job` chooses how an operation is done: `staged` in slots, `direct` from process to process,
//! or in `rounds` (`allgather`, `scatter`, `reduce_scatter`, `scan`). `fast_path` does short ones in one call.
//!
//! Every rank owns rings of slots that it alone writes. All ranks cut an operation into the same
//! *steps*, so they agree on step numbers without exchanging them. In step `t` a rank that
//! contributes fills its slot `t mod slots` and then stores `t` into the slot's flag, with what it
//! calls (`call`); the others wait until the flag is `t`, with what they call. Flags are never reset. Step numbers have 64 bits and count up from
//! one: at a step every nanosecond they wrap after 584 years, so wrapping is not considered.
//!
//! There are three rings, and two *exchange slots* that groups of two use for short vectors:
//!
//! | ring | bytes a slot | used for |
//! |---|---|---|
//! | line | 56, in the flag's cache line | one-way operations |
//! | short | 4,152, behind the flag | vectors of up to that length |
//! | long | 128 KiB, which stay in the second-level cache | pieces of longer vectors |
//! | exchange slots | 4,152, behind the flag | short vectors in groups of two |
//!
//! A longer vector takes as many steps as it has pieces. Lengths are computed by each rank for
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
//! and raised by what the rank sees anyway: a rank fills a slot in step `t` only after it has
//! finished reading step `t - 1`, so a rank that has seen all ranks' flags of step `t` knows that all
//! counters are at least `t - 1`. Operations that synchronise everybody therefore never read a
//! counter (two slots would do). One-way operations read the counters when the slots known to be
//! free run out, and then wait for half of them: once in `slots / 2` steps at most.
//!
//! # Line transfers
//!
//! Two ranks exchange slots: of the two exchange slots, rank `r` fills slot `(r + t) mod 2` in step
//! `t` and reads the other. So a rank always fills the slot that it has just read. Its lines are in
//! the rank's own cache already, and the processor hands a single line over for writing at once: a
//! step is one line transfer each way, at the same time. Slots that a rank keeps would cost two
//! transfers one behind the other, the first to take the line away from the peer that read it. No
//! counter is needed either: a rank can fill a slot only after its own reading of it, and the peer
//! reads it before it publishes the step after. A rank must not read its own slot once it is
//! published, for the peer may be filling it already. Measured (two threads of a 2-core Xeon
//! virtual machine, no calls around it): 8 B 70 ns against 160 ns; 1 KiB 370 against 600; 4 KiB 800
//! against 1,350. A rank that waits lets a moment pass before each poll: a poll of a line that is
//! not written yet takes it away from the writer, and costs two transfers more (decision record
//! 10).
//!
//! A short allreduce among 3 to 8 ranks is one exchange: each rank writes one line and reads
//! `p - 1`, one transfer deep. While a rank waits in step `t` it prefetches (the first 16 lines of)
//! its slot of step `t + 1` for writing. Among more ranks it is a gather and a release, two
//! transfers deep, `2 (p - 1)` lines instead of `p (p - 1)`. A barrier is the same without data.
//!
//! Long vectors go from process to process where the kernel allows it and every rank has a core
//! (`direct`, `peer_memory`). Else they are staged in slots (`staged`): among two ranks piece by
//! piece, where each reads the other's whole piece, `n` bytes each way, as in a reduce-scatter,
//! with half the synchronisation. Among more, each rank reduces its share of all pieces (reads `n
//! (p - 1) / p`) and then copies the others' shares (the same again).
//!
//! # Order
//!
//! Every element is reduced in rank order, by whichever rank: equal inputs give equal bits, on
//! every rank and every run.
//!
//! # Failure
//!
//! A rank that waits long checks the failure word of the segment and the process that it waits for
//! (`liveness`). It waits for a rank directly or for one that does, so some rank checks the dead
//! one; it reports [`Lost`] to all through the failure word. A process that ends after having done
//! its part harms nobody.

mod allgather;
mod attach;
mod call;
mod check_clock;
mod combine;
mod copy;
mod delivery;
mod direct;
mod disagreement;
mod exchange;
mod failure;
mod fast_path;
mod group;
mod job;
mod lateness;
mod liveness;
#[cfg(test)]
mod model;
mod offer;
mod operation;
mod peer_memory;
mod post;
mod process;
pub mod processor;
mod progress;
mod reduce_scatter;
mod ring;
mod rounds;
mod scan;
mod scatter;
mod segment;
mod slices;
mod staged;
mod sync;
#[cfg(test)]
mod tests;
pub mod waiting;

pub use attach::{Attachment, SettleError};
pub use call::{CallKind, Called};
pub use check_clock::CheckClock;
pub use combine::{AtOnce, Combine, Wide, element_bytes_max, reduce_in_order};
pub use delivery::{DeliveryError, Mailbox, MailboxName};
pub use exchange::Exchange;
pub use failure::{Lost, LostCause};
pub use group::HostGroup;
pub use lateness::Late;
pub use offer::{AttachError, Offer, OfferError, OfferFormatError, SegmentHandle};
pub use operation::{Action, Blocks, EXCHANGE_RANKS_MAX, Operation};
pub use peer_memory::{Unreachable, UnreachableCause};
pub use post::Posted;
pub use segment::RANKS_MAX;
pub use waiting::{PEER_CHECK_INTERVAL, PeerCheck, Policy, Waiter};
