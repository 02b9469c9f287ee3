//! The time that a schedule takes on a network whose hosts have cores of their own.
//!
//! [`Prices::time_ns`] walks the steps of all ranks in virtual time. A rank's core does one thing after the other, as
//! does each direction of its link. No formula for any algorithm is in here, so that what a new schedule takes is
//! known without another one. The prices are those of LogGP (Alexandrov, Ionescu, Schauser, Scheiman, SPAA 1995), with
//! the time per byte told apart by who spends it.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::iter::Peekable;

use crate::carrier::{Carrier, Sent};
use crate::plan::Plan;
pub use crate::prices::Prices;
use crate::request::{Algorithm, Division, Order, Shape};
use crate::schedule::Schedule;
use crate::step::{Action, Landing};
use crate::{Collective, Span};

/// Bytes of an element, which decide where a vector can be cut.
const ELEMENT_BYTES: u64 = 4;

/// Most steps of all ranks that are walked where all ranks do alike. Where there are more, one stands for all.
const STEPS_MAX: usize = 4096;

/// The same where hosts of levels do not: each of their steps takes about a microsecond to find.
const UNEVEN_STEPS_MAX: usize = 16_384;

/// Most hosts that the model gives to one aggregator.
const AGGREGATOR_HOSTS_MAX: u32 = 16;

/// Hosts below a leaf switch.
const LEAF_HOSTS: u32 = 16;

/// How many messages share the fullest cable between leaves where all hosts of a leaf send to other leaves at once. Switches choose a
/// cable by a hash of both hosts, and leave others idle; of 16 messages over 16 cables some 3 or 4 meet on one. All hosts wait for
/// these in the end. A single packet hardly ever meets others.
const SHARED_CABLES: f64 = 4.0;

impl Prices {
    /// What an operation of `len_bytes` takes among `hosts` hosts of one rank that all call it at once: the root's time
    /// of a reduce, and the mean over the hosts of all else, as benchmarks report it. None if the algorithm has no such
    /// form.
    #[must_use]
    pub fn time_ns(
        &self,
        algorithm: Algorithm,
        collective: Collective,
        hosts: u32,
        len_bytes: u64,
    ) -> Option<f64> {
        let elements = len_bytes.div_ceil(ELEMENT_BYTES);
        let shape = Shape { ranks: hosts, elements, order: Order::Any };
        let schedule = |rank| Schedule::new(algorithm, collective, shape, rank).ok();
        let steps_max = steps_walked(algorithm, hosts);
        let is_by_levels = matches!(algorithm, Algorithm::MixedRadix { .. });
        let walk = Walk::new(self, Carrier::Links, hosts, steps_max, is_by_levels, schedule)?;
        let one_for_all = walk.one_for_all;
        let times_ns = walk.times_ns();
        Some(match collective {
            Collective::Reduce { root } if !one_for_all => times_ns[root as usize],
            _ => mean(&times_ns),
        })
    }

    /// The same of an exchange over the levels of a plan: the mean over its hosts. None if it has no such form, or if
    /// the carrier does not carry messages as long as its.
    #[must_use]
    pub fn levels_time_ns(
        &self,
        plan: &Arc<Plan>,
        division: Division,
        carrier: Carrier,
        collective: Collective,
        len_bytes: u64,
    ) -> Option<f64> {
        let elements = len_bytes.div_ceil(ELEMENT_BYTES);
        let schedule =
            |rank| Schedule::over_levels(plan, division, collective, elements, rank).ok();
        let longest = schedule(0)?.filter_map(|step| match step.action {
            Action::Send { span, .. } => Some(bytes_of(span)),
            _ => None,
        });
        if !carrier.carries(longest.max().unwrap_or(0)) {
            return None;
        }
        let room = (0..plan.levels()).map(|level| u64::from(plan.members_max(level))).product();
        let steps_max = Some(steps_walked_of_levels(room, plan.hosts()));
        let walk = Walk::new(self, carrier, plan.hosts(), steps_max, true, schedule)?;
        let mean_ns = mean(&walk.times_ns());
        Some(mean_ns + carrier.spare_ns(plan))
    }

    /// What an operation takes through a tree of aggregators, whose root gets vectors of `len_bytes` and sends them to
    /// all hosts, or to one if `to_one`: the mean over the hosts.
    #[must_use]
    pub fn tree_time_ns(
        &self,
        aggregator: &AggregatorPrices,
        hosts: u32,
        len_bytes: u64,
        to_one: bool,
    ) -> f64 {
        let segment = len_bytes.min(aggregator.segment_max_bytes);
        let further = len_bytes.div_ceil(aggregator.segment_max_bytes).saturating_sub(1) as f64;
        let crossing_ns = self.on_link_ns(segment) + self.wire_ns;
        let take_ns = aggregator.take_ns + aggregator.take_ns_per_byte * segment as f64;
        let reply_ns = aggregator.reply_ns + aggregator.reply_ns_per_byte * segment as f64;
        let mut time_ns = self.sending_ns(segment) + crossing_ns + self.receiving_ns(segment);
        let mut busiest_ns: f64 = 0.0;
        let mut level = hosts;
        loop {
            let children = f64::from(level.min(AGGREGATOR_HOSTS_MAX));
            let replies = if to_one { 1.0 } else { children };
            // What children send comes over one link, and is taken by one core.
            let on_link_ns = self.on_link_ns(segment);
            let takes_ns = take_ns + (children - 1.0) * take_ns.max(on_link_ns);
            // A child waits for the replies to those before it, half of them in the mean.
            let waits_ns = (replies - 1.0) / 2.0 * reply_ns.max(on_link_ns);
            time_ns += takes_ns + aggregator.latency_ns + waits_ns + crossing_ns;
            let on_core_ns = children * take_ns + replies * reply_ns;
            busiest_ns = busiest_ns.max(on_core_ns).max(children * self.on_link_ns(segment));
            if level <= AGGREGATOR_HOSTS_MAX {
                break;
            }
            // Up to the parent, and its result down again.
            time_ns += reply_ns + crossing_ns + take_ns + aggregator.latency_ns;
            level = level.div_ceil(AGGREGATOR_HOSTS_MAX);
        }
        // Further segments follow as fast as the busiest aggregator and its link take them, and as those under way come
        // back.
        time_ns + further * busiest_ns.max(time_ns / f64::from(aggregator.segments_in_flight))
    }
}

/// What an aggregator takes for the messages of its children. Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct AggregatorPrices {
    /// To receive and combine a contribution.
    pub take_ns: f64,
    /// The same for each of its bytes.
    pub take_ns_per_byte: f64,
    /// To send a copy of the result.
    pub reply_ns: f64,
    /// The same for each of its bytes.
    pub reply_ns_per_byte: f64,
    /// From the last contribution to the first copy.
    pub latency_ns: f64,
    /// The longest piece of a vector that is combined at once.
    pub segment_max_bytes: u64,
    /// How many segments of a vector are under way at once.
    pub segments_in_flight: u16,
}

/// Beyond how many steps one rank stands for all, if it ever does. It may where all ranks do about the same at the same time, so that
/// what one of them sends stands for what it receives.
fn steps_walked(algorithm: Algorithm, hosts: u32) -> Option<usize> {
    let is_power_of = |radix: u32| hosts == radix.pow(hosts.ilog(radix));
    match algorithm {
        Algorithm::Binomial | Algorithm::Knomial { .. } | Algorithm::Linear => None,
        Algorithm::RecursiveDoubling | Algorithm::Rabenseifner => {
            is_power_of(2).then_some(STEPS_MAX)
        }
        Algorithm::RecursiveKing { radix } => is_power_of(radix).then_some(STEPS_MAX),
        Algorithm::MixedRadix { radices } => {
            Some(steps_walked_of_levels(radices.ranks_max(), hosts))
        }
        _ => Some(STEPS_MAX),
    }
}

/// The same of levels that have room for so many hosts.
fn steps_walked_of_levels(room: u64, hosts: u32) -> usize {
    if room == u64::from(hosts) { STEPS_MAX } else { UNEVEN_STEPS_MAX }
}

fn mean(times_ns: &[f64]) -> f64 {
    times_ns.iter().sum::<f64>() / times_ns.len() as f64
}

struct Walk<'a> {
    prices: &'a Prices,
    carrier: Carrier,
    hosts: u32,
    ranks: Vec<Rank>,
    /// Whether one rank stands for all: it receives what it sends.
    one_for_all: bool,
    /// Whether the ranks exchange over levels.
    is_by_levels: bool,
}

struct Rank {
    steps: Peekable<Schedule>,
    /// Until when its core is busy.
    core_ns: f64,
    /// Until when its link is busy, in each direction.
    outgoing_ns: f64,
    incoming_ns: f64,
    inbox: VecDeque<Message>,
    /// Whether it waits for a message.
    waits: bool,
    /// The round of its last send, and what it sent.
    sent: Option<(u32, Span)>,
    /// The round of its last receive.
    received: Option<u32>,
}

/// A message that was sent.
#[derive(Clone, Copy)]
struct Message {
    from: u32,
    bytes: u64,
    /// When its first frame is there.
    first_ns: f64,
    /// When its last byte is there.
    arrival_ns: f64,
}

impl Rank {
    fn new(schedule: Schedule) -> Self {
        Self {
            steps: schedule.peekable(),
            core_ns: 0.0,
            outgoing_ns: 0.0,
            incoming_ns: 0.0,
            inbox: VecDeque::new(),
            waits: false,
            sent: None,
            received: None,
        }
    }

    /// What it has sent of the round before it sends these elements.
    fn sent_of(&mut self, round: u32, span: Span) -> Sent {
        match self.sent.replace((round, span)) {
            Some((last, same)) if last == round && same == span => Sent::Same,
            Some((last, _)) if last == round => Sent::Other,
            _ => Sent::Nothing,
        }
    }
}

impl<'a> Walk<'a> {
    /// A walk over the schedules of all ranks; where they have more than `steps_max` steps, if there is such a number, over
    /// that of one, which stands for all. None if a rank has no schedule.
    fn new(
        prices: &'a Prices,
        carrier: Carrier,
        hosts: u32,
        steps_max: Option<usize>,
        is_by_levels: bool,
        schedule: impl Fn(u32) -> Option<Schedule>,
    ) -> Option<Self> {
        let first = schedule(0)?;
        let one_for_all =
            steps_max.is_some_and(|max| first.take(max + 1).count() * hosts as usize > max);
        let walked = if one_for_all { 1 } else { hosts };
        let ranks = (0..walked).map(|rank| schedule(rank).map(Rank::new)).collect::<Option<_>>()?;
        Some(Self { prices, carrier, hosts, ranks, one_for_all, is_by_levels })
    }

    /// When each rank is done.
    fn times_ns(mut self) -> Vec<f64> {
        let mut ready: Vec<u32> = (0..self.ranks.len() as u32).rev().collect();
        while let Some(rank) = ready.pop() {
            self.advance(rank, &mut ready);
        }
        self.ranks.iter().map(|rank| rank.core_ns).collect()
    }

    /// Takes a rank's steps until it waits for a message. Adds the ranks that need not wait any longer to `ready`.
    fn advance(&mut self, rank: u32, ready: &mut Vec<u32>) {
        while let Some(step) = self.ranks[rank as usize].steps.peek().copied() {
            match step.action {
                Action::Send { to, span } => {
                    let is_far = self.is_far(rank, to);
                    let to = if self.one_for_all { rank } else { to };
                    let sent = self.ranks[rank as usize].sent_of(step.round, span);
                    self.send(rank, to, bytes_of(span), sent, is_far);
                    if core::mem::take(&mut self.ranks[to as usize].waits) {
                        ready.push(to);
                    }
                }
                Action::Receive { from, span, landing, .. } => {
                    let Some(message) = self.take_message(rank, from, bytes_of(span)) else {
                        self.ranks[rank as usize].waits = true;
                        return;
                    };
                    let received = self.ranks[rank as usize].received.replace(step.round);
                    self.receive(rank, message, landing, received != Some(step.round));
                }
                Action::Fold { span } => {
                    let folding = self.prices.reduce_ns_per_byte * bytes_of(span) as f64;
                    self.ranks[rank as usize].core_ns += folding;
                }
            }
            self.ranks[rank as usize].steps.next();
        }
    }

    /// Whether all hosts of a leaf send to other leaves where these do. Hosts of a leaf have numbers in a row.
    fn is_far(&self, from: u32, to: u32) -> bool {
        let apart = from.abs_diff(to);
        apart.min(self.hosts - apart) >= LEAF_HOSTS
    }

    fn send(&mut self, from: u32, to: u32, bytes: u64, sent: Sent, is_far: bool) {
        let prices = self.prices;
        let on_link_ns = |bytes: u64| {
            let further = bytes.saturating_sub(prices.packet_max_bytes) as f64;
            let shares = if is_far { SHARED_CABLES - 1.0 } else { 0.0 };
            prices.on_link_ns(bytes) + shares * prices.link_ns_per_byte * further
        };
        let (sending_ns, takes_link) = self.carrier.sending(prices, bytes, sent);
        let (first, last) = (prices.first_frame_bytes(bytes), prices.last_frame_bytes(bytes));
        let (first_sending_ns, _) = self.carrier.sending(prices, first, sent);
        let sender = &mut self.ranks[from as usize];
        let first_leaves_ns = sender.outgoing_ns.max(sender.core_ns + first_sending_ns);
        sender.core_ns += sending_ns;
        let mut first_ns = sender.outgoing_ns + prices.wire_ns;
        if takes_link {
            first_ns = first_leaves_ns + on_link_ns(first) + prices.wire_ns;
            // The last frame leaves behind all others, and not before the core has sent it.
            let by_link_ns = first_leaves_ns + on_link_ns(bytes);
            sender.outgoing_ns = by_link_ns.max(sender.core_ns + on_link_ns(last));
        }
        let arrival_ns = sender.outgoing_ns + prices.wire_ns;
        let message = Message { from, bytes, first_ns, arrival_ns };
        self.ranks[to as usize].inbox.push_back(message);
    }

    /// The next message of `from`. Where one rank stands for all, a message that it has not sent itself is sent while
    /// it waits.
    fn take_message(&mut self, rank: u32, from: u32, bytes: u64) -> Option<Message> {
        if self.one_for_all {
            if self.ranks[rank as usize].inbox.is_empty() {
                self.send_in_time(rank, bytes);
            }
            let inbox = &mut self.ranks[rank as usize].inbox;
            // Over levels a member sends to those after it first, and takes what the lowest has sent: the message that this one
            // has sent to it is one of its last. Datagrams are taken as they come.
            let comes_last_first = self.is_by_levels && self.carrier == Carrier::Links;
            return if comes_last_first { inbox.pop_back() } else { inbox.pop_front() };
        }
        let inbox = &mut self.ranks[rank as usize].inbox;
        let at = inbox.iter().position(|message| message.from == from)?;
        inbox.remove(at)
    }

    /// Another rank sends, which has come as far as this one.
    fn send_in_time(&mut self, rank: u32, bytes: u64) {
        let this = &self.ranks[rank as usize];
        let (core_ns, outgoing_ns) = (this.core_ns, this.outgoing_ns);
        self.send(rank, rank, bytes, Sent::Nothing, false);
        let this = &mut self.ranks[rank as usize];
        (this.core_ns, this.outgoing_ns) = (core_ns, outgoing_ns);
    }

    fn receive(&mut self, rank: u32, message: Message, landing: Landing, is_first: bool) {
        let Message { bytes, first_ns, arrival_ns, .. } = message;
        let prices = self.prices;
        let landing_ns = |bytes: u64| {
            let folding_ns = prices.reduce_ns_per_byte * bytes as f64;
            self.carrier.receiving_ns(prices, bytes, is_first)
                + if landing == Landing::Store { 0.0 } else { folding_ns }
        };
        let (first, last) = (prices.first_frame_bytes(bytes), prices.last_frame_bytes(bytes));
        let receiver = &mut self.ranks[rank as usize];
        let first_here_ns = first_ns.max(receiver.incoming_ns + prices.on_link_ns(first));
        receiver.incoming_ns = arrival_ns.max(receiver.incoming_ns + prices.on_link_ns(bytes));
        // The core lands frames while others come in, and the last one when it is there.
        let by_core_ns = receiver.core_ns.max(first_here_ns) + landing_ns(bytes);
        receiver.core_ns = by_core_ns.max(receiver.incoming_ns + landing_ns(last));
    }
}

fn bytes_of(span: Span) -> u64 {
    span.elements * ELEMENT_BYTES
}
