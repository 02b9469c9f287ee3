//! A leader's places in its communicator's trees: one, and one more on each further rail that the
//! stripes of long vectors go by.
//!
//! Owns who carries which stripe and how far they are: an operation is over when all its stripes
//! are, and a tree that fails ends all of them. What a tree does with a stripe is its member's
//! business: to it, a stripe is a vector.
//!
//! Stripes never wait for each other. Each is sent as its own tree takes it, so two communicators
//! whose stripes hold stream locks of different trees can't wait for each other in a circle.

use std::sync::Arc;
use std::time::Duration;

use tributary_protocol::endpoint::OperationSpec;
use tributary_wire::EndpointId;
use tributary_wire::frame::{Abort, AbortReason, Target};

use crate::report::Tally;
use crate::stripes::{Stripes, cut};
use crate::tree::TreeMember;
use tributary_shm_collectives::waiting::Waiter;

/// How long a leader sleeps that waits for several trees: no one thing tells of all of them.
const GLANCE: Duration = Duration::from_micros(50);

/// The places, the first rail's first.
pub(crate) struct Trees {
    rails: Vec<Rail>,
    stripes: Stripes,
    /// How many of the rails carry a stripe of the operation under way.
    under_way: usize,
    /// The rail whose tree failed; the first, unless it is known to have been another.
    failed: usize,
    tally: Option<Arc<Tally>>,
}

struct Rail {
    member: TreeMember,
    /// Endpoint number of each host's leader in this rail's group, by host index.
    endpoints: Vec<EndpointId>,
    /// Length of the stripe it carries, in bytes.
    len_bytes: usize,
    is_over: bool,
}

impl Trees {
    /// A single one, which carries everything.
    pub(crate) fn of_one(member: TreeMember, endpoints: Vec<EndpointId>) -> Self {
        let mut trees = Self {
            rails: Vec::new(),
            stripes: Stripes::default(),
            under_way: 1,
            failed: 0,
            tally: None,
        };
        trees.push(member, endpoints);
        trees
    }

    /// A place on the next rail.
    pub(crate) fn push(&mut self, member: TreeMember, endpoints: Vec<EndpointId>) {
        self.rails.push(Rail { member, endpoints, len_bytes: 0, is_over: true });
    }

    /// From now on vectors are cut by these rules, for as many trees as there are.
    pub(crate) fn cut_by(&mut self, stripes: Stripes) {
        debug_assert_eq!(stripes.trees as usize, self.rails.len());
        self.stripes = stripes;
    }

    /// The tree that everything goes through that is not cut.
    pub(crate) fn first(&mut self) -> &mut TreeMember {
        &mut self.rails[0].member
    }

    /// Starts an operation on buffers of `len_bytes` each, where the specification uses them.
    ///
    /// # Safety
    /// As [`TreeMember::start`].
    pub(crate) unsafe fn start(
        &mut self,
        spec: OperationSpec,
        source: *const u8,
        target: *mut u8,
        len_bytes: usize,
    ) -> Result<(), Abort> {
        self.under_way = self.stripes.of(spec.operator, spec.elements, len_bytes);
        if self.under_way == 1 {
            // SAFETY: the caller's promise.
            return unsafe { self.first().start(spec, source, target, len_bytes) };
        }
        let element_bytes = spec.datatype.size_bytes();
        for index in 0..self.under_way {
            let part = cut(spec.elements, self.under_way, index);
            let first = part.start as usize * element_bytes;
            let elements = part.end - part.start;
            let spec =
                OperationSpec { elements, target: self.target_on(index, spec.target), ..spec };
            let rail = &mut self.rails[index];
            rail.len_bytes = elements as usize * element_bytes;
            rail.is_over = false;
            let (source, target) = (source.wrapping_add(first), target.wrapping_add(first));
            // SAFETY: the part lies within the caller's buffers, and no two parts overlap.
            let started = unsafe { rail.member.start(spec, source, target, rail.len_bytes) };
            started.inspect_err(|_| self.failed = index)?;
        }
        Ok(())
    }

    /// Goes as far as it can without waiting. `true` once the operation is complete.
    pub(crate) fn poll(&mut self) -> Result<bool, Abort> {
        if self.under_way == 1 {
            return self.first().poll();
        }
        for (index, rail) in self.rails[..self.under_way].iter_mut().enumerate() {
            if !rail.is_over {
                rail.is_over = rail.member.poll().inspect_err(|_| self.failed = index)?;
            }
        }
        let is_over = self.rails[..self.under_way].iter().all(|rail| rail.is_over);
        if let (true, Some(tally)) = (is_over, &self.tally) {
            tally.count_stripes(self.rails[..self.under_way].iter().map(|rail| rail.len_bytes));
        }
        Ok(is_over)
    }

    /// Whether all of the operation is with the nodes, which go on alone.
    pub(crate) fn is_all_sent(&mut self) -> bool {
        self.waited_for().all(TreeMember::is_all_sent)
    }

    /// Lets a little time pass, or sleeps until the operation can go on: for `nap_max` at most.
    pub(crate) fn pause(&mut self, waiter: &mut Waiter, nap_max: Duration) {
        let mut waited_for = self.waited_for();
        match (waited_for.next(), waited_for.next()) {
            (Some(only), None) => only.pause(waiter, nap_max),
            (Some(one), Some(_)) => {
                waiter.pause(|time| one.sleep(time.min(GLANCE)));
            }
            (None, _) => {}
        }
    }

    /// The members whose part of the operation is not over.
    fn waited_for(&mut self) -> impl Iterator<Item = &mut TreeMember> {
        let is_cut = self.under_way > 1;
        let rails = self.rails[..self.under_way].iter_mut();
        rails.filter(move |rail| !is_cut || !rail.is_over).map(|rail| &mut rail.member)
    }

    /// What carries this member's data: `shm`, `tcp` or `udp`.
    pub(crate) fn carrier(&self) -> &'static str {
        self.rails[0].member.carrier()
    }

    /// Lets `tally` know what is cut, and how many results come by multicast.
    pub(crate) fn report_to(&mut self, tally: Arc<Tally>) {
        for rail in &mut self.rails {
            rail.member.report_multicasts_to(Arc::clone(&tally));
        }
        self.tally = Some(tally);
    }

    /// The host, by index, of the member that the tree which failed says is at fault.
    pub(crate) fn host_at_fault(&self, at_fault: EndpointId) -> Option<usize> {
        self.rails[self.failed].endpoints.iter().position(|endpoint| *endpoint == at_fault)
    }

    /// A tree has failed: members that wait in the others are told, or they would wait for this one
    /// for ever.
    pub(crate) fn abort_others(&mut self, reason: AbortReason) {
        let failed = self.failed;
        let others = self.rails.iter_mut().enumerate().filter(|(index, _)| *index != failed);
        others.for_each(|(_, rail)| rail.member.abort(reason));
    }

    /// Tells the others that this host can't go on.
    pub(crate) fn abort(&mut self, reason: AbortReason) {
        self.rails.iter_mut().for_each(|rail| rail.member.abort(reason));
    }

    /// Leaves the groups.
    pub(crate) fn leave(&mut self) {
        self.rails.iter_mut().for_each(|rail| rail.member.leave());
    }

    /// The same member in a rail's numbers: endpoints are numbered along each tree.
    fn target_on(&self, rail: usize, target: Target) -> Target {
        let Target::Member(member) = target else { return target };
        let host = self.rails[0].endpoints.iter().position(|endpoint| *endpoint == member);
        let host = host.expect("a member that results go to is a host's leader");
        Target::Member(self.rails[rail].endpoints[host])
    }
}
