//! The protocols of the segment under the model checker: every interleaving of two or three ranks.
//!
//! Goal: no slot or buffer is read while it is written, no rank sleeps through what it waits for,
//! and each rank that waits for a rank that ends learns of it. Method: the files below are those
//! that ship. They name their atomics, the segment, the peers' memory and processes through
//! `super`, and here find such that loom watches: a segment with as few slots as a ring can have
//! (`segment`), futexes of loom's locks (`sync`), processes that are threads (`liveness`), waits
//! that hand over at once (`waiting`), and memory of peers that loom checks before it is copied
//! (`peer_memory`). What a slice of a slot is used for happens where the slice is made, as far as
//! loom knows: between there and the end of its use no rank takes anything in from another, so it
//! cannot matter.
//!
//! Canaries take one thing away each, and must fail. What would be minutes of interleavings are
//! seconds because it is bounded how often a thread loses its core where it need not; each model
//! says how often.

#![allow(
    clippy::duplicate_mod,
    dead_code,
    unreachable_pub,
    reason = "the files that ship are compiled a second time, against loom; not all of each is used"
)]
#![allow(
    clippy::arc_with_non_send_sync,
    reason = "loom runs all threads of a model on one, in turn, and watches what they share"
)]

#[path = "../allgather.rs"]
mod allgather;
#[path = "../call.rs"]
mod call;
#[path = "../check_clock.rs"]
mod check_clock;
#[path = "../combine.rs"]
mod combine;
#[path = "../copy.rs"]
mod copy;
#[path = "../direct.rs"]
mod direct;
#[path = "../exchange.rs"]
mod exchange;
#[path = "../failure.rs"]
mod failure;
#[path = "../fast_path.rs"]
mod fast_path;
#[path = "../group.rs"]
mod group;
#[path = "../job.rs"]
mod job;
#[path = "../liveness.rs"]
mod liveness;
#[path = "../operation.rs"]
mod operation;
#[path = "../post.rs"]
mod post;
#[path = "../progress.rs"]
mod progress;
#[path = "../reduce_scatter.rs"]
mod reduce_scatter;
#[path = "../ring.rs"]
mod ring;
#[path = "../rounds.rs"]
mod rounds;
#[path = "../scan.rs"]
mod scan;
#[path = "../scatter.rs"]
mod scatter;
#[path = "../slices.rs"]
mod slices;
#[path = "../staged.rs"]
mod staged;

mod disagreement;
mod lateness;
mod peer_memory;
mod process;
mod segment;
mod sync;
mod waiting;

mod ends;
mod member;
mod operations;
mod sleeping;
