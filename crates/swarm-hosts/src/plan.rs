//! What ranks of several hosts do, and what becomes of some of them: drawn from a seed, and data from then on.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Separates the random numbers of these systems from all others of a seed.
const HOSTS_SEED: u64 = 0x686f_7374_732d_2121;

/// Everything that a run depends on.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) delay_ns_max: u64,
    pub(super) think_ns_max: u64,
    /// By rank: the files that its program has open from the beginning.
    pub(super) own_files: Vec<usize>,
    pub(super) communicators: Vec<Group>,
    /// By rank.
    pub(super) programs: Vec<Vec<Act>>,
    pub(super) fates: Vec<Fate>,
}

/// A communicator.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// By host: its ranks. The first of them leads.
    pub(super) hosts: Vec<Vec<u32>>,
    /// The rank that gathers what set-up exchanges.
    pub(super) hub: u32,
    pub(super) operations: Vec<Carry>,
}

/// How an operation goes between hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carry {
    Tree,
    Stream { parts: usize },
    Links(Course),
}

/// Which hosts speak to each other over direct links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    Linear { root: u32 },
    Ring,
    Dissemination,
}

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    SetUp(u32),
    /// Begins the next operation, as a nonblocking call does.
    Begin(u32),
    /// Waits for it.
    Finish(u32),
    Leave(u32),
    /// Opens a file of its own, or closes the one that it opened last.
    File {
        opens: bool,
    },
}

/// What becomes of a rank when its program has come to a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fate {
    pub(super) rank: u32,
    pub(super) act: usize,
    pub(super) after_ns: u64,
    pub(super) kind: FateKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FateKind {
    Dies,
    /// It forks a worker that lives on.
    Forks,
    /// It closes the communicator.
    Leaves(u32),
}

impl Plan {
    pub(super) fn draw(seed: u64) -> Self {
        let random = &mut Pcg64::seed_from_u64(seed ^ HOSTS_SEED);
        let hosts = random.random_range(2..=4);
        let ranks_of: Vec<u32> = (0..hosts).map(|_| random.random_range(1..=3)).collect();
        let firsts: Vec<u32> = ranks_of
            .iter()
            .scan(0, |next, ranks| {
                let first = *next;
                *next += ranks;
                Some(first)
            })
            .collect();
        let ranks: u32 = ranks_of.iter().sum();
        let places: Vec<(u32, u32)> = firsts.into_iter().zip(ranks_of).collect();
        let communicators: Vec<Group> =
            (0..random.random_range(1..=2)).map(|_| Group::draw(random, &places)).collect();
        let programs = draw_programs(random, ranks, &communicators);
        let fates = draw_fates(random, &communicators, &programs);
        Self {
            seed,
            delay_ns_max: [5_000, 50_000, 1_000_000][random.random_range(0..3)],
            think_ns_max: [10_000, 500_000, 5_000_000][random.random_range(0..3)],
            own_files: (0..ranks).map(|_| [3, 3, 62, 130][random.random_range(0..4)]).collect(),
            communicators,
            programs,
            fates,
        }
    }
}

impl Carry {
    pub(super) const fn parts(self) -> usize {
        match self {
            Self::Stream { parts } => parts,
            Self::Tree | Self::Links(_) => 1,
        }
    }

    pub(super) const fn course(self) -> Option<Course> {
        match self {
            Self::Links(course) => Some(course),
            Self::Tree | Self::Stream { .. } => None,
        }
    }
}

impl Group {
    fn draw(random: &mut Pcg64, places: &[(u32, u32)]) -> Self {
        let mut hosts: Vec<Vec<u32>> = Vec::new();
        // Two hosts at least.
        let skipped = (places.len() > 2 && random.random_bool(0.3))
            .then(|| random.random_range(0..places.len()));
        for (host, (first, count)) in places.iter().enumerate() {
            if skipped != Some(host) {
                let mut ranks: Vec<u32> = (*first..first + count).collect();
                shuffle(random, &mut ranks);
                let taken = if random.random_bool(0.7) { ranks.len() } else { 1 };
                ranks.truncate(taken);
                hosts.push(ranks);
            }
        }
        let all = hosts.concat();
        let hub = all[random.random_range(0..all.len())];
        let has_tree = random.random_bool(0.5);
        let operation = |_| match has_tree {
            true if random.random_bool(0.7) => Carry::Stream { parts: random.random_range(1..=5) },
            true => Carry::Tree,
            false => Carry::Links(match random.random_range(0..3) {
                0 => Course::Linear { root: random.random_range(0..hosts.len() as u32) },
                1 => Course::Ring,
                _ => Course::Dissemination,
            }),
        };
        let operations = (0..3).map(operation).collect();
        Self { hosts, hub, operations }
    }

    pub(super) fn ranks(&self) -> impl Iterator<Item = u32> {
        self.hosts.iter().flatten().copied()
    }
}

/// Programs that are legal together: there is an order of all their steps in which nobody waits for what comes later.
/// Each rank's program is its part of one such order.
fn draw_programs(random: &mut Pcg64, ranks: u32, groups: &[Group]) -> Vec<Vec<Act>> {
    let mut programs: Vec<Vec<Act>> = vec![Vec::new(); ranks as usize];
    for (number, group) in (0..).zip(groups) {
        group.ranks().for_each(|rank| programs[rank as usize].push(Act::SetUp(number)));
    }
    let mut begun = vec![vec![0; ranks as usize]; groups.len()];
    let mut finished = begun.clone();
    loop {
        let mut moves = Vec::new();
        for (number, group) in groups.iter().enumerate() {
            let slowest = group.ranks().map(|rank| begun[number][rank as usize]).min();
            for rank in group.ranks() {
                let [begun, finished] = [&begun, &finished].map(|of| of[number][rank as usize]);
                let may_begin = begun == finished && begun < group.operations.len();
                if may_begin || begun > finished && slowest >= Some(begun) {
                    moves.push((number, rank, may_begin));
                }
            }
        }
        if moves.is_empty() {
            break;
        }
        let (number, rank, begins) = moves[random.random_range(0..moves.len())];
        let (counts, act) = match begins {
            true => (&mut begun, Act::Begin(number as u32)),
            false => (&mut finished, Act::Finish(number as u32)),
        };
        counts[number][rank as usize] += 1;
        if random.random_bool(0.1) {
            programs[rank as usize].push(Act::File { opens: random.random_bool(0.5) });
        }
        programs[rank as usize].push(act);
    }
    for (number, group) in (0..).zip(groups) {
        group.ranks().for_each(|rank| programs[rank as usize].push(Act::Leave(number)));
    }
    programs
}

fn draw_fates(random: &mut Pcg64, groups: &[Group], programs: &[Vec<Act>]) -> Vec<Fate> {
    let mut fates = Vec::new();
    for _ in 0..[0, 1, 1, 2][random.random_range(0..4)] {
        let group = random.random_range(0..groups.len());
        let members: Vec<u32> = groups[group].ranks().collect();
        let rank = members[random.random_range(0..members.len())];
        let acts = programs[rank as usize].len();
        // Early steps are where the rare states are.
        let before = if random.random_bool(0.5) { acts.min(4) } else { acts };
        let act = random.random_range(0..before);
        let after_ns = [0, 300_000, 300_000_000][random.random_range(0..3)];
        let after_ns = random.random_range(0..=after_ns);
        if random.random_bool(0.3) {
            let kind = FateKind::Leaves(group as u32);
            fates.push(Fate { rank, act, after_ns, kind });
            continue;
        }
        if random.random_bool(0.4) {
            let kind = FateKind::Forks;
            fates.push(Fate { rank, act: random.random_range(0..=act), after_ns: 0, kind });
        }
        fates.push(Fate { rank, act, after_ns, kind: FateKind::Dies });
    }
    fates
}

fn shuffle(random: &mut Pcg64, numbers: &mut [u32]) {
    for index in (1..numbers.len()).rev() {
        numbers.swap(index, random.random_range(0..=index));
    }
}
