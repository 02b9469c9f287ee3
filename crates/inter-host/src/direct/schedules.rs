//! Schedules written out: what this host does, step by step, in each of the last few kinds of operation.
//!
//! Programs repeat themselves, and between two hosts an operation takes 4 us: working out the steps
//! anew would be a twentieth of that.

use std::sync::Arc;

use arrayvec::ArrayVec;
use tributary_algorithms::plan::Plan;
use tributary_algorithms::{
    Action, Algorithm, Collective, Division, Leaves, Order, Schedule, Shape, Span,
};
use tributary_shm_collectives::Blocks;

use crate::operation::InterHostOperation;

/// How many kinds of operation are remembered.
const KEPT_MAX: usize = 4;

/// What operations have in common that take the same steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    collective: Collective,
    elements: u64,
    element_bytes: usize,
    order: Order,
    algorithm: Algorithm,
}

impl Kind {
    fn of(operation: &InterHostOperation) -> Self {
        let &InterHostOperation { collective, elements, element_bytes, order, algorithm, .. } =
            operation;
        Self { collective, elements, element_bytes, order, algorithm }
    }
}

/// The steps of one kind of operation.
struct Written {
    kind: Kind,
    /// Where the hosts' parts begin, and the last one ends; empty if they are those of the schedule.
    cuts: Vec<u64>,
    actions: Vec<Action>,
    needs_aside: bool,
}

/// One of the schedules kept, until the next is looked up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Index(usize);

/// What [`Schedules::look_up`] found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) index: Index,
    /// Whether it was not there, and had to be written.
    pub(super) is_new: bool,
}

/// The schedules of the last few kinds of operation.
#[derive(Default)]
pub(super) struct Schedules {
    /// Which hosts share a leaf switch, if that is known.
    pub(super) leaves: Option<Leaves>,
    kept: ArrayVec<Written, KEPT_MAX>,
    /// The one that the next new one replaces.
    oldest: usize,
}

impl Schedules {
    /// The schedule of an operation of host `me` among `hosts`.
    pub(super) fn look_up(&mut self, operation: &InterHostOperation, me: u32, hosts: u32) -> Found {
        let kind = Kind::of(operation);
        let cuts = cuts(operation, hosts);
        let is_it = |written: &Written| written.kind == kind && written.cuts == cuts;
        if let Some(index) = self.kept.iter().position(is_it) {
            return Found { index: Index(index), is_new: false };
        }
        // Parts of any length take the steps of parts of one element.
        let elements = if cuts.is_empty() { kind.elements } else { u64::from(hosts) };
        let shape = Shape { ranks: hosts, elements, order: kind.order };
        let schedule = match self.plan(kind) {
            Some(plan) => {
                Schedule::over_levels(&plan, Division::Whole, kind.collective, elements, me)
            }
            None => Schedule::new(kind.algorithm, kind.collective, shape, me),
        };
        let schedule = schedule.expect("only algorithms that have the form are selected");
        Found { index: self.write(kind, cuts, schedule), is_new: true }
    }

    /// The levels in which hosts meet leaf by leaf; none where they meet as they are numbered.
    fn plan(&self, kind: Kind) -> Option<Arc<Plan>> {
        let leaves = self.leaves.as_ref().filter(|_| kind.order == Order::Any)?;
        let Algorithm::MixedRadix { radices } = kind.algorithm else { return None };
        leaves.plan(radices).map(Arc::new)
    }

    fn write(&mut self, kind: Kind, cuts: &[u64], schedule: Schedule) -> Index {
        let needs_aside = schedule.needs_aside();
        let actions = schedule.filter_map(|step| cut_out(step.action, cuts));
        if self.kept.is_full() {
            let index = self.oldest;
            self.oldest = (index + 1) % KEPT_MAX;
            let written = &mut self.kept[index];
            (written.kind, written.needs_aside) = (kind, needs_aside);
            written.cuts.clear();
            written.cuts.extend_from_slice(cuts);
            written.actions.clear();
            written.actions.extend(actions);
            return Index(index);
        }
        let actions = actions.collect();
        self.kept.push(Written { kind, cuts: cuts.to_vec(), actions, needs_aside });
        Index(self.kept.len() - 1)
    }

    /// Step number `step` of a schedule, while there is one.
    pub(super) fn action(&self, index: Index, step: usize) -> Option<Action> {
        self.kept[index.0].actions.get(step).copied()
    }

    /// Whether some step may use the buffer aside.
    pub(super) fn needs_aside(&self, index: Index) -> bool {
        self.kept[index.0].needs_aside
    }

    /// The hosts that a schedule's steps speak with, some more than once.
    pub(super) fn peers(&self, index: Index) -> impl Iterator<Item = u32> {
        peers_of(&self.kept[index.0])
    }

    /// The hosts that the steps of all schedules kept speak with, some more than once.
    pub(super) fn all_peers(&self) -> impl Iterator<Item = u32> {
        self.kept.iter().flat_map(peers_of)
    }
}

fn peers_of(written: &Written) -> impl Iterator<Item = u32> {
    written.actions.iter().filter_map(|action| match *action {
        Action::Send { to, .. } => Some(to),
        Action::Receive { from, .. } => Some(from),
        Action::Fold { .. } => None,
    })
}

/// The limits of an operation's parts; empty if the schedule's own are meant, or it has none.
fn cuts(operation: &InterHostOperation, hosts: u32) -> &[u64] {
    match operation.parts {
        Blocks::Even => &[],
        // SAFETY: there is one more of them than there are hosts, valid until the operation is over, as the
        // caller of `InterHost::start` promises.
        Blocks::At(cuts) => unsafe { std::slice::from_raw_parts(cuts, hosts as usize + 1) },
    }
}

/// A step on parts of one element, on the parts between these limits; none if they are empty.
fn cut_out(action: Action, cuts: &[u64]) -> Option<Action> {
    if cuts.is_empty() {
        return Some(action);
    }
    let cut = |span: Span| {
        let span = Span::between(cuts[span.first as usize], cuts[span.end() as usize]);
        (!span.is_empty()).then_some(span)
    };
    Some(match action {
        Action::Send { to, span } => Action::Send { to, span: cut(span)? },
        Action::Receive { from, span, buffer, landing } => {
            Action::Receive { from, span: cut(span)?, buffer, landing }
        }
        Action::Fold { span } => Action::Fold { span: cut(span)? },
    })
}

#[cfg(test)]
mod tests {
    use tributary_wire::{Datatype, Operator};

    use super::*;

    fn operation(elements: u64, algorithm: Algorithm) -> InterHostOperation {
        InterHostOperation {
            collective: Collective::Allreduce,
            called: tributary_algorithms::CollectiveKind::Allreduce,
            root_called: 0,
            operator: Operator::Sum,
            datatype: Datatype::F32,
            elements,
            element_bytes: Datatype::F32.size_bytes(),
            order: Order::Any,
            parts: Blocks::Even,
            algorithm,
            kernel: None,
            source: std::ptr::null(),
            target: std::ptr::null_mut(),
        }
    }

    #[test]
    fn whatever_was_asked_for_before_the_steps_are_those_of_the_algorithm() {
        let (me, hosts) = (2, 5);
        let mut schedules = Schedules::default();
        // More kinds than are kept, forth and back, so that each is written, found and written anew.
        let lengths = [1, 2, 3, 100, 101, 102, 101, 100, 3, 2, 1];
        let mut written = 0;
        for elements in lengths {
            for algorithm in [Algorithm::Ring, Algorithm::Linear] {
                let asked = operation(elements, algorithm);
                let found = schedules.look_up(&asked, me, hosts);
                written += u32::from(found.is_new);
                let again = schedules.look_up(&asked, me, hosts);
                assert!(!again.is_new);
                let shape = Shape { ranks: hosts, elements, order: Order::Any };
                let fresh = Schedule::new(algorithm, asked.collective, shape, me).unwrap();
                assert_eq!(schedules.needs_aside(again.index), fresh.needs_aside());
                let actions: Vec<Action> = fresh.map(|step| step.action).collect();
                let kept: Vec<Action> =
                    (0..).map_while(|step| schedules.action(found.index, step)).collect();
                assert_eq!(kept, actions, "{elements} elements, {algorithm:?}");
                assert_eq!(
                    schedules.peers(found.index).count(),
                    actions.iter().filter(|it| !matches!(it, Action::Fold { .. })).count()
                );
            }
        }
        assert!((KEPT_MAX as u32 + 1..2 * lengths.len() as u32).contains(&written), "{written}");
    }
}
