//! How the hosts of a communicator are joined: by aggregation nodes, or directly.
//!
//! Rank 0's settings decide, so that all ranks do the same.

use std::borrow::Cow;
use std::net::SocketAddr;

use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use tributary_algorithms::model::Costs;
use tributary_wire::host::{kernel_of, machine_of};

use super::setup::{Unavailable, agree, enter_tree, request_group};
use crate::bootstrap::{Bootstrap, BootstrapError, allgather_texts, broadcast_text};
use crate::context::Context;
use crate::mesh::{Choice, Door, Identity, Mesh, own_address};
use crate::outsider;
use crate::seat::{Seat, StreamUse};
use crate::settings::{BetweenHosts, Fallback, Settings};
use crate::tree::TreeMember;
use crate::tuning::{CostsRow, Measurement, Tuning};
use crate::ways::{Between, LEADERS_MAX, Ways};

/// What joins the hosts; at leaders.
#[derive(Default)]
pub(crate) struct Joint {
    pub(crate) tree: Option<TreeMember>,
    pub(crate) mesh: Option<Mesh>,
}

/// What rank 0 decides for all.
#[derive(Clone, Serialize, Deserialize)]
struct Decision {
    takes_tree: bool,
    /// Whether the mesh follows where the tree can't be had.
    falls_back: bool,
    takes_mesh: bool,
    choice: Choice,
    rules: Vec<Measurement>,
    /// The same where the tree can't be had.
    mesh_rules: Vec<Measurement>,
    costs: Option<CostsRow>,
    leaders: Option<u32>,
    /// Shortest vector that is streamed; none if none is.
    stream_min_bytes: Option<u64>,
    sub_partitions: Option<u32>,
}

/// The built-in figures are of up to 8 hosts, and say little of many more: steps between hosts grow
/// with their number, and a tree's depth hardly.
const BUILT_IN_HOSTS_MAX: usize = 16;

impl Decision {
    fn new(settings: &Settings, tuning: &Tuning, hosts: &[String], ranks: u32) -> Self {
        let are_of_one_kernel = are_of_one_kernel(hosts);
        let hosts = hosts.len();
        // Emulated hosts are there to show the tree, and have no network between them.
        let are_real = settings.hosts == 1 && settings.manager.is_some();
        let is_pair = hosts == 2 && are_real;
        // Only the tree streams, and has a place for outsiders.
        let needs_tree = settings.stream_min_bytes.is_some() || settings.outsider.is_some();
        let takes_built_in = settings.between_hosts == BetweenHosts::Auto
            && tuning.measurements.is_empty()
            && are_real
            && !needs_tree
            && (3..=BUILT_IN_HOSTS_MAX).contains(&hosts);
        let measured = match (takes_built_in, are_of_one_kernel) {
            (false, _) => Cow::Borrowed(tuning),
            (true, true) => Cow::Borrowed(Tuning::built_in()),
            (true, false) => Cow::Owned(Tuning::built_in().across_links()),
        };
        let mesh_rules = measured.of(Between::Mesh).rules(hosts as u32, ranks);
        let rules = match settings.between_hosts {
            BetweenHosts::Auto => measured.rules(hosts as u32, ranks),
            // One way is named: what was measured of it still tells algorithms and leaders.
            BetweenHosts::Tree => measured.of(Between::Tree).rules(hosts as u32, ranks),
            BetweenHosts::Mesh => mesh_rules.clone(),
        };
        let has_rule = |joint| rules.iter().any(|rule| rule.joint == joint);
        let (takes_tree, takes_mesh) = match settings.between_hosts {
            BetweenHosts::Auto if rules.is_empty() => (!is_pair, is_pair),
            // What is built in is not of every collective, and the others are the tree's.
            BetweenHosts::Auto if takes_built_in => (true, true),
            BetweenHosts::Auto => (has_rule(Between::Tree), has_rule(Between::Mesh)),
            BetweenHosts::Tree => (true, false),
            BetweenHosts::Mesh => (false, true),
        };
        Self {
            takes_tree,
            takes_mesh,
            falls_back: settings.fallback == Fallback::Mesh
                && settings.between_hosts != BetweenHosts::Tree,
            choice: Choice::new(settings.mesh_algorithm, tuning.costs),
            rules,
            mesh_rules,
            costs: tuning.costs,
            leaders: settings.leaders,
            stream_min_bytes: settings.stream_min_bytes,
            sub_partitions: settings.sub_partitions,
        }
    }

    /// How many ranks of each host, where the least has `ranks`, may lead.
    fn leaders_max(&self, ranks: u32) -> u32 {
        let measured = self.rules.iter().map(|rule| rule.leaders).max();
        let modelled = self.costs.map(|_| LEADERS_MAX);
        let asked = self.leaders.or(measured).or(modelled).unwrap_or(1);
        asked.min(LEADERS_MAX).min(ranks)
    }
}

/// Whether hosts have no network between them, for all they are called differently.
fn are_of_one_kernel(hosts: &[String]) -> bool {
    let mut kernels = hosts.iter().map(|host| kernel_of(host));
    let first = kernels.next().flatten();
    first.is_some() && kernels.all(|kernel| kernel == first)
}

/// Joins the hosts, and notes in `seat` how.
pub(super) fn join_hosts(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    seat: &mut Seat,
    label: &str,
) -> Result<Joint, Unavailable> {
    let decision = decide(context, bootstrap, seat)?;
    let mut joint = Joint::default();
    let mut takes_mesh = decision.takes_mesh;
    let mut has_tree = false;
    if decision.takes_tree {
        match join_by_tree(context, bootstrap, seat, label, decision.stream_min_bytes) {
            Ok(tree) => (joint.tree, has_tree) = (tree, true),
            Err(Unavailable::NotGranted(problem)) if decision.falls_back => {
                let form = seat.note.take().map_or_else(String::new, |form| format!("{form}; "));
                seat.note = Some(format!("{form}{problem}"));
                takes_mesh = true;
            }
            Err(error) => return Err(error),
        }
    }
    let ranks = seat.placement.ranks_on.iter().copied().min().unwrap_or(1);
    let leaders_max = if takes_mesh { decision.leaders_max(ranks) } else { 0 };
    if takes_mesh {
        joint.mesh = open_mesh(context, bootstrap, seat, decision.choice.clone(), leaders_max)?;
    }
    let rules = if has_tree { decision.rules } else { decision.mesh_rules };
    seat.ways = Ways {
        usual: Some(if has_tree { Between::Tree } else { Between::Mesh }),
        rules,
        leaders: decision.leaders,
        sub_partitions: decision.sub_partitions,
        leaders_max,
        costs: decision.costs.map(Costs::from),
        hosts: seat.placement.hosts.len() as u32,
        ranks: seat.ranks(),
    };
    Ok(joint)
}

/// Rank 0 reads what was measured, and decides.
fn decide(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    seat: &Seat,
) -> Result<Decision, Unavailable> {
    let path = context.settings.tuning.as_deref().filter(|_| bootstrap.rank() == 0);
    let tuning = path.map(Tuning::read).transpose().map_err(|error| error.to_string());
    let tuning = agree(bootstrap, tuning)?.unwrap_or_default();
    let hosts = &seat.placement.hosts;
    let decision = Decision::new(&context.settings, &tuning, hosts, seat.ranks());
    let text = serde_json::to_string(&decision).expect("a decision is plain data");
    let text = broadcast_text(bootstrap, 0, &text)?;
    let damaged = |_| BootstrapError("the choice of a way arrived damaged".to_owned());
    Ok(serde_json::from_str(&text).map_err(damaged)?)
}

fn join_by_tree(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    seat: &mut Seat,
    label: &str,
    stream_min_bytes: Option<u64>,
) -> Result<Option<TreeMember>, Unavailable> {
    let grant = request_group(context, bootstrap, seat, label)?;
    seat.endpoints = grant.endpoints.iter().map(|endpoint| endpoint.endpoint).collect();
    let stream = stream_min_bytes.zip(grant.stream);
    seat.stream = stream.map(|(min_bytes, terms)| StreamUse { min_bytes, terms });
    let member = enter_tree(context, bootstrap, seat, &grant, stream_min_bytes)?;
    let path = context.settings.outsider.as_deref().filter(|_| bootstrap.rank() == 0);
    let written = grant.outsider.as_ref().zip(path).map(|(grant, path)| {
        outsider::write_grant(grant, path).map_err(|error| format!("{}: {error}", path.display()))
    });
    agree(bootstrap, written.transpose())?;
    let carrier = member.as_ref().map_or("", TreeMember::carrier);
    let carriers = allgather_texts(bootstrap, carrier)?;
    let leaders = seat.placement.leaders.iter().map(|rank| carriers[*rank as usize].as_str());
    seat.carriers = Some(summary(&leaders.collect::<Vec<_>>(), &seat.placement.hosts));
    Ok(member)
}

/// What carries the hosts' data, in a few words.
fn summary(carriers: &[&str], hosts: &[String]) -> String {
    let most = ["shm", "tcp", "udp"]
        .into_iter()
        .max_by_key(|name| carriers.iter().filter(|carrier| *carrier == name).count())
        .unwrap_or_default();
    let mut others = carriers.iter().zip(hosts).filter(|(carrier, _)| **carrier != most);
    match (others.next(), others.count()) {
        (None, _) => most.to_owned(),
        (Some((carrier, host)), 0) => format!("{most}, but {carrier} at {host}"),
        (Some((carrier, host)), more) => {
            format!("{most}, but {carrier} at {host} and {more} more hosts differ")
        }
    }
}

/// The first ranks of every host open their doors and tell each other where; each meets those that
/// have the same number on their hosts. Nobody connects before it needs to.
fn open_mesh(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    seat: &Seat,
    choice: Choice,
    leaders: u32,
) -> Result<Option<Mesh>, Unavailable> {
    let number = seat.local_rank();
    let opened = (number < leaders).then(|| open_door(context, seat)).transpose();
    let opened = agree(bootstrap, opened)?;
    let mine = opened.as_ref().map_or_else(String::new, |(_, address)| address.to_string());
    let texts = allgather_texts(bootstrap, &mine)?;
    let placement = &seat.placement;
    let mut peers = vec![0; placement.hosts.len()];
    for (rank, host) in placement.host_of.iter().enumerate() {
        if placement.local_of[rank] == number {
            peers[*host as usize] = rank;
        }
    }
    let addresses: Result<Vec<SocketAddr>, String> = if opened.is_some() {
        let peers = peers.iter().zip(&placement.hosts);
        peers.map(|(rank, host)| address_of(&texts[*rank], host, &context.machine)).collect()
    } else {
        Ok(Vec::new())
    };
    let addresses = agree(bootstrap, addresses)?;
    let identity = share_identity(bootstrap)?.of_leader(number);
    Ok(opened.map(|(door, _)| Mesh::new(seat.host(), identity, door, addresses, choice)))
}

fn open_door(context: &Context, seat: &Seat) -> Result<(Door, SocketAddr), String> {
    if seat.placement.hosts.len() > HOSTS_MAX {
        let hosts = seat.placement.hosts.len();
        return Err(format!("{hosts} hosts are more than {HOSTS_MAX} that can be joined directly"));
    }
    let settings = &context.settings;
    let address = own_address(settings.host_address, settings.manager.as_deref())
        .map_err(|error| error.to_string())?;
    Door::open(address).map_err(|error| error.to_string())
}

/// Hosts are numbered in 16 bits on the wire.
const HOSTS_MAX: usize = 1 << 16;

/// Reads what a leader said. A loopback address is of use on its own machine only.
fn address_of(text: &str, host: &str, machine: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        text.parse().map_err(|_| format!("host {host} told no address but {text:?}"))?;
    let is_here = machine_of(host) == machine;
    if address.ip().is_loopback() && !is_here {
        return Err(format!(
            "host {host} can't be reached at {}, its loopback address (TRIBUTARY_HOST_ADDRESS)",
            address.ip()
        ));
    }
    Ok(address)
}

/// Rank 0 draws what the members know each other by.
fn share_identity(bootstrap: &mut dyn Bootstrap) -> Result<Identity, Unavailable> {
    let mut bytes = [0; Identity::BYTES];
    let mut drawn = Ok(());
    if bootstrap.rank() == 0 {
        drawn = match getrandom(&mut bytes, GetRandomFlags::empty()) {
            Ok(Identity::BYTES) => Ok(()),
            outcome => Err(format!("no random bytes from the system ({outcome:?})")),
        };
    }
    agree(bootstrap, drawn)?;
    bootstrap.broadcast(0, &mut bytes)?;
    Ok(Identity::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Kind;

    fn decision(hosts: usize, settings: &[(&str, &str)]) -> Decision {
        let set = |name: &str| {
            let found = settings.iter().find(|(set, _)| *set == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let settings = Settings::from_environment(set).unwrap();
        let hosts: Vec<_> = (0..hosts).map(|host| format!("h{host}@{host}")).collect();
        Decision::new(&settings, &Tuning::default(), &hosts, 8)
    }

    #[test]
    fn hosts_of_one_kernel_are_told_from_hosts_of_a_network() {
        let are = |names: &[&str]| {
            are_of_one_kernel(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert!(are(&["a@12", "b@12#0", "b@12#1"]));
        assert!(!are(&["a@12", "b@13"]));
        assert!(!are(&["a", "b"]));
        assert!(!are(&[]));
    }

    #[test]
    fn two_real_hosts_are_joined_directly_and_emulated_ones_by_the_tree() {
        let takes_tree =
            |hosts: usize, settings: &[(&str, &str)]| decision(hosts, settings).takes_tree;
        let manager = ("TRIBUTARY_MANAGER", "10.0.0.1:7470");
        assert!(!takes_tree(2, &[manager]));
        assert!(takes_tree(3, &[manager]));
        assert!(takes_tree(8, &[manager]));
        assert!(takes_tree(17, &[manager]));
        assert!(takes_tree(2, &[]));
        assert!(takes_tree(2, &[manager, ("TRIBUTARY_HOSTS", "2")]));
        assert!(takes_tree(2, &[manager, ("TRIBUTARY_BETWEEN_HOSTS", "tree")]));
        assert!(!takes_tree(9, &[("TRIBUTARY_BETWEEN_HOSTS", "mesh")]));
    }

    #[test]
    fn long_vectors_of_real_hosts_go_as_was_measured_unless_the_tree_is_needed() {
        let long_goes = |settings: &[(&str, &str)]| {
            let decision = decision(8, settings);
            let long = decision.rules.iter().rfind(|rule| rule.collective == Kind::Allreduce);
            (decision.takes_tree, decision.takes_mesh, long.map(|rule| rule.joint))
        };
        let manager = ("TRIBUTARY_MANAGER", "10.0.0.1:7470");
        let tree_alone = (true, false, None);
        assert_eq!(long_goes(&[manager]), (true, true, Some(Between::Mesh)));
        assert_eq!(long_goes(&[]), tree_alone);
        assert_eq!(long_goes(&[manager, ("TRIBUTARY_HOSTS", "8")]), tree_alone);
        assert_eq!(long_goes(&[manager, ("TRIBUTARY_STREAM_MIN", "65536")]), tree_alone);
        assert_eq!(long_goes(&[manager, ("TRIBUTARY_BETWEEN_HOSTS", "tree")]), tree_alone);
    }

    #[test]
    fn without_a_tree_every_length_has_the_fastest_mesh_of_its_own() {
        let decision = decision(8, &[("TRIBUTARY_MANAGER", "10.0.0.1:7470")]);
        assert!(decision.mesh_rules.iter().all(|rule| rule.joint == Between::Mesh));
        let shortest = decision.mesh_rules.iter().map(|rule| rule.len_bytes).min();
        assert!(shortest.is_some_and(|len_bytes| len_bytes <= 8));
    }

    #[test]
    fn the_summary_names_the_first_host_that_differs() {
        let hosts = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(summary(&["udp"; 3], &hosts), "udp");
        assert_eq!(summary(&["udp", "tcp", "udp"], &hosts), "udp, but tcp at b");
        let hosts = ["a", "b", "c", "d", "e"].map(str::to_owned);
        let many = summary(&["tcp", "udp", "tcp", "udp", "udp"], &hosts);
        assert_eq!(many, "udp, but tcp at a and 1 more hosts differ");
    }

    #[test]
    fn a_loopback_address_is_for_its_own_machine() {
        assert!(address_of("127.0.0.1:9", "here@1#1", "here@1").is_ok());
        assert!(address_of("127.0.0.1:9", "there@1", "here@1").unwrap_err().contains("there@1"));
        assert!(address_of("10.0.0.2:9", "there@1", "here@1").is_ok());
        assert!(address_of("", "there@1", "here@1").is_err());
    }
}
