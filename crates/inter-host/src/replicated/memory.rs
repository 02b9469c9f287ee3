//! The bytes of a group's places.

use tributary_replicated::Place;
use tributary_shm_collectives::Combine;

/// For each place, the members' contributions and a sum. Each takes as much as the longest that was there.
pub(super) struct Memory {
    members: usize,
    /// By place, then by member.
    contributions: Vec<Vec<u8>>,
    sums: Vec<Vec<u8>>,
}

impl Memory {
    pub(super) fn new(places: usize, members: usize) -> Self {
        Self {
            members,
            contributions: vec![Vec::new(); places * members],
            sums: vec![Vec::new(); places],
        }
    }

    pub(super) fn at(&self, place: Place) -> &[u8] {
        match place {
            Place::Contribution { place, member } => {
                &self.contributions[place * self.members + usize::from(member)]
            }
            Place::Sum { place } => &self.sums[place],
        }
    }

    pub(super) fn put(&mut self, place: Place, bytes: &[u8]) {
        let target = match place {
            Place::Contribution { place, member } => {
                &mut self.contributions[place * self.members + usize::from(member)]
            }
            Place::Sum { place } => &mut self.sums[place],
        };
        target.clear();
        target.extend_from_slice(bytes);
    }

    /// Folds a place's contributions, which have one length, from the first member's to the last's.
    pub(super) fn fold(&mut self, place: usize, kernel: Option<&dyn Combine>) {
        let sum = &mut self.sums[place];
        let mut contributions = self.contributions[place * self.members..][..self.members].iter();
        sum.clear();
        sum.extend_from_slice(contributions.next().expect("a group has members"));
        if !sum.is_empty() {
            let kernel = kernel.expect("only reductions have data, and they have a kernel");
            contributions.for_each(|contribution| kernel.fold(sum, contribution));
        }
    }
}
