//! Socket-level leaders: where a communicator spans hosts, each socket of a host may have a leader of
//! its own between them, so that no contribution crosses from socket to socket on its way (Bayatpour et
//! al., "Scalable Reduction Collectives with Data Partitioning-based Multi-Leader Design", SC 2017,
//! section 4.3).
//!
//! Owns the choice of who shares a leader. To everything else such a socket is a host: its ranks share
//! memory, their leader meets the others between hosts, and sockets are reduced in the order of their
//! lowest ranks. Communicators of one host have one leader a host always: there is nothing between
//! hosts to go to.

use super::agreement::Unavailable;
use crate::bootstrap::{Bootstrap, BootstrapError, allgather_texts, broadcast_text};
use crate::context::Context;
use crate::leaf::Leaf;
use crate::placement::Placement;
use tributary_shm_collectives::processor::Processor;

/// Where all ranks are, by host, or by socket where rank 0's settings say so; beside it, for the
/// report, which of the two it is, if it was asked for. Collective.
pub(super) fn place(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
) -> Result<(Placement, Option<String>), Unavailable> {
    let told = allgather_texts(bootstrap, &context.leaf.told_with(&context.host))?;
    let apart = told.iter().map(|told| Leaf::split_from(told));
    let (hosts, leaves): (Vec<String>, Vec<Leaf>) = apart.unzip();
    let rank = bootstrap.rank();
    let placement = Placement::new(rank, &hosts);
    let (placement, note) = refine_if_asked(context, bootstrap, placement, &hosts)?;
    Ok((placement.with_leaves(&leaves), note))
}

/// By socket where rank 0's settings say so.
fn refine_if_asked(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    placement: Placement,
    hosts: &[String],
) -> Result<(Placement, Option<String>), Unavailable> {
    if placement.hosts.len() == 1 {
        return Ok((placement, None));
    }
    let asked = context.settings.sockets.map_or_else(String::new, |sockets| sockets.to_string());
    let asked = broadcast_text(bootstrap, 0, &asked)?;
    if asked.is_empty() {
        let own = Processor::own().socket.map_or_else(String::new, |socket| socket.to_string());
        let sockets = allgather_texts(bootstrap, &own)?;
        return Ok(by_kernel(placement, hosts, &sockets));
    }
    let damaged = || BootstrapError("the number of sockets arrived damaged".to_owned());
    match asked.parse().map_err(|_| damaged())? {
        1 => Ok((placement, None)),
        sockets => Ok(by_number(&placement, hosts, sockets)),
    }
}

/// By the sockets that ranks are bound to; by hosts, if one is bound to none.
fn by_kernel(
    placement: Placement,
    hosts: &[String],
    sockets: &[String],
) -> (Placement, Option<String>) {
    if let Some(rank) = sockets.iter().position(String::is_empty) {
        let note = format!("a leader a host: rank {rank} is not bound to one socket");
        return (placement, Some(note));
    }
    refine(&placement, hosts, |rank| sockets[rank].clone())
}

/// Each host's ranks in `sockets` blocks.
fn by_number(placement: &Placement, hosts: &[String], sockets: u32) -> (Placement, Option<String>) {
    refine(placement, hosts, |rank| {
        let local = u64::from(placement.local_of[rank]);
        let ranks = u64::from(placement.ranks_on[placement.host_of[rank] as usize]);
        (local * u64::from(sockets) / ranks).to_string()
    })
}

fn refine(
    placement: &Placement,
    hosts: &[String],
    socket: impl Fn(usize) -> String,
) -> (Placement, Option<String>) {
    let name = |(rank, host): (usize, &String)| {
        // What follows the first `#` is not the machine's name; see `tributary_wire::host`.
        let separator = if host.contains('#') { '.' } else { '#' };
        format!("{host}{separator}{}", socket(rank))
    };
    let names: Vec<String> = hosts.iter().enumerate().map(name).collect();
    let placement = Placement::new(placement.rank, &names);
    let note = format!("a leader a socket: {} in all", placement.hosts.len());
    (placement, Some(note))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_number_deals_every_hosts_ranks_in_blocks() {
        let hosts = names("a a a b a b");
        let (placement, note) = by_number(&Placement::new(0, &hosts), &hosts, 2);
        // By their lowest ranks: 0, 2, 3, 5.
        assert_eq!(placement.hosts, names("a#0 a#1 b#0 b#1"));
        assert_eq!(placement.host_of, [0, 0, 1, 2, 1, 3]);
        assert_eq!(note.as_deref(), Some("a leader a socket: 4 in all"));
        let hosts = names("a#0 a#1 a#0");
        let (placement, _) = by_number(&Placement::new(0, &hosts), &hosts, 4);
        // Fewer ranks than sockets: no socket is empty, some are not there.
        assert_eq!(placement.hosts, names("a#0.0 a#1.0 a#0.2"));
    }

    #[test]
    fn the_kernels_sockets_count_only_where_every_rank_is_bound_to_one() {
        let hosts = names("a a b b");
        let of = |sockets: [&str; 4]| {
            let sockets: Vec<String> = sockets.map(str::to_owned).into();
            let (placement, note) = by_kernel(Placement::new(0, &hosts), &hosts, &sockets);
            (placement.hosts, note.unwrap())
        };
        assert_eq!(of(["0", "1", "0", "0"]).0, names("a#0 a#1 b#0"));
        let (hosts, note) = of(["0", "1", "", "0"]);
        assert_eq!((hosts, note.contains("rank 2")), (names("a b"), true));
    }
}
