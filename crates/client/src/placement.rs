//! Where the ranks of a communicator are, and where this one stands among them.

use std::collections::HashMap;

use tributary_algorithms::Leaves;

use crate::leaf::{self, Leaf};

/// Where every rank of a communicator is, seen from one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    /// This rank.
    pub(crate) rank: u32,
    /// Host of each rank, as an index in order of first appearance.
    pub(crate) host_of: Vec<u32>,
    /// Position of each rank among those of its host.
    pub(crate) local_of: Vec<u32>,
    /// Name of each host.
    pub(crate) hosts: Vec<String>,
    /// Lowest rank on each host: its leader.
    pub(crate) leaders: Vec<u32>,
    /// Ranks on each host.
    pub(crate) ranks_on: Vec<u32>,
    /// All ranks in host order: those of the first host, those of the second, and so on.
    by_host: Vec<u32>,
    /// Position of each host's leader in host order, and at last the number of ranks.
    first_on: Vec<u32>,
    /// Which hosts share a leaf switch.
    pub(crate) leaves: Leaves,
}

impl Placement {
    /// By the name of each rank's host.
    pub(crate) fn new(rank: u32, host_of_rank: &[String]) -> Self {
        let mut index_of: HashMap<&str, u32> = HashMap::new();
        let mut placement = Self {
            rank,
            host_of: Vec::new(),
            local_of: Vec::new(),
            hosts: Vec::new(),
            leaders: Vec::new(),
            ranks_on: Vec::new(),
            by_host: Vec::new(),
            first_on: vec![0],
            leaves: Leaves::unknown(0),
        };
        for (rank, name) in host_of_rank.iter().enumerate() {
            let index = *index_of.entry(name).or_insert_with(|| {
                placement.hosts.push(name.clone());
                placement.leaders.push(rank as u32);
                placement.ranks_on.push(0);
                placement.hosts.len() as u32 - 1
            });
            let ranks = &mut placement.ranks_on[index as usize];
            placement.host_of.push(index);
            placement.local_of.push(*ranks);
            *ranks += 1;
        }
        placement.leaves = Leaves::unknown(placement.host_count());
        placement.put_in_host_order();
        placement
    }

    /// The same where the lowest rank of each host tells the name of its leaf.
    pub(crate) fn with_leaves(mut self, leaf_of_rank: &[Leaf]) -> Self {
        self.leaves = leaf::leaves(self.leaders.iter().map(|rank| &leaf_of_rank[*rank as usize]));
        self
    }

    fn put_in_host_order(&mut self) {
        for ranks in &self.ranks_on {
            let first = self.first_on[self.first_on.len() - 1];
            self.first_on.push(first + ranks);
        }
        self.by_host = vec![0; self.host_of.len()];
        for rank in 0..self.ranks() {
            let position = self.position(rank);
            self.by_host[position as usize] = rank;
        }
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.host_of.len() as u32
    }

    pub(crate) fn host_count(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// Where a rank stands in host order.
    pub(crate) fn position(&self, rank: u32) -> u32 {
        self.first_position(self.host_of[rank as usize]) + self.local_of[rank as usize]
    }

    /// Where a host's ranks begin in host order; of the number of hosts, where the last one's end.
    pub(crate) fn first_position(&self, host: u32) -> u32 {
        self.first_on[host as usize]
    }

    /// The ranks of a host, in their order.
    pub(crate) fn ranks_of(&self, host: u32) -> &[u32] {
        let (first, end) = (self.first_position(host), self.first_position(host + 1));
        &self.by_host[first as usize..end as usize]
    }

    /// Whether host order is the order of ranks: those of every host are neighbours. Hosts, each reduced by
    /// itself, then combine in the order of the ranks.
    pub(crate) fn is_in_host_order(&self) -> bool {
        self.by_host.is_sorted()
    }

    /// This rank's host.
    pub(crate) fn host(&self) -> u32 {
        self.host_of[self.rank as usize]
    }

    /// This rank's position among those of its host.
    pub(crate) fn local_rank(&self) -> u32 {
        self.local_of[self.rank as usize]
    }

    /// Ranks on this rank's host.
    pub(crate) fn local_ranks(&self) -> u32 {
        self.ranks_on[self.host() as usize]
    }

    /// Ranks on the host that has fewest.
    pub(crate) fn local_ranks_min(&self) -> u32 {
        self.ranks_on.iter().copied().min().unwrap_or(1)
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.local_rank() == 0
    }

    pub(crate) fn spans_hosts(&self) -> bool {
        self.hosts.len() > 1
    }

    /// The rank in the communicator of a rank of this host.
    pub(crate) fn rank_of_local(&self, local_rank: u32) -> u32 {
        let is_it =
            |rank: &usize| self.host_of[*rank] == self.host() && self.local_of[*rank] == local_rank;
        (0..self.ranks() as usize).find(is_it).map_or(self.rank, |rank| rank as u32)
    }

    pub(crate) fn is_on_this_host(&self, rank: u32) -> bool {
        self.host_of[rank as usize] == self.host()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_numbered_by_first_appearance() {
        let names: Vec<String> = ["y", "x", "y", "x", "x"].map(str::to_owned).into();
        let placement = Placement::new(3, &names);
        assert_eq!(placement.hosts, ["y", "x"]);
        assert_eq!(placement.host_of, [0, 1, 0, 1, 1]);
        assert_eq!(placement.local_of, [0, 0, 1, 1, 2]);
        assert_eq!(placement.leaders, [0, 1]);
        assert_eq!(placement.ranks_on, [2, 3]);
        assert_eq!((placement.host(), placement.local_rank(), placement.local_ranks()), (1, 1, 3));
        assert_eq!(placement.rank_of_local(2), 4);
    }

    #[test]
    fn the_lowest_rank_of_a_host_tells_its_leaf() {
        let names = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let placement = Placement::new(0, &names("y x y z x u"));
        assert_eq!(placement.leaves, Leaves::unknown(4));
        let leaf = |name: &String| Leaf::split_from(&format!("\t{name}")).1;
        let leaves: Vec<Leaf> = names("a b other a other b").iter().map(leaf).collect();
        let placement = placement.with_leaves(&leaves);
        assert_eq!(placement.leaves, Leaves::new(&[0, 1, 0, 1]));
    }

    #[test]
    fn host_order_puts_the_ranks_of_a_host_together() {
        let placement = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            Placement::new(0, &names)
        };
        let dealt = placement(&["y", "x", "y", "z", "x"]);
        assert_eq!([0, 1, 2].map(|host| dealt.ranks_of(host)), [&[0, 2][..], &[1, 4], &[3]]);
        assert_eq!([0, 1, 2, 3, 4].map(|rank| dealt.position(rank)), [0, 2, 1, 4, 3]);
        assert_eq!([0, 1, 2, 3].map(|host| dealt.first_position(host)), [0, 2, 4, 5]);
        assert!(!dealt.is_in_host_order());
        assert!(placement(&["y", "y", "x", "z", "z"]).is_in_host_order());
    }
}
