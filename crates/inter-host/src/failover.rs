//! The tree as a method between hosts that outlives its aggregators.
//!
//! Owns what happens when the tree of a communicator is lost: the leaders settle the operation that was
//! under way over direct links ([`settling`]), carry the next ones there ([`substitute`]), and go back to a
//! tree when the manager grants one ([`rejoin`]). The engine, and the other ranks of a host, know nothing of
//! it: an operation by this method takes longer meanwhile. Why no result is lost or doubled is argued at
//! [`tributary_protocol::failover`]. A host that has left stays reachable for those that have not ([`leaving`]).
//!
//! A leader that finds the tree lost cuts itself off from it, so that its aggregator, if it lives, tells the others,
//! and calls host 0 over direct links ([`DirectLinks::raise_alarm`]). Host 0 calls all others. A host whose
//! program is not in the library is woken by the [`watch`](crate::watch) of its links.

mod entering;
mod fallback;
mod leaving;
mod pieces;
mod rejoin;
mod settling;
mod substitute;
mod terms;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub use tributary_protocol::failover::is_tree_lost;
use tributary_report::Counters;
use tributary_wire::EndpointId;
use tributary_wire::frame::{Abort, AbortReason, Disagreement};

use crate::departures;
use crate::direct::{Calls, DirectLinks};
use crate::operation::{InterHost, InterHostOperation};
use crate::tree::TreeMember;
use crate::watch::{Alarm, Watched};

use fallback::Fallback;
use leaving::LeftTree;
pub use rejoin::Request;
use rejoin::{AtBoundary, Boundary, Rejoin};
use settling::{Remainder, Settling};
use substitute::Substitute;
pub use terms::Terms;

/// The tree method of one leader.
pub struct FailoverTree {
    state: State,
    /// None where a lost tree ends the communicator.
    fallback: Option<Fallback>,
    /// What is carried over links, or waits for that.
    substitute: Option<Substitute>,
    /// The operation was completed when nobody asked.
    is_over: bool,
    /// What was started, in a tree or not. Links that carry operations have their own.
    calls: Calls,
    counters: Option<Arc<Counters>>,
    /// Whether links lose packets.
    is_lossy: bool,
    /// Why there is no going on, and the host at fault if it is known.
    failed: Option<(Abort, Option<usize>)>,
}

enum State {
    InTree(Box<TreeMember>),
    Settling(Box<Settling>),
    OverLinks(OverLinks),
    /// Between two of these, and after a failure.
    Gone,
}

/// Without a tree.
struct OverLinks {
    rejoin: Rejoin,
    /// The one before the operation that was started.
    boundary: Option<Boundary>,
}

impl OverLinks {
    fn new(rejoin: Rejoin) -> Self {
        Self { rejoin, boundary: None }
    }
}

impl FailoverTree {
    /// A place in a tree whose loss ends the communicator.
    #[must_use]
    pub fn without_fallback(member: TreeMember) -> Self {
        Self::in_state(State::InTree(Box::new(member)), None)
    }

    fn in_state(state: State, fallback: Option<Fallback>) -> Self {
        Self {
            state,
            fallback,
            substitute: None,
            is_over: false,
            calls: Calls::default(),
            counters: None,
            is_lossy: false,
            failed: None,
        }
    }

    /// A place in a tree, and links that take over when it is lost. `alarm` tells when that is looked for.
    #[must_use]
    pub fn new(
        mut member: TreeMember,
        mut links: DirectLinks,
        terms: Terms,
        request: Request,
        alarm: Arc<Alarm>,
    ) -> Self {
        member.retain_results();
        links.stand_by();
        let fallback = Fallback::new(links, terms, request, alarm);
        Self::in_state(State::InTree(Box::new(member)), Some(fallback))
    }

    /// Links that carry all until there is a tree: as after the loss of one, `request` is asked for it. All leaders of a
    /// group begin so, or none.
    #[must_use]
    pub fn awaiting_tree(
        links: DirectLinks,
        terms: Terms,
        request: Request,
        alarm: Arc<Alarm>,
    ) -> Self {
        let state = State::OverLinks(OverLinks::new(Rejoin::new(links.me(), &request)));
        Self::in_state(state, Some(Fallback::new(links, terms, request, alarm)))
    }

    /// Whether links carry what the next operation is.
    #[must_use]
    pub fn lacks_tree(&self) -> bool {
        matches!(self.state, State::OverLinks(_))
    }

    /// What wakes this leader when the tree is lost somewhere; none where that is of no use.
    #[must_use]
    pub fn alarm(&self) -> Option<&Arc<Alarm>> {
        self.fallback.as_ref().map(|fallback| &fallback.alarm)
    }

    /// Lets `counters` know how many results come by multicast, and which trees are lost.
    pub fn report_to(&mut self, counters: Arc<Counters>) {
        if let State::InTree(member) = &mut self.state {
            member.report_multicasts_to(Arc::clone(&counters));
        }
        self.counters = Some(counters);
    }

    /// Notes that links lose packets, or do not any more. All leaders do so between the same two operations.
    pub fn expect_losses(&mut self, is_lossy: bool) {
        if is_lossy == self.is_lossy {
            return;
        }
        self.is_lossy = is_lossy;
        if let State::InTree(member) = &mut self.state {
            member.expect_losses(is_lossy);
        }
    }

    /// Starts to stream a vector of which nothing may be sent yet; [`Self::make_ready`] says what may.
    ///
    /// # Errors
    /// As [`InterHost::start`].
    ///
    /// # Safety
    /// As [`InterHost::start`], except that the source may still change where it isn't ready.
    pub unsafe fn start_stream(&mut self, operation: &InterHostOperation) -> Result<(), Abort> {
        self.calls.begin(operation);
        if let State::InTree(member) = &mut self.state {
            // SAFETY: as the caller of this function promises.
            let started = unsafe { member.start_stream(operation, 0, 0) };
            return started.or_else(|abort| self.on_abort(abort));
        }
        self.start_substitute(operation, 0)
    }

    /// The first `ready_bytes` of the vector may be sent.
    pub fn make_ready(&mut self, ready_bytes: usize) {
        match &mut self.state {
            State::InTree(member) => member.make_ready(ready_bytes),
            State::Settling(settling) => settling.make_ready(ready_bytes),
            State::OverLinks(_) | State::Gone => {}
        }
        if let Some(substitute) = &mut self.substitute {
            substitute.make_ready(ready_bytes);
        }
    }

    /// How much of the result is in its place, from the first byte on without a gap.
    #[must_use]
    pub fn received_bytes(&self) -> usize {
        match (&self.state, &self.substitute) {
            (State::InTree(member), _) => member.received_bytes(),
            (_, Some(substitute)) => substitute.done_bytes,
            (State::Settling(settling), None) => settling.received_bytes(),
            (State::OverLinks(_) | State::Gone, None) => 0,
        }
    }

    /// Raises the alarm from now on when something happens to the tree.
    pub fn watch(&self) {
        if let Some(fallback) = &self.fallback {
            fallback.alarm.watch(self.descriptors_to_watch());
        }
    }

    /// What has to be looked at while this leader stands in a tree.
    fn descriptors_to_watch(&self) -> impl Iterator<Item = Watched<'_>> {
        let link = match &self.state {
            State::InTree(member) => Some(Watched::Hangup(member.link())),
            _ => None,
        };
        let is_in_tree = link.is_some();
        let fallback = self.fallback.iter().filter(move |_| is_in_tree);
        let links = fallback.flat_map(|fallback| fallback.links.descriptors()).map(Watched::Input);
        link.into_iter().chain(links)
    }

    /// Does what is due when an alarm was raised. Anybody who has this leader calls it, whatever operation
    /// is under way.
    ///
    /// # Errors
    /// If there is no going on.
    #[inline]
    pub fn attend(&mut self) -> Result<(), Abort> {
        match &self.fallback {
            Some(fallback) if fallback.alarm.is_raised() => self.attend_to_alarm(),
            _ => Ok(()),
        }
    }

    #[cold]
    fn attend_to_alarm(&mut self) -> Result<(), Abort> {
        let Some(fallback) = &mut self.fallback else { return Ok(()) };
        fallback.alarm.attend_to();
        if let State::InTree(member) = &mut self.state {
            let is_called = match fallback.is_called() {
                Ok(is_called) => is_called,
                Err(abort) => return Err(self.on_told_over_links(abort)),
            };
            if is_called {
                self.lose_tree()?;
            } else {
                // A host that has called, but has not said what for, wakes this leader by saying it.
                let links = &fallback.links;
                fallback
                    .alarm
                    .watch(links.callers().chain(links.descriptors()).map(Watched::Input));
                let was_running = member.is_running();
                match member.poll_link() {
                    Ok(is_over) => {
                        self.is_over |= is_over && was_running;
                        member.probe_if_suspect();
                    }
                    Err(abort) => self.on_abort(abort)?,
                }
            }
        } else {
            self.settle()?;
        }
        // Until then, the thread that has this leader goes on with it.
        if let Some(fallback) = &self.fallback
            && !self.has_more_to_attend()
        {
            fallback.alarm.lower();
        }
        Ok(())
    }

    /// Tells the other hosts why there is no going on, as this host has heard from elsewhere.
    pub fn pass_on(&mut self, abort: Abort) {
        if let State::InTree(member) = &mut self.state {
            member.pass_on(abort.reason, abort.at_fault.0 as usize);
        }
        if let Some(fallback) = &mut self.fallback {
            fallback.links.pass_on(abort);
        }
    }

    /// Whether the loss of a tree is being settled, which others may wait for, or is about to be found.
    #[must_use]
    pub fn has_more_to_attend(&self) -> bool {
        match &self.state {
            State::Settling(_) => true,
            State::InTree(member) => member.is_suspect(),
            State::OverLinks(_) | State::Gone => false,
        }
    }

    /// The tree failed. The communicator goes on if only the tree did.
    #[cold]
    fn on_abort(&mut self, abort: Abort) -> Result<(), Abort> {
        let State::InTree(member) = &self.state else { return Err(abort) };
        let host = member.host_at_fault(&abort);
        match &mut self.fallback {
            Some(_) if is_tree_lost(abort.reason) => return self.lose_tree(),
            Some(fallback) => {
                // An aggregator compares what it adds up, and does not know what that is, or whose it is further down.
                if abort.reason == AbortReason::Disagreement
                    && let Some(verdict) =
                        fallback.links.find_disagreement(std::mem::take(&mut self.calls), host)
                {
                    return Err(self.on_links_failed(verdict.abort));
                }
                // A host that has lost its part of the tree meanwhile hears of this over links, or not at all.
                let at_fault = host.map_or(fallback.links.me(), |host| host as u32);
                fallback.links.pass_on(Abort { at_fault: EndpointId(at_fault), ..abort });
            }
            None => {}
        }
        Err(self.fail(abort, host))
    }

    /// Another host says over links why there is no going on, of which the tree has not told yet. Hosts that neither
    /// reaches hear it from the tree.
    #[cold]
    fn on_told_over_links(&mut self, abort: Abort) -> Abort {
        self.pass_on(abort);
        self.on_links_failed(abort)
    }

    fn fail(&mut self, abort: Abort, host: Option<usize>) -> Abort {
        self.failed = Some((abort, host));
        self.substitute = None;
        self.state = State::Gone;
        abort
    }

    /// A host failed, or its link did.
    fn on_links_failed(&mut self, abort: Abort) -> Abort {
        let host = self.fallback.as_ref().and_then(|fallback| fallback.links.host_at_fault(&abort));
        self.fail(abort, host)
    }

    /// Cuts this host off from the tree, and begins to settle its loss.
    #[cold]
    fn lose_tree(&mut self) -> Result<(), Abort> {
        let (Some(fallback), State::InTree(member)) =
            (&mut self.fallback, std::mem::replace(&mut self.state, State::Gone))
        else {
            unreachable!("only a tree that is there is lost, by who can go on without it")
        };
        let settling = fallback.begin_to_settle(*member);
        if let Some(counters) = &self.counters {
            counters.count_tree_lost();
        }
        self.state = State::Settling(settling.map_err(|abort| self.on_links_failed(abort))?);
        Ok(())
    }

    /// Goes on with the settlement.
    fn settle(&mut self) -> Result<(), Abort> {
        let (Some(fallback), State::Settling(settling)) = (&mut self.fallback, &mut self.state)
        else {
            return Ok(());
        };
        let remainder = match settling.advance(&mut fallback.links) {
            Ok(Some(remainder)) => remainder,
            Ok(None) => return Ok(()),
            Err(abort) => return Err(self.on_links_failed(abort)),
        };
        fallback.alarm.lower();
        let over_links = OverLinks::new(Rejoin::new(fallback.links.me(), &fallback.request));
        let settled = std::mem::replace(&mut self.state, State::OverLinks(over_links));
        let State::Settling(settling) = settled else { unreachable!("it has just been settled") };
        match (remainder, settling.into_running()) {
            (Remainder::FromByte(first), Some(running)) => {
                let rest = Substitute::rest_of(&running, first, &fallback.terms);
                self.substitute = Some(rest);
            }
            (Remainder::None, _) => self.is_over = true,
            // What was started meanwhile begins now.
            _ => {}
        }
        if self.substitute.is_some() { self.begin_over_links() } else { Ok(()) }
    }

    /// An operation is about to be carried over links: goes to the boundary before it, if there is one.
    fn begin_over_links(&mut self) -> Result<(), Abort> {
        let (Some(fallback), State::OverLinks(over_links)) = (&mut self.fallback, &mut self.state)
        else {
            return Ok(());
        };
        if over_links.rejoin.is_due() {
            match over_links.rejoin.enter(&mut fallback.links) {
                Ok(boundary) => over_links.boundary = Some(boundary),
                Err(abort) => return Err(self.on_links_failed(abort)),
            }
        }
        Ok(())
    }

    /// Goes on over links, or at the boundary before the operation. `true` once the operation is complete.
    fn advance_over_links(&mut self) -> Result<bool, Abort> {
        let (Some(fallback), State::OverLinks(over_links)) = (&mut self.fallback, &mut self.state)
        else {
            return Ok(false);
        };
        let links = &mut fallback.links;
        let Some(boundary) = &mut over_links.boundary else {
            let Some(substitute) = &mut self.substitute else { return Ok(true) };
            return match substitute.advance(links) {
                Ok(true) => {
                    self.substitute = None;
                    if let Some(counters) = &self.counters {
                        counters.count_substitute();
                    }
                    Ok(true)
                }
                Ok(false) => Ok(false),
                Err(abort) => Err(self.on_links_failed(abort)),
            };
        };
        match over_links.rejoin.advance(boundary, links, &fallback.terms) {
            Ok(AtBoundary::Waiting) => Ok(false),
            Ok(AtBoundary::Over) => {
                over_links.boundary = None;
                Ok(false)
            }
            Ok(AtBoundary::Back(member)) => self.go_back(member).map(|()| false),
            Err(abort) => Err(self.on_links_failed(abort)),
        }
    }

    /// All hosts have taken their places in a tree: it carries the operation that is about to start.
    fn go_back(&mut self, mut member: Box<TreeMember>) -> Result<(), Abort> {
        if let Some(counters) = &self.counters {
            counters.count_tree_regained();
            member.report_multicasts_to(Arc::clone(counters));
        }
        member.expect_losses(self.is_lossy);
        let started = match self.substitute.take() {
            None => Ok(()),
            // SAFETY: the operation runs, and its buffers are its own until the engine learns that it is
            // over.
            Some(Substitute { operation, done_bytes, is_stream: false, .. }) => unsafe {
                member.start_behind(&operation, done_bytes)
            },
            // SAFETY: as above.
            Some(stream) => unsafe {
                member.start_stream(&stream.operation, stream.done_bytes, stream.ready_bytes())
            },
        };
        self.state = State::InTree(member);
        if let Some(fallback) = &mut self.fallback {
            fallback.links.stand_by();
        }
        self.watch();
        started.or_else(|abort| self.on_abort(abort))
    }

    /// Carries an operation over links, as soon as that is possible.
    fn start_substitute(
        &mut self,
        operation: &InterHostOperation,
        ready_bytes: usize,
    ) -> Result<(), Abort> {
        let terms = match (&self.failed, &self.fallback) {
            (Some((abort, _)), _) => return Err(*abort),
            (None, Some(fallback)) => &fallback.terms,
            (None, None) => unreachable!("a leader without a fallback and a tree has failed"),
        };
        self.substitute = Some(Substitute::new(operation, ready_bytes, terms));
        self.begin_over_links()
    }
}

impl InterHost for FailoverTree {
    unsafe fn start(&mut self, operation: &InterHostOperation) -> Result<(), Abort> {
        self.calls.begin(operation);
        if let State::InTree(member) = &mut self.state {
            // SAFETY: as the caller of this function promises.
            let started = unsafe { member.start(operation) };
            return started.or_else(|abort| self.on_abort(abort));
        }
        self.start_substitute(operation, operation.len_bytes())
    }

    fn poll(&mut self) -> Result<bool, Abort> {
        loop {
            if std::mem::take(&mut self.is_over) {
                return Ok(true);
            }
            match &mut self.state {
                State::InTree(member) => match member.poll() {
                    Err(abort) => self.on_abort(abort)?,
                    polled => return polled,
                },
                State::Settling(_) => {
                    self.settle()?;
                    if matches!(self.state, State::Settling(_)) {
                        return Ok(false);
                    }
                }
                State::OverLinks(_) => {
                    let is_over = self.advance_over_links()?;
                    if matches!(self.state, State::OverLinks(_)) {
                        return Ok(is_over);
                    }
                }
                State::Gone => return self.failed.map_or(Ok(true), |(abort, _)| Err(abort)),
            }
        }
    }

    fn has_nothing_yet(&mut self) -> bool {
        match &mut self.state {
            State::InTree(member) => member.has_nothing_yet(),
            _ => false,
        }
    }

    fn sleep(&mut self, time: Duration) {
        match (&mut self.state, &mut self.fallback) {
            (State::InTree(member), _) => member.sleep(time),
            (_, Some(fallback)) if fallback.links.is_running() => fallback.links.sleep(time),
            _ => std::thread::sleep(time.min(IDLE_SLEEP)),
        }
    }

    fn check(&mut self) {
        match (&mut self.state, &mut self.fallback) {
            (State::InTree(member), _) => member.check(),
            (_, Some(fallback)) => fallback.links.check(),
            (_, None) => {}
        }
    }

    fn completes_without_polling(&mut self) -> bool {
        match &mut self.state {
            State::InTree(member) => member.completes_without_polling(),
            _ => false,
        }
    }

    fn host_at_fault(&self, _: &Abort) -> Option<usize> {
        self.failed.and_then(|(_, host)| host)
    }

    fn disagreement(&self) -> Option<Disagreement> {
        self.fallback.as_ref()?.links.disagreement()
    }

    fn abort(&mut self, reason: AbortReason) {
        if let State::InTree(member) = &mut self.state {
            member.abort(reason);
        }
        if let Some(fallback) = &mut self.fallback {
            match reason {
                // The others would look for the two that disagree.
                AbortReason::Disagreement => fallback
                    .links
                    .pass_on(Abort { reason, at_fault: EndpointId(fallback.links.me()) }),
                _ => fallback.links.abort(reason),
            }
        }
    }

    fn leave(&mut self) {
        let state = std::mem::replace(&mut self.state, State::Gone);
        let left = match (state, self.fallback.take()) {
            (State::InTree(member), Some(fallback)) if member.may_be_needed() => {
                LeftTree::in_tree(member, fallback)
            }
            (State::Settling(settling), Some(fallback)) if settling.has_no_operation() => {
                LeftTree::settling(settling, fallback)
            }
            (state, fallback) => {
                if let State::InTree(mut member) = state {
                    member.leave();
                }
                fallback.into_iter().for_each(|mut fallback| fallback.links.leave());
                return;
            }
        };
        departures::keep(Box::new(left));
    }
}

/// How long a leader sleeps that waits for nothing on its links.
const IDLE_SLEEP: Duration = Duration::from_micros(50);
