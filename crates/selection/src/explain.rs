//! Which path an operation would take, and why: the answer of [`Selection`], for
//! people.

use std::fmt;

use serde::Serialize;
use tributary_algorithms::network::Network;
use tributary_algorithms::{Algorithm, CollectiveKind, Leaves, Radices};
use tributary_tuning::{Measurement, MessageCarrier, Method, Tuning};

use super::decision::{Basis, Decision, Hosts, is_joined_by_job, measurements};
use super::limits::Limits;
use super::predicted::{Candidate, Way};
use super::{DirectPath, Opened, Path, Question, Selection, lab};
use tributary_settings::Settings;
use tributary_settings::knobs::OFFLOAD_MAX;

/// Why there is no tree.
const NO_TREE: &str = "No manager is named (TRIBUTARY_MANAGER), so there is no tree";
/// What there is instead.
const BY_JOB: &str = "No manager is named (TRIBUTARY_MANAGER), so the job joins its hosts by direct links \
                      (TRIBUTARY_FABRIC); with a manager there would be a tree, too";

/// How short operations go where there are replicated groups.
const BY_GROUPS: &str = "Datagrams carry it: at each level a host sends its vector to the others of its group, and folds \
                         theirs itself. Where datagrams do not come through, links do";

/// An operation on a communicator that need not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Which collective.
    pub collective: CollectiveKind,
    /// Length of a rank's contribution, in bytes; ignored in a barrier.
    pub len_bytes: u64,
    /// Hosts of the communicator.
    pub hosts: u32,
    /// Ranks on each host.
    pub ranks_per_host: u32,
    /// Leaf switches, each of as many hosts, in their order.
    pub leaves: u32,
    /// The kind of network between the hosts; none if they are of one kernel, as containers and labs are.
    pub network: Option<Network>,
    /// Whether the tree's aggregators take short segments inside the kernel.
    pub nodes_in_kernel: bool,
}

/// The path of a [`Case`], and why it is that one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// `in_host`, `in_tree`, `direct` or `passed_through`, as reports name it.
    pub path: &'static str,
    /// What carries messages between the hosts; none on other paths than `direct`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carrier: Option<MessageCarrier>,
    /// The host algorithm; none on other paths than `direct`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// Leaders of each host that share the operation; none on other paths than `direct`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaders: Option<u32>,
    /// Sub-partitions of each leader's share; none on other paths than `direct`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sub_partitions: Option<u32>,
    /// Why, in sentences.
    pub reasons: Vec<String>,
    /// What was measured of this length among these hosts or the nearest, the fastest first; empty where
    /// nothing was.
    pub measured: Vec<Measurement>,
    /// What the model predicts for every candidate, the fastest first; empty where something else decides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub predicted: Vec<Predicted>,
}

/// A candidate, and what the model predicts for it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Predicted {
    /// The inter-host method.
    pub method: Method,
    /// What carries messages; none in the tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carrier: Option<MessageCarrier>,
    /// The host algorithm; none in the tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// Mean time over the hosts.
    pub time_us: f64,
}

/// The path that `case` takes with these settings and measurements, if the manager grants what is asked
/// for.
#[must_use]
pub fn explain(settings: &Settings, tuning: &Tuning, case: Case) -> Explanation {
    if case.hosts == 1 {
        return inside_a_host(settings, case);
    }
    let ranks = case.hosts.saturating_mul(case.ranks_per_host);
    let of_leaf = case.hosts.div_ceil(case.leaves.max(1));
    let leaves = Leaves::new(&(0..case.hosts).map(|host| host / of_leaf).collect::<Vec<_>>());
    let hosts = Hosts { leaves, network: case.network, ranks, have_datagrams: true };
    let decision = Decision::new(settings, tuning, &hosts);
    let basis = decision.basis;
    let lacks_tree = decision.opens_tree && is_joined_by_job(settings);
    if lacks_tree && !decision.falls_back {
        let reasons = vec![reason(basis, settings, tuning, case, false), NO_TREE.to_owned()];
        return Explanation { path: "passed_through", reasons, ..Explanation::of(Path::Tree) };
    }
    let has_tree = decision.opens_tree && !lacks_tree;
    let by_leaf = decision.group_radices().and_then(|radices| by_leaf(&hosts.leaves, radices));
    let opened = Opened {
        tree: has_tree,
        in_kernel: case.nodes_in_kernel && !lacks_tree,
        direct_leaders: if decision.opens_direct || lacks_tree {
            decision.leaders_max(case.ranks_per_host)
        } else {
            0
        },
        group_algorithm: decision.group_radices().map(|radices| Algorithm::MixedRadix { radices }),
        leaves: hosts.leaves,
        ranks,
        is_in_host_order: true,
    };
    let may_fall_back = has_tree && decision.falls_back;
    let mut rows = measurements(basis, tuning);
    let mut selection = Selection::between_hosts(decision, &opened);
    let rule = selection.table.rule(case.collective, case.len_bytes).copied();
    let mut reasons = vec![reason(basis, settings, tuning, case, rule.is_some())];
    if is_joined_by_job(settings) {
        reasons.push(BY_JOB.to_owned());
        // What was measured of trees was not weighed.
        rows.retain(|row| row.method == Method::Direct);
    }
    if basis == Basis::Lab && has_tree && case.nodes_in_kernel {
        rows = lab::inside_the_kernel(&rows);
        reasons.push(
            "The tree's aggregators are inside the kernel, which takes a third off short vectors"
                .to_owned(),
        );
    }
    if may_fall_back {
        reasons.push("Where the manager refuses a group, direct links carry it".to_owned());
    }
    if let Some(longest) = find_exceeded_limit(selection.longest_bytes(case.collective), case) {
        return too_long(case.collective, longest);
    }
    let path = selection.path(&question(case));
    let is_by_groups = selection.goes_by_groups(path, case.collective, case.len_bytes);
    if is_by_groups {
        reasons.push(BY_GROUPS.to_owned());
        reasons.extend(by_leaf);
    }
    let measured = rule.map_or_else(Vec::new, |rule| weigh_rows(&rows, &rule));
    let candidates = selection.candidates(case.collective, case.len_bytes);
    let predicted = candidates.iter().map(Predicted::from).collect();
    let mut explanation = Explanation { reasons, measured, predicted, ..Explanation::of(path) };
    if is_by_groups {
        explanation.carrier = Some(MessageCarrier::Datagrams);
    }
    explanation
}

impl Explanation {
    /// The answer alone.
    fn of(path: Path) -> Self {
        let direct = match path {
            Path::Direct(direct) => Some(direct),
            Path::SharedMemory | Path::Tree => None,
        };
        Self {
            path: path.kind().name(),
            carrier: direct.map(|_| MessageCarrier::Links),
            algorithm: direct.map(|DirectPath { algorithm, .. }| algorithm.to_string()),
            leaders: direct.map(|direct| direct.leaders),
            sub_partitions: direct.map(|direct| direct.sub_partitions),
            reasons: Vec::new(),
            measured: Vec::new(),
            predicted: Vec::new(),
        }
    }
}

/// How many levels lie within leaves, where there are several.
fn by_leaf(leaves: &Leaves, radices: Radices) -> Option<String> {
    let plan = leaves.groups(radices).filter(|_| leaves.count() > 1)?;
    let (levels, across) = (plan.levels(), leaves.levels_across(&plan));
    Some(format!("Groups of {} of {levels} levels lie within a leaf", levels - across))
}

fn inside_a_host(settings: &Settings, case: Case) -> Explanation {
    let longest = Limits::on_one_host(settings).longest_bytes(case.collective);
    if let Some(longest) = find_exceeded_limit(longest, case) {
        return too_long(case.collective, longest);
    }
    let reasons = vec!["All ranks are on one host".to_owned()];
    Explanation { reasons, ..Explanation::of(Path::SharedMemory) }
}

/// The limit, if a contribution is longer.
fn find_exceeded_limit(longest: Option<u64>, case: Case) -> Option<u64> {
    longest.filter(|longest| case.len_bytes > *longest)
}

fn too_long(collective: CollectiveKind, longest: u64) -> Explanation {
    let (name, knob) = (collective.name(), OFFLOAD_MAX.name);
    let reason = format!(
        "{name} of more than {longest} bytes is left to the underlying MPI, which was measured to be \
         faster ({knob})"
    );
    Explanation { path: "passed_through", reasons: vec![reason], ..Explanation::of(Path::Tree) }
}

/// The operation that a case stands for: a sum of floating-point numbers, of 4 bytes where they fit.
fn question(case: Case) -> Question {
    let element_bytes = if case.len_bytes.is_multiple_of(4) { 4 } else { 1 };
    Question {
        kind: case.collective,
        elements: case.len_bytes / element_bytes,
        len_bytes: case.len_bytes,
        is_exact: false,
        has_own_operator: false,
    }
}

fn reason(
    basis: Basis,
    settings: &Settings,
    tuning: &Tuning,
    case: Case,
    has_rule: bool,
) -> String {
    let Case { collective, .. } = case;
    let name = collective.name();
    let file = settings.tuning.file().map(|path| path.display().to_string());
    let file = file.as_deref().unwrap_or("the tuning file");
    let has_prices = tuning.prices.is_some();
    match basis {
        Basis::Named => "TRIBUTARY_BETWEEN_HOSTS names the method".to_owned(),
        Basis::TuningFile if has_rule => format!("It is the fastest in {file}"),
        Basis::TuningFile if has_prices => {
            format!("The model predicts it to be the fastest, at the prices of {file}, which has no measurement of {name}")
        }
        Basis::TuningFile => format!("The tuning file has no measurement of {name}"),
        Basis::Lab if has_rule => {
            "The hosts share a kernel: it is the fastest of the built-in figures, which come from a lab on one \
             machine; tributary tune measures this system"
                .to_owned()
        }
        Basis::Lab if is_joined_by_job(settings) => {
            format!("The lab's figures have none of {name}: the cost model decides")
        }
        Basis::Lab => format!("The lab's figures have none of {name}: it goes through the tree"),
        Basis::Predicted if has_prices => format!(
            "The model predicts it to be the fastest, at the prices of {file}, whose measurements are of other numbers of \
             hosts"
        ),
        Basis::Predicted => {
            let network = case.network.map_or("", Network::name);
            format!(
                "Nothing was measured here: it is what the model predicts to be the fastest on a network like \
                 {network} (TRIBUTARY_NETWORK); tributary tune measures this system"
            )
        }
        Basis::Pair => {
            "Between two hosts a direct exchange is one message each way, and a tree two".to_owned()
        }
        Basis::TreeOnly => "Streams (TRIBUTARY_STREAM_MIN) and external receivers \
             (TRIBUTARY_EXTERNAL_RECEIVER) need the tree"
            .to_owned(),
        Basis::Unmeasured if is_joined_by_job(settings) => {
            "Nothing was measured of emulated hosts (TRIBUTARY_HOSTS): the cost model decides".to_owned()
        }
        Basis::Unmeasured if settings.hosts > 1 => {
            "Emulated hosts (TRIBUTARY_HOSTS) use the tree, to show it".to_owned()
        }
        Basis::Unmeasured => "No manager is named (TRIBUTARY_MANAGER)".to_owned(),
    }
}

/// What was measured like `rule`, the fastest first.
fn weigh_rows(rows: &[Measurement], rule: &Measurement) -> Vec<Measurement> {
    let is_like = |row: &&Measurement| {
        (row.collective, row.hosts, row.ranks, row.len_bytes)
            == (rule.collective, rule.hosts, rule.ranks, rule.len_bytes)
    };
    let mut weighed: Vec<Measurement> = rows.iter().filter(is_like).copied().collect();
    weighed.sort_by(|a, b| a.time_us.total_cmp(&b.time_us));
    weighed
}

impl From<&Candidate> for Predicted {
    fn from(candidate: &Candidate) -> Self {
        let Candidate { way, time_ns } = *candidate;
        let (carrier, algorithm) = match way {
            Way::Tree => (None, None),
            Way::Hosts(algorithm, carrier) => (Some(carrier), Some(algorithm.to_string())),
        };
        Self { method: way.method(), carrier, algorithm, time_us: time_ns / 1e3 }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "path: {}", self.path)?;
        if let (Some(algorithm), Some(leaders), Some(parts)) =
            (&self.algorithm, self.leaders, self.sub_partitions)
        {
            let plural = |count| if count == 1 { "" } else { "s" };
            let (s, p) = (plural(leaders), plural(parts));
            let carrier = match self.carrier {
                Some(MessageCarrier::Datagrams) => "datagrams, ",
                Some(MessageCarrier::Links) | None => "",
            };
            write!(
                f,
                ", {carrier}{algorithm}, {leaders} leader{s} a host, {parts} sub-partition{p} each"
            )?;
        }
        for reason in &self.reasons {
            write!(f, "\n{reason}.")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(settings: &[(&str, &str)], collective: CollectiveKind, hosts: u32) -> Explanation {
        let set = |name: &str| {
            let found = settings.iter().find(|(set, _)| *set == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let settings = Settings::from_environment(set).unwrap();
        let case = Case {
            collective,
            len_bytes: 65_536,
            hosts,
            ranks_per_host: 1,
            network: Some(Network::Ethernet25),
            leaves: 1,
            nodes_in_kernel: false,
        };
        explain(&settings, &Tuning::default(), case)
    }

    #[test]
    fn every_answer_has_a_reason_and_the_paths_name() {
        let manager = ("TRIBUTARY_MANAGER", "10.0.0.1:7470");
        let allreduce = CollectiveKind::Allreduce;
        let on_8 = explained(&[manager], allreduce, 8);
        assert_eq!((on_8.path, on_8.algorithm.as_deref()), ("direct", Some("rabenseifner")));
        assert!(on_8.reasons[0].contains("ethernet-25"), "{on_8}");
        assert!(on_8.predicted.is_sorted_by_key(|row| row.time_us));
        assert_eq!(on_8.predicted[0].algorithm, on_8.algorithm);
        assert!(on_8.predicted.iter().any(|row| row.method == Method::Tree));
        assert_eq!(explained(&[manager], allreduce, 1).path, "in_host");
        let pair = explained(&[manager], allreduce, 2);
        assert_eq!(pair.path, "direct");
        assert!(pair.reasons[0].contains("two hosts"), "{pair}");
        let many = explained(&[manager], allreduce, 1000);
        assert_eq!((many.path, many.algorithm.as_deref()), ("direct", Some("rabenseifner")));
        let broadcast = explained(&[manager], CollectiveKind::Broadcast, 8);
        assert_eq!(broadcast.path, "direct");
        assert!(broadcast.predicted.len() > 2, "{broadcast}");
        let named = explained(&[manager, ("TRIBUTARY_BETWEEN_HOSTS", "tree")], allreduce, 8);
        assert_eq!(named.path, "in_tree");
        assert!(named.reasons[0].contains("TRIBUTARY_BETWEEN_HOSTS"), "{named}");
    }

    #[test]
    fn what_is_passed_through_says_which_limit_did_it() {
        let allgather = CollectiveKind::Allgather;
        let long = explained(&[], allgather, 1);
        assert_eq!(long.path, "passed_through");
        assert!(long.reasons[0].contains("4096 bytes"), "{long}");
        assert!(long.reasons[0].contains("TRIBUTARY_OFFLOAD_MAX"), "{long}");
        let wide = explained(&[("TRIBUTARY_OFFLOAD_MAX", "between_allgather:65535")], allgather, 2);
        assert_eq!(wide.path, "passed_through");
        assert!(wide.reasons[0].contains("TRIBUTARY_OFFLOAD_MAX"), "{wide}");
        let manager = ("TRIBUTARY_MANAGER", "10.0.0.1:7470");
        let by_tree = explained(&[manager, ("TRIBUTARY_BETWEEN_HOSTS", "tree")], allgather, 2);
        assert_eq!(by_tree.path, "passed_through");
        assert!(by_tree.reasons[0].contains("16384 bytes"), "{by_tree}");
        let direct = explained(&[("TRIBUTARY_BETWEEN_HOSTS", "direct")], allgather, 2);
        assert_eq!(direct.path, "direct");
        let short = [
            manager,
            ("TRIBUTARY_BETWEEN_HOSTS", "tree"),
            ("TRIBUTARY_OFFLOAD_MAX", "between_allgather:65536"),
        ];
        assert_eq!(explained(&short, allgather, 2).path, "in_tree");
    }

    #[test]
    fn without_a_manager_the_answer_says_so() {
        let allreduce = CollectiveKind::Allreduce;
        for (settings, hosts) in [(&[][..], 2), (&[], 8), (&[("TRIBUTARY_HOSTS", "4")], 4)] {
            let by_job = explained(settings, allreduce, hosts);
            assert_eq!(by_job.path, "direct", "{by_job}");
            assert!(by_job.predicted.iter().all(|row| row.method == Method::Direct), "{by_job}");
            let text = by_job.to_string();
            assert!(
                text.contains("TRIBUTARY_MANAGER") && text.contains("TRIBUTARY_FABRIC"),
                "{text}"
            );
            assert!(!text.contains("use the tree"), "{text}");
        }
        // Nor does it weigh trees where they were measured.
        let set = |_: &str| None;
        let case = Case {
            collective: allreduce,
            len_bytes: 8,
            hosts: 8,
            ranks_per_host: 1,
            network: None,
            leaves: 1,
            nodes_in_kernel: false,
        };
        let in_a_lab = explain(&Settings::from_environment(set).unwrap(), &Tuning::default(), case);
        assert_eq!(in_a_lab.path, "direct", "{in_a_lab}");
        assert!(!in_a_lab.measured.is_empty(), "{in_a_lab}");
        assert!(in_a_lab.measured.iter().all(|row| row.method == Method::Direct), "{in_a_lab}");
        // What needs the tree is carried without it, unless it must not be replaced.
        let stream = ("TRIBUTARY_STREAM_MIN", "65536");
        let named = ("TRIBUTARY_BETWEEN_HOSTS", "tree");
        for set in [stream, named] {
            assert_eq!(explained(&[set], allreduce, 8).path, "direct");
            let none = explained(&[set, ("TRIBUTARY_FALLBACK", "mpi")], allreduce, 8);
            assert_eq!(none.path, "passed_through", "{none}");
            assert!(none.reasons[1].contains("TRIBUTARY_MANAGER"), "{none}");
        }
    }
}
