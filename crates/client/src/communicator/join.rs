//! How the hosts of a communicator are joined: by aggregation nodes, or directly.
//!
//! Rank 0's settings decide, so that all ranks do the same.

use std::net::SocketAddr;

use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use super::setup::{Unavailable, agree, enter_tree, request_group};
use crate::bootstrap::{Bootstrap, BootstrapError, allgather_texts, broadcast_text};
use crate::context::Context;
use crate::mesh::{Choice, Door, Identity, Mesh, own_address};
use crate::plan::{Between, Seat};
use crate::settings::{BetweenHosts, Fallback, Settings};
use crate::tree::TreeMember;

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
    choice: Choice,
}

impl Decision {
    fn new(settings: &Settings, hosts: usize) -> Self {
        // Emulated hosts are there to show the tree, and have no network between them.
        let is_pair = hosts == 2 && settings.hosts == 1 && settings.manager.is_some();
        let takes_mesh = match settings.between_hosts {
            BetweenHosts::Auto => is_pair,
            BetweenHosts::Tree => false,
            BetweenHosts::Mesh => true,
        };
        Self {
            takes_tree: !takes_mesh,
            falls_back: settings.fallback == Fallback::Mesh
                && settings.between_hosts != BetweenHosts::Tree,
            choice: Choice::new(settings.mesh_algorithm),
        }
    }
}

/// Joins the hosts, and notes in `seat` how.
pub(super) fn join_hosts(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    seat: &mut Seat,
    label: &str,
) -> Result<Joint, Unavailable> {
    let decision = Decision::new(&context.settings, seat.placement.hosts.len());
    let text = serde_json::to_string(&decision).expect("a decision is plain data");
    let text = broadcast_text(bootstrap, 0, &text)?;
    let decision: Decision = serde_json::from_str(&text)
        .map_err(|_| BootstrapError("the choice of a way arrived damaged".to_owned()))?;
    if decision.takes_tree {
        match join_by_tree(context, bootstrap, seat, label) {
            Err(Unavailable::NotGranted(problem)) if decision.falls_back => {
                seat.note = Some(problem);
            }
            outcome => return outcome,
        }
    }
    let mesh = open_mesh(context, bootstrap, seat, decision.choice)?;
    seat.between = Some(Between::Mesh);
    Ok(Joint { tree: None, mesh })
}

fn join_by_tree(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    seat: &mut Seat,
    label: &str,
) -> Result<Joint, Unavailable> {
    let grant = request_group(context, bootstrap, seat, label)?;
    seat.endpoints = grant.endpoints.iter().map(|endpoint| endpoint.endpoint).collect();
    let tree = enter_tree(context, bootstrap, seat, &grant)?;
    seat.between = Some(Between::Tree);
    Ok(Joint { tree, mesh: None })
}

/// Leaders open their doors and tell each other where; nobody connects before it needs to.
fn open_mesh(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    seat: &Seat,
    choice: Choice,
) -> Result<Option<Mesh>, Unavailable> {
    let opened = seat.is_leader().then(|| open_door(context, seat)).transpose();
    let opened = agree(bootstrap, opened)?;
    let mine = opened.as_ref().map_or_else(String::new, |(_, address)| address.to_string());
    let texts = allgather_texts(bootstrap, &mine)?;
    let leaders = seat.placement.leaders.iter().zip(&seat.placement.hosts);
    let addresses: Result<Vec<SocketAddr>, String> = leaders
        .map(|(rank, host)| address_of(&texts[*rank as usize], host, &context.machine))
        .collect();
    let addresses = agree(bootstrap, addresses)?;
    let identity = share_identity(bootstrap)?;
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
    let is_here = host.split('#').next() == Some(machine);
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

    #[test]
    fn two_real_hosts_are_joined_directly_and_emulated_ones_by_the_tree() {
        let takes_tree = |hosts: usize, settings: &[(&str, &str)]| {
            let set = |name: &str| {
                let found = settings.iter().find(|(set, _)| *set == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            Decision::new(&Settings::from_environment(set).unwrap(), hosts).takes_tree
        };
        let manager = ("TRIBUTARY_MANAGER", "10.0.0.1:7470");
        assert!(!takes_tree(2, &[manager]));
        assert!(takes_tree(3, &[manager]));
        assert!(takes_tree(2, &[]));
        assert!(takes_tree(2, &[manager, ("TRIBUTARY_HOSTS", "2")]));
        assert!(takes_tree(2, &[manager, ("TRIBUTARY_BETWEEN_HOSTS", "tree")]));
        assert!(!takes_tree(9, &[("TRIBUTARY_BETWEEN_HOSTS", "mesh")]));
    }

    #[test]
    fn a_loopback_address_is_for_its_own_machine() {
        assert!(address_of("127.0.0.1:9", "here@1#1", "here@1").is_ok());
        assert!(address_of("127.0.0.1:9", "there@1", "here@1").unwrap_err().contains("there@1"));
        assert!(address_of("10.0.0.2:9", "there@1", "here@1").is_ok());
        assert!(address_of("", "there@1", "here@1").is_err());
    }
}
