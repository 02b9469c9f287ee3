//! Which hosts share a leaf switch, and the plans that follow from it: hosts of a leaf meet before hosts of different
//! leaves do.
//!
//! Pure functions: equal leaves and radices give an equal plan. Must not know how leaves are found out, or what a
//! crossing costs.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::plan::{Plan, split_evenly};
use crate::radices::Radices;

/// The hosts of a communicator by leaf switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaves {
    /// The hosts, leaf by leaf.
    order: Vec<u32>,
    /// How many hosts each leaf has, in that order.
    sizes: Vec<u32>,
}

impl Leaves {
    /// So many hosts of which nothing else is known: as if all were at one switch.
    #[must_use]
    pub fn unknown(hosts: u32) -> Self {
        Self { order: (0..hosts).collect(), sizes: Vec::from([hosts]) }
    }

    /// Hosts by the numbers of their leaves, which only tell who shares one. Leaves stand in the order of their first
    /// hosts. Where each host has a leaf of its own, nothing is known.
    #[must_use]
    pub fn new(leaf_of_host: &[u32]) -> Self {
        let mut index_of = BTreeMap::new();
        let mut sizes: Vec<u32> = Vec::new();
        let mut of_hosts: Vec<(usize, u32)> = Vec::with_capacity(leaf_of_host.len());
        for (host, leaf) in (0..).zip(leaf_of_host) {
            let index = *index_of.entry(leaf).or_insert(sizes.len());
            if index == sizes.len() {
                sizes.push(0);
            }
            sizes[index] += 1;
            of_hosts.push((index, host));
        }
        if sizes.len() == leaf_of_host.len() {
            return Self::unknown(leaf_of_host.len() as u32);
        }
        of_hosts.sort_unstable();
        Self { order: of_hosts.into_iter().map(|(_, host)| host).collect(), sizes }
    }

    /// How many hosts there are.
    #[must_use]
    pub fn hosts(&self) -> u32 {
        self.order.len() as u32
    }

    /// How many leaves there are: one, where nothing is known.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sizes.len()
    }

    /// The plan of these radices. The first of them divide the hosts of each leaf, and the others the leaves, if that
    /// comes out even: each leaf has a host to meet at each level. Else they divide all hosts, leaf by leaf, as in
    /// [`Plan::even`]. None if the radices have no room for the hosts.
    #[must_use]
    pub fn plan(&self, radices: Radices) -> Option<Plan> {
        self.by_leaf(radices)
            .or_else(|| Some(self.put_in_order(Plan::even(self.hosts(), radices)?)))
    }

    /// The same plan, if it divides the hosts into groups: each has two members or more.
    #[must_use]
    pub fn groups(&self, radices: Radices) -> Option<Plan> {
        let in_order = || Some(self.put_in_order(Plan::in_groups(self.hosts(), radices)?));
        self.by_leaf(radices).or_else(in_order)
    }

    /// The ways to divide the hosts [into groups](Self::groups) of at most `members_max` members: those of
    /// [`Plan::divisions`], and those that divide each leaf and then the leaves.
    #[must_use]
    pub fn divisions(&self, members_max: u32) -> Vec<Radices> {
        let mut all = Plan::divisions(self.hosts(), members_max);
        if self.count() == 1 {
            return all;
        }
        let longest = self.sizes.iter().copied().max().unwrap_or(1);
        for within in Radices::candidates(longest, members_max) {
            for across in Radices::candidates(self.count() as u32, members_max) {
                let both: Vec<u32> = within.iter().chain(across.iter()).collect();
                let Some(radices) = Radices::new(&both) else { continue };
                if self.by_leaf(radices).is_some() && !all.contains(&radices) {
                    all.push(radices);
                }
            }
        }
        all
    }

    /// At how many levels of a plan of these hosts some group has hosts of different leaves.
    #[must_use]
    pub fn levels_across(&self, plan: &Plan) -> usize {
        let ends = self.sizes.iter().scan(0, |end, size| {
            *end += size;
            Some(*end)
        });
        let ends: Vec<u32> = ends.collect();
        let leaf_at = |place: u32| ends.partition_point(|end| *end <= place);
        let is_across = |level: &usize| {
            let mut groups = plan.places_of_groups(*level);
            groups.any(|places| leaf_at(places.start) != leaf_at(places.end - 1))
        };
        (0..plan.levels()).filter(is_across).count()
    }

    fn by_leaf(&self, radices: Radices) -> Option<Plan> {
        if self.count() == 1 {
            return None;
        }
        let mut parts = self.sizes.clone();
        let mut levels = Vec::new();
        for radix in radices.iter() {
            if parts.iter().all(|members| *members == 1) {
                parts = Vec::from([parts.len() as u32]);
            }
            let groups = parts.iter().flat_map(|members| even_groups(*members, radix));
            levels.push(groups.collect::<Vec<u32>>());
            parts.iter_mut().for_each(|members| *members = members.div_ceil(radix));
        }
        let all_meet = levels.iter().flatten().all(|members| *members >= 2);
        let plan = Plan::new(self.hosts(), &levels).ok().filter(|_| all_meet)?;
        Some(self.put_in_order(plan))
    }

    fn put_in_order(&self, plan: Plan) -> Plan {
        plan.in_order(&self.order)
    }
}

/// As few groups as there can be of at most `radix` members.
fn even_groups(members: u32, radix: u32) -> impl Iterator<Item = u32> {
    split_evenly(members, members.div_ceil(radix))
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    fn radices(list: &[u32]) -> Radices {
        Radices::new(list).expect("radices")
    }

    fn groups_at(plan: &Plan, level: usize, host: u32) -> Vec<u32> {
        plan.groups_of(host)[level][0].hosts.clone()
    }

    #[test]
    fn hosts_of_a_leaf_meet_first() {
        // Two leaves, dealt in turn.
        let leaves = Leaves::new(&[7, 3, 7, 3, 7, 3, 7, 3]);
        let plan = leaves.groups(radices(&[4, 2])).expect("a plan");
        assert_eq!(groups_at(&plan, 0, 4), [0, 2, 4, 6]);
        assert_eq!(groups_at(&plan, 0, 5), [1, 3, 5, 7]);
        assert_eq!(groups_at(&plan, 1, 4), [4, 5]);
        assert_eq!((leaves.count(), leaves.levels_across(&plan)), (2, 1));
        // In the order of their numbers both levels cross.
        let plan = Plan::in_groups(8, radices(&[4, 2])).expect("a plan");
        assert_eq!(groups_at(&plan, 0, 4), [4, 5, 6, 7]);
    }

    #[test]
    fn leaves_of_different_sizes_are_divided_each_by_itself() {
        let leaves = Leaves::new(&[0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2]);
        let plan = leaves.plan(radices(&[5, 3])).expect("a plan");
        assert_eq!(plan.group_sizes(0).collect::<Vec<_>>(), [5, 3, 4]);
        assert_eq!(groups_at(&plan, 1, 2), [2, 7, 10]);
        assert_eq!(leaves.levels_across(&plan), 1);
        // Four hosts of a group are not five, so these divide all hosts alike.
        let plan = leaves.plan(radices(&[4, 3])).expect("a plan");
        assert_eq!(plan.group_sizes(0).collect::<Vec<_>>(), [4, 4, 4]);
        assert_eq!(leaves.levels_across(&plan), 2);
        assert!(leaves.divisions(32).contains(&radices(&[5, 3])));
    }

    #[test]
    fn a_leaf_of_one_host_is_not_divided() {
        let leaves = Leaves::new(&[0, 0, 0, 1]);
        assert_eq!(leaves.plan(radices(&[3, 2])), Plan::even(4, radices(&[3, 2])));
        assert_eq!(leaves.groups(radices(&[3, 2])), None, "a host would meet nobody");
    }

    #[test]
    fn where_nothing_is_known_plans_are_those_of_all_hosts() {
        for leaves in
            [Leaves::unknown(12), Leaves::new(&[4; 12]), Leaves::new(&Vec::from_iter(0..12))]
        {
            assert_eq!(leaves, Leaves::unknown(12));
            assert_eq!(leaves.divisions(32), Plan::divisions(12, 32));
            for radices in leaves.divisions(32) {
                assert_eq!(leaves.groups(radices), Plan::in_groups(12, radices));
                assert_eq!(leaves.plan(radices), Plan::even(12, radices));
            }
        }
    }

    #[test]
    fn all_hosts_meet_whatever_the_leaves_are() {
        let sizes = [vec![4, 4, 4, 4], vec![10, 6], vec![5, 5, 3, 3], vec![2, 7], vec![9, 9, 9, 5]];
        for sizes in sizes {
            let mut leaf_of_host: Vec<u32> =
                (0..).zip(&sizes).flat_map(|(leaf, size)| vec![leaf; *size]).collect();
            let middle = leaf_of_host.len() / 2;
            leaf_of_host.rotate_left(middle);
            leaf_of_host.swap(0, middle);
            let leaves = Leaves::new(&leaf_of_host);
            for radices in leaves.divisions(32) {
                let plan = leaves.groups(radices).expect("a division");
                let mut known: Vec<Vec<u32>> = (0..leaves.hosts()).map(|host| vec![host]).collect();
                for level in 0..plan.levels() {
                    let before = known.clone();
                    for host in 0..leaves.hosts() {
                        let group = &plan.groups_of(host)[level][0];
                        assert!(group.hosts.contains(&host));
                        let of_members = group.hosts.iter().map(|member| &before[*member as usize]);
                        known[host as usize] = of_members.flatten().copied().collect();
                    }
                }
                for known in &mut known {
                    known.sort_unstable();
                    assert!(known.iter().copied().eq(0..leaves.hosts()), "{radices} {sizes:?}");
                }
            }
        }
    }
}
