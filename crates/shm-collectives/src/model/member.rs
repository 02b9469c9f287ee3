//! One rank of a model: its group, and operations of which it checks what comes out.

use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

use loom::thread;

use super::combine::Combine;
use super::failure::Lost;
use super::group::HostGroup;
use super::operation::{Action, Blocks, Operation};
use super::peer_memory::{Buffers, PeerMemory};
use super::process::ProcessWatch;
use super::segment::Segment;
use super::waiting::Policy;

/// Adds the first and the last byte of what it is given: models run it thousands of times, and ask
/// whose bytes they are, not whether addition works.
pub(super) struct Ends;

pub(super) static ENDS: Ends = Ends;

impl Combine for Ends {
    fn element_bytes(&self) -> usize {
        1
    }

    fn combine_into(&self, target: &mut [u8], left: &[u8], right: &[u8]) {
        for at in ends(target.len()) {
            target[at] = left[at].wrapping_add(right[at]);
        }
    }

    fn fold(&self, target: &mut [u8], source: &[u8]) {
        for at in ends(target.len()) {
            target[at] = target[at].wrapping_add(source[at]);
        }
    }
}

/// The first and the last place of so many, which may be one, or none.
fn ends(len: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by(len.saturating_sub(1).max(1))
}

/// How a rank drives an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// In one call.
    Blocking,
    /// Begun, then driven to its end.
    Begun,
}

/// A rank of a model.
pub(super) struct Member {
    pub(super) group: HostGroup,
    pub(super) watch: ProcessWatch,
    buffers: Arc<Vec<Buffers>>,
    operations: u8,
}

/// What a rank contributes to its operation of that number.
fn contribution(rank: u32, operation: u8) -> u8 {
    operation.wrapping_mul(16).wrapping_add(1 + rank as u8)
}

impl Member {
    pub(super) fn rank(&self) -> u32 {
        self.group.local_rank()
    }

    /// Takes part in an operation of `len_bytes` a rank (of all, if it is a reduce-scatter), checks
    /// its result, and uses the buffers as it likes afterwards, whatever came of it.
    pub(super) fn perform(
        &mut self,
        action: Action,
        len_bytes: usize,
        manner: Manner,
    ) -> Result<(), Lost> {
        let (rank, ranks) = (self.group.local_rank(), self.group.ranks());
        self.operations += 1;
        let number = self.operations;
        let source = vec![contribution(rank, number); len_bytes];
        let mut target = vec![0; len_bytes * ranks as usize];
        self.buffers[rank as usize].are_the_owners();
        let operation =
            Operation { action, source: source.as_ptr(), target: target.as_mut_ptr(), len_bytes };
        // SAFETY: the buffers outlive the operation, and are apart.
        let outcome = unsafe {
            match manner {
                Manner::Blocking => self.group.run(&operation),
                Manner::Begun => self.group.start(operation).and_then(|()| self.group.complete()),
            }
        };
        if outcome.is_err() {
            // A peer that lives may still read what was offered to it, but does not write any more.
            self.buffers[rank as usize].target_is_the_owners();
            self.buffers[rank as usize].keep([source, target]);
            return outcome;
        }
        self.buffers[rank as usize].are_the_owners();
        for (first, len_bytes, value) in expected_ends(&action, number, rank, ranks, len_bytes) {
            assert_eq!([target[first], target[first + len_bytes - 1]], [value; 2], "rank {rank}");
        }
        Ok(())
    }

    /// The process ends here, and leaves everything as it is.
    pub(super) fn end(self) {
        self.watch.end();
        let group = ManuallyDrop::new(self.group);
        // The segment is unmapped; that the group says nothing is the point. SAFETY: the group is
        // in `ManuallyDrop` and not used after this, so its rings are dropped once.
        drop(unsafe { ptr::read(&raw const group.rings) });
    }
}

/// Where a result begins, how long it is, and of what bytes its ends are.
fn expected_ends(
    action: &Action,
    number: u8,
    rank: u32,
    ranks: u32,
    len_bytes: usize,
) -> Vec<(usize, usize, u8)> {
    let sum = |ranks: u32| {
        (0..ranks).fold(0_u8, |sum, rank| sum.wrapping_add(contribution(rank, number)))
    };
    match *action {
        Action::Allreduce(_) => vec![(0, len_bytes, sum(ranks))],
        Action::Reduce { to, .. } if to == rank => vec![(0, len_bytes, sum(ranks))],
        Action::Broadcast { from } if from != rank => {
            vec![(0, len_bytes, contribution(from, number))]
        }
        Action::Transfer { from, to } if to == rank => {
            vec![(0, len_bytes, contribution(from, number))]
        }
        Action::ReduceScatter { blocks: Blocks::Even, .. } => {
            vec![(0, len_bytes / ranks as usize, sum(ranks))]
        }
        Action::Gather { to } if to != rank => Vec::new(),
        Action::Scatter { from, .. } if from != rank => {
            vec![(0, len_bytes / ranks as usize, contribution(from, number))]
        }
        Action::Allgather | Action::Gather { .. } => {
            let piece =
                |from: u32| (from as usize * len_bytes, len_bytes, contribution(from, number));
            (0..ranks).map(piece).collect()
        }
        Action::Scan { inclusive, .. } if inclusive || rank > 0 => {
            vec![(0, len_bytes, sum(rank + u32::from(inclusive)))]
        }
        _ => Vec::new(),
    }
}

/// The members of a new group.
pub(super) fn members(ranks: u32, policy: Policy) -> Vec<Member> {
    let segment = Segment::new(ranks);
    let buffers = Arc::new((0..ranks).map(|_| Buffers::new(ranks)).collect::<Vec<_>>());
    let watches: Vec<ProcessWatch> = (0..ranks).map(|_| ProcessWatch::new()).collect();
    let member = |rank| {
        let peer_memory = PeerMemory::new(Arc::clone(&buffers), rank, policy == Policy::Spin);
        let group = HostGroup::new(segment.clone(), rank, policy, watches.clone(), peer_memory);
        let watch = watches[rank as usize].clone();
        Member { group, watch, buffers: Arc::clone(&buffers), operations: 0 }
    };
    (0..ranks).map(member).collect()
}

/// Runs `body` at every rank of a new group, each on a thread of its own.
pub(super) fn at_all(members: Vec<Member>, body: impl Fn(Member) + Copy + Send + 'static) {
    let mut members = members.into_iter();
    let own = members.next().expect("a group has ranks");
    let others: Vec<_> = members.map(|member| thread::spawn(move || body(member))).collect();
    body(own);
    for other in others {
        other.join().expect("a rank's own assertions hold");
    }
}
