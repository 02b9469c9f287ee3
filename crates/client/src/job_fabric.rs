//! How the hosts of a job come to reach each other where no manager is named.
//!
//! Owns which address each host is reached at, and the trial whether it is. All of it is exchanged through the launcher's
//! world, so that nothing has to be deployed or configured. Must not know communicators: each has listeners and a secret of
//! its own ([`setup`](crate::setup)).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use tributary_inter_host::{HostAddress, host_addresses, listen_within};
use tributary_settings::{Ports, Settings};
use tributary_transport::timespec;

use crate::bootstrap::{Bootstrap, BootstrapError};

/// Most addresses that a host tells.
const ADDRESSES_MAX: usize = 16;
/// An address, IPv4 as IPv6 has it, and the bits of its network.
const ADDRESS_BYTES: usize = 17;
/// How long another host may take to answer: a lost packet is sent again after one second, and once more after two.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(3500);
/// Among so many hosts every pair is tried. Among more each tries those at distances of powers of two, so that the trial
/// stays short.
const ALL_PAIRS_MAX: usize = 64;
/// Most networks that are tried, one after the other.
const NETWORKS_MAX: usize = 3;
/// What a rank tells of its trial: a host, counted from 1, and the system's error; zeros where all is well.
const OUTCOME_BYTES: usize = 8;

/// Why hosts don't reach each other, in one line that is the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreachable(pub(crate) String);

/// Where this host is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Met {
    /// The address at which other hosts have reached it.
    pub(crate) address: IpAddr,
    /// What was wrong on the network that was tried first; none if that one is used. The same on all ranks.
    pub(crate) passed_over: Option<String>,
}

/// What a host could not do: reach another, or, if that is itself, listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Trouble {
    /// The other host.
    host: usize,
    /// What the system says; none if there was no answer.
    error: Option<Errno>,
}

/// How the other hosts of the job reach this one, which they have tried. Collective; the outcome is a success on all ranks or
/// on none.
pub(crate) fn meet(
    world: &mut dyn Bootstrap,
    machines: &[String],
    settings: &Settings,
) -> Result<Result<Met, Unreachable>, BootstrapError> {
    let first_ranks = first_ranks(machines);
    if first_ranks.len() == 1 {
        return Ok(Ok(Met { address: Ipv4Addr::LOCALHOST.into(), passed_over: None }));
    }
    let own = &machines[world.rank() as usize];
    let is_own = |rank: &usize| machines[*rank] == *own;
    let me = first_ranks.iter().position(is_own).expect("a rank's own machine is among all");
    let offers = tell_addresses(world, &first_ranks, settings)?;
    let names: Vec<&str> = first_ranks.iter().map(|rank| short(&machines[*rank])).collect();
    let mut problem = None;
    let networks = match networks(&names, &offers) {
        Ok(networks) => networks,
        Err(problem) => return Ok(Err(Unreachable(problem))),
    };
    for addresses in networks {
        match try_network(world, &first_ranks, me, &addresses, settings.ports)? {
            Ok(()) => return Ok(Ok(Met { address: addresses[me], passed_over: problem })),
            Err((host, targets, trouble)) => {
                problem.get_or_insert_with(|| describe(host, trouble, &names, &targets));
            }
        }
    }
    Ok(Err(Unreachable(problem.expect("there is a network, or an error was returned"))))
}

/// The host that has the trouble, where all hosts listened, and what the trouble is.
type Failed = (usize, Vec<SocketAddr>, Trouble);

/// Whether hosts reach each other at these addresses. Collective, with the same outcome on all ranks.
fn try_network(
    world: &mut dyn Bootstrap,
    first_ranks: &[usize],
    me: usize,
    addresses: &[IpAddr],
    ports: Option<Ports>,
) -> Result<Result<(), Failed>, BootstrapError> {
    let is_trying = first_ranks[me] == world.rank() as usize;
    let mut trouble = None;
    let mut port = 0;
    // Listens until all have tried.
    let listener = is_trying.then(|| listen(addresses[me], ports));
    match listener.as_ref().map(|bound| bound.as_ref().map(TcpListener::local_addr)) {
        Some(Ok(Ok(address))) => port = address.port(),
        Some(Ok(Err(error))) => trouble = Some(cannot_listen(me, &error)),
        Some(Err(error)) => trouble = Some(cannot_listen(me, error)),
        None => {}
    }
    let mut ports = vec![0; 2 * world.size() as usize];
    world.allgather(&u16::to_le_bytes(port), &mut ports)?;
    let (ports, _) = ports.as_chunks();
    let targets = first_ranks.iter().zip(addresses);
    let targets: Vec<SocketAddr> = targets
        .map(|(rank, address)| SocketAddr::new(*address, u16::from_le_bytes(ports[*rank])))
        .collect();
    // A host that can't listen says so itself.
    if is_trying && targets.iter().all(|target| target.port() != 0) {
        trouble = try_others(me, &targets).err();
    }
    let mut outcomes = vec![0; OUTCOME_BYTES * world.size() as usize];
    world.allgather(&trouble.map_or([0; OUTCOME_BYTES], Trouble::encode), &mut outcomes)?;
    let (outcomes, _) = outcomes.as_chunks();
    let mut of_hosts = first_ranks.iter().map(|rank| Trouble::decode(outcomes[*rank]));
    let failed = of_hosts.by_ref().enumerate().find_map(|(host, it)| Some((host, it?)));
    Ok(failed.map_or(Ok(()), |(host, trouble)| Err((host, targets, trouble))))
}

impl Trouble {
    fn encode(self) -> [u8; OUTCOME_BYTES] {
        let (host, error) = (self.host as u32 + 1, self.error.map_or(0, Errno::raw_os_error));
        let mut told = [0; OUTCOME_BYTES];
        told[..4].copy_from_slice(&host.to_le_bytes());
        told[4..].copy_from_slice(&error.to_le_bytes());
        told
    }

    fn decode(told: [u8; OUTCOME_BYTES]) -> Option<Self> {
        let ([host, error], _) = told.as_chunks() else {
            unreachable!("eight bytes are two words")
        };
        let host = u32::from_le_bytes(*host).checked_sub(1)? as usize;
        let error = i32::from_le_bytes(*error);
        Some(Self { host, error: (error != 0).then(|| Errno::from_raw_os_error(error)) })
    }
}

/// One line for people.
fn describe(host: usize, trouble: Trouble, names: &[&str], targets: &[SocketAddr]) -> String {
    let (name, own) = (names[host], targets[host].ip());
    let error = trouble.error.map_or_else(
        || format!("no answer within {} s", ANSWER_TIMEOUT.as_secs_f64()),
        |error| error.to_string(),
    );
    match (names.get(trouble.host), targets.get(trouble.host)) {
        (Some(other), Some(target)) if trouble.host != host => format!(
            "host {name} at {own} can't connect to host {other} at {}, port {}: {error}",
            target.ip(),
            target.port()
        ),
        _ => format!("host {name} can't listen at {own} for other hosts: {error}"),
    }
}

/// Listens for other hosts at a port that the settings allow.
pub(crate) fn listen(address: IpAddr, ports: Option<Ports>) -> std::io::Result<TcpListener> {
    let is_taken = |error: &std::io::Error| error.kind() == std::io::ErrorKind::AddrInUse;
    listen_within(address, ports, TcpListener::bind, is_taken)
}

/// The lowest rank on each machine.
fn first_ranks(machines: &[String]) -> Vec<usize> {
    let mut seen = std::collections::HashSet::new();
    (0..machines.len()).filter(|rank| seen.insert(machines[*rank].as_str())).collect()
}

/// A machine's name for people, without what tells apart machines of the same name.
fn short(machine: &str) -> &str {
    machine.rsplit_once('@').map_or(machine, |(name, _)| name)
}

fn cannot_listen(me: usize, error: &std::io::Error) -> Trouble {
    Trouble { host: me, error: Some(Errno::from_io_error(error).unwrap_or(Errno::IO)) }
}

/// The addresses of each machine, as its lowest rank has them.
fn tell_addresses(
    world: &mut dyn Bootstrap,
    first_ranks: &[usize],
    settings: &Settings,
) -> Result<Vec<Vec<HostAddress>>, BootstrapError> {
    let mut mine = [0; ADDRESSES_MAX * ADDRESS_BYTES];
    let admitted = || host_addresses(settings.interface.as_ref());
    let own = settings.host_address.map_or_else(admitted, |address| vec![of_given(address)]);
    for (room, known) in mine.chunks_exact_mut(ADDRESS_BYTES).zip(&own) {
        room.copy_from_slice(&encode(known));
    }
    let mut all = vec![0; mine.len() * world.size() as usize];
    world.allgather(&mine, &mut all)?;
    let of_rank = |rank: &usize| {
        let (told, _) = all[*rank * mine.len()..][..mine.len()].as_chunks::<ADDRESS_BYTES>();
        told.iter().filter_map(decode).collect()
    };
    Ok(first_ranks.iter().map(of_rank).collect())
}

/// The address that the user gave, with its network if it has one here.
fn of_given(address: IpAddr) -> HostAddress {
    let known = host_addresses(None).into_iter().find(|known| known.address == address);
    let network_bits = if address.is_ipv4() { 32 } else { 128 };
    known.unwrap_or(HostAddress { address, network_bits })
}

fn encode(known: &HostAddress) -> [u8; ADDRESS_BYTES] {
    let v6 = match known.address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let mut told = [0; ADDRESS_BYTES];
    let (address, bits) = told.split_at_mut(ADDRESS_BYTES - 1);
    address.copy_from_slice(&v6.octets());
    bits[0] = known.network_bits as u8;
    told
}

fn decode(told: &[u8; ADDRESS_BYTES]) -> Option<HostAddress> {
    let [octets @ .., bits] = *told;
    let address = Ipv6Addr::from(octets).to_canonical();
    (bits > 0).then_some(HostAddress { address, network_bits: bits.into() })
}

/// The addresses of each host on each network that may join them, the best first: the networks of host 0 that all are on, in
/// its order, and then each host's first address of one family, for hosts on networks that are joined by routers.
fn networks(names: &[&str], offers: &[Vec<HostAddress>]) -> Result<Vec<Vec<IpAddr>>, String> {
    // Bridges of containers have the same address on many hosts, and lead to none of them.
    let is_unique = |known: &HostAddress| {
        let has_it = |offer: &&Vec<HostAddress>| offer.iter().any(|it| it.address == known.address);
        offers.iter().filter(has_it).count() == 1
    };
    let unique = |offer: &Vec<HostAddress>| offer.iter().copied().filter(is_unique).collect();
    let offers: Vec<Vec<HostAddress>> = offers.iter().map(unique).collect();
    if let Some(host) = offers.iter().position(Vec::is_empty) {
        let name = names[host];
        return Err(format!(
            "host {name} has no address of its own for other hosts (TRIBUTARY_HOST_ADDRESS, TRIBUTARY_INTERFACE)"
        ));
    }
    let all_with = |suits: &dyn Fn(&HostAddress) -> bool| -> Option<Vec<IpAddr>> {
        let first =
            |offer: &Vec<HostAddress>| offer.iter().find(|it| suits(it)).map(|it| it.address);
        offers.iter().map(first).collect()
    };
    let shared = offers[0].iter().filter_map(|known| all_with(&|it| it.shares_network(known)));
    let routed = [all_with(&|it| it.address.is_ipv4()), all_with(&|it| it.address.is_ipv6())];
    let mut found: Vec<Vec<IpAddr>> = Vec::new();
    for addresses in shared.chain(routed.into_iter().flatten()) {
        if found.len() < NETWORKS_MAX && !found.contains(&addresses) {
            found.push(addresses);
        }
    }
    if found.is_empty() {
        let problem = "some hosts have addresses of IPv4 only, and others of IPv6 only (TRIBUTARY_HOST_ADDRESS)";
        return Err(problem.to_owned());
    }
    Ok(found)
}

/// The hosts that host `me` tries to reach.
fn hosts_to_try(me: usize, hosts: usize) -> Vec<usize> {
    if hosts <= ALL_PAIRS_MAX {
        return (0..hosts).filter(|host| *host != me).collect();
    }
    let distances =
        (0..usize::BITS).map(|power| 1 << power).take_while(|distance| *distance < hosts);
    distances.map(|distance| (me + distance) % hosts).collect()
}

/// Connects to other hosts, all at once, and says which does not answer. Nothing is sent: the kernel of the other host
/// answers, whatever its process does.
fn try_others(me: usize, targets: &[SocketAddr]) -> Result<(), Trouble> {
    let failed = |host: usize, error: Errno| Trouble { host, error: Some(error) };
    let until = Instant::now() + ANSWER_TIMEOUT;
    let mut waiting = Vec::new();
    for host in hosts_to_try(me, targets.len()) {
        let socket = start_connecting(targets[me].ip(), targets[host])
            .map_err(|error| failed(host, error))?;
        waiting.push((host, socket));
    }
    while let Some((first, _)) = waiting.first() {
        let time = until.saturating_duration_since(Instant::now());
        if time.is_zero() {
            return Err(Trouble { host: *first, error: None });
        }
        let mut watched: Vec<PollFd<'_>> =
            waiting.iter().map(|(_, socket)| PollFd::new(socket, PollFlags::OUT)).collect();
        match poll(&mut watched, Some(&timespec(time))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(failed(*first, error)),
        }
        let ready: Vec<bool> = watched.iter().map(|it| !it.revents().is_empty()).collect();
        for ((host, socket), _) in waiting.iter().zip(&ready).filter(|(_, is_ready)| **is_ready) {
            sockopt::socket_error(socket)
                .unwrap_or_else(Err)
                .map_err(|error| failed(*host, error))?;
        }
        let mut ready = ready.into_iter();
        waiting.retain(|_| !ready.next().unwrap_or(false));
    }
    Ok(())
}

fn start_connecting(own: IpAddr, target: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if own.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &target) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers(hosts: &[&[(&str, u32)]]) -> Vec<Vec<HostAddress>> {
        let of_host = |host: &&[(&str, u32)]| {
            let known = host.iter().map(|(address, network_bits)| HostAddress {
                address: address.parse().unwrap(),
                network_bits: *network_bits,
            });
            known.collect()
        };
        hosts.iter().map(of_host).collect()
    }

    fn tried(hosts: &[&[(&str, u32)]]) -> Result<Vec<Vec<String>>, String> {
        let names = ["a", "b", "c"];
        let networks = networks(&names[..hosts.len()], &offers(hosts))?;
        let texts = |addresses: &Vec<IpAddr>| addresses.iter().map(IpAddr::to_string).collect();
        Ok(networks.iter().map(texts).collect())
    }

    fn chosen(hosts: &[&[(&str, u32)]]) -> Result<Vec<String>, String> {
        Ok(tried(hosts)?.remove(0))
    }

    #[test]
    fn the_network_that_all_hosts_are_on_is_taken() {
        let (a, b) =
            ([("192.168.1.1", 24), ("10.0.0.1", 16)], [("10.0.9.2", 16), ("172.16.0.2", 12)]);
        assert_eq!(chosen(&[&a, &b]).unwrap(), ["10.0.0.1", "10.0.9.2"]);
        let v6 = [[("fd00::1", 64)], [("fd00::2", 64)]];
        assert_eq!(chosen(&[&v6[0], &v6[1]]).unwrap(), ["fd00::1", "fd00::2"]);
    }

    #[test]
    fn the_other_networks_that_all_hosts_are_on_come_next_and_then_routes() {
        let a = [("10.0.0.1", 24), ("fd00::1", 64), ("10.1.0.1", 24)];
        let b = [("10.9.0.2", 24), ("10.1.0.2", 24), ("10.0.0.2", 24), ("fd00::2", 64)];
        let networks = [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"], ["10.1.0.1", "10.1.0.2"]];
        assert_eq!(tried(&[&a, &b]).unwrap(), networks);
        let routed = [["10.0.0.1", "10.9.0.2"], ["fd00::1", "fd00::2"]];
        assert_eq!(tried(&[&a[..1], &b[..1]]).unwrap(), routed[..1]);
        assert_eq!(tried(&[&a[..2], &[b[0], b[3]]]).unwrap(), [routed[1], routed[0]]);
    }

    #[test]
    fn an_address_that_several_hosts_have_leads_to_none_of_them() {
        let (a, b) =
            ([("172.17.0.1", 16), ("10.0.0.1", 24)], [("172.17.0.1", 16), ("10.0.0.2", 24)]);
        assert_eq!(chosen(&[&a, &b]).unwrap(), ["10.0.0.1", "10.0.0.2"]);
        let bridge = [("172.17.0.1", 16)];
        assert!(chosen(&[&a, &bridge]).unwrap_err().contains("host b has no address"));
    }

    #[test]
    fn routed_hosts_have_their_first_addresses_of_one_family() {
        let (a, b) = ([("fd00:1::1", 64), ("10.0.1.1", 24)], [("10.0.2.1", 24), ("fd00:2::1", 64)]);
        assert_eq!(chosen(&[&a, &b]).unwrap(), ["10.0.1.1", "10.0.2.1"]);
        let (only_v4, only_v6) = ([("10.0.1.1", 24)], [("fd00:2::1", 64)]);
        assert!(chosen(&[&only_v4, &only_v6]).unwrap_err().contains("IPv6 only"));
    }

    #[test]
    fn addresses_are_told_whole() {
        for known in offers(&[&[("10.0.0.1", 24), ("fd00::1", 64)]]).remove(0) {
            assert_eq!(decode(&encode(&known)), Some(known));
        }
        assert_eq!(decode(&[0; ADDRESS_BYTES]), None);
    }

    #[test]
    fn among_many_hosts_each_tries_a_few() {
        assert_eq!(hosts_to_try(1, 4), [0, 2, 3]);
        let tried = hosts_to_try(999, 1000);
        assert_eq!((tried.len(), tried[0], tried[9]), (10, 0, 511));
        assert!(!tried.contains(&999));
    }

    #[test]
    fn a_port_that_nobody_listens_at_is_named_with_both_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap();
        assert_eq!(try_others(0, &[open, open]), Ok(()));
        let closed = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap()
        };
        let trouble = try_others(0, &[open, closed]).unwrap_err();
        assert_eq!(Trouble::decode(trouble.encode()), Some(trouble));
        let problem = describe(0, trouble, &["a", "b"], &[open, closed]);
        let named = format!(
            "host a at 127.0.0.1 can't connect to host b at 127.0.0.1, port {}: Connection refused",
            closed.port()
        );
        assert!(problem.starts_with(&named), "{problem}");
        let silent = Trouble { host: 1, error: None };
        assert_eq!(Trouble::decode(silent.encode()), Some(silent));
        let problem = describe(0, silent, &["a", "b"], &[open, closed]);
        assert!(problem.ends_with("no answer within 3.5 s"), "{problem}");
        let own = Trouble { host: 0, error: Some(Errno::ADDRNOTAVAIL) };
        let problem = describe(0, own, &["a", "b"], &[open, closed]);
        assert!(problem.starts_with("host a can't listen at 127.0.0.1"), "{problem}");
        assert_eq!(Trouble::decode([0; OUTCOME_BYTES]), None);
    }
}
