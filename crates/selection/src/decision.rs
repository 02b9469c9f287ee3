//! Which inter-host methods a communicator opens, and what its operations are selected by.

use serde::{Deserialize, Serialize};
use tributary_algorithms::model::Costs;
use tributary_algorithms::network::{Network, NetworkPrices};
use tributary_algorithms::{Leaves, Radices};
use tributary_tuning::{
    AlgorithmChoice, CostsRow, Measurement, Method, Tuning, fastest_levels, rows_of_levels,
};
use tributary_wire::host::kernel_of;

use super::groups;
use super::lab;
use super::losses::Avoided;
use super::model::Model;
use super::predicted;
use super::table::Table;
use tributary_settings::{
    BetweenHosts, Fallback, LEADERS_MAX, LongestBytes, MulticastChoice, ReceiveChoice, Settings,
    Sums,
};

/// What rank 0 decides for all ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Decision {
    /// Whether it asks for a group in the tree.
    pub opens_tree: bool,
    /// Whether direct links carry all where there is no tree, or not yet.
    pub falls_back: bool,
    /// Whether leaders of different hosts are joined directly.
    pub opens_direct: bool,
    /// Why these methods.
    pub(crate) basis: Basis,
    pub(crate) table: Table,
    /// The same where the tree can't be had.
    pub(crate) direct_table: Table,
    /// The same where aggregators take short segments inside the kernel; none if that changes nothing.
    pub(crate) kernel_table: Option<Table>,
    named_algorithm: AlgorithmChoice,
    costs: Option<CostsRow>,
    /// What messages cost between the hosts: as measured here, else on the kind of network; none where there is no network.
    pub(crate) prices: Option<NetworkPrices>,
    /// Whether what they predict decides where nothing was measured.
    pub(crate) predicts: bool,
    /// How many members the replicated groups of each level have, from the lowest; none where there are no such groups.
    group_radices: Option<Vec<u32>>,
    /// Whether members of those groups multicast where multicasts come to all.
    pub multicasts: bool,
    /// Where those members take datagrams from.
    pub receives_from: ReceiveChoice,
    pub(crate) leaders: Option<u32>,
    pub(crate) sub_partitions: Option<u32>,
    /// Shortest vector that is streamed through the tree; none if none is.
    pub stream_min_bytes: Option<u64>,
    /// Up to what length the collectives are taken of which MPI does longer ones faster.
    pub(crate) longest: LongestBytes,
    /// Whether sums of floats are exact.
    pub(crate) sums_exactly: bool,
    /// Which operations avoid links that lose packets, if any do.
    pub(crate) avoided: Option<Avoided>,
}

/// What a decision rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Basis {
    /// The user named the method.
    Named,
    /// A tuning file of this system.
    TuningFile,
    /// The figures of a lab, whose hosts share a kernel.
    Lab,
    /// What the model predicts for the kind of network.
    Predicted,
    /// Two real hosts: a direct exchange is one message each way.
    Pair,
    /// Something is asked for that only the tree does: streams, or results for an external receiver.
    TreeOnly,
    /// No figures hold: hosts are emulated.
    Unmeasured,
}

/// The hosts of a communicator, as far as a decision depends on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    /// How many there are, and which share a leaf switch.
    pub leaves: Leaves,
    /// The kind of network between them; none if they are of one kernel, and share its cores.
    pub network: Option<Network>,
    /// Ranks of them all.
    pub ranks: u32,
    /// Whether datagrams come through between them, as far as that was tried.
    pub have_datagrams: bool,
}

impl Hosts {
    /// Hosts by their names, between which there is a network of this kind unless they are of one kernel. There all that
    /// hosts do takes turns on too few of this machine's `cores`, or else what carries messages is a bridge.
    #[must_use]
    pub fn from_names(names: &[String], ranks: u32, network: Network, cores: u32) -> Self {
        let network = match share_a_kernel(names) {
            false => Some(network),
            true => (ranks <= cores).then_some(Network::Bridge),
        };
        let leaves = Leaves::unknown(names.len() as u32);
        Self { leaves, network, ranks, have_datagrams: true }
    }

    fn count(&self) -> u32 {
        self.leaves.hosts()
    }
}

/// Whether a tree and direct links are opened, in this order.
fn choose_methods(settings: &Settings, basis: Basis, table: &Table, hosts: &Hosts) -> (bool, bool) {
    match (settings.between_hosts, basis) {
        (BetweenHosts::Tree, _) => (true, false),
        (BetweenHosts::Direct | BetweenHosts::Replicated, _) => (false, true),
        (BetweenHosts::Auto, basis) if is_joined_by_job(settings) => {
            (basis == Basis::TreeOnly, basis != Basis::TreeOnly)
        }
        // The figures are not of every collective; the others go through the tree.
        (BetweenHosts::Auto, Basis::Lab | Basis::Predicted) => (true, true),
        (BetweenHosts::Auto, Basis::TuningFile) if !table.is_empty() => {
            (table.takes(Method::Tree), table.takes(Method::Direct))
        }
        (BetweenHosts::Auto, _) => (!is_pair(settings, hosts), is_pair(settings, hosts)),
    }
}

/// Whether groups multicast on a network. The bridge of one kernel would copy on the sender's core.
fn multicasts(choice: MulticastChoice, network: Option<Network>) -> bool {
    match choice {
        MulticastChoice::On => true,
        MulticastChoice::Off => false,
        MulticastChoice::Auto => network.is_some_and(|it| it != Network::Bridge),
    }
}

/// Whether hosts share a kernel, and have no network between them, although their names differ.
#[must_use]
pub fn share_a_kernel(hosts: &[String]) -> bool {
    let mut kernels = hosts.iter().map(|host| kernel_of(host));
    let first = kernels.next().flatten();
    first.is_some() && kernels.all(|kernel| kernel == first)
}

impl Decision {
    /// What rank 0 decides by its settings and by what was measured of the system.
    #[must_use]
    pub fn new(settings: &Settings, tuning: &Tuning, hosts: &Hosts) -> Self {
        let basis = Basis::of(settings, tuning, hosts);
        let prices = tuning.prices.or(hosts.network.map(NetworkPrices::from));
        // Constants of this machine alone say nothing of datagrams.
        let has_constants_alone = tuning.costs.is_some() && tuning.prices.is_none();
        let priced = prices.as_ref().filter(|_| !has_constants_alone);
        let measurements = measurements(basis, tuning);
        let named = settings.groups.filter(|radices| hosts.leaves.groups(*radices).is_some());
        let radices = named
            .or_else(|| fastest_levels(&measurements, &hosts.leaves))
            .or_else(|| groups::fastest_radices(&hosts.leaves, priced));
        let measurements = rows_of_levels(measurements, radices);
        let fastest = |only: Option<Method>| {
            let suits = |row: &&Measurement| only.is_none_or(|method| row.method == method);
            Table::fastest(measurements.iter().filter(suits), hosts.count(), hosts.ranks)
        };
        let direct_table = fastest(Some(Method::Direct));
        let table = match settings.between_hosts {
            BetweenHosts::Auto => fastest(None),
            // What was measured of the named method still tells algorithms and leaders.
            BetweenHosts::Tree => fastest(Some(Method::Tree)),
            BetweenHosts::Direct | BetweenHosts::Replicated => direct_table.clone(),
        };
        // A tuning file has the system's aggregators as they are.
        let kernel_table = (basis == Basis::Lab).then(|| {
            let inside = lab::inside_the_kernel(&measurements);
            Table::fastest(&inside, hosts.count(), hosts.ranks)
        });
        let (opens_tree, opens_direct) = choose_methods(settings, basis, &table, hosts);
        let takes_groups = match (settings.between_hosts, basis) {
            (BetweenHosts::Replicated, _) => true,
            _ if !hosts.have_datagrams || names_another_way(settings) => false,
            (BetweenHosts::Auto, Basis::TuningFile) => table.takes_datagrams(),
            (BetweenHosts::Auto, Basis::Predicted) => {
                radices.zip(priced).is_some_and(|(radices, prices)| {
                    predicted::groups_win(&hosts.leaves, radices, prices)
                })
            }
            _ => false,
        };
        Self {
            opens_tree,
            falls_back: settings.fallback == Fallback::Direct,
            opens_direct,
            basis,
            table,
            direct_table,
            kernel_table,
            named_algorithm: settings.direct_algorithm,
            costs: tuning.costs,
            prices,
            predicts: basis == Basis::Predicted
                || basis == Basis::TuningFile && tuning.prices.is_some(),
            group_radices: radices.filter(|_| takes_groups).map(|radices| radices.iter().collect()),
            multicasts: multicasts(settings.multicast, hosts.network),
            receives_from: settings.receive,
            leaders: settings.leaders,
            sub_partitions: settings.sub_partitions,
            stream_min_bytes: settings.stream_min_bytes,
            longest: settings.offload_max.between,
            sums_exactly: settings.sums == Sums::Exact,
            avoided: Avoided::of(settings.avoid_losses),
        }
    }

    /// The same with floats added as a caller wants it, whatever the settings say.
    #[must_use]
    pub fn with_sums(self, sums: Sums) -> Self {
        Self { sums_exactly: sums == Sums::Exact, ..self }
    }

    /// Whether sums of floats are exact.
    #[must_use]
    pub fn sums_exactly(&self) -> bool {
        self.sums_exactly
    }

    /// The radices of the levels of replicated groups; none where there are no such groups.
    #[must_use]
    pub fn group_radices(&self) -> Option<Radices> {
        Radices::new(self.group_radices.as_deref()?)
    }

    /// How many ranks of each host, where the least has `ranks`, may lead over direct links.
    #[must_use]
    pub fn leaders_max(&self, ranks: u32) -> u32 {
        let modelled = self.costs.map(|_| LEADERS_MAX);
        let asked = self.leaders.or(self.table.leaders_max()).or(modelled).unwrap_or(1);
        asked.min(LEADERS_MAX).min(ranks)
    }

    pub(crate) fn model(&self) -> Model {
        Model::new(self.named_algorithm, self.costs.map(Costs::from))
    }
}

impl Basis {
    fn of(settings: &Settings, tuning: &Tuning, hosts: &Hosts) -> Self {
        if settings.between_hosts != BetweenHosts::Auto {
            return Self::Named;
        }
        if tuning.has_shape_near(hosts.count(), hosts.ranks) {
            return Self::TuningFile;
        }
        if is_pair(settings, hosts) {
            return Self::Pair;
        }
        if settings.stream_min_bytes.is_some() || settings.external_receiver.is_some() {
            return Self::TreeOnly;
        }
        match hosts.network {
            _ if !are_real(settings) || hosts.count() <= 2 => Self::Unmeasured,
            None if tuning.prices.is_none() => Self::Lab,
            _ => Self::Predicted,
        }
    }
}

/// Whether the user names how direct links carry operations.
fn names_another_way(settings: &Settings) -> bool {
    let has_leaders = settings.leaders.is_some_and(|leaders| leaders > 1);
    settings.direct_algorithm != AlgorithmChoice::Auto || has_leaders
}

/// Emulated hosts are there to show the tree, and have no network between them.
fn are_real(settings: &Settings) -> bool {
    settings.hosts == 1 && (settings.manager.is_some() || is_joined_by_job(settings))
}

/// Whether there is no manager to give a tree, but the job makes direct links itself.
pub(crate) fn is_joined_by_job(settings: &Settings) -> bool {
    settings.manager.is_none() && settings.fabric.joins_by_job()
}

fn is_pair(settings: &Settings, hosts: &Hosts) -> bool {
    hosts.count() == 2 && are_real(settings)
}

pub(crate) fn measurements(basis: Basis, tuning: &Tuning) -> Vec<Measurement> {
    match basis {
        Basis::Lab => lab::figures().to_vec(),
        _ => tuning.measurements.clone(),
    }
}
