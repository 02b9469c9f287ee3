//! Rings, which the datagrams of replicated groups come by: whose program fills them, and what the report says of them.

use tributary_inter_host::replicated::ReplicatedLevels;
use tributary_settings::ReceiveChoice;

use crate::placement::Placement;

/// Where a host takes the datagrams of replicated groups from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reception {
    /// Its sockets, as it is to.
    Sockets,
    /// A ring.
    Ring,
    /// Its sockets, because there can be no ring.
    NoRing(String),
}

const RING: &str = "ring";
const NO_RING: char = '-';

impl Reception {
    /// As a host tells it to others.
    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Sockets => String::new(),
            Self::Ring => RING.to_owned(),
            Self::NoRing(problem) => format!("{NO_RING}{problem}"),
        }
    }

    fn from_text(text: &str) -> Self {
        match text.strip_prefix(NO_RING) {
            Some(problem) => Self::NoRing(problem.to_owned()),
            None if text == RING => Self::Ring,
            None => Self::Sockets,
        }
    }
}

/// Has a host take the datagrams of its groups from where it is to. Where there can be no ring it takes them from its sockets, which changes
/// nothing for other hosts.
pub(super) fn open(
    receive: ReceiveChoice,
    service: &str,
    levels: &mut ReplicatedLevels,
) -> Reception {
    if receive == ReceiveChoice::Socket {
        return Reception::Sockets;
    }
    let address = match service.parse() {
        Ok(address) => address,
        Err(problem) => return Reception::NoRing(format!("TRIBUTARY_RINGS: {problem}")),
    };
    match levels.receive_by_ring(&address) {
        Ok(()) => Reception::Ring,
        Err(problem) if problem.is_no_service() && receive == ReceiveChoice::Auto => {
            Reception::Sockets
        }
        Err(problem) => Reception::NoRing(problem.to_string()),
    }
}

/// What to add to what the groups send, by what each rank has told.
pub(super) fn summary(placement: &Placement, told: &[String]) -> String {
    let leaders = placement.leaders.iter().map(|rank| *rank as usize);
    let hosts: Vec<_> = leaders.map(|rank| Reception::from_text(&told[rank])).collect();
    let is_without = |host: &Reception| *host != Reception::Ring;
    let refused = hosts.iter().position(|host| matches!(host, Reception::NoRing(_)));
    match refused.or_else(|| hosts.iter().position(is_without)) {
        None => " in rings".to_owned(),
        Some(_) if hosts.iter().all(|host| *host == Reception::Sockets) => String::new(),
        Some(host) => {
            let name = &placement.hosts[host];
            match &hosts[host] {
                Reception::NoRing(problem) => format!(" (no ring at {name}: {problem})"),
                _ => format!(" (no ring at {name}: it has no service of rings)"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_tell_where_they_take_datagrams_from() {
        let refused = Reception::NoRing("interface eth0: not permitted".to_owned());
        for reception in [Reception::Sockets, Reception::Ring, refused] {
            assert_eq!(Reception::from_text(&reception.to_text()), reception);
        }
    }
}
