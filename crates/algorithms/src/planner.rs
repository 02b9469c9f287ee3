//! How hosts are divided into levels: the plan that is predicted to take the least time.
//!
//! Pure functions of where hosts are, of prices and of what is offered: equal placement gives an equal plan. A level
//! lies within leaves (the hosts of one switch) or across them. What a level takes depends on its own members alone, so
//! the best levels for `n` members are one level and the best levels for what is left.
//!
//! Must not know: how a plan is carried out, who offers a carrier, and why.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::carrier::{Carrier, DatagramPrices, Sent};
use crate::plan::{HOSTS_MAX, LEVELS_MAX, NoPlan, Plan, even_groups};
use crate::prices::Prices;
use crate::request::Division;

/// Where multicast was proven to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Multicast {
    /// Nowhere.
    Nowhere,
    /// Between hosts of the same leaf, which is so where leaves are routed.
    WithinLeaves,
    /// Between all hosts.
    Everywhere,
}

/// What a plan is made with. Times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// What messages cost within a leaf.
    pub prices: Prices,
    /// How much longer a message is under way to another leaf.
    pub across_ns: f64,
    /// What datagrams cost; none where only links are offered.
    pub datagrams: Option<DatagramPrices>,
    /// Where multicast works.
    pub multicast: Multicast,
    /// How many hosts take turns on one core: 1 where each has its own.
    pub hosts_per_core: u32,
}

/// Which members fold the contributions of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Folding {
    /// Each member, all of them.
    Replicated,
    /// The first member, for all.
    Converging,
}

/// How a level is carried out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LevelChoice {
    /// Which members fold.
    pub folding: Folding,
    /// What carries contributions.
    pub carrier: Carrier,
    /// Whether its messages leave a leaf.
    pub is_across: bool,
}

/// A plan for a length, with how it is carried out.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The hosts, by their index in the list that was planned for, in the plan's order.
    pub order: Vec<u32>,
    /// The levels, in that order.
    pub plan: Arc<Plan>,
    /// Whether a vector is divided.
    pub division: Division,
    /// How each level is carried out.
    pub levels: Vec<LevelChoice>,
    /// What an allreduce takes.
    pub time_ns: f64,
}

/// The plan of least predicted time for an allreduce of `len_bytes` among hosts, given by their leaves' numbers. The
/// numbers only tell which hosts share a leaf. Of equals, the first.
///
/// # Errors
/// If there is no host, or more than [`HOSTS_MAX`].
pub fn plan(leaves: &[u32], terms: &Terms, len_bytes: u64) -> Result<Planned, NoPlan> {
    let hosts = u32::try_from(leaves.len()).unwrap_or(u32::MAX);
    if hosts == 0 || hosts > HOSTS_MAX {
        return Err(NoPlan::Hosts { hosts });
    }
    let (order, sizes) = by_leaf(leaves);
    let mut best: Option<Planned> = None;
    for division in [Division::Whole, Division::Parts] {
        for searched in lesser_offers(terms) {
            for candidate in candidates(&sizes, &searched, division, len_bytes) {
                let candidate = candidate.price(terms, division, len_bytes)?;
                if best.as_ref().is_none_or(|best| candidate.time_ns < best.time_ns) {
                    best = Some(candidate);
                }
            }
        }
    }
    let best = best.expect("there is always a candidate: one level, or none");
    Ok(Planned { order, ..best })
}

/// What is offered, and parts of it. The search takes groups for equal; where they are not, its best levels for less may
/// be the best of all, and so more never makes a plan slower.
fn lesser_offers(terms: &Terms) -> impl Iterator<Item = Terms> {
    let more = |than: Multicast| than as u8 <= terms.multicast as u8 && terms.datagrams.is_some();
    let carriers = [Multicast::Everywhere, Multicast::WithinLeaves, Multicast::Nowhere];
    let with_datagrams = carriers.into_iter().filter(move |multicast| more(*multicast));
    let with_datagrams = with_datagrams.map(|multicast| Terms { multicast, ..*terms });
    with_datagrams.chain([Terms { datagrams: None, multicast: Multicast::Nowhere, ..*terms }])
}

/// The hosts leaf by leaf, in the order in which leaves are first named, and how many each has.
fn by_leaf(leaves: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let mut index_of = BTreeMap::new();
    let mut sizes: Vec<u32> = Vec::new();
    let mut of_hosts: Vec<(usize, u32)> = Vec::with_capacity(leaves.len());
    for (host, leaf) in (0..).zip(leaves) {
        let index = *index_of.entry(leaf).or_insert(sizes.len());
        if index == sizes.len() {
            sizes.push(0);
        }
        sizes[index] += 1;
        of_hosts.push((index, host));
    }
    of_hosts.sort_unstable();
    (of_hosts.into_iter().map(|(_, host)| host).collect(), sizes)
}

/// Levels that may be the best: groups within leaves and then across them, and groups that span leaves from the first
/// level on. Where all hosts share a leaf, both are the same.
fn candidates(sizes: &[u32], terms: &Terms, division: Division, len_bytes: u64) -> Vec<Shape> {
    let hosts: u32 = sizes.iter().sum();
    let longest = sizes.iter().copied().max().unwrap_or(1);
    let leaves = sizes.len() as u32;
    let radices = |members, is_across, hosts_each| {
        let search = Search { terms, division, len_bytes, is_across, hosts_each, hosts };
        search.radices(members)
    };
    let across = radices(leaves, true, longest);
    let mut all = alloc::vec![Shape::of(sizes, &radices(longest, false, 1), &across)];
    if leaves > 1 && longest > 1 {
        let flat = alloc::vec![1; hosts as usize];
        all.push(Shape::of(&flat, &[], &radices(hosts, true, 1)));
    }
    all.retain(|shape| shape.levels.len() <= LEVELS_MAX);
    all
}

/// The search for the best levels of equal members.
struct Search<'a> {
    terms: &'a Terms,
    division: Division,
    len_bytes: u64,
    is_across: bool,
    /// How many hosts each member has, and how many there are in all.
    hosts_each: u32,
    hosts: u32,
}

impl Search<'_> {
    /// How many members the groups of each level have at most, from the first level on.
    fn radices(&self, members: u32) -> Vec<u32> {
        let mut known = BTreeMap::new();
        let mut left = members;
        self.least_ns(members, &mut known);
        let mut radices = Vec::new();
        while left > 1 {
            let (_, radix) = known[&left];
            radices.push(radix);
            left = left.div_ceil(radix);
        }
        radices
    }

    /// What `left` members take, and the first of their levels.
    fn least_ns(&self, left: u32, known: &mut BTreeMap<u32, (f64, u32)>) -> f64 {
        if left == 1 {
            return 0.0;
        }
        if let Some((least_ns, _)) = known.get(&left) {
            return *least_ns;
        }
        let mut best = (f64::INFINITY, left);
        let mut radix = 2.min(left);
        loop {
            let level_ns = self.level_ns(radix, left);
            let rest = left.div_ceil(radix);
            if level_ns <= best.0 {
                let time_ns = level_ns + self.least_ns(rest, known);
                // Of equals, the larger groups: fewer levels.
                if time_ns <= best.0 {
                    best = (time_ns, radix);
                }
            }
            if rest == 1 {
                break;
            }
            // Larger groups that leave as many members would cost more for nothing.
            radix = left.div_ceil(rest - 1);
        }
        known.insert(left, best);
        best.0
    }

    fn level_ns(&self, members: u32, left: u32) -> f64 {
        let bytes = match self.division {
            Division::Whole => self.len_bytes,
            // The groups below have divided it among the hosts of a member.
            Division::Parts => {
                let divided = f64::from(self.hosts) / f64::from(left * self.hosts_each);
                (self.len_bytes as f64 / divided.max(1.0)) as u64 / u64::from(members)
            }
        };
        let meeting = Meeting { members, copies: 1, bytes, is_across: self.is_across };
        choose(self.terms, self.division, meeting).1
    }
}

/// Levels that are no plan yet: how many members each group has.
struct Shape {
    hosts: u32,
    levels: Vec<Vec<u32>>,
    is_across: Vec<bool>,
}

impl Shape {
    /// Each leaf by the same number of levels, then all leaves. The groups of a leaf, and of a level across, differ in
    /// size by one at most.
    fn of(sizes: &[u32], within: &[u32], across: &[u32]) -> Self {
        let hosts = sizes.iter().sum();
        let mut left = sizes.to_vec();
        let mut levels = Vec::new();
        for &radix in within {
            let mut groups = Vec::new();
            for members in &mut left {
                groups.extend(even_groups(*members, radix));
                *members = members.div_ceil(radix);
            }
            levels.push(groups);
        }
        let mut leaves = sizes.len() as u32;
        for &radix in across {
            levels.push(even_groups(leaves, radix).collect());
            leaves = leaves.div_ceil(radix);
        }
        let is_across = (0..levels.len()).map(|level| level >= within.len()).collect();
        Self { hosts, levels, is_across }
    }

    /// What it takes, by the groups that it really has.
    fn price(self, terms: &Terms, division: Division, len_bytes: u64) -> Result<Planned, NoPlan> {
        let plan = Plan::new(self.hosts, &self.levels)?;
        let mut bytes = len_bytes;
        let mut time_ns = 0.0;
        let mut levels = Vec::with_capacity(self.levels.len());
        for (level, &is_across) in self.is_across.iter().enumerate() {
            let members = plan.members_max(level);
            let mut copies = plan.copies_max(level);
            if division == Division::Parts {
                bytes = bytes.div_ceil(u64::from(plan.members_min(level)));
                copies = 1;
            }
            let (choice, level_ns) =
                choose(terms, division, Meeting { members, copies, bytes, is_across });
            levels.push(choice);
            time_ns += level_ns;
        }
        Ok(Planned { order: Vec::new(), plan: Arc::new(plan), division, levels, time_ns })
    }
}

/// The members of a group, and what each sends.
#[derive(Clone, Copy)]
struct Meeting {
    members: u32,
    /// To how many hosts of another member a host sends, at most.
    copies: u32,
    bytes: u64,
    is_across: bool,
}

/// How a level is carried out in the least time, and that time. Of equals, the first.
fn choose(terms: &Terms, division: Division, meeting: Meeting) -> (LevelChoice, f64) {
    let may_multicast = match terms.multicast {
        Multicast::Nowhere => false,
        Multicast::WithinLeaves => !meeting.is_across,
        Multicast::Everywhere => true,
    };
    let multicast = terms.datagrams.filter(|_| may_multicast).map(Carrier::Multicast);
    let copies = terms.datagrams.map(Carrier::Copies);
    let carriers = [Some(Carrier::Links), copies, multicast].into_iter().flatten();
    let mut best: Option<(LevelChoice, f64)> = None;
    for carrier in carriers.filter(|carrier| carrier.carries(meeting.bytes)) {
        for folding in [Folding::Replicated, Folding::Converging] {
            let time_ns = match (folding, division) {
                (Folding::Replicated, Division::Whole) => replicated_ns(terms, carrier, meeting),
                (Folding::Converging, Division::Whole) => converging_ns(terms, carrier, meeting),
                (Folding::Replicated, Division::Parts) => parts_ns(terms, carrier, meeting),
                (Folding::Converging, Division::Parts) => continue,
            };
            if best.is_none_or(|(_, least_ns)| time_ns < least_ns) {
                let is_across = meeting.is_across;
                best = Some((LevelChoice { folding, carrier, is_across }, time_ns));
            }
        }
    }
    best.expect("links carry every length")
}

/// A message is under way so long.
fn crossing_ns(terms: &Terms, meeting: Meeting) -> f64 {
    let Meeting { bytes, is_across, .. } = meeting;
    let across_ns = if is_across { terms.across_ns } else { 0.0 };
    terms.prices.on_link_ns(bytes) + terms.prices.wire_ns + across_ns
}

/// How long a core works on other frames of a message while the link carries them: the sender on those behind the first, the
/// receiver on those before the last.
fn overlaps_ns(terms: &Terms, bytes: u64, folds: bool) -> (f64, f64) {
    let prices = &terms.prices;
    let (first, last) = (prices.first_frame_bytes(bytes), prices.last_frame_bytes(bytes));
    let turns = f64::from(terms.hosts_per_core.max(1));
    let on_link_ns = prices.on_link_ns(bytes - last);
    let folding_ns = if folds { prices.reduce_ns_per_byte * (bytes - last) as f64 } else { 0.0 };
    let sending_ns = prices.sending_ns(bytes) - prices.sending_ns(first);
    let receiving_ns = prices.receiving_ns(bytes) - prices.receiving_ns(last) + folding_ns;
    (on_link_ns.min(turns * sending_ns), on_link_ns.min(turns * receiving_ns))
}

/// A core's time to send the same or other elements to so many hosts, and the link's time for all but the first.
fn sends_ns(terms: &Terms, carrier: Carrier, hosts: u32, bytes: u64, further: Sent) -> (f64, f64) {
    let (first_ns, _) = carrier.sending(&terms.prices, bytes, Sent::Nothing);
    let (each_ns, takes_link) = carrier.sending(&terms.prices, bytes, further);
    let others = f64::from(hosts.saturating_sub(1));
    let link_ns = if takes_link { others * terms.prices.on_link_ns(bytes) } else { 0.0 };
    (first_ns + others * each_ns, link_ns)
}

/// A core's time to receive from so many hosts and fold it.
fn receives_ns(terms: &Terms, carrier: Carrier, hosts: u32, bytes: u64, folds: bool) -> f64 {
    let prices = &terms.prices;
    let folding_ns = if folds { prices.reduce_ns_per_byte * bytes as f64 } else { 0.0 };
    let first_ns = carrier.receiving_ns(prices, bytes, true);
    let each_ns = carrier.receiving_ns(prices, bytes, false);
    first_ns + f64::from(hosts.saturating_sub(1)) * each_ns + f64::from(hosts) * folding_ns
}

/// Each member sends to all others, which are as many as send to it.
fn exchange_ns(
    terms: &Terms,
    carrier: Carrier,
    meeting: Meeting,
    further: Sent,
    folds: bool,
) -> f64 {
    let Meeting { members, copies, bytes, .. } = meeting;
    let others = members - 1;
    let turns = f64::from(terms.hosts_per_core.max(1));
    let (send_ns, link_ns) = sends_ns(terms, carrier, others * copies, bytes, further);
    let (first_ns, _) = sends_ns(terms, carrier, 1, bytes, further);
    let all_ns = receives_ns(terms, carrier, others, bytes, folds);
    let last_ns = receives_ns(terms, carrier, 1, bytes, folds);
    let crossing_ns = crossing_ns(terms, meeting);
    let (by_sender_ns, by_receiver_ns) = overlaps_ns(terms, bytes, folds);
    // The last message comes last, or the first comes to a core that still sends.
    let by_last_ns = turns * (send_ns + last_ns) + link_ns + crossing_ns
        - f64::from(others) * by_sender_ns
        - by_receiver_ns;
    let by_first_ns = (turns * first_ns + crossing_ns - by_sender_ns).max(turns * send_ns)
        + turns * all_ns
        - by_receiver_ns;
    by_last_ns.max(by_first_ns)
}

fn replicated_ns(terms: &Terms, carrier: Carrier, meeting: Meeting) -> f64 {
    exchange_ns(terms, carrier, meeting, Sent::Same, true)
}

/// A reduce-scatter and an allgather.
fn parts_ns(terms: &Terms, carrier: Carrier, meeting: Meeting) -> f64 {
    exchange_ns(terms, carrier, meeting, Sent::Other, true)
        + exchange_ns(terms, carrier, meeting, Sent::Same, false)
}

/// All others send to the first member, which sends the sum back.
fn converging_ns(terms: &Terms, carrier: Carrier, meeting: Meeting) -> f64 {
    let Meeting { members, copies, bytes, .. } = meeting;
    let others = members - 1;
    let turns = f64::from(terms.hosts_per_core.max(1));
    let (up_ns, _) = sends_ns(terms, carrier, 1, bytes, Sent::Same);
    let (down_ns, link_ns) = sends_ns(terms, carrier, others * copies, bytes, Sent::Same);
    let takes_ns = receives_ns(terms, carrier, others, bytes, true);
    let result_ns = receives_ns(terms, carrier, 1, bytes, false);
    // One host of a group folds and sends, while the others leave it the core.
    let folding_turns = (turns / f64::from(members)).max(1.0);
    let (up_sending_ns, up_receiving_ns) = overlaps_ns(terms, bytes, true);
    let (down_sending_ns, down_receiving_ns) = overlaps_ns(terms, bytes, false);
    turns * (up_ns + result_ns)
        + folding_turns * (takes_ns + down_ns)
        + link_ns
        + 2.0 * crossing_ns(terms, meeting)
        - (up_sending_ns + up_receiving_ns + down_sending_ns + down_receiving_ns)
}
