//! The communicators of a program on a system: who is where, and how far each host is.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use tributary_algorithms::CollectiveKind;
use tributary_sim::engine::Picos;
use tributary_sim::fabric::Vertex;
use tributary_sim::measure::HostMemory;
use tributary_sim::preset::Preset;
use tributary_sim::system::{System, SystemError, group_terms};
use tributary_sim::world::{MemberId, NoPayload, ProcessId, RankId, SetupError, Team};
use tributary_workload::{Call, Workload};

use super::between::Between;
use super::inside;
use super::outcome::{Class, Outcome};

/// A host of a part of a communicator, by numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    part: u32,
    /// In the part.
    pub(super) host: u32,
}

/// The participant for a host.
#[derive(Clone, Copy, Debug)]
pub(super) enum Leader {
    Member(MemberId),
    Rank(RankId),
}

/// All parts of all communicators.
pub(super) struct Parts {
    /// For each communicator and rank, its seat.
    seats: Vec<Vec<Option<Seat>>>,
    parts: Vec<Part>,
    /// The place of each member and each rank of a team, by their numbers.
    of_members: Vec<Option<Place>>,
    of_ranks: Vec<Option<Place>>,
    refused: u32,
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    place: Place,
    /// Among the ranks of the host.
    position: u32,
}

/// Ranks that run collectives together.
struct Part {
    ranks: Vec<u32>,
    /// The number of each rank's host.
    host_of: Vec<u32>,
    hosts: Vec<OnHost>,
    team: Option<Team>,
    /// The leaders in the tree, by host; none without a tree.
    members: Option<Vec<MemberId>>,
    /// Operations that some host has not left, the first one begun first.
    open: VecDeque<Open>,
    /// The number of the first of them.
    first_open: u64,
}

/// The ranks of a part on one host.
struct OnHost {
    ranks: Vec<u32>,
    memory: Rc<HostMemory>,
    came_at: Vec<Picos>,
    came: usize,
    call: Option<Call>,
    ready_at: Picos,
    /// How many operations it has left.
    left: u64,
}

/// An operation in progress.
#[derive(Clone, Copy, Debug)]
struct Open {
    hosts_left: usize,
    sum_us: f64,
    shortest_us: f64,
}

impl Parts {
    pub(super) fn new(
        preset: &Preset,
        workload: &Workload,
        between: &Between,
        system: &mut System<NoPayload>,
    ) -> Result<Self, SystemError> {
        let mut parts = Self {
            seats: Vec::new(),
            parts: Vec::new(),
            of_members: Vec::new(),
            of_ranks: Vec::new(),
            refused: 0,
        };
        let mut memories = Memories { preset, by_ranks: BTreeMap::new() };
        for communicator in &workload.communicators {
            let mut seats = vec![None; workload.hosts.len()];
            for ranks in &communicator.parts {
                let number = parts.parts.len() as u32;
                parts.parts.push(Part::new(ranks, &workload.hosts, &mut memories));
                parts.parts[number as usize].seat(number, &mut seats);
            }
            parts.seats.push(seats);
        }
        parts.connect(preset, workload, between, system)?;
        Ok(parts)
    }

    /// Makes teams and groups of the leaders of each part on several hosts.
    fn connect(
        &mut self,
        preset: &Preset,
        workload: &Workload,
        between: &Between,
        system: &mut System<NoPayload>,
    ) -> Result<(), SystemError> {
        let vertices = system.compute_hosts().to_vec();
        let mut processes: BTreeMap<u32, ProcessId> = BTreeMap::new();
        for number in 0..self.parts.len() {
            let leaders: Vec<u32> =
                self.parts[number].hosts.iter().map(|own| own.ranks[0]).collect();
            if leaders.len() < 2 {
                continue;
            }
            let placed: Vec<(ProcessId, Vertex)> = leaders
                .iter()
                .map(|&rank| {
                    let host = vertices[workload.hosts[rank as usize] as usize];
                    let add = || system.world.add_process(host);
                    (*processes.entry(rank).or_insert_with(add), host)
                })
                .collect();
            let ids: Vec<ProcessId> = placed.iter().map(|(process, _)| *process).collect();
            let team = system.world.add_team(&ids);
            for (host, place) in places(number, leaders.len()) {
                note(&mut self.of_ranks, team.rank(host).0, place);
            }
            self.parts[number].team = Some(team);
            if let Between::Tree { multicast, .. } = between {
                self.form(preset, number, &placed, *multicast, system)?;
            }
        }
        Ok(())
    }

    fn form(
        &mut self,
        preset: &Preset,
        number: usize,
        placed: &[(ProcessId, Vertex)],
        multicast: bool,
        system: &mut System<NoPayload>,
    ) -> Result<(), SystemError> {
        let terms = group_terms(preset, multicast)?;
        match system.form(placed, terms) {
            Ok(members) => {
                for ((_, place), member) in places(number, members.len()).zip(&members) {
                    note(&mut self.of_members, member.0, place);
                }
                self.parts[number].members = Some(members);
                Ok(())
            }
            Err(SystemError::Setup(SetupError::Refused(_) | SetupError::Node { .. })) => {
                self.refused += 1;
                Ok(())
            }
            Err(other) => Err(other),
        }
    }

    pub(super) fn trees(&self) -> u32 {
        self.parts.iter().filter(|part| part.members.is_some()).count() as u32
    }

    pub(super) fn refused_count(&self) -> u32 {
        self.refused
    }

    /// Ranks that wait in a collective.
    pub(super) fn waiting(&self) -> usize {
        self.parts.iter().flat_map(|part| &part.hosts).map(|own| own.came).sum()
    }

    pub(super) fn place_of(&self, leader: Leader) -> Place {
        let found = match leader {
            Leader::Member(member) => self.of_members[member.0 as usize],
            Leader::Rank(rank) => self.of_ranks[rank.0 as usize],
        };
        found.expect("only leaders run")
    }

    fn part(&self, place: Place) -> &Part {
        &self.parts[place.part as usize]
    }

    pub(super) fn has_several_hosts(&self, place: Place) -> bool {
        self.part(place).hosts.len() > 1
    }

    /// Ranks of the part.
    pub(super) fn ranks(&self, place: Place) -> u32 {
        self.part(place).ranks.len() as u32
    }

    /// The member that leads this host in the tree, if there is a tree.
    pub(super) fn member(&self, place: Place) -> Option<MemberId> {
        Some(self.part(place).members.as_ref()?[place.host as usize])
    }

    /// The team of the part's leaders, and the number of this host's.
    pub(super) fn team(&self, place: Place) -> (Team, u32) {
        (self.part(place).team.expect("a part on several hosts has a team"), place.host)
    }

    /// The host of a root.
    pub(super) fn root_of(&self, place: Place, root: u32) -> Place {
        let part = self.part(place);
        Place { host: part.host_of[root as usize % part.ranks.len()], ..place }
    }

    /// A rank comes to its call. Returns its place if it is the last one there.
    pub(super) fn come(&mut self, rank: u32, call: Call, at: Picos) -> Option<Place> {
        let seat = self.seats[call.communicator][rank as usize];
        let Seat { place, position } = seat.expect("ranks call in their own communicators");
        let own = &mut self.parts[place.part as usize].hosts[place.host as usize];
        own.came_at[position as usize] = at;
        own.came += 1;
        own.call = Some(call);
        (own.came == own.ranks.len()).then_some(place)
    }

    /// A host begins its operation. Returns when its leader is ready.
    pub(super) fn begin(&mut self, place: Place) -> Picos {
        let part = &mut self.parts[place.part as usize];
        let hosts_left = part.hosts.len();
        let own = &mut part.hosts[place.host as usize];
        let call = own.call.expect("a host begins what its ranks have called");
        own.ready_at = inside::ready(&own.memory, call, &own.came_at);
        while part.first_open + part.open.len() as u64 <= own.left {
            part.open.push_back(Open { hosts_left, sum_us: 0.0, shortest_us: f64::INFINITY });
        }
        own.ready_at
    }

    /// A host's leader is done. Returns when each rank of the host is.
    pub(super) fn leave(
        &mut self,
        place: Place,
        ended_at: Picos,
        outcome: &mut Outcome,
    ) -> Vec<(u32, Picos)> {
        let root = self.part(place).hosts[place.host as usize].call.map_or(0, |call| call.root);
        let is_root_here = self.root_of(place, root) == place;
        let part = &mut self.parts[place.part as usize];
        let ranks = part.ranks.len() as u32;
        let own = &mut part.hosts[place.host as usize];
        let call = own.call.take().expect("a host leaves what it began");
        let root_rank = part.ranks[root as usize % part.ranks.len()];
        let done: Vec<(u32, Picos)> = (0..own.ranks.len())
            .map(|position| {
                let rank = own.ranks[position];
                let gets_nothing =
                    call.kind == CollectiveKind::Reduce && !(is_root_here && rank == root_rank);
                (rank, own.done_at(position, call, ranks, ended_at, gets_nothing))
            })
            .collect();
        let open = &mut part.open[(own.left - part.first_open) as usize];
        for ((_, done_at), came_at) in done.iter().zip(&own.came_at) {
            let us = done_at.since(*came_at).as_us();
            open.sum_us += us;
            open.shortest_us = open.shortest_us.min(us);
        }
        open.hosts_left -= 1;
        own.came = 0;
        own.left += 1;
        // Hosts leave operations in order, so only the first can have lost its last host.
        if let Some(closed) = part.open.pop_front_if(|open| open.hosts_left == 0) {
            part.first_open += 1;
            outcome.add(Class::of(call), closed.sum_us, ranks, closed.shortest_us);
        }
        done
    }
}

impl OnHost {
    /// When a rank is done: it has its result, or has handed its contribution over.
    fn done_at(
        &self,
        position: usize,
        call: Call,
        ranks: u32,
        ended_at: Picos,
        gets_nothing: bool,
    ) -> Picos {
        if gets_nothing && position > 0 {
            return self.ready_at.max(self.came_at[position]);
        }
        if gets_nothing {
            return ended_at;
        }
        let whole = 0..self.ranks.len() as u32;
        let bytes = inside::result_bytes(call, ranks);
        self.memory.spread(&whole, position as u32, ended_at, bytes).max(self.came_at[position])
    }
}

impl Part {
    fn new(ranks: &[u32], host_of: &[u32], memories: &mut Memories<'_>) -> Self {
        let mut by_host: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for &rank in ranks {
            by_host.entry(host_of[rank as usize]).or_default().push(rank);
        }
        let numbers: BTreeMap<u32, u32> = by_host.keys().copied().zip(0..).collect();
        let number = |rank: &u32| numbers[&host_of[*rank as usize]];
        let hosts = by_host.into_values().map(|ranks| OnHost {
            memory: memories.of(ranks.len() as u32),
            came_at: vec![Picos::ZERO; ranks.len()],
            ranks,
            came: 0,
            call: None,
            ready_at: Picos::ZERO,
            left: 0,
        });
        Self {
            ranks: ranks.to_vec(),
            host_of: ranks.iter().map(number).collect(),
            hosts: hosts.collect(),
            team: None,
            members: None,
            open: VecDeque::new(),
            first_open: 0,
        }
    }

    fn seat(&self, part: u32, seats: &mut [Option<Seat>]) {
        for (host, own) in (0..).zip(&self.hosts) {
            for (position, &rank) in (0..).zip(&own.ranks) {
                seats[rank as usize] = Some(Seat { place: Place { part, host }, position });
            }
        }
    }
}

/// Memory of hosts, by the number of ranks there.
struct Memories<'a> {
    preset: &'a Preset,
    by_ranks: BTreeMap<u32, Rc<HostMemory>>,
}

impl Memories<'_> {
    fn of(&mut self, ranks: u32) -> Rc<HostMemory> {
        let make = || Rc::new(HostMemory::new(&self.preset.memory, ranks));
        Rc::clone(self.by_ranks.entry(ranks).or_insert_with(make))
    }
}

/// The places of a part, with the numbers of their hosts.
fn places(part: usize, hosts: usize) -> impl Iterator<Item = (u32, Place)> {
    (0..hosts as u32).map(move |host| (host, Place { part: part as u32, host }))
}

fn note(list: &mut Vec<Option<Place>>, number: u32, place: Place) {
    let number = number as usize;
    list.resize(list.len().max(number + 1), None);
    list[number] = Some(place);
}
