//! Plans: how hosts are divided into groups, level by level, and the order that follows from it.
//!
//! Owns the division and its arithmetic. Must not know what carries a contribution, or what a crossing costs.

use alloc::vec::Vec;
use core::ops::Range;

use arrayvec::ArrayVec;

pub use crate::radices::LEVELS_MAX;
use crate::radices::Radices;
use crate::split::Split;

/// Most hosts of a plan.
pub const HOSTS_MAX: u32 = 4096;

/// Hosts in an order, divided into groups of neighbours, level by level.
///
/// At the first level a group's members are hosts, and at each further one groups of the level before. All hosts of a
/// member hold what the member is worth. A reduction folds in **the plan's order**: the members of a group from the
/// first to the last, whatever carries them and whichever host folds them. So equal plans give equal bits.
///
/// Groups of a level may differ in size. Each host of a member gets the contribution of each other member of the group
/// from one host of that member: the one at its own position, modulo how many hosts the other member has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    hosts: u32,
    order: HostOrder,
    levels: Vec<Level>,
}

/// In which order hosts stand. A host's place is its number unless they were put into another order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct HostOrder {
    /// The host at each place; empty if each host's place is its number.
    hosts: Vec<u32>,
    /// The place of each host; empty if that is its number.
    places: Vec<u32>,
}

/// One level: its groups lie one behind the other. Members and hosts are counted by place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Level {
    groups: Vec<Group>,
    /// How many members the smallest group has.
    members_min: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Group {
    /// Its first member, counted over all groups of the level.
    first_member: u32,
    members: u32,
    first_place: u32,
    hosts: u32,
    /// How many hosts its largest member has.
    longest: u32,
}

/// Hosts that exchange whole vectors at one level, one of each member of a plan's group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostGroup {
    /// Tells groups apart in which the same hosts meet. 0 for all where no host stands in for another.
    pub round: u32,
    /// In child order, which is the plan's.
    pub hosts: Vec<u32>,
}

/// Where a host belongs at one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    /// The group's first member, counted over all groups of the level.
    pub(crate) first_member: u32,
    /// How many members the group has.
    pub(crate) members: u32,
    /// Which of them the host belongs to.
    pub(crate) own: u32,
    /// The host's position in its member, and how many hosts that has.
    pub(crate) position: u32,
    pub(crate) hosts: u32,
    /// How many hosts the largest member of the group has.
    pub(crate) longest: u32,
}

/// Why levels are no plan: a mistake of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoPlan {
    /// More hosts than a plan has.
    #[error("{hosts} hosts; a plan has 1 to {HOSTS_MAX}")]
    Hosts {
        /// How many.
        hosts: u32,
    },
    /// More levels than a plan has.
    #[error("{levels} levels; a plan has at most {LEVELS_MAX}")]
    Levels {
        /// How many.
        levels: usize,
    },
    /// A group without members.
    #[error("level {level} has a group without members")]
    EmptyGroup {
        /// The level, from the hosts on.
        level: usize,
    },
    /// The groups of a level do not have as many members as there are.
    #[error("the groups of level {level} have {members} members of {there_are}")]
    Members {
        /// The level, from the hosts on.
        level: usize,
        /// How many its groups have.
        members: u64,
        /// How many there are.
        there_are: u32,
    },
    /// A level at which nobody meets anybody: it would cost a crossing for nothing.
    #[error("every group of level {level} has a single member")]
    Idle {
        /// The level, from the hosts on.
        level: usize,
    },
    /// The last level has more groups than one.
    #[error("{groups} groups are left after the last level")]
    Apart {
        /// How many.
        groups: usize,
    },
}

impl Plan {
    /// A plan of `hosts` hosts: for each level, from the hosts on, how many members each of its groups has. One host
    /// needs no level.
    ///
    /// # Errors
    /// [`NoPlan`] where the levels do not fit together, or one of them serves nothing.
    pub fn new(hosts: u32, levels: &[Vec<u32>]) -> Result<Self, NoPlan> {
        if hosts == 0 || hosts > HOSTS_MAX {
            return Err(NoPlan::Hosts { hosts });
        }
        if levels.len() > LEVELS_MAX {
            return Err(NoPlan::Levels { levels: levels.len() });
        }
        let mut made: Vec<Level> = Vec::with_capacity(levels.len());
        for (level, sizes) in levels.iter().enumerate() {
            let there_are = made.last().map_or(hosts, |below| below.groups.len() as u32);
            check_level(level, sizes, there_are)?;
            let next = Level::above(made.last(), sizes);
            made.push(next);
        }
        match made.last().map_or(hosts as usize, |last| last.groups.len()) {
            1 => Ok(Self { hosts, order: HostOrder::default(), levels: made }),
            groups => Err(NoPlan::Apart { groups }),
        }
    }

    /// A plan whose groups have at most as many members as the radices say, and whose members differ by one host at
    /// most: all hosts are cut into as many parts as the last radix says, each of them into as many as the one before,
    /// and so on. None if there are more hosts than the radices have room for, or than a plan has.
    #[must_use]
    pub fn even(hosts: u32, radices: Radices) -> Option<Self> {
        if hosts > HOSTS_MAX {
            return None;
        }
        let mut parts = Vec::from([hosts]);
        let mut levels = Vec::new();
        let from_last: ArrayVec<u32, LEVELS_MAX> = radices.iter().collect();
        for radix in from_last.into_iter().rev() {
            let members: Vec<u32> = parts.iter().map(|part| radix.min(*part)).collect();
            let cut = |(part, members): (&u32, &u32)| split_evenly(*part, *members);
            parts = parts.iter().zip(&members).flat_map(cut).collect();
            levels.push(members);
        }
        levels.reverse();
        levels.retain(|groups| groups.iter().any(|members| *members > 1));
        Self::new(hosts, &levels).ok()
    }

    /// The even plan in which these radices divide the hosts into groups: each has two members or more, and those of the first level
    /// lack one at most. None if there is none.
    #[must_use]
    pub fn in_groups(hosts: u32, radices: Radices) -> Option<Self> {
        let first = u64::from(radices.iter().next()?);
        let room = radices.ranks_max();
        let is_filled = u64::from(hosts) > room / first * (first - 1);
        let plan = Self::even(hosts, radices).filter(|_| is_filled)?;
        let meets_somebody = |level| plan.members_min(level) >= 2;
        (0..plan.levels()).all(meets_somebody).then_some(plan)
    }

    /// The ways to divide hosts [into groups](Self::in_groups) of at most `members_max` members: all whose groups are equal, the largest at
    /// the first level, and for each number of levels the one with the least room to spare. For 12 hosts 12, 6x2, 4x3, 3x2x2; for 17 17,
    /// 5x4, 3x3x2, 3x2x2x2.
    #[must_use]
    pub fn divisions(hosts: u32, members_max: u32) -> Vec<Radices> {
        let mut all = Radices::divisions(hosts, members_max);
        let divides = |radices: &Radices| Self::in_groups(hosts, *radices).is_some();
        for radices in Radices::candidates(hosts, members_max).filter(divides) {
            if !all.contains(&radices) {
                all.push(radices);
            }
        }
        all
    }

    /// Of the [divisions](Self::divisions) with the same number of levels the one with the smallest groups, in the sum: one whose groups
    /// are equal, if there is one. For 16 hosts 16, 4x4, 4x2x2, 2x2x2x2.
    #[must_use]
    pub fn smallest_divisions(hosts: u32, members_max: u32) -> Vec<Radices> {
        let mut all = Self::divisions(hosts, members_max);
        all.sort_by_key(|radices| {
            let is_uneven = radices.ranks_max() != u64::from(hosts);
            (radices.iter().count(), is_uneven, radices.iter().sum::<u32>())
        });
        all.dedup_by_key(|radices| radices.iter().count());
        all
    }

    /// The same plan of hosts that stand in this order.
    ///
    /// # Panics
    /// If some host is not in it once.
    #[must_use]
    pub(crate) fn in_order(self, hosts: &[u32]) -> Self {
        assert_eq!(hosts.len(), self.hosts as usize, "every host has a place");
        let mut places = alloc::vec![u32::MAX; hosts.len()];
        for (place, host) in (0..).zip(hosts) {
            places[*host as usize] = place;
        }
        assert!(!places.contains(&u32::MAX), "every host has a place");
        if places.is_sorted() {
            return self;
        }
        Self { order: HostOrder { hosts: hosts.to_vec(), places }, ..self }
    }

    /// How many hosts it has.
    #[must_use]
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// The host at a place.
    pub(crate) fn host(&self, place: u32) -> u32 {
        self.order.hosts.get(place as usize).copied().unwrap_or(place)
    }

    fn place(&self, host: u32) -> u32 {
        self.order.places.get(host as usize).copied().unwrap_or(host)
    }

    /// How many levels it has.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// How many members each group of a level has, in order.
    ///
    /// # Panics
    /// If there is no such level.
    pub fn group_sizes(&self, level: usize) -> impl Iterator<Item = u32> {
        self.levels[level].groups.iter().map(|group| group.members)
    }

    /// The places of the hosts of each group of a level.
    pub(crate) fn places_of_groups(&self, level: usize) -> impl Iterator<Item = Range<u32>> {
        let groups = self.levels[level].groups.iter();
        groups.map(|group| group.first_place..group.first_place + group.hosts)
    }

    /// How many members the largest group of a level has.
    ///
    /// # Panics
    /// If there is no such level.
    #[must_use]
    pub fn members_max(&self, level: usize) -> u32 {
        self.group_sizes(level).max().expect("a level has a group")
    }

    /// How many members the smallest group of a level has: so many of each own a part of a vector that is divided.
    ///
    /// # Panics
    /// If there is no such level.
    #[must_use]
    pub fn members_min(&self, level: usize) -> u32 {
        self.levels[level].members_min
    }

    /// The groups of hosts that exchange whole vectors with `host` at each level, from the first on. At a level the first is its
    /// own: the hosts at its position in the members of its group. The others are those in which it stands in: a member that has fewer hosts
    /// than another one has a host in each of the other's.
    ///
    /// # Panics
    /// If there is no such host.
    #[must_use]
    pub fn groups_of(&self, host: u32) -> Vec<Vec<HostGroup>> {
        (0..self.levels()).map(|level| self.groups_at(level, host)).collect()
    }

    fn groups_at(&self, level: usize, host: u32) -> Vec<HostGroup> {
        let Seat { first_member, members, position, hosts, longest, .. } = self.seat(level, host);
        let members = (first_member..first_member + members).map(|it| self.member(level, it));
        let fewest = members.clone().map(|(_, hosts)| hosts).min().unwrap_or(1);
        let group = |position: u32| HostGroup {
            round: position / fewest,
            hosts: members
                .clone()
                .map(|(first, hosts)| self.host(first + position % hosts))
                .collect(),
        };
        (position..longest).step_by(hosts as usize).map(group).collect()
    }

    /// Whether some host stands in for another at a level.
    ///
    /// # Panics
    /// If there is no such level.
    #[must_use]
    pub fn has_stand_ins(&self, level: usize) -> bool {
        self.copies_max(level) > 1
    }

    /// How many datagrams a host sends and receives at a level that nobody needs: where hosts stand in for others, all members of
    /// [their group](Self::groups_of) send to all. At the last level the mean over the hosts, as nobody waits for those that are late; else
    /// the most.
    pub(crate) fn spare_datagrams(&self, level: usize) -> (f64, f64) {
        if !self.has_stand_ins(level) {
            return (0.0, 0.0);
        }
        let of_hosts = (0..self.hosts).map(|host| self.spare_datagrams_of(level, host));
        if level + 1 < self.levels() {
            let most = of_hosts.max_by_key(|(sent, received)| sent + received);
            return most.map_or((0.0, 0.0), |(sent, received)| (sent.into(), received.into()));
        }
        let all = of_hosts.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        let mean = |all: u32| f64::from(all) / f64::from(self.hosts);
        (mean(all.0), mean(all.1))
    }

    fn spare_datagrams_of(&self, level: usize, host: u32) -> (u32, u32) {
        let Seat { first_member, members, own, position, hosts, longest } = self.seat(level, host);
        let others = (0..members).filter(|member| *member != own);
        let sizes = others.map(|member| self.member(level, first_member + member).1);
        let positions = (position..longest).step_by(hosts as usize);
        let stands_in = positions.clone().count() as u32 - 1;
        // A host at a position that its member lacks is there for others.
        let needless = |position| sizes.clone().filter(|hosts| *hosts <= position).count();
        (positions.map(needless).sum::<usize>() as u32, stands_in * (members - 1))
    }

    /// To how many hosts of another member a host sends at a level, at most: it stands in for those that its own lacks.
    pub(crate) fn copies_max(&self, level: usize) -> u32 {
        let of_group = |group: &Group| {
            let members = group.first_member..group.first_member + group.members;
            let shortest = members.map(|member| self.member(level, member).1).min().unwrap_or(1);
            if group.members == 1 { 1 } else { group.longest.div_ceil(shortest) }
        };
        self.levels[level].groups.iter().map(of_group).max().unwrap_or(1)
    }

    /// Where a host belongs at a level.
    pub(crate) fn seat(&self, level: usize, host: u32) -> Seat {
        let place = self.place(host);
        let groups = &self.levels[level].groups;
        let behind = groups.partition_point(|group| group.first_place <= place);
        let group = groups[behind - 1];
        let member = self.member_of(level, place);
        let (first, hosts) = self.member(level, member);
        Seat {
            first_member: group.first_member,
            members: group.members,
            own: member - group.first_member,
            position: place - first,
            hosts,
            longest: group.longest,
        }
    }

    /// The place of the first host of a level's member, and how many hosts it has.
    pub(crate) fn member(&self, level: usize, member: u32) -> (u32, u32) {
        match level.checked_sub(1) {
            None => (member, 1),
            Some(below) => {
                let group = self.levels[below].groups[member as usize];
                (group.first_place, group.hosts)
            }
        }
    }

    /// The host of a level's member that has these places in its groups, from the first level on.
    pub(crate) fn host_at(&self, level: usize, member: u32, places: &[u32]) -> u32 {
        let place = (0..level).rev().fold(member, |member, below| {
            self.levels[below].groups[member as usize].first_member + places[below]
        });
        self.host(place)
    }

    fn member_of(&self, level: usize, place: u32) -> u32 {
        level.checked_sub(1).map_or(place, |below| {
            let groups = &self.levels[below].groups;
            groups.partition_point(|group| group.first_place <= place) as u32 - 1
        })
    }
}

/// The sizes of so many parts of `total`, which differ by one at most.
pub(crate) fn split_evenly(total: u32, parts: u32) -> impl Iterator<Item = u32> {
    let split = Split::new(total.into(), parts.into());
    (0..parts).map(move |part| split.part(part.into()).elements as u32)
}

fn check_level(level: usize, sizes: &[u32], there_are: u32) -> Result<(), NoPlan> {
    if sizes.contains(&0) {
        return Err(NoPlan::EmptyGroup { level });
    }
    let members = sizes.iter().map(|size| u64::from(*size)).sum();
    if members != u64::from(there_are) {
        return Err(NoPlan::Members { level, members, there_are });
    }
    if sizes.iter().all(|size| *size == 1) {
        return Err(NoPlan::Idle { level });
    }
    Ok(())
}

impl Level {
    /// The level whose groups have so many members each, of the groups `below`, or of hosts.
    fn above(below: Option<&Self>, sizes: &[u32]) -> Self {
        let hosts_of = |member: u32| below.map_or(1, |below| below.groups[member as usize].hosts);
        let (mut first_member, mut first_place) = (0, 0);
        let mut groups = Vec::with_capacity(sizes.len());
        for &members in sizes {
            let of_members = (first_member..first_member + members).map(hosts_of);
            let hosts = of_members.clone().sum();
            let longest = of_members.max().unwrap_or(0);
            groups.push(Group { first_member, members, first_place, hosts, longest });
            first_member += members;
            first_place += hosts;
        }
        Self { groups, members_min: sizes.iter().copied().min().unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::{format, vec};

    use super::*;

    #[test]
    fn levels_that_do_not_fit_are_refused() {
        let refusal = |hosts, levels: &[Vec<u32>]| Plan::new(hosts, levels).expect_err("refused");
        assert_eq!(refusal(0, &[]), NoPlan::Hosts { hosts: 0 });
        assert_eq!(refusal(HOSTS_MAX + 1, &[]), NoPlan::Hosts { hosts: HOSTS_MAX + 1 });
        assert_eq!(refusal(1, &vec![vec![1]; LEVELS_MAX + 1]), NoPlan::Levels { levels: 13 });
        assert_eq!(refusal(2, &[vec![2, 0]]), NoPlan::EmptyGroup { level: 0 });
        let members = NoPlan::Members { level: 1, members: 3, there_are: 2 };
        assert_eq!(refusal(4, &[vec![2, 2], vec![3]]), members);
        let members = NoPlan::Members { level: 0, members: 2 * u64::from(u32::MAX), there_are: 4 };
        assert_eq!(refusal(4, &[vec![u32::MAX, u32::MAX]]), members);
        assert_eq!(refusal(2, &[vec![1, 1], vec![2]]), NoPlan::Idle { level: 0 });
        assert_eq!(refusal(4, &[vec![2, 2]]), NoPlan::Apart { groups: 2 });
        assert_eq!(refusal(2, &[]), NoPlan::Apart { groups: 2 });
        assert!(Plan::new(1, &[]).is_ok());
    }

    /// The hosts of all groups of a host at a level.
    fn hosts_of_groups(plan: &Plan, level: usize, host: u32) -> Vec<Vec<u32>> {
        plan.groups_of(host)[level].iter().map(|group| group.hosts.clone()).collect()
    }

    #[test]
    fn a_host_meets_those_at_its_position_and_stands_in_for_those_that_are_lacking() {
        let plan = Plan::even(12, Radices::new(&[2, 3, 2]).expect("radices")).expect("a plan");
        assert_eq!(hosts_of_groups(&plan, 0, 7), [[6, 7]]);
        assert_eq!(hosts_of_groups(&plan, 1, 7), [[7, 9, 11]]);
        assert_eq!(hosts_of_groups(&plan, 2, 7), [[1, 7]]);
        assert!(!plan.has_stand_ins(1));
        // Members of 5, 4, 4 and 4 hosts.
        let plan = Plan::even(17, Radices::new(&[5, 4]).expect("radices")).expect("a plan");
        assert_eq!(hosts_of_groups(&plan, 0, 2), [[0, 1, 2, 3, 4]]);
        assert_eq!(hosts_of_groups(&plan, 0, 5), [[5, 6, 7, 8]]);
        assert_eq!(hosts_of_groups(&plan, 1, 3), [[3, 8, 12, 16]]);
        assert_eq!(hosts_of_groups(&plan, 1, 4), [[4, 5, 9, 13]]);
        assert_eq!(hosts_of_groups(&plan, 1, 9), [[0, 5, 9, 13], [4, 5, 9, 13]]);
        assert!(!plan.has_stand_ins(0) && plan.has_stand_ins(1));
    }

    #[test]
    fn hosts_tell_the_groups_apart_in_which_they_meet() {
        for hosts in 2..70 {
            for radices in Radices::candidates(hosts, 32) {
                let plan = Plan::even(hosts, radices).expect("a plan");
                let of_hosts: Vec<_> = (0..hosts).map(|host| plan.groups_of(host)).collect();
                for (host, level) in
                    (0..hosts).flat_map(|it| (0..plan.levels()).map(move |level| (it, level)))
                {
                    let groups = &of_hosts[host as usize][level];
                    assert!(groups.len() == 1 || plan.has_stand_ins(level));
                    for group in groups {
                        assert!(group.hosts.is_sorted());
                        // All of its members know the group, by the same number, and no other of that number with this host.
                        for member in &group.hosts {
                            let theirs = of_hosts[*member as usize][level].iter();
                            let common = theirs
                                .filter(|it| it.round == group.round && it.hosts.contains(&host));
                            assert!(common.eq([group]), "{radices}, hosts {host} and {member}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_stand_in_sends_and_receives_what_nobody_needs() {
        let spare = |hosts, radices: &[u32], level| {
            let radices = Radices::new(radices).expect("radices");
            Plan::even(hosts, radices).expect("a plan").spare_datagrams(level)
        };
        assert_eq!(spare(16, &[4, 4], 1), (0.0, 0.0));
        assert_eq!(spare(17, &[5, 4], 0), (0.0, 0.0));
        // Hosts 5, 9 and 13 need no sum of the hosts 4, 5, 9 and 13: they get nine datagrams for nothing, three from host 4 and two from
        // each other.
        assert_eq!(spare(17, &[5, 4], 1), (9.0 / 17.0, 9.0 / 17.0));
        // Host 3 and host 5 stand in for the third host of their members.
        assert_eq!(spare(13, &[3, 3, 2], 1), (1.0, 2.0));
    }

    #[test]
    fn hosts_that_no_number_divides_have_groups_too() {
        let words =
            |found: Vec<Radices>| found.iter().map(|it| format!("{it}")).collect::<Vec<_>>();
        let all = |hosts| words(Plan::divisions(hosts, 32));
        assert_eq!(all(3), ["3"]);
        assert_eq!(all(8), ["8", "4x2", "2x2x2", "3x3"]);
        assert_eq!(all(17), ["17", "5x4", "3x3x2", "3x2x2x2"]);
        let smallest = |hosts| words(Plan::smallest_divisions(hosts, 32));
        assert_eq!(smallest(12), ["12", "4x3", "3x2x2"]);
        assert_eq!(smallest(16), ["16", "4x4", "4x2x2", "2x2x2x2"]);
        assert_eq!(smallest(37), ["7x6", "4x4x3", "3x3x3x2", "3x2x2x2x2"]);
        assert_eq!(smallest(64), ["8x8", "4x4x4", "4x4x2x2", "4x2x2x2x2", "2x2x2x2x2x2"]);
        for hosts in (2..300).chain((300..=HOSTS_MAX).step_by(37)) {
            assert!(!Plan::divisions(hosts, 32).is_empty(), "{hosts}");
        }
    }

    #[test]
    fn a_host_knows_its_seat_in_uneven_groups() {
        let plan = Plan::new(6, &[vec![3, 1, 2], vec![2, 1], vec![2]]).expect("a plan");
        let seat = |level, host| {
            let seat = plan.seat(level, host);
            (seat.first_member, seat.members, seat.own, seat.position, seat.hosts)
        };
        assert_eq!(seat(0, 5), (4, 2, 1, 0, 1));
        assert_eq!(seat(1, 2), (0, 2, 0, 2, 3));
        assert_eq!(seat(1, 3), (0, 2, 1, 0, 1));
        assert_eq!(seat(1, 4), (2, 1, 0, 0, 2));
        assert_eq!(seat(2, 3), (0, 2, 0, 3, 4));
        assert_eq!(seat(2, 5), (0, 2, 1, 1, 2));
        assert_eq!(plan.host_at(2, 1, &[1, 0]), 5);
        assert_eq!(plan.members_min(0), 1);
        assert_eq!(plan.members_max(0), 3);
    }
}
