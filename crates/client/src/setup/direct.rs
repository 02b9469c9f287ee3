//! How leaders come to direct links between their hosts.

use std::net::SocketAddr;

use rustix::rand::{GetRandomFlags, getrandom};
use tributary_wire::host::machine_of;

use super::agreement::{Unavailable, agree};
use crate::bootstrap::{Bootstrap, allgather_texts};
use crate::context::Context;
use crate::placement::Placement;
use tributary_inter_host::{DirectLinks, Identity, Listener};

/// The first `leaders` ranks of every host listen and tell each other where; each meets those that have
/// the same number on their hosts. Nobody connects before an operation needs it.
pub(super) fn open(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    placement: &Placement,
    leaders: u32,
) -> Result<Option<DirectLinks>, Unavailable> {
    let number = placement.local_rank();
    let opened = (number < leaders).then(|| listen(context, placement)).transpose();
    let opened = agree(bootstrap, opened)?;
    let mine = opened.as_ref().map_or_else(String::new, |(_, address)| address.to_string());
    let texts = allgather_texts(bootstrap, &mine)?;
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
    let authenticates = context.authenticates_frames();
    let identity = share_identity(bootstrap, authenticates)?.of_leader(number);
    Ok(opened
        .map(|(listener, _)| DirectLinks::new(placement.host(), identity, listener, addresses)))
}

fn listen(context: &Context, placement: &Placement) -> Result<(Listener, SocketAddr), String> {
    if placement.hosts.len() > HOSTS_MAX {
        let hosts = placement.hosts.len();
        return Err(format!("{hosts} hosts are more than {HOSTS_MAX} that can be joined directly"));
    }
    let address = context.own_address().map_err(|error| error.to_string())?;
    Listener::bind(address, context.settings.ports).map_err(|error| error.to_string())
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

/// Rank 0 draws what the members know each other by, and what their frames are authenticated with.
fn share_identity(
    bootstrap: &mut dyn Bootstrap,
    authenticates: bool,
) -> Result<Identity, Unavailable> {
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
    Ok(Identity::from_bytes(bytes, authenticates))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::Alone;

    #[test]
    fn every_communicator_has_an_identity_of_its_own_and_a_key_where_the_job_says_so() {
        for authenticates in [false, true] {
            let drawn = [(); 2].map(|()| share_identity(&mut Alone, authenticates).unwrap());
            assert_ne!(drawn[0], drawn[1]);
            assert!(drawn.iter().all(|identity| identity.is_authenticated() == authenticates));
        }
    }

    #[test]
    fn a_loopback_address_is_for_its_own_machine() {
        assert!(address_of("127.0.0.1:9", "here@1#1", "here@1").is_ok());
        assert!(address_of("127.0.0.1:9", "there@1", "here@1").unwrap_err().contains("there@1"));
        assert!(address_of("10.0.0.2:9", "there@1", "here@1").is_ok());
        assert!(address_of("", "there@1", "here@1").is_err());
    }
}
