//! How the hosts of a communicator come to meet: by the methods that selection opens.

use tributary_settings::{FabricChoice, NetworkChoice, Sums};

use super::agreement::{Unavailable, agree};
use super::direct::{self, WantedGroups};
use super::wanted::Wanted;
use super::{network, tree};
use crate::bootstrap::{Bootstrap, BootstrapError, broadcast_text};
use crate::context::Context;
use crate::engine::{InterHostMethods, StreamUse};
use crate::placement::Placement;
use tributary_selection::{Decision, Hosts, Opened, Selection, share_a_kernel};

/// What a communicator of several hosts has opened.
pub(super) struct Joined {
    pub(super) methods: InterHostMethods,
    pub(super) selection: Selection,
    pub(super) stream: Option<StreamUse>,
    /// What carries data between leaders and the tree, for the report; none without a tree.
    pub(super) carriers: Option<String>,
    /// Why there is no tree where there should be one; none if there is.
    pub(super) refusal: Option<String>,
    /// Why nothing takes over when the tree is lost; none if something does, or nothing is wanted.
    pub(super) without_failover: Option<String>,
    /// Whether there is a tree already.
    pub(super) has_tree: bool,
}

impl Joined {
    fn add_tree(&mut self, tree: tree::Joined) {
        self.has_tree = tree.lacking.is_none();
        self.refusal = tree.lacking;
        self.methods.tree = tree.tree;
        self.without_failover = tree.without_failover;
        self.stream = tree.stream;
        self.carriers = Some(match self.carriers.take() {
            Some(between_leaders) => {
                format!("{}; between leaders {between_leaders}", tree.carriers)
            }
            None => tree.carriers,
        });
    }
}

/// Opens the methods that rank 0's settings and measurements ask for.
pub(super) fn join(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    placement: &Placement,
    wanted: Wanted<'_>,
) -> Result<Joined, Unavailable> {
    let hosts = placement.host_count();
    if context.is_left_to_mpi {
        return Err(Unavailable::LeftToMpi { hosts });
    }
    if context.settings.fabric == FabricChoice::Off {
        return Err(Unavailable::SwitchedOff { hosts });
    }
    if let Some(problem) = context.unreachable() {
        return Err(Unavailable::Unreachable { hosts, problem: problem.to_owned() });
    }
    let decision = decide(context, bootstrap, placement, wanted.sums)?;
    let mut tree = None;
    let mut refusal = None;
    if decision.opens_tree {
        match tree::join(context, bootstrap, placement, wanted.label, &decision) {
            Ok(joined) => tree = Some(joined),
            Err(Unavailable::NotGranted(problem)) if decision.falls_back => refusal = Some(problem),
            Err(error @ Unavailable::NoManager { .. })
                if decision.falls_back && context.settings.fabric.joins_by_job() =>
            {
                refusal = Some(error.to_string());
            }
            Err(error) => return Err(error),
        }
    }
    let mut direct_leaders = 0;
    let mut direct = None;
    if decision.opens_direct || refusal.is_some() {
        direct_leaders = decision.leaders_max(placement.local_ranks_min());
        let groups = decision.group_radices().map(|radices| WantedGroups {
            radices,
            multicast: decision.multicasts,
            receive: decision.receives_from,
        });
        let opened = direct::open_method(context, bootstrap, placement, direct_leaders, groups)?;
        direct = Some(opened);
    }
    let ranks = placement.ranks();
    let is_in_host_order = placement.is_in_host_order();
    let opened = Opened {
        tree: tree.is_some(),
        in_kernel: tree.as_ref().is_some_and(|tree| tree.in_kernel),
        direct_leaders,
        group_algorithm: direct.as_ref().and_then(|direct| direct.group_algorithm),
        leaves: placement.leaves.clone(),
        ranks,
        is_in_host_order,
    };
    let selection = Selection::between_hosts(decision, &opened);
    let (links, carriers) = direct.map_or((None, None), |it| (it.method, it.carriers));
    let mut joined = Joined {
        methods: InterHostMethods { tree: None, direct: links },
        selection,
        stream: None,
        carriers,
        refusal,
        without_failover: None,
        has_tree: false,
    };
    if let Some(tree) = tree {
        joined.add_tree(tree);
    }
    Ok(joined)
}

/// Rank 0 decides.
fn decide(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    placement: &Placement,
    sums: Sums,
) -> Result<Decision, Unavailable> {
    let one_kernel = share_a_kernel(&placement.hosts);
    let tuning = agree(bootstrap, context.measurements.between(one_kernel))?;
    let hosts = Hosts {
        leaves: placement.leaves.clone(),
        have_datagrams: context.has_datagrams(),
        ..hosts_between(context, &placement.hosts, placement.ranks())
    };
    let decision = Decision::new(&context.settings, &tuning, &hosts).with_sums(sums);
    let text = serde_json::to_string(&decision).expect("a decision is plain data");
    let text = broadcast_text(bootstrap, 0, &text)?;
    let damaged = |_| BootstrapError("the choice of a path arrived damaged".to_owned());
    Ok(serde_json::from_str(&text).map_err(damaged)?)
}

/// The hosts, and the kind of network that is named, or that this host is on. One whose address can't be told is as one whose
/// adapter says nothing.
fn hosts_between(context: &Context, names: &[String], ranks: u32) -> Hosts {
    match context.settings.network {
        // Hosts of one kernel too: a lab's network may be what takes the time.
        NetworkChoice::Named(network) => {
            Hosts { network: Some(network), ..Hosts::from_names(names, ranks, network, 0) }
        }
        NetworkChoice::Auto => {
            let network = network::recognise(context.own_address().ok());
            Hosts::from_names(names, ranks, network, network::cores())
        }
    }
}
