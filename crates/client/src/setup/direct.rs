//! How leaders come to direct links between their hosts.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};
use tributary_algorithms::plan::Plan;
use tributary_algorithms::{Algorithm, Radices};
use tributary_wire::host::machine_of;

use super::agreement::{Unavailable, agree};
use super::rings;
use crate::bootstrap::{Bootstrap, allgather_texts};
use crate::context::Context;
use crate::descriptors;
use crate::placement::Placement;
use tributary_inter_host::replicated::{Endpoint, LevelSet, Members, Reach, ReplicatedLevels};
use tributary_inter_host::watch::Alarm;
use tributary_inter_host::{DirectLinks, DirectMethod, Identity, Listener, ReplicatedGroups};
use tributary_settings::ReceiveChoice;

/// What one leader has opened.
struct Opened {
    listener: Listener,
    /// Where it takes datagrams, and where the links of replicated groups come in.
    groups: Option<(Endpoint, Listener)>,
    addresses: Addresses,
}

/// Where a leader is to be reached, as it tells the others: in this order, with a blank between.
#[derive(Clone, Debug, PartialEq)]
struct Addresses {
    links: SocketAddr,
    /// Of datagrams, and of the links beside them.
    groups: Option<[SocketAddr; 2]>,
}

/// How long a host waits for the first datagrams of the others. All send them at about the same time.
const GREETING_PATIENCE: Duration = Duration::from_millis(200);

/// Begins what a rank tells the others if its host can have no replicated groups. What follows is the reason, for the report.
const UNREADY: char = '!';
const UNREACHED: &str = "datagrams of other hosts do not come here";
const SCARCE: &str = "a quarter of the descriptors is in use, and groups need some for each communicator (ulimit -n)";

/// What carries operations between hosts without a tree.
pub(super) struct Direct {
    /// None at ranks that do not lead.
    pub(super) method: Option<DirectMethod>,
    /// The exchange over the levels of replicated groups, if there are any.
    pub(super) group_algorithm: Option<Algorithm>,
    /// For the report; none where links are all that is wanted.
    pub(super) carriers: Option<String>,
}

/// The replicated groups that rank 0 wants.
pub(super) struct WantedGroups {
    /// Of their levels.
    pub(super) radices: Radices,
    /// Whether they multicast where that comes to all.
    pub(super) multicast: bool,
    /// Where they take datagrams from, if they can.
    pub(super) receive: ReceiveChoice,
}

/// The first `leaders` ranks of every host listen and tell each other where; each meets those that have
/// the same number on their hosts. The first of each host are members of replicated groups, too, where some are
/// wanted. Nobody connects before an operation needs it.
pub(super) fn open_method(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    placement: &Placement,
    leaders: u32,
    groups: Option<WantedGroups>,
) -> Result<Direct, Unavailable> {
    let plan = groups.as_ref();
    let plan = plan.and_then(|groups| placement.leaves.groups(groups.radices));
    let met = meet(context, bootstrap, placement, leaders, plan.is_some())?;
    let (levels, links) = met.map(|met| met.into_parts(placement, plan.as_ref())).unzip();
    let mut levels = levels.flatten();
    let Some(WantedGroups { radices, multicast, receive }) = groups else {
        let method = links.map(|links| DirectMethod::new(links, None));
        return Ok(Direct { method, group_algorithm: None, carriers: None });
    };
    let alarm = levels.is_some().then(Alarm::new).transpose();
    let (is_reached, multicast_at) = find_reach(context, bootstrap, multicast, levels.as_mut())?;
    let problem = match &alarm {
        Err(problem) => problem.to_string(),
        Ok(_) if !is_reached => UNREACHED.to_owned(),
        Ok(Some(_)) if descriptors::are_scarce() => SCARCE.to_owned(),
        Ok(_) => String::new(),
    };
    let told = match &mut levels {
        _ if !problem.is_empty() => format!("{UNREADY}{problem}"),
        None => String::new(),
        Some(levels) => rings::open(receive, &context.settings.ring_service, levels).to_text(),
    };
    let told = allgather_texts(bootstrap, &told)?;
    let problems: Vec<_> = told.iter().map(|told| told.strip_prefix(UNREADY)).collect();
    let first = problems.iter().position(Option::is_some);
    if problems.contains(&Some(UNREACHED)) {
        context.note_lack_of_datagrams();
    }
    let algorithm = Algorithm::MixedRadix { radices };
    let (group_algorithm, carriers) = match first {
        None => {
            let datagrams = datagrams_by(multicast_at, radices.iter().count());
            let rings = rings::summary(placement, &told);
            let by_leaf = match placement.leaves.count() {
                1 => String::new(),
                leaves => format!(" by {leaves} leaves"),
            };
            (Some(algorithm), format!("links and {datagrams}{rings}, {algorithm}{by_leaf}"))
        }
        Some(rank) => {
            let host = &placement.hosts[placement.host_of[rank] as usize];
            (None, format!("links; {host}: {}", problems[rank].unwrap_or_default()))
        }
    };
    let groups = levels.zip(alarm.ok().flatten()).zip(group_algorithm);
    let groups =
        groups.map(|((levels, alarm), algorithm)| ReplicatedGroups { levels, algorithm, alarm });
    let method = links.map(|links| DirectMethod::new(links, groups));
    Ok(Direct { method, group_algorithm, carriers: Some(carriers) })
}

/// What the groups of so many levels send, for the report.
fn datagrams_by(multicast_at: LevelSet, levels: usize) -> &'static str {
    match (0..levels).filter(|level| multicast_at.contains(*level)).count() {
        0 => "datagrams",
        multicast if multicast < levels => "datagrams, some of them multicast",
        _ => "multicast datagrams",
    }
}

/// Tries what comes to the hosts of replicated groups from one another. Whether datagrams to this host alone do, and at which levels
/// multicasts do at all hosts, which send them from now on: none unless `multicast` is wanted.
fn find_reach(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    multicast: bool,
    mut levels: Option<&mut ReplicatedLevels>,
) -> Result<(bool, LevelSet), Unavailable> {
    let mut subscribed = LevelSet::default();
    if multicast && context.has_multicast() {
        // Ranks that lead nobody leave it to the others.
        subscribed = levels.as_mut().map_or(LevelSet::ALL, |levels| levels.subscribe());
    }
    // Nobody greets before all have subscribed.
    let tried = intersect(bootstrap, subscribed)?;
    let everything = Reach { by_copies: true, by_multicast: LevelSet::ALL };
    let reach = levels.as_mut().map_or(everything, |levels| {
        levels.multicast_at(tried);
        levels.find_reach(GREETING_PATIENCE)
    });
    if tried.is_empty() {
        return Ok((reach.by_copies, tried));
    }
    let proven = tried.and(intersect(bootstrap, reach.by_multicast)?);
    if let Some(levels) = levels {
        levels.multicast_at(proven);
    }
    if proven.is_empty() {
        context.note_lack_of_multicast();
    }
    Ok((reach.by_copies, proven))
}

/// The levels that are in the sets of all ranks.
fn intersect(bootstrap: &mut dyn Bootstrap, mine: LevelSet) -> Result<LevelSet, Unavailable> {
    let mut all = vec![0; 4 * bootstrap.size() as usize];
    bootstrap.allgather(&mine.bits().to_le_bytes(), &mut all)?;
    let sets = all.as_chunks().0.iter().map(|bits| LevelSet::from_bits(u32::from_le_bytes(*bits)));
    Ok(sets.fold(LevelSet::ALL, LevelSet::and))
}

/// Links of the first rank of every host alone.
pub(super) fn open_links(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    placement: &Placement,
) -> Result<Option<DirectLinks>, Unavailable> {
    let met = meet(context, bootstrap, placement, 1, false)?;
    Ok(met.map(|met| met.into_parts(placement, None).1))
}

/// A leader that listens, and knows where those of its number do on all hosts.
struct Met {
    identity: Identity,
    opened: Opened,
    /// By host.
    addresses: Vec<Addresses>,
}

impl Met {
    fn into_parts(
        self,
        placement: &Placement,
        plan: Option<&Plan>,
    ) -> (Option<ReplicatedLevels>, DirectLinks) {
        let Self { identity, opened, addresses } = self;
        let me = placement.host();
        let places: Option<Vec<[SocketAddr; 2]>> = addresses.iter().map(|it| it.groups).collect();
        let levels =
            opened.groups.zip(places).zip(plan).map(|(((endpoint, listener), places), plan)| {
                let addresses = places.iter().map(|[_, links]| *links).collect();
                let datagram_addresses = places.iter().map(|[datagrams, _]| *datagrams).collect();
                let members =
                    Members { me, identity, listener, addresses, endpoint, datagram_addresses };
                ReplicatedLevels::new(members, plan)
                    .expect("selection takes radices that divide the hosts into groups")
            });
        let links = addresses.iter().map(|it| it.links).collect();
        let links = DirectLinks::new(me, identity, opened.listener, links);
        (levels, links.by_leaf(placement.leaves.clone()))
    }
}

/// Leaders listen and tell each other where; none at other ranks.
fn meet(
    context: &Context,
    bootstrap: &mut dyn Bootstrap,
    placement: &Placement,
    leaders: u32,
    with_groups: bool,
) -> Result<Option<Met>, Unavailable> {
    let number = placement.local_rank();
    let with_groups = with_groups && number == 0;
    let opened = (number < leaders).then(|| listen(context, placement, with_groups)).transpose();
    let opened = agree(bootstrap, opened)?;
    let mine = opened.as_ref().map_or_else(String::new, |opened| opened.addresses.to_text());
    let texts = allgather_texts(bootstrap, &mine)?;
    let mut peers = vec![0; placement.hosts.len()];
    for (rank, host) in placement.host_of.iter().enumerate() {
        if placement.local_of[rank] == number {
            peers[*host as usize] = rank;
        }
    }
    let addresses: Result<Vec<Addresses>, String> = if opened.is_some() {
        let peers = peers.iter().zip(&placement.hosts);
        peers.map(|(rank, host)| addresses_of(&texts[*rank], host, &context.machine)).collect()
    } else {
        Ok(Vec::new())
    };
    let addresses = agree(bootstrap, addresses)?;
    let authenticates = context.authenticates_frames();
    let identity = share_identity(bootstrap, authenticates)?.of_leader(number);
    Ok(opened.map(|opened| Met { identity, opened, addresses }))
}

fn listen(context: &Context, placement: &Placement, with_groups: bool) -> Result<Opened, String> {
    if placement.hosts.len() > HOSTS_MAX {
        let hosts = placement.hosts.len();
        return Err(format!("{hosts} hosts are more than {HOSTS_MAX} that can be joined directly"));
    }
    let address = context.own_address().map_err(|error| error.to_string())?;
    let ports = context.settings.ports;
    let bind = || Listener::bind(address, ports).map_err(|error| error.to_string());
    let (listener, links) = bind()?;
    if !with_groups {
        let addresses = Addresses { links, groups: None };
        return Ok(Opened { listener, groups: None, addresses });
    }
    let (endpoint, datagrams) =
        Endpoint::bind(address, ports).map_err(|error| error.to_string())?;
    let (beside, beside_at) = bind()?;
    let addresses = Addresses { links, groups: Some([datagrams, beside_at]) };
    Ok(Opened { listener, groups: Some((endpoint, beside)), addresses })
}

impl Addresses {
    fn to_text(&self) -> String {
        let all = std::iter::once(self.links).chain(self.groups.into_iter().flatten());
        all.map(|address| address.to_string()).collect::<Vec<_>>().join(" ")
    }
}

/// Hosts are numbered in 16 bits on the wire.
const HOSTS_MAX: usize = 1 << 16;

/// Reads what a leader said.
fn addresses_of(text: &str, host: &str, machine: &str) -> Result<Addresses, String> {
    let all: Result<Vec<_>, _> = text.split(' ').map(|it| address_of(it, host, machine)).collect();
    match all?[..] {
        [links] => Ok(Addresses { links, groups: None }),
        [links, datagrams, beside] => Ok(Addresses { links, groups: Some([datagrams, beside]) }),
        _ => Err(format!("host {host} told no addresses but {text:?}")),
    }
}

/// Reads an address. A loopback one is of use on its own machine only.
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
    fn a_leader_tells_where_it_is_to_be_reached() {
        let [links, datagrams, beside] =
            ["10.0.0.2:9", "10.0.0.2:7", "[fe80::1]:8"].map(|it| it.parse().unwrap());
        for groups in [None, Some([datagrams, beside])] {
            let told = Addresses { links, groups };
            assert_eq!(addresses_of(&told.to_text(), "there@1", "here@1"), Ok(told));
        }
        let two = addresses_of("10.0.0.2:9 10.0.0.2:7", "there@1", "here@1");
        assert!(two.unwrap_err().contains("there@1"));
    }

    #[test]
    fn a_loopback_address_is_for_its_own_machine() {
        assert!(address_of("127.0.0.1:9", "here@1#1", "here@1").is_ok());
        assert!(address_of("127.0.0.1:9", "there@1", "here@1").unwrap_err().contains("there@1"));
        assert!(address_of("10.0.0.2:9", "there@1", "here@1").is_ok());
        assert!(address_of("", "there@1", "here@1").is_err());
    }
}
