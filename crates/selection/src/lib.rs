//! Selection: which path each operation takes.
//!
//! The only place that decides. [`Decision`] says which inter-host methods a communicator opens;
//! [`Selection`] then answers once for each operation: shared memory, the tree, or a host algorithm
//! over direct links with its parameters. What was measured decides first ([`table`]): by a tuning file, or, between
//! hosts of one kernel, by the figures of a [lab]. On a network the model's [predictions](predicted) decide, and
//! [`model`] where there is neither. [`explain`] prints the answer and its reason from the same code.
//!
//! Every answer is a function of rank 0's settings, the placement, what the manager granted, the collective and its
//! length, so that all ranks of a communicator come to the same. Must not know how operations run.

mod decision;
pub mod explain;
mod groups;
mod lab;
mod limits;
mod losses;
mod model;
mod predicted;
mod question;
mod table;

use arrayvec::ArrayVec;
use tributary_algorithms::model::{Design, Job};
use tributary_algorithms::{Algorithm, CollectiveKind, Leaves};
use tributary_inter_host::goes_by_groups;
use tributary_tuning::{MessageCarrier, Method};

use decision::Basis;
pub use decision::{Decision, Hosts, share_a_kernel};
pub use limits::Limits;
use losses::Losses;
use model::Model;
use predicted::{Aggregators, Candidate, Predictor, Way};
pub use question::Question;
use table::Table;
use tributary_report::PathKind;
use tributary_settings::SUB_PARTITIONS_MAX;

/// How many answers are remembered: programs repeat themselves.
const RECENT_MAX: usize = 4;

/// Longer than any length at which the path changes.
const LONG_BYTES: u64 = 1 << 40;

/// What carries an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Shared memory: all ranks are on one host.
    SharedMemory,
    /// The aggregation tree, between hosts.
    Tree,
    /// A host algorithm over direct links, between hosts.
    Direct(DirectPath),
}

/// How an operation goes over direct links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectPath {
    /// The host algorithm.
    pub algorithm: Algorithm,
    /// Ranks of each host that share the operation, each with its part of the vector.
    pub leaders: u32,
    /// Pieces of each leader's part, which follow one another.
    pub sub_partitions: u32,
}

impl Path {
    /// The inter-host method; none inside a host.
    #[must_use]
    pub fn method(self) -> Option<Method> {
        match self {
            Self::SharedMemory => None,
            Self::Tree => Some(Method::Tree),
            Self::Direct(_) => Some(Method::Direct),
        }
    }

    /// As reports count it.
    #[must_use]
    pub fn kind(self) -> PathKind {
        match self {
            Self::SharedMemory => PathKind::InHost,
            Self::Tree => PathKind::InTree,
            Self::Direct(_) => PathKind::Direct,
        }
    }
}

/// What carries an operation, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What carries it.
    pub path: Path,
    /// It goes over direct links, unless they lose packets.
    is_avoidable: bool,
}

impl Choice {
    /// Whether it goes through the tree because links lose packets.
    #[inline]
    pub fn avoids_losses(self) -> bool {
        self.is_avoidable && self.path == Path::Tree
    }
}

/// The answers of one communicator.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The method where nothing was measured; none on one host.
    default_method: Option<Method>,
    table: Table,
    model: Model,
    /// None where there is no network between the hosts.
    predictor: Option<Predictor>,
    /// Whether predictions decide on the method.
    is_predicted: bool,
    /// Whether the user names the method.
    is_named: bool,
    /// Leaders per host, if the user said how many.
    leaders: Option<u32>,
    /// Sub-partitions of each leader's share, if the user said how many.
    sub_partitions: Option<u32>,
    /// Local ranks that can lead on every host: those with links of their own.
    leaders_max: u32,
    /// The exchange over the levels of replicated groups, if there are any.
    group_algorithm: Option<Algorithm>,
    hosts: u32,
    ranks: u32,
    /// Whether a scan's contributions are gathered, because the ranks of a host are no neighbours.
    gathers_scans: bool,
    limits: Limits,
    /// Whether sums of floats are exact.
    sums_exactly: bool,
    recent: Recent,
    /// Whether links lose packets; none where that changes no path.
    losses: Option<Losses>,
}

/// The last few answers.
#[derive(Clone, Debug, Default)]
struct Recent {
    answers: ArrayVec<(Question, Path), RECENT_MAX>,
    /// The one that the next new one replaces.
    oldest: usize,
}

/// What a communicator has opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Whether it has a group in the tree.
    pub tree: bool,
    /// Whether the tree's aggregators take short segments inside the kernel.
    pub in_kernel: bool,
    /// Leaders of each host that have direct links; 0 where there are none.
    pub direct_leaders: u32,
    /// The exchange over the levels of replicated groups, if datagrams come through.
    pub group_algorithm: Option<Algorithm>,
    /// Hosts of the communicator, by leaf switch.
    pub leaves: Leaves,
    /// Ranks of them all.
    pub ranks: u32,
    /// Whether the ranks of every host are neighbours.
    pub is_in_host_order: bool,
}

impl Selection {
    /// For a communicator of one host.
    pub fn on_one_host(limits: Limits, sums_exactly: bool) -> Self {
        Self { limits, sums_exactly, ..Self::default() }
    }

    /// For a communicator of several.
    pub fn between_hosts(decision: Decision, opened: &Opened) -> Self {
        let &Opened { tree, in_kernel, direct_leaders, group_algorithm, ref leaves, ranks, .. } =
            opened;
        let is_in_host_order = opened.is_in_host_order;
        let hosts = leaves.hosts();
        let asked = decision.longest;
        let aggregators =
            tree.then_some(if in_kernel { Aggregators::InKernel } else { Aggregators::Processes });
        let mut selection = Self {
            default_method: Some(if tree { Method::Tree } else { Method::Direct }),
            model: decision.model(),
            predictor: decision.prices.map(|prices| {
                let radices = decision.group_radices().filter(|_| group_algorithm.is_some());
                Predictor::new(prices, leaves.clone(), aggregators).with_groups(radices)
            }),
            is_predicted: decision.predicts && direct_leaders > 0,
            is_named: decision.basis == Basis::Named,
            leaders: decision.leaders,
            sub_partitions: decision.sub_partitions,
            table: match tree {
                true => decision.kernel_table.filter(|_| in_kernel).unwrap_or(decision.table),
                false => decision.direct_table,
            },
            leaders_max: direct_leaders,
            group_algorithm,
            hosts,
            ranks,
            gathers_scans: !is_in_host_order,
            limits: Limits::default(),
            sums_exactly: decision.sums_exactly,
            recent: Recent::default(),
            losses: decision
                .avoided
                .filter(|_| tree && direct_leaders > 0)
                .filter(|_| matches!(decision.basis, Basis::Lab | Basis::Predicted))
                .map(Losses::new),
        };
        let gathered = selection.gathers_scans.then_some(ranks);
        let limits = Limits::between_hosts(asked, gathered, |kind| selection.times_in_tree(kind));
        selection.limits = limits;
        selection
    }

    /// How many contributions a long one of this kind becomes in the tree; none if it takes direct links.
    fn times_in_tree(&mut self, kind: CollectiveKind) -> Option<u64> {
        let kind = self.carrier_kind(kind);
        let long = Question {
            kind,
            elements: LONG_BYTES,
            len_bytes: LONG_BYTES,
            is_exact: false,
            has_own_operator: false,
        };
        let path = self.answer(&long, self.default_method?);
        (path == Path::Tree).then(|| match kind {
            CollectiveKind::Allgather => self.ranks.into(),
            CollectiveKind::Scan | CollectiveKind::Exscan => self.hosts.into(),
            _ => 1,
        })
    }

    /// The path of an operation.
    pub fn path(&mut self, question: &Question) -> Path {
        self.choose(question).path
    }

    /// The path of an operation, and whether it is another one than where links lose nothing.
    #[inline]
    pub fn choose(&mut self, question: &Question) -> Choice {
        let usual = self.usual_path(question);
        let is_over_links = usual.method() == Some(Method::Direct)
            && !self.goes_by_groups(usual, question.kind, question.len_bytes);
        let is_avoidable = is_over_links && self.losses.is_some_and(|it| it.concern(question));
        let path = if is_avoidable && self.expects_losses() { Path::Tree } else { usual };
        Choice { path, is_avoidable }
    }

    /// Counts a blocking operation that runs: by such counts the ranks know when to ask each other for losses.
    #[inline]
    pub fn count(&mut self, choice: Choice) {
        if let Some(losses) = self.losses.as_mut().filter(|_| choice.is_avoidable) {
            losses.count();
        }
    }

    /// The path of an operation where links lose nothing.
    #[inline]
    fn usual_path(&mut self, question: &Question) -> Path {
        let Some(default_method) = self.default_method else { return Path::SharedMemory };
        let recent = self.recent.answer(question);
        recent.unwrap_or_else(|| self.find_path(question, default_method))
    }

    #[cold]
    fn find_path(&mut self, question: &Question, default_method: Method) -> Path {
        let carried = Question { kind: self.carrier_kind(question.kind), ..*question };
        let path = match question.has_own_operator {
            true => Path::Direct(combining_path(&carried)),
            false => self.answer(&carried, default_method),
        };
        self.recent.remember(*question, path);
        path
    }

    /// Whether all ranks are to ask each other now how many packets were lost.
    #[inline]
    pub fn asks_for_losses(&self) -> bool {
        self.losses.is_some_and(Losses::is_due)
    }

    /// Takes how many packets all ranks have sent again since they last asked.
    pub fn note_losses(&mut self, lost: u64) {
        if let Some(losses) = &mut self.losses {
            losses.on_answer(lost);
        }
    }

    /// Whether links are expected to lose packets.
    #[inline]
    pub fn expects_losses(&self) -> bool {
        self.losses.is_some_and(Losses::is_expecting)
    }

    /// Whether leaders of different hosts are joined directly.
    pub fn has_direct_links(&self) -> bool {
        self.leaders_max > 0
    }

    /// Whether replicated groups carry an operation of this path.
    fn goes_by_groups(&self, path: Path, kind: CollectiveKind, len_bytes: u64) -> bool {
        let algorithm = match path {
            Path::Direct(direct) => Some(direct.algorithm),
            Path::SharedMemory | Path::Tree => None,
        };
        self.group_algorithm.is_some()
            && algorithm == self.group_algorithm
            && goes_by_groups(kind, len_bytes as usize)
    }

    /// The collective that goes between hosts for another.
    fn carrier_kind(&self, kind: CollectiveKind) -> CollectiveKind {
        match kind {
            CollectiveKind::Scan | CollectiveKind::Exscan if self.gathers_scans => {
                CollectiveKind::Allgather
            }
            kind => kind,
        }
    }

    /// Where failures lie that no operation met: the method that most operations take.
    pub fn default_method(&self) -> Option<Method> {
        self.default_method
    }

    /// Whether sums of floats are exact.
    pub fn sums_exactly(&self) -> bool {
        self.sums_exactly
    }

    /// The longest contribution, in bytes, with which a collective of this kind is taken; none if any
    /// length is. No other library makes exact sums.
    pub fn longest_bytes(&self, kind: CollectiveKind) -> Option<u64> {
        let may_sum = kind != CollectiveKind::Allgather;
        self.limits.longest_bytes(kind).filter(|_| !(self.sums_exactly && may_sum))
    }

    /// Every way to carry an operation and its predicted time, the fastest first; none where no prediction decides.
    fn candidates(&self, kind: CollectiveKind, len_bytes: u64) -> Vec<Candidate> {
        let predictor = self.predictor.as_ref().filter(|_| self.table.is_empty());
        predictor.map_or_else(Vec::new, |predictor| predictor.candidates(kind, len_bytes))
    }

    fn answer(&mut self, question: &Question, default_method: Method) -> Path {
        let Question { kind, len_bytes, .. } = *question;
        let rule = self.table.rule(kind, len_bytes).copied();
        let predictor = self.predictor.as_mut();
        let predicted = predictor.filter(|_| self.is_predicted);
        let way = predicted.map(|predictor| predictor.way(kind, len_bytes));
        let method = match (rule, way) {
            (Some(rule), _) => rule.method,
            (None, Some(way)) => way.method(),
            (None, None) => default_method,
        };
        if method == Method::Tree {
            return Path::Tree;
        }
        let takes_groups = match (rule, way) {
            _ if self.is_named => true,
            (Some(rule), _) => rule.carrier == MessageCarrier::Datagrams,
            (None, way) => way.is_some_and(Way::is_by_groups),
        };
        let can_groups = takes_groups && goes_by_groups(kind, len_bytes as usize);
        if let Some(algorithm) = self.group_algorithm.filter(|_| can_groups) {
            return Path::Direct(DirectPath { algorithm, leaders: 1, sub_partitions: 1 });
        }
        let measured =
            rule.map(|rule| Design { leaders: rule.leaders, sub_partitions: rule.sub_partitions });
        let Design { leaders, sub_partitions } = self.design(question, measured);
        let pieces = u64::from(leaders) * u64::from(sub_partitions);
        let piece_bytes = len_bytes.div_ceil(pieces);
        let measured = rule.map(|rule| rule.algorithm).unwrap_or_default();
        let preferred = self.model.preferred_algorithm(kind, self.hosts, measured);
        let algorithm = preferred.unwrap_or_else(|| match &mut self.predictor {
            // Constants that were measured here tell more than prices of a kind of network.
            Some(predictor) if self.model.measured_costs().is_none() => {
                predictor.algorithm(kind, piece_bytes)
            }
            _ => self.model.algorithm(kind, self.hosts, piece_bytes),
        });
        Path::Direct(DirectPath { algorithm, leaders, sub_partitions })
    }

    /// Leaders of a host and sub-partitions of a share: what the user said, else what was measured, else
    /// what the model finds best. Only an allreduce has more than one.
    fn design(&self, question: &Question, measured: Option<Design>) -> Design {
        let one = Design { leaders: 1, sub_partitions: 1 };
        let is_single = self.leaders_max <= 1 && self.sub_partitions == Some(1);
        if question.kind != CollectiveKind::Allreduce || is_single {
            return one;
        }
        let job = Job { processes: self.ranks, hosts: self.hosts, len_bytes: question.len_bytes };
        let modelled = || Some(self.model.measured_costs()?.best_design(job, SUB_PARTITIONS_MAX));
        let design = measured.or_else(modelled).unwrap_or(one);
        let leaders = self.leaders.unwrap_or(design.leaders);
        let sub_partitions = self.sub_partitions.unwrap_or(design.sub_partitions);
        // A piece that is empty would be nobody's.
        let elements = question.elements.min(1 << 20) as u32;
        let leaders = leaders.min(self.leaders_max).clamp(1, elements.max(1));
        Design { leaders, sub_partitions: sub_partitions.clamp(1, (elements / leaders).max(1)) }
    }
}

/// Shortest vector of which every host combines a part, with an operator of the caller's own: below, fewer
/// messages are faster.
const COMBINED_IN_PARTS_MIN_BYTES: u64 = 32 << 10;

/// How an operation goes whose operator aggregators cannot call: by an algorithm that keeps the hosts' order.
/// These were not measured, for what an operator costs is the caller's.
fn combining_path(question: &Question) -> DirectPath {
    let algorithm = match question.kind {
        _ if question.len_bytes >= COMBINED_IN_PARTS_MIN_BYTES => Algorithm::Rabenseifner,
        CollectiveKind::Allreduce => Algorithm::RecursiveDoubling,
        _ => Algorithm::Binomial,
    };
    DirectPath { algorithm, leaders: 1, sub_partitions: 1 }
}

impl Recent {
    #[inline]
    fn answer(&self, question: &Question) -> Option<Path> {
        let found = self.answers.iter().find(|(asked, _)| asked == question);
        found.map(|(_, path)| *path)
    }

    fn remember(&mut self, question: Question, path: Path) {
        if self.answers.is_full() {
            self.answers[self.oldest] = (question, path);
            self.oldest = (self.oldest + 1) % RECENT_MAX;
        } else {
            self.answers.push((question, path));
        }
    }
}

#[cfg(test)]
mod tests;
