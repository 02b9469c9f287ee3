//! How a communicator ends at one rank: of itself, by a failure, or because the program gives it up.
//! Whoever learns first tells the ranks of its host and, at leaders, the other hosts.

use tributary_wire::frame::{Abort, AbortReason};

use super::Engine;
use crate::operation::CollectiveError;
use crate::ways::Between;
use tributary_shm_collectives::{Lost, LostCause};

impl Engine {
    /// Ends the communicator everywhere, because the program wants it so.
    pub(crate) fn give_up(&mut self) {
        if self.failed.is_some() {
            return;
        }
        if let Some(group) = &mut self.host {
            group.fail(AbortReason::MemberAborted as u32);
        }
        if let Some(tree) = &mut self.tree {
            tree.abort(AbortReason::MemberAborted);
        }
        if let Some(mesh) = &mut self.mesh {
            mesh.abort(AbortReason::MemberAborted);
        }
        self.failed = Some(CollectiveError::GivenUp { label: self.label.clone() });
        self.progress();
    }

    /// Leaves the communicator. Not collective: others may have operations to finish.
    pub(crate) fn leave(&mut self) {
        if let Some(mut tree) = self.tree.take() {
            tree.leave();
        }
        if let Some(mut mesh) = self.mesh.take() {
            mesh.leave();
        }
        self.host = None;
    }

    /// A rank of this host is lost, or said that the communicator is.
    pub(crate) fn on_lost(&mut self, lost: Lost) -> CollectiveError {
        let (error, reason) = match lost.cause {
            LostCause::Reported(code) => {
                let reason = reported_reason(code);
                (self.between_hosts(self.seat.ways.usual, reason, None), reason)
            }
            LostCause::Died | LostCause::Left | LostCause::Unreachable(_) => {
                let rank = self.seat.rank_of_local(lost.local_rank);
                let label = self.label.clone();
                (CollectiveError::RankLost { label, rank }, AbortReason::MemberLost)
            }
        };
        if let Some(tree) = &mut self.tree {
            tree.abort(reason);
        }
        if let Some(mesh) = &mut self.mesh {
            mesh.abort(reason);
        }
        self.failed.get_or_insert(error).clone()
    }

    /// The tree failed.
    pub(super) fn on_abort(&mut self, abort: Abort) -> CollectiveError {
        let mut host = None;
        if let Some(tree) = &mut self.tree {
            tree.abort_others(abort.reason);
            host = tree.host_at_fault(abort.at_fault);
        }
        let host = host.map(|index| self.seat.placement.hosts[index].clone());
        self.on_failed_between(Between::Tree, abort, host)
    }

    /// Another host failed.
    pub(super) fn on_mesh_abort(&mut self, abort: Abort) -> CollectiveError {
        let host = self.seat.placement.hosts.get(abort.at_fault.0 as usize).cloned();
        self.on_failed_between(Between::Mesh, abort, host)
    }

    /// The other ranks of this host are told.
    fn on_failed_between(
        &mut self,
        between: Between,
        abort: Abort,
        host: Option<String>,
    ) -> CollectiveError {
        if let Some(group) = &mut self.host {
            group.fail(abort.reason as u32);
        }
        let error = self.between_hosts(Some(between), abort.reason, host);
        self.failed.get_or_insert(error).clone()
    }

    fn between_hosts(
        &self,
        between: Option<Between>,
        reason: AbortReason,
        host: Option<String>,
    ) -> CollectiveError {
        let label = self.label.clone();
        if reason == AbortReason::MemberAborted {
            return CollectiveError::GivenUp { label };
        }
        let reason = reason.to_string();
        match between {
            Some(Between::Mesh) => CollectiveError::HostLost { label, reason, host },
            _ => CollectiveError::TreeFailed { label, reason, host },
        }
    }
}

/// What a rank said through shared memory. Only this library writes there, and only reasons.
fn reported_reason(code: u32) -> AbortReason {
    let is_it = |reason: &AbortReason| *reason as u32 == code;
    AbortReason::ALL.into_iter().find(is_it).unwrap_or(AbortReason::Misbehaved)
}
