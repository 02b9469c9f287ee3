//! How the leaders of hosts meet without a tree: over direct links, and by the datagrams of replicated groups where those carry an
//! operation.
//!
//! Owns which of the two carries an operation, by its algorithm and length alone, so that all hosts come to the same. Must not
//! know how either works.
//!
//! # Answers
//!
//! A datagram may be lost, and its sender may have completed the operation and do something else: compute, or wait for the very
//! host that lacks the datagram, in another communicator. So links of the groups, over which hosts ask, are [watched](crate::watch),
//! and the thread that has this host's place at hand [attends](DirectMethod::attend) when something comes.
//!
//! # Two carriers, one communicator
//!
//! A failure of one is a failure of both: hosts may wait in either. Hosts whose programs call different operations may wait in
//! different carriers, where neither hears of the other. So all operations are numbered where the links compare them, a datagram's
//! digest is of all that its sender has called by either, and a host that has waited for datagrams for a while asks over links what
//! the others have called.
//!
//! The same holds for a tree beside both: [what goes through it](DirectMethod::note_call_in_tree) is numbered here, and a host that
//! waits in the tree [looks here](DirectMethod::check_beside_tree) for questions.

use std::sync::Arc;
use std::time::Duration;

use tributary_algorithms::{Algorithm, CollectiveKind, GROUP_BYTES_MAX};
use tributary_wire::frame::{Abort, AbortReason, Disagreement};

use crate::departures;
use crate::direct::DirectLinks;
use crate::operation::{InterHost, InterHostOperation};
use crate::replicated::ReplicatedLevels;
use crate::watch::{Alarm, Watched};

/// Whether groups carry a collective of this length where there are any.
#[must_use]
pub fn goes_by_groups(kind: CollectiveKind, len_bytes: usize) -> bool {
    let is_known = matches!(kind, CollectiveKind::Allreduce | CollectiveKind::Barrier);
    is_known && len_bytes as u64 <= GROUP_BYTES_MAX
}

/// Replicated groups, and the algorithm whose operations are theirs.
pub struct ReplicatedGroups {
    /// This host's place in them.
    pub levels: ReplicatedLevels,
    /// The exchange over the same levels.
    pub algorithm: Algorithm,
    /// Raised when another host needs an answer.
    pub alarm: Arc<Alarm>,
}

/// This host's place among the others.
pub struct DirectMethod {
    links: DirectLinks,
    groups: Option<ReplicatedGroups>,
    /// The last operation went by the groups.
    is_by_groups: bool,
    /// Links of the groups that are watched.
    watched: usize,
}

impl DirectMethod {
    /// Over links, and by groups if there are any.
    #[must_use]
    pub fn new(links: DirectLinks, groups: Option<ReplicatedGroups>) -> Self {
        Self { links, groups, is_by_groups: false, watched: 0 }
    }

    /// Counts an operation that goes through the tree, at all its hosts.
    #[inline]
    pub fn note_call_in_tree(&mut self, operation: &InterHostOperation) {
        self.links.note_call(operation);
    }

    /// Looks, while this host waits in the tree, for hosts that called what goes over links or by groups instead.
    ///
    /// # Errors
    /// If there are some, or others have found that there is no going on.
    pub fn check_beside_tree(&mut self) -> Result<(), Abort> {
        self.links.check_beside(std::iter::empty());
        if let Some(ReplicatedGroups { levels, .. }) = &mut self.groups {
            levels.attend();
        }
        self.share_failure();
        self.links.verdict().map_or(Ok(()), |verdict| Err(verdict.abort))
    }

    /// Tells the other hosts why there is no going on, as this host has heard from elsewhere.
    pub fn pass_on(&mut self, abort: Abort) {
        self.links.pass_on(abort);
        self.share_failure();
    }

    /// The links, for operations that go over nothing else.
    pub fn links(&mut self) -> &mut DirectLinks {
        self.is_by_groups = false;
        &mut self.links
    }

    /// Segments of TCP that this host has sent again, over the links that are there now.
    #[must_use]
    pub fn retransmissions(&self) -> u64 {
        self.links.retransmissions()
    }

    #[cfg(test)]
    pub(crate) fn is_by_groups(&self) -> bool {
        self.is_by_groups
    }

    /// What wakes this leader when another host needs an answer; none where there are no groups.
    #[must_use]
    pub fn alarm(&self) -> Option<&Arc<Alarm>> {
        self.groups.as_ref().map(|groups| &groups.alarm)
    }

    /// Raises the alarm from now on when something comes over the groups' links.
    pub fn watch(&mut self) {
        let Some(ReplicatedGroups { levels, alarm, .. }) = &self.groups else { return };
        self.watched = levels.links();
        alarm.watch(levels.descriptors().map(Watched::Input));
    }

    /// Does what is due when an alarm was raised. Anybody who has this leader calls it, whatever operation is under way.
    #[inline]
    pub fn attend(&mut self) {
        if self.groups.as_ref().is_some_and(|groups| groups.alarm.is_raised()) {
            self.attend_to_alarm();
        }
    }

    #[cold]
    fn attend_to_alarm(&mut self) {
        if let Some(ReplicatedGroups { levels, alarm, .. }) = &mut self.groups {
            alarm.attend_to();
            levels.attend();
            // Until then, the thread that watches comes again.
            if !levels.has_unsaid() {
                alarm.lower();
            }
            self.watch();
            self.share_failure();
        }
    }

    /// Whether an answer is due that could not be given yet.
    #[must_use]
    pub fn has_more_to_attend(&self) -> bool {
        self.groups.as_ref().is_some_and(|groups| groups.levels.has_unsaid())
    }

    /// The operation is over: from now on the thread that watches answers.
    fn hand_over(&mut self) {
        let Some(ReplicatedGroups { levels, alarm, .. }) = &self.groups else { return };
        if levels.has_unsaid() {
            alarm.call();
        }
        // As long as a link lacks, its caller may come at any time.
        if levels.lacks_link() || levels.links() > self.watched {
            self.watch();
        }
    }

    /// The carrier that has the last operation.
    fn carrier(&mut self) -> &mut dyn InterHost {
        match &mut self.groups {
            Some(groups) if self.is_by_groups => &mut groups.levels,
            _ => &mut self.links,
        }
    }

    /// Lets both carriers fail if one has.
    fn share_failure(&mut self) {
        let Some(groups) = &mut self.groups else { return };
        match (self.links.verdict(), groups.levels.verdict()) {
            (Some(verdict), None) => groups.levels.fail_for(verdict),
            (None, Some(verdict)) => self.links.fail_for(verdict),
            _ => {}
        }
    }
}

impl ReplicatedGroups {
    fn carry(&self, operation: &InterHostOperation) -> bool {
        operation.algorithm == self.algorithm
            && goes_by_groups(operation.collective.kind(), operation.len_bytes())
    }
}

impl InterHost for DirectMethod {
    unsafe fn start(&mut self, operation: &InterHostOperation) -> Result<(), Abort> {
        let groups = self.groups.as_mut().filter(|groups| groups.carry(operation));
        self.is_by_groups = groups.is_some();
        let started = match groups {
            Some(groups) => {
                let digest = self.links.note_call(operation);
                // SAFETY: as the caller promises.
                unsafe { groups.levels.start_with(operation, digest) }
            }
            // SAFETY: as the caller promises.
            None => unsafe { self.links.start(operation) },
        };
        started.inspect_err(|_| self.share_failure())
    }

    fn poll(&mut self) -> Result<bool, Abort> {
        let polled = self.carrier().poll();
        if polled == Ok(true) && self.groups.is_some() {
            self.hand_over();
        }
        polled.inspect_err(|_| self.share_failure())
    }

    fn has_nothing_yet(&mut self) -> bool {
        self.carrier().has_nothing_yet()
    }

    fn sleep(&mut self, time: Duration) {
        self.carrier().sleep(time);
    }

    fn check(&mut self) {
        self.carrier().check();
        if let Some(ReplicatedGroups { levels, .. }) = &mut self.groups {
            if self.is_by_groups {
                self.links.check_beside(levels.awaited_hosts().iter().copied());
            } else {
                levels.attend();
            }
        }
        self.share_failure();
    }

    fn host_at_fault(&self, abort: &Abort) -> Option<usize> {
        self.links.host_at_fault(abort)
    }

    fn disagreement(&self) -> Option<Disagreement> {
        self.links.disagreement()
    }

    fn abort(&mut self, reason: AbortReason) {
        self.links.abort(reason);
        self.share_failure();
    }

    fn leave(&mut self) {
        if let Some(ReplicatedGroups { mut levels, .. }) = self.groups.take() {
            levels.begin_leaving();
            departures::keep(Box::new(levels));
        }
        self.links.leave();
    }
}
