//! Allreduce by data-partitioned leaders, pipelined: Bayatpour et al., "Scalable Reduction Collectives
//! with Data Partitioning-based Multi-Leader Design" (SC 2017).
//!
//! The vector is cut into a share for each of a host's leaders, and each share into sub-partitions.
//! The host's ranks reduce a sub-partition of every share to its leader; the leaders of one share
//! meet over direct links of their own; then every leader hands its sub-partition out. While one sub-partition is
//! between the hosts, the host reduces the next. Owns that order; must not know how ranks of a host,
//! or hosts, exchange anything.

use std::task::Poll;

use tributary_algorithms::{Collective, Split};
use tributary_shm_collectives::{self as shm, Action, Combine, HostGroup, Lost};
use tributary_tuning::Method;
use tributary_waits::awaited::WaitsFor;
use tributary_wire::frame::Abort;

use super::outcome::Failure;
use tributary_inter_host::{DirectLinks, InterHost, InterHostOperation};

/// An allreduce, partitioned. Equal at all ranks but for the buffers and `lead`.
#[derive(Clone, Copy)]
pub(crate) struct Partition {
    /// The whole operation, as a single leader would do it.
    pub(crate) whole: InterHostOperation,
    pub(crate) kernel: &'static dyn Combine,
    pub(crate) leaders: u32,
    /// Sub-partitions of each leader's share.
    pub(crate) parts: u32,
    /// The share that this rank leads, if it leads one.
    pub(crate) lead: Option<u32>,
}

/// How far a partitioned allreduce has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MultiLeader {
    /// Operations of the host that are done, of those in `Partition::host_operation`'s order.
    host_done: u32,
    is_host_started: bool,
    /// Sub-partitions of this rank's share that have been between the hosts.
    met: u32,
    is_meeting: bool,
    /// What it waited for when it last could not go on.
    pub(super) waits_for: WaitsFor,
}

/// What the ranks of a host do with one sub-partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostStep {
    Reduce,
    HandOut,
}

impl Partition {
    /// What the host does in round `round`, and with which sub-partition. A sub-partition is handed
    /// out one round after the next was reduced, which gives it that round's time between the hosts;
    /// the order is fixed, because all ranks of a host must have the same.
    fn round(&self, round: u32) -> (HostStep, u32) {
        let last = 2 * self.parts - 1;
        match round {
            0 => (HostStep::Reduce, 0),
            round if round == last => (HostStep::HandOut, self.parts - 1),
            round if round % 2 == 1 => (HostStep::Reduce, round.div_ceil(2)),
            round => (HostStep::HandOut, round / 2 - 1),
        }
    }

    fn host_operations(&self) -> u32 {
        2 * self.parts * self.leaders
    }

    fn host_operation(&self, step: HostStep, leader: u32, part: u32) -> shm::Operation {
        let (first, elements) = self.piece(leader, part);
        let target = self.whole.target.wrapping_add(first);
        let (action, source) = match step {
            HostStep::Reduce => {
                let action = Action::Reduce { to: leader, kernel: self.kernel };
                (action, self.whole.source.wrapping_add(first))
            }
            HostStep::HandOut => (Action::Broadcast { from: leader }, target.cast_const()),
        };
        let len_bytes = elements as usize * self.whole.element_bytes;
        shm::Operation { action, source, target, len_bytes }
    }

    fn inter_host_operation(&self, leader: u32, part: u32, is_alone: bool) -> InterHostOperation {
        let (first, elements) = self.piece(leader, part);
        let target = self.whole.target.wrapping_add(first);
        // The host's ranks have reduced into the target; a rank alone on its host has not.
        let source =
            if is_alone { self.whole.source.wrapping_add(first) } else { target.cast_const() };
        let collective = Collective::Allreduce;
        InterHostOperation { collective, elements, source, target, ..self.whole }
    }

    /// Where a sub-partition begins, in bytes, and how many elements it has.
    fn piece(&self, leader: u32, part: u32) -> (usize, u64) {
        let pieces = u64::from(self.leaders) * u64::from(self.parts);
        let split = Split::new(self.whole.elements, pieces);
        let piece = split.part(u64::from(leader) * u64::from(self.parts) + u64::from(part));
        (piece.first as usize * self.whole.element_bytes, piece.elements)
    }
}

impl MultiLeader {
    /// Goes as far as it can without waiting. `true` at the end.
    pub(crate) fn advance(
        &mut self,
        partition: &Partition,
        mut host: Option<&mut HostGroup>,
        mut links: Option<&mut DirectLinks>,
    ) -> Result<bool, Failure> {
        loop {
            let mut has_moved = false;
            if let (Some(links), Some(leader)) = (links.as_deref_mut(), partition.lead) {
                let met = self.meet(partition, links, leader, host.is_none());
                has_moved |= met.map_err(|abort| Failure::InterHost(Method::Direct, abort))?;
            }
            has_moved |= self.work(partition, host.as_deref_mut()).map_err(Failure::Host)?;
            if self.host_done == partition.host_operations() {
                return Ok(true);
            }
            if !has_moved {
                return Ok(false);
            }
        }
    }

    /// Goes on between the hosts. `true` if a sub-partition came through.
    fn meet(
        &mut self,
        partition: &Partition,
        links: &mut DirectLinks,
        leader: u32,
        is_alone: bool,
    ) -> Result<bool, Abort> {
        if !self.is_meeting && self.met < self.reduced_partitions(partition) {
            let operation = partition.inter_host_operation(leader, self.met, is_alone);
            // SAFETY: the buffers belong to the operation that runs.
            unsafe { links.start(&operation)? };
            self.is_meeting = true;
        }
        if !self.is_meeting || !links.poll()? {
            return Ok(false);
        }
        self.is_meeting = false;
        self.met += 1;
        Ok(true)
    }

    /// Goes on within the host. `true` if one of its operations is done.
    fn work(&mut self, partition: &Partition, host: Option<&mut HostGroup>) -> Result<bool, Lost> {
        if self.host_done == partition.host_operations() {
            return Ok(false);
        }
        let leader = self.host_done % partition.leaders;
        let (step, part) = partition.round(self.host_done / partition.leaders);
        let lacks = step == HostStep::HandOut && partition.lead == Some(leader) && self.met <= part;
        if lacks {
            self.waits_for = WaitsFor::InterHost;
            return Ok(false);
        }
        self.waits_for = if self.is_meeting { WaitsFor::Both } else { WaitsFor::Host };
        if let Some(host) = host {
            if !std::mem::replace(&mut self.is_host_started, true) {
                // SAFETY: the buffers belong to the operation that runs.
                unsafe { host.start(partition.host_operation(step, leader, part))? };
            }
            if host.poll()? == Poll::Pending {
                return Ok(false);
            }
        }
        self.host_done += 1;
        self.is_host_started = false;
        Ok(true)
    }

    /// Sub-partitions that the host has reduced.
    fn reduced_partitions(&self, partition: &Partition) -> u32 {
        let rounds = self.host_done / partition.leaders;
        // One in the first round, and one in every other after that.
        if rounds == 0 { 0 } else { (1 + rounds / 2).min(partition.parts) }
    }
}

#[cfg(test)]
mod tests {
    use tributary_algorithms::{Algorithm, CollectiveKind, Order};
    use tributary_wire::{Datatype, Operator};

    use super::*;
    use tributary_inter_host::kernel;

    fn partition(leaders: u32, parts: u32, elements: u64) -> Partition {
        let kernel = kernel(Operator::Sum, Datatype::F64).unwrap();
        let whole = InterHostOperation {
            collective: Collective::Allreduce,
            called: CollectiveKind::Allreduce,
            root_called: 0,
            operator: Operator::Sum,
            datatype: Datatype::F64,
            elements,
            element_bytes: Datatype::F64.size_bytes(),
            order: Order::Any,
            parts: shm::Blocks::Even,
            algorithm: Algorithm::Ring,
            kernel: Some(kernel),
            source: std::ptr::null(),
            target: std::ptr::null_mut(),
        };
        Partition { whole, kernel, leaders, parts, lead: None }
    }

    #[test]
    fn every_sub_partition_is_reduced_before_it_is_handed_out_and_counted_when_reduced() {
        for parts in 1..6 {
            let partition = partition(1, parts, 100);
            let rounds: Vec<_> = (0..2 * parts).map(|round| partition.round(round)).collect();
            for part in 0..parts {
                let at = |step| rounds.iter().position(|round| *round == (step, part)).unwrap();
                let (reduced, handed_out) = (at(HostStep::Reduce), at(HostStep::HandOut));
                assert!(reduced < handed_out);
                // The next one is reduced between.
                assert!(part + 1 == parts || handed_out - reduced >= 2);
            }
            for done in 0..=2 * parts {
                let reduced = rounds[..done as usize]
                    .iter()
                    .filter(|(step, _)| *step == HostStep::Reduce)
                    .count() as u32;
                let progress = MultiLeader { host_done: done, ..MultiLeader::default() };
                assert_eq!(progress.reduced_partitions(&partition), reduced, "{done} of {parts}");
            }
        }
    }

    #[test]
    fn pieces_tile_the_vector() {
        let partition = partition(3, 4, 101);
        let mut next = 0;
        for (leader, part) in (0..3).flat_map(|leader| (0..4).map(move |part| (leader, part))) {
            let (first, elements) = partition.piece(leader, part);
            assert_eq!(first, next);
            next += elements as usize * 8;
        }
        assert_eq!(next, 101 * 8);
    }
}
