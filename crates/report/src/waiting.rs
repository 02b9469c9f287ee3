//! How much of the time inside collectives ranks wait for those that come later.
//!
//! Where no rank can leave before all have come, the last one to come waits for nobody: its time is that of the transfer, and
//! what others take longer, they have waited. To see that, the times of one operation at all its ranks must come together.
//! So each rank keeps the durations of some operations ([`Sampler`]), and the report of the job compares them ([`Waits`]).
//! A function of the operation's number picks them, so all ranks keep the same; clocks of different hosts are never compared.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tributary_algorithms::CollectiveKind;

use super::path::PathTaken;

/// Operations whose durations a rank keeps, of communicators of the same members.
const SAMPLES_MAX: usize = 256;
/// Sets of members of whose communicators a rank keeps some; later ones have none.
const MEMBERS_MAX: usize = 16;

/// A set of members, as [`Sampler::add`] wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembersId(u32);

impl MembersId {
    /// As a number, for C.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The one with this number, whether there is one or not.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }
}

/// What a rank keeps while the job runs.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    all: Mutex<Vec<Samples>>,
}

/// Durations of some operations at one rank, of communicators of the same members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// A number made of the members' ranks.
    members_hash: u64,
    /// How many these are.
    members: u32,
    /// Operations so far.
    #[serde(skip)]
    calls: u64,
    /// One operation in 2^this is kept.
    #[serde(skip)]
    scarcity: u32,
    /// Collective, path and size class (by its shortest contribution) of operations that were kept.
    cells: Vec<(CollectiveKind, PathTaken, u64)>,
    /// Of each operation: its number, its place in `cells`, and its duration in nanoseconds.
    kept: Vec<(u64, u8, u64)>,
}

/// Whether no rank of such an operation can leave before all have come, if they all contribute something.
const fn waits_for_all(kind: CollectiveKind) -> bool {
    use CollectiveKind::{Allgather, Allreduce, Barrier, ReduceScatter};
    matches!(kind, Allreduce | Barrier | ReduceScatter | Allgather)
}

/// Bits that tell nothing of an operation's place among others: a program repeats itself, so every eighth operation, say, may
/// always be of one kind.
const fn scatter(number: u64) -> u64 {
    // The finaliser of SplitMix64.
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

const fn is_picked(call: u64, scarcity: u32) -> bool {
    scatter(call).trailing_zeros() >= scarcity
}

impl Sampler {
    /// A rank that has kept nothing.
    pub(super) const fn new() -> Self {
        Self { all: Mutex::new(Vec::new()) }
    }

    /// The set of members with these ranks in the world, in the communicator's order; none if there are too many sets.
    pub(super) fn members(&self, ranks: &[u32]) -> Option<MembersId> {
        let members_hash =
            ranks.iter().fold(ranks.len() as u64, |hash, rank| scatter(hash ^ u64::from(*rank)));
        let members = u32::try_from(ranks.len()).ok()?;
        let mut all = self.lock();
        let is_same =
            |known: &Samples| known.members_hash == members_hash && known.members == members;
        let place = match all.iter().position(is_same) {
            Some(place) => place,
            None if all.len() == MEMBERS_MAX => return None,
            None => {
                let (cells, kept) = (Vec::new(), Vec::with_capacity(SAMPLES_MAX));
                all.push(Samples { members_hash, members, calls: 0, scarcity: 0, cells, kept });
                all.len() - 1
            }
        };
        Some(MembersId(place as u32))
    }

    /// Adds an operation of a communicator of these members. They add theirs in the same order, or few agree.
    pub(super) fn add(
        &self,
        members: MembersId,
        (kind, path, from_bytes): (CollectiveKind, PathTaken, u64),
        duration_ns: u64,
    ) {
        if waits_for_all(kind)
            && let Some(samples) = self.lock().get_mut(members.0 as usize)
        {
            samples.add((kind, path, from_bytes), duration_ns);
        }
    }

    /// Forgets what was kept, and not the members.
    pub(super) fn clear(&self) {
        for samples in self.lock().iter_mut() {
            (samples.calls, samples.scarcity) = (0, 0);
            samples.kept.clear();
            samples.cells.clear();
        }
    }

    /// What was kept.
    pub(super) fn samples(&self) -> Vec<Samples> {
        let all = self.lock();
        all.iter().filter(|samples| !samples.kept.is_empty()).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Samples>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Samples {
    fn add(&mut self, cell: (CollectiveKind, PathTaken, u64), duration_ns: u64) {
        let call = self.calls;
        self.calls += 1;
        if !is_picked(call, self.scarcity) {
            return;
        }
        while self.kept.len() >= SAMPLES_MAX {
            self.scarcity += 1;
            let scarcity = self.scarcity;
            self.kept.retain(|(call, ..)| is_picked(*call, scarcity));
        }
        if !is_picked(call, self.scarcity) {
            return;
        }
        let place = self.cells.iter().position(|known| *known == cell).unwrap_or_else(|| {
            self.cells.push(cell);
            self.cells.len() - 1
        });
        // A program of more than 256 cells keeps none of the later ones.
        if let Ok(place) = u8::try_from(place) {
            self.kept.push((call, place, duration_ns));
        }
    }
}

/// An operation, as the ranks that kept it saw it.
#[derive(Debug)]
struct Seen {
    cell: (CollectiveKind, PathTaken, u64),
    ranks: u32,
    total_ns: u64,
    least_ns: u64,
    /// All saw the same collective, on one path, and of one size class.
    is_one: bool,
}

/// The samples of a job's ranks, brought together.
#[derive(Debug, Default)]
pub struct Waits {
    /// By hash and number of the members, and the operation's number.
    seen: BTreeMap<(u64, u32, u64), Seen>,
}

impl Waits {
    /// Adds what one rank kept.
    pub fn add(&mut self, samples: &[Samples]) {
        for Samples { members_hash, members, cells, kept, .. } in samples {
            for (call, place, duration_ns) in kept {
                let Some(cell) = cells.get(usize::from(*place)) else { continue };
                let seen = self.seen.entry((*members_hash, *members, *call)).or_insert(Seen {
                    cell: *cell,
                    ranks: 0,
                    total_ns: 0,
                    least_ns: u64::MAX,
                    is_one: true,
                });
                seen.ranks += 1;
                seen.total_ns = seen.total_ns.saturating_add(*duration_ns);
                seen.least_ns = seen.least_ns.min(*duration_ns);
                seen.is_one &= seen.cell == *cell;
            }
        }
    }

    /// The operations that all their ranks kept: collective, path and size class, their time at all ranks, and what of it was
    /// waiting, in nanoseconds.
    pub(super) fn compared_operations(
        &self,
    ) -> impl Iterator<Item = ((CollectiveKind, PathTaken, u64), u64, u64)> {
        self.seen.iter().filter_map(|((_, members, _), seen)| {
            let Seen { cell, ranks, total_ns, least_ns, is_one } = *seen;
            let is_empty = cell.2 == 0 && cell.0 != CollectiveKind::Barrier;
            let waiting_ns = total_ns - least_ns.saturating_mul(u64::from(ranks)).min(total_ns);
            (ranks == *members && is_one && !is_empty).then_some((cell, total_ns, waiting_ns))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::Measured;
    use crate::{TimeCells, Times};

    const CELL: (CollectiveKind, PathTaken, u64) =
        (CollectiveKind::Allreduce, PathTaken::Direct, 8);

    /// The times of a job whose rank r took `durations_ns(call)[r]` for each call.
    fn job<const RANKS: usize>(
        calls: u64,
        cell_of: impl Fn(u64, usize) -> (CollectiveKind, PathTaken, u64),
        durations_ns: impl Fn(u64) -> [u64; RANKS],
    ) -> Times {
        let (mut waits, mut times) = (Waits::default(), Times::default());
        let members: Vec<u32> = (0..RANKS as u32).collect();
        for rank in 0..RANKS {
            let (sampler, cells) = (Sampler::new(), TimeCells::new());
            let id = sampler.members(&members).unwrap();
            for call in 0..calls {
                let cell = cell_of(call, rank);
                let (kind, path, from_bytes) = cell;
                cells.add(kind, path, from_bytes, durations_ns(call)[rank]);
                sampler.add(id, cell, durations_ns(call)[rank]);
            }
            let kept = serde_json::to_string(&sampler.samples()).unwrap();
            assert!(kept.len() < 32 * SAMPLES_MAX, "{} bytes a rank", kept.len());
            waits.add(&serde_json::from_str::<Vec<Samples>>(&kept).unwrap());
            times.merge(&cells.times(1));
        }
        times.add_waits(&waits);
        times
    }

    fn measured_at(
        times: &Times,
        (kind, path, from_bytes): (CollectiveKind, PathTaken, u64),
    ) -> &Measured {
        &times.collectives[&kind][&path][&from_bytes]
    }

    #[test]
    fn what_others_take_longer_than_the_last_is_waiting() {
        // In turns one rank comes 900 ns late.
        let late = |call: u64| if call.is_multiple_of(2) { [100, 1000] } else { [1000, 100] };
        let times = job(10_000, |_, _| CELL, late);
        let measured = measured_at(&times, CELL);
        assert_eq!(measured.calls, 20_000);
        let compared = measured.compared_ns / 1100;
        assert!((SAMPLES_MAX as u64 / 4..=SAMPLES_MAX as u64).contains(&compared), "{compared}");
        assert_eq!(measured.waiting_ns, compared * 900);
        let share = measured.waiting_share().unwrap();
        assert!((share - 900.0 / 1100.0).abs() < 1e-9, "{share}");
    }

    #[test]
    fn a_program_that_repeats_itself_is_sampled_evenly() {
        // Of eight operations one is waited for.
        let late = |call: u64| if call.is_multiple_of(8) { [8000, 1000] } else { [1000, 1000] };
        let share = measured_at(&job(100_000, |_, _| CELL, late), CELL).waiting_share().unwrap();
        // 7000 of 23,000; 64 to 256 samples, of which an eighth matters.
        assert!((0.12..0.48).contains(&share), "{share}");
    }

    #[test]
    fn only_operations_that_all_wait_in_are_compared() {
        let bcast = (CollectiveKind::Broadcast, PathTaken::Direct, 8);
        let empty = (CollectiveKind::Allreduce, PathTaken::Direct, 0);
        for cell in [bcast, empty] {
            assert_eq!(measured_at(&job(100, |_, _| cell, |_| [5, 9]), cell).waiting_share(), None);
        }
        // Ranks of which one contributes more.
        let longer = (CollectiveKind::Allgather, PathTaken::Direct, 16);
        let uneven = |_, rank| if rank == 0 { longer } else { (longer.0, longer.1, 4) };
        assert_eq!(measured_at(&job(100, uneven, |_| [5, 9]), longer).waiting_share(), None);
        let barrier = (CollectiveKind::Barrier, PathTaken::InHost, 0);
        let share = measured_at(&job(100, |_, _| barrier, |_| [5, 15]), barrier).waiting_share();
        assert_eq!(share, Some(0.5));
    }

    #[test]
    fn operations_that_a_rank_does_not_know_of_are_left_out() {
        let sampler = Sampler::new();
        let id = sampler.members(&[0, 1]).unwrap();
        sampler.add(id, CELL, 50);
        let cells = TimeCells::new();
        cells.add(CELL.0, CELL.1, CELL.2, 50);
        let (mut waits, mut times) = (Waits::default(), cells.times(1));
        waits.add(&sampler.samples());
        times.add_waits(&waits);
        assert_eq!(measured_at(&times, CELL).waiting_share(), None);
    }

    #[test]
    fn sets_of_members_are_few_and_told_apart() {
        let sampler = Sampler::new();
        let first = sampler.members(&[0, 1, 2]);
        assert_ne!(first, sampler.members(&[0, 2, 1]), "another order");
        assert_eq!(first, sampler.members(&[0, 1, 2]));
        let more = (0..100).filter(|rank| sampler.members(&[*rank]).is_some()).count();
        assert_eq!(more, MEMBERS_MAX - 2);
        // A number that nobody has is not an error: communicators without one have none.
        sampler.add(MembersId::from_number(u32::MAX), CELL, 1);
        sampler.add(first.unwrap(), CELL, 1);
        assert_eq!(sampler.samples().len(), 1);
        sampler.clear();
        assert!(sampler.samples().is_empty());
        assert_eq!(first, sampler.members(&[0, 1, 2]));
    }
}
