//! How a rank joins a group: attach, see that all others have attached, settle.

use super::delivery::Mailbox;
use super::group::HostGroup;
use super::offer::{AttachError, Offer, OfferError, SegmentHandle};
use super::peer_memory::{
    PeerMemory, Probe, Unreachable, UnreachableCause, outcome_of_word, outcome_word,
};
use super::process::{Identity, ProcessWatch, is_under_valgrind};
use super::segment::{CPU_MASK_WORDS, Registration, Segment};
use super::sync::Ordering;
use super::waiting::Policy;

/// States of a [`Registration`].
const FREE: u32 = 0;
const FILLING: u32 = 1;
const COMPLETE: u32 = 2;

/// A rank that has mapped the segment and registered in it, and does not know yet that all others
/// have. Becomes a [`HostGroup`] by [`settle`](Self::settle).
pub struct Attachment {
    segment: Segment,
    local_rank: u32,
    own: Identity,
    may_access_peers: bool,
}

/// Why a group cannot begin to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettleError {
    /// A rank has not attached (yet): the caller settles after all ranks have.
    #[error("local rank {local_rank} has not attached")]
    NotAttached {
        /// The first such rank.
        local_rank: u32,
    },
}

/// Setting up.
impl HostGroup {
    /// Makes a segment for `ranks` processes and an offer of it; one of them, the leader, calls
    /// this.
    ///
    /// # Errors
    /// `ranks` is zero or more than [`RANKS_MAX`](crate::RANKS_MAX), or the system gives no memory or
    /// no descriptor.
    pub fn offer(ranks: u32) -> Result<(Offer, SegmentHandle), OfferError> {
        Offer::make(ranks)
    }

    /// Maps an offered segment and registers the caller as `local_rank` in it.
    ///
    /// # Errors
    /// The offer does not fit, cannot be reached or is not there any more, or the place is taken.
    pub fn attach(offer: &Offer, local_rank: u32, ranks: u32) -> Result<Attachment, AttachError> {
        Attachment::new(offer, local_rank, ranks, Offer::open)
    }

    /// As [`attach`](Self::attach) at the leader, which needs no access through `/proc`.
    ///
    /// # Errors
    /// As [`attach`](Self::attach).
    pub fn attach_with_handle(
        offer: &Offer,
        handle: &SegmentHandle,
        local_rank: u32,
        ranks: u32,
    ) -> Result<Attachment, AttachError> {
        Attachment::new(offer, local_rank, ranks, |offer| offer.open_with_handle(handle))
    }

    /// As [`attach`](Self::attach) at a rank to whose mailbox the leader has delivered the segment.
    ///
    /// # Errors
    /// As [`attach`](Self::attach), or [`AttachError::NotDelivered`].
    pub fn attach_delivered(
        offer: &Offer,
        mailbox: &Mailbox,
        local_rank: u32,
        ranks: u32,
    ) -> Result<Attachment, AttachError> {
        Attachment::new(offer, local_rank, ranks, |offer| offer.open_delivered(mailbox))
    }

    /// Whether every rank that has settled by now can access the memory of all others, so that long
    /// vectors need not be staged in the segment.
    ///
    /// # Errors
    /// The first rank that cannot, and why. Operations work without this access, with more copies.
    pub fn direct_access(&self) -> Result<(), Unreachable> {
        let outcome = |rank| {
            // Acquire: pairs with the Release in `settle` of the rank; it stands for itself.
            let word = self.rings.segment.registration(rank).peer_access.load(Ordering::Acquire);
            outcome_of_word(rank, word).unwrap_or(Ok(()))
        };
        (0..self.rings.ranks).try_for_each(outcome)
    }
}

impl Attachment {
    pub(super) fn new(
        offer: &Offer,
        local_rank: u32,
        ranks: u32,
        open: impl FnOnce(&Offer) -> Result<Segment, AttachError>,
    ) -> Result<Self, AttachError> {
        if ranks != offer.ranks() || local_rank >= ranks {
            return Err(AttachError::Ranks { local_rank, ranks, offered: offer.ranks() });
        }
        let segment = open(offer)?;
        let own = Identity::own();
        let registration = segment.registration(local_rank);
        // Acquire/Release on success only claims the place; nothing is read from it.
        let claimed =
            registration.state.compare_exchange(FREE, FILLING, Ordering::AcqRel, Ordering::Relaxed);
        if claimed.is_err() {
            return Err(AttachError::RankTaken { local_rank });
        }
        fill_in(registration, own)?;
        Ok(Self { segment, local_rank, own, may_access_peers: true })
    }

    /// Turns access to other ranks' memory off at this rank, and by that in the whole group: long
    /// vectors are staged in the segment.
    #[must_use]
    pub fn without_direct_access(self) -> Self {
        Self { may_access_peers: false, ..self }
    }

    /// Whether every rank has attached, so that [`settle`](Self::settle) will succeed.
    ///
    /// # Errors
    /// Some rank has not attached yet.
    pub fn all_attached(&self) -> Result<(), SettleError> {
        let missing = (0..self.segment.ranks()).find(|&rank| {
            // Acquire: pairs with the Release at the end of `fill_in` of that rank.
            self.segment.registration(rank).state.load(Ordering::Acquire) != COMPLETE
        });
        match missing {
            Some(local_rank) => Err(SettleError::NotAttached { local_rank }),
            None => Ok(()),
        }
    }

    /// Makes the group ready for operations. To be called after all ranks have attached, which the
    /// caller knows from its own exchange; from here on the leader may drop its
    /// [`SegmentHandle`].
    ///
    /// `processes` is how many processes of the job share this host's cores, at least the ranks of
    /// this group, and the same number at every rank. If there are more processes than cores that
    /// the ranks may run on, waits yield and sleep; else they spin ([`Policy`]).
    ///
    /// # Errors
    /// Some rank has not attached.
    pub fn settle(self, processes: u32) -> Result<HostGroup, SettleError> {
        self.all_attached()?;
        let cores = granted_cores(&self.segment);
        let processes = processes.max(self.segment.ranks());
        Ok(self.settle_as(Policy::for_crowd(processes, cores)))
    }

    /// The same with a policy, after all have attached.
    pub(super) fn settle_as(self, policy: Policy) -> HostGroup {
        let ranks = self.segment.ranks();
        let watches = (0..ranks)
            .map(|rank| ProcessWatch::new(identity(self.segment.registration(rank)), self.own))
            .collect();
        let outcome = self.probe();
        // Release: pairs with the Acquire in `direct_access`; it stands for itself.
        let word = outcome_word(outcome);
        self.segment.registration(self.local_rank).peer_access.store(word, Ordering::Release);
        let pids = (0..ranks).map(|rank| identity(self.segment.registration(rank)).pid).collect();
        let peer_memory = PeerMemory::new(pids, outcome);
        HostGroup::new(self.segment, self.local_rank, policy, watches, peer_memory)
    }

    /// Whether this rank reaches the memory of all others.
    fn probe(&self) -> Result<(), Unreachable> {
        let local_rank = self.local_rank;
        let mut peers = (0..self.segment.ranks()).filter(|rank| *rank != local_rank);
        peers.try_for_each(|peer| {
            let registration = self.segment.registration(peer);
            // Relaxed: `all_attached` has acquired every registration.
            let probe = Probe {
                address: registration.probe_address.load(Ordering::Relaxed),
                marks: [0, 1].map(|at: usize| registration.probe_marks[at].load(Ordering::Relaxed)),
            };
            let outcome = match () {
                () if !self.may_access_peers => Err(UnreachableCause::TurnedOff),
                () if is_under_valgrind() => Err(UnreachableCause::Valgrind),
                () => probe.run(identity(registration), self.own),
            };
            outcome.map_err(|cause| Unreachable { local_rank, peer, cause })
        })
    }
}

/// Publishes who and where the calling rank is.
fn fill_in(registration: &Registration, own: Identity) -> Result<(), AttachError> {
    let cpus = rustix::thread::sched_getaffinity(None)
        .map_err(|errno| AttachError::System { call: "sched_getaffinity", errno })?;
    let limit = rustix::thread::CpuSet::MAX_CPU.min(CPU_MASK_WORDS * 64);
    // All Relaxed: the Release at the end publishes them.
    for (index, word) in registration.cpus.iter().enumerate() {
        let bits = (index * 64..limit.min(index * 64 + 64))
            .filter(|&cpu| cpus.is_set(cpu))
            .fold(0, |bits, cpu| bits | 1_u64 << (cpu % 64));
        word.store(bits, Ordering::Relaxed);
    }
    registration.pid.store(own.pid, Ordering::Relaxed);
    registration.start_time_ticks.store(own.start_time_ticks, Ordering::Relaxed);
    registration.pid_namespace.store(own.pid_namespace, Ordering::Relaxed);
    let probe = Probe::own().map_err(|errno| AttachError::System { call: "getrandom", errno })?;
    registration.probe_address.store(probe.address, Ordering::Relaxed);
    for (word, mark) in registration.probe_marks.iter().zip(probe.marks) {
        word.store(mark, Ordering::Relaxed);
    }
    // Release: pairs with the Acquire in `all_attached` of every rank.
    registration.state.store(COMPLETE, Ordering::Release);
    Ok(())
}

/// How many cores the ranks of the group may run on, all together.
fn granted_cores(segment: &Segment) -> u32 {
    // Relaxed: `all_attached` has acquired every registration.
    let word = |index: usize| {
        (0..segment.ranks())
            .map(|rank| segment.registration(rank).cpus[index].load(Ordering::Relaxed))
            .fold(0, |union, bits| union | bits)
    };
    (0..CPU_MASK_WORDS).map(|index| word(index).count_ones()).sum()
}

fn identity(registration: &Registration) -> Identity {
    // Relaxed: `all_attached` has acquired every registration.
    Identity {
        pid: registration.pid.load(Ordering::Relaxed),
        start_time_ticks: registration.start_time_ticks.load(Ordering::Relaxed),
        pid_namespace: registration.pid_namespace.load(Ordering::Relaxed),
    }
}
