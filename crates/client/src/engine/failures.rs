//! How a communicator ends at one rank: of itself, by a failure, or because the program gives it up.
//! The rank that learns of it first tells the ranks of its host and, at leaders, the other hosts.

use tributary_algorithms::CollectiveKind;
use tributary_inter_host::PairNumber;
use tributary_settings::Sums;
use tributary_shm_collectives::{CallKind, Called, Lost, LostCause};
use tributary_tuning::Method;
use tributary_wire::frame::{self, Abort, AbortReason, Disagreement};
use tributary_wire::{Datatype, Operator};

use super::Engine;
use crate::operation::CollectiveError;

impl Engine {
    /// Ends the communicator everywhere, because the program wants it so.
    pub(crate) fn give_up(&mut self) {
        if self.failed.is_some() {
            return;
        }
        if let Some(group) = &mut self.host {
            let method = self.selection.default_method().unwrap_or(Method::Tree);
            let report = HostReport { reason: AbortReason::MemberAborted, method, host: None };
            group.fail(report.encode());
        }
        self.methods.each().for_each(|method| method.abort(AbortReason::MemberAborted));
        self.fail(CollectiveError::GivenUp { label: self.label.clone() });
        self.progress();
    }

    /// Leaves the communicator. Not collective: others may have operations to finish.
    pub(crate) fn leave(&mut self) {
        self.methods.each().for_each(|method| method.leave());
        self.methods = super::InterHostMethods::default();
        self.host = None;
        self.has_idle_host = false;
    }

    /// A rank of this host is lost, or said that the communicator is.
    #[cold]
    pub(crate) fn on_lost(&mut self, lost: Lost) -> CollectiveError {
        let (error, reason) = match lost.cause() {
            LostCause::Reported(code) => {
                let HostReport { reason, method, host } = HostReport::decode(code);
                (self.between_hosts(method, reason, host), reason)
            }
            LostCause::Died | LostCause::Left => {
                let rank = self.placement.rank_of_local(lost.local_rank());
                let label = self.label.clone();
                (CollectiveError::RankLost { label, rank }, AbortReason::MemberLost)
            }
            LostCause::Disagrees { with, called, with_called } => {
                let ranks = [lost.local_rank(), with].map(|it| self.placement.rank_of_local(it));
                let sums = self.sums();
                let calls = [called, with_called].map(|it| describe(it, sums));
                let error =
                    CollectiveError::Disagreement { label: self.label.clone(), ranks, calls };
                (error, AbortReason::Disagreement)
            }
        };
        self.methods.each().for_each(|method| method.abort(reason));
        self.fail(error)
    }

    /// An inter-host method failed. The other ranks of this host are told, and hosts that wait in the other method.
    pub(super) fn on_abort(&mut self, method: Method, abort: Abort) -> CollectiveError {
        // Hosts that disagree on the method have told each other what they called.
        if abort.reason == AbortReason::Disagreement
            && let Err((other, abort)) = self.methods.check_other(method)
        {
            return self.on_abort(other, abort);
        }
        let failed = self.methods.method(method);
        let (host, disagreement) = (failed.host_at_fault(&abort), failed.disagreement());
        self.methods.share_failure(method, abort, host);
        if let Some(group) = &mut self.host {
            group.fail(HostReport { reason: abort.reason, method, host }.encode());
        }
        let error = disagreement
            .and_then(|told| self.disagreement_of(told))
            .unwrap_or_else(|| self.between_hosts(method, abort.reason, host));
        self.fail(error)
    }

    /// Two hosts called different operations: so did their leaders. None if there are no such hosts.
    fn disagreement_of(&self, told: Disagreement) -> Option<CollectiveError> {
        let Disagreement { members: [one, other], called } = told;
        let leader = |host: u32| {
            let is_there = host < self.placement.host_count();
            is_there.then(|| self.placement.ranks_of(host)[0])
        };
        let ranks = [leader(one.0)?, leader(other.0)?];
        let calls = called.map(|it| describe_between(it, self.sums()));
        Some(CollectiveError::Disagreement { label: self.label.clone(), ranks, calls })
    }

    /// How sums of floats go from rank to rank: exact ones as integers.
    fn sums(&self) -> Sums {
        if self.exact_sums.is_some() { Sums::Exact } else { Sums::Ordered }
    }

    fn between_hosts(
        &self,
        method: Method,
        reason: AbortReason,
        host: Option<usize>,
    ) -> CollectiveError {
        let label = self.label.clone();
        let host = host.and_then(|index| self.placement.hosts.get(index).cloned());
        if reason == AbortReason::MemberAborted {
            return CollectiveError::GivenUp { label };
        }
        CollectiveError::between_hosts(method, label, reason.to_string(), host)
    }
}

/// What a rank called, in words: `an allreduce (sum of i32)`.
fn describe(called: Called, sums: Sums) -> String {
    with_pair(name(called.kind), PairNumber(u32::from(called.kernel)).pair(), sums)
}

fn name(kind: CallKind) -> &'static str {
    match kind {
        CallKind::Unknown => "another collective",
        CallKind::Allreduce => "an allreduce",
        CallKind::Reduce => "a reduce",
        CallKind::Broadcast => "a broadcast",
        CallKind::Transfer => "a transfer",
        CallKind::Barrier => "a barrier",
        CallKind::ReduceScatter => "a reduce-scatter",
        CallKind::Allgather => "an allgather",
        CallKind::Gather => "a gather",
        CallKind::Scatter => "a scatter",
        CallKind::Scan => "a scan",
        CallKind::Exscan => "an exclusive scan",
    }
}

/// The same of what another host called.
fn describe_between(called: frame::Called, sums: Sums) -> String {
    let frame::Called { collective, operator, datatype } = called;
    let collective = match CollectiveKind::from_number(collective.into()) {
        None => CallKind::Unknown,
        Some(CollectiveKind::Allreduce) => CallKind::Allreduce,
        Some(CollectiveKind::Reduce) => CallKind::Reduce,
        Some(CollectiveKind::Broadcast) => CallKind::Broadcast,
        Some(CollectiveKind::Barrier) => CallKind::Barrier,
        Some(CollectiveKind::ReduceScatter) => CallKind::ReduceScatter,
        Some(CollectiveKind::Allgather) => CallKind::Allgather,
        Some(CollectiveKind::Scan) => CallKind::Scan,
        Some(CollectiveKind::Exscan) => CallKind::Exscan,
    };
    let is_reduction = operator.is_reduction();
    with_pair(name(collective), is_reduction.then_some((operator, datatype)), sums)
}

/// `sums` are those of floats between the ranks that are compared.
fn with_pair(collective: &str, pair: Option<(Operator, Datatype)>, sums: Sums) -> String {
    match pair {
        Some((Operator::Sum, Datatype::I64)) if sums == Sums::Exact => {
            format!("{collective} (exact sum of floats of any type, or sum of i64)")
        }
        Some((operator, datatype)) => {
            format!("{collective} ({} of {})", operator.name(), datatype.name())
        }
        None => collective.to_owned(),
    }
}

/// What a leader says to the ranks of its host through shared memory, in the one word that fits there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HostReport {
    reason: AbortReason,
    /// The inter-host method that failed.
    method: Method,
    /// The host at fault, by its number in the communicator, if it is known.
    host: Option<usize>,
}

impl HostReport {
    const METHOD_BIT: u32 = 8;
    const HOST_BIT: u32 = 9;

    fn encode(self) -> u32 {
        // One more than the host's number, and 0 for none. A host whose number doesn't fit isn't named.
        let host = self.host.and_then(|host| u32::try_from(host + 1).ok());
        let host = host.filter(|host| *host <= u32::MAX >> Self::HOST_BIT).unwrap_or(0);
        let is_direct = u32::from(self.method == Method::Direct);
        host << Self::HOST_BIT | is_direct << Self::METHOD_BIT | self.reason as u32
    }

    /// Only this library writes there, and only what [`encode`](Self::encode) makes.
    fn decode(word: u32) -> Self {
        let number = word & ((1 << Self::METHOD_BIT) - 1);
        let is_it = |reason: &AbortReason| *reason as u32 == number;
        let reason = AbortReason::ALL.into_iter().find(is_it).unwrap_or(AbortReason::Misbehaved);
        let is_direct = word >> Self::METHOD_BIT & 1 == 1;
        let method = if is_direct { Method::Direct } else { Method::Tree };
        Self {
            reason,
            method,
            host: (word >> Self::HOST_BIT).checked_sub(1).map(|host| host as usize),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_to_the_ranks_of_a_host_arrives_as_it_was() {
        let hosts = [None, Some(0), Some(1), Some(4095), Some((1 << 23) - 2)];
        for (reason, host) in
            AbortReason::ALL.into_iter().flat_map(|it| hosts.map(|host| (it, host)))
        {
            for method in [Method::Tree, Method::Direct] {
                let report = HostReport { reason, method, host };
                assert_eq!(HostReport::decode(report.encode()), report);
            }
        }
    }

    #[test]
    fn integers_that_may_be_exact_sums_are_called_so() {
        let called = |operator, datatype, sums| {
            let collective = CollectiveKind::Allreduce as u8;
            describe_between(frame::Called { collective, operator, datatype }, sums)
        };
        let (sum, i64) = (Operator::Sum, Datatype::I64);
        assert_eq!(called(sum, i64, Sums::Ordered), "an allreduce (sum of i64)");
        assert_eq!(
            called(sum, i64, Sums::Exact),
            "an allreduce (exact sum of floats of any type, or sum of i64)"
        );
        assert_eq!(called(Operator::Max, i64, Sums::Exact), "an allreduce (max of i64)");
    }

    #[test]
    fn a_host_whose_number_does_not_fit_is_not_named() {
        for host in [(1 << 23) - 1, usize::MAX - 1] {
            let report = HostReport {
                reason: AbortReason::MemberLost,
                method: Method::Direct,
                host: Some(host),
            };
            assert_eq!(HostReport::decode(report.encode()), HostReport { host: None, ..report });
        }
    }
}
