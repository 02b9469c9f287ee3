//! Seeded sequences of operations, what each rank contributes, and what must come out.

use std::ops::Range;
use std::task::Poll;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::kernels::{KERNELS, oracle};
use crate::{Action, Blocks, HostGroup, Lost, Operation, Waiter};

/// Lengths at which something changes, in bytes before rounding down to whole elements.
const LENGTHS: [usize; 18] = [
    0,
    1,
    7,
    8,
    16,
    56,
    57,
    64,
    1000,
    4096,
    4152,
    4153,
    12 * 1024 + 12,
    64 * 1024,
    64 * 1024 + 13,
    200_000,
    (1 << 20) - 1,
    (1 << 20) + 3 * 16,
];

/// How a rank goes about a script.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// Which operations, and what data.
    pub(super) seed: u64,
    /// How many operations.
    pub(super) operations: u32,
    /// Only lengths up to this.
    pub(super) len_bytes_max: usize,
    /// Whether ranks are held up at random.
    pub(super) delays: bool,
}

/// One operation of a script; equal at all ranks.
struct Line {
    action: Action,
    kernel: usize,
    len_bytes: usize,
    /// Where the blocks of a reduce-scatter or a scatter begin, and the last one ends, in elements.
    cuts: Vec<u64>,
    in_place: bool,
    data_seed: u64,
}

impl Line {
    fn draw(random: &mut Pcg64Mcg, ranks: u32, len_bytes_max: usize) -> Self {
        let kernel = random.random_range(0..KERNELS.len());
        let len_bytes = loop {
            let len_bytes = LENGTHS[random.random_range(0..LENGTHS.len())];
            if len_bytes <= len_bytes_max {
                break len_bytes - len_bytes % KERNELS[kernel].element_bytes();
            }
        };
        let one = random.random_range(0..ranks);
        let action = match random.random_range(0..14) {
            0 | 1 => Action::Allreduce(KERNELS[kernel]),
            2 => Action::Reduce { to: one, kernel: KERNELS[kernel] },
            3 if ranks > 1 => {
                Action::Transfer { from: one, to: (one + random.random_range(1..ranks)) % ranks }
            }
            4 => Action::Barrier,
            5 => Action::Allgather,
            6 | 7 => Action::Scan { kernel: KERNELS[kernel], inclusive: random.random() },
            8 | 9 => {
                let kernel_of = KERNELS[kernel];
                let action = |blocks| Action::ReduceScatter { kernel: kernel_of, blocks };
                return Self::draw_blocks(random, ranks, kernel, len_bytes, action);
            }
            10 => Action::Gather { to: one },
            11 | 12 => {
                let element_bytes = KERNELS[kernel].element_bytes();
                let action = |blocks| Action::Scatter { from: one, element_bytes, blocks };
                return Self::draw_blocks(random, ranks, kernel, len_bytes, action);
            }
            _ => Action::Broadcast { from: one },
        };
        let (cuts, in_place, data_seed) = (Vec::new(), random.random(), random.random());
        Self { action, kernel, len_bytes, cuts, in_place, data_seed }
    }

    /// Blocks of one length, or of any lengths, none among them.
    fn draw_blocks(
        random: &mut Pcg64Mcg,
        ranks: u32,
        kernel: usize,
        len_bytes: usize,
        action: impl FnOnce(Blocks) -> Action,
    ) -> Self {
        let element_bytes = KERNELS[kernel].element_bytes();
        let block = (len_bytes / element_bytes / ranks as usize) as u64;
        let elements = block * u64::from(ranks);
        let is_even: bool = random.random();
        let mut cuts: Vec<u64> = (0..=u64::from(ranks)).map(|rank| rank * block).collect();
        if !is_even {
            let inner = 1..ranks as usize;
            cuts[inner.clone()].fill_with(|| random.random_range(0..=elements));
            cuts[inner].sort_unstable();
        }
        let blocks = if is_even { Blocks::Even } else { Blocks::At(cuts.as_ptr()) };
        Self {
            action: action(blocks),
            kernel,
            len_bytes: elements as usize * element_bytes,
            cuts,
            in_place: random.random(),
            data_seed: random.random(),
        }
    }

    fn contribution(&self, rank: u32) -> Vec<u8> {
        let mut random = Pcg64Mcg::seed_from_u64(self.data_seed ^ u64::from(rank) << 50);
        let mut bytes = vec![0; self.len_bytes];
        random.fill(&mut bytes[..]);
        bytes
    }

    /// The block of `rank` in a reduce-scatter or a scatter, in bytes.
    fn block(&self, rank: u32) -> Range<usize> {
        let element_bytes = KERNELS[self.kernel].element_bytes();
        let cut = |at: u32| self.cuts[at as usize] as usize * element_bytes;
        cut(rank)..cut(rank + 1)
    }

    /// What `rank` must find at the beginning of its target; `None` where nothing is promised.
    fn expected(&self, rank: u32, ranks: u32) -> Option<Vec<u8>> {
        let up_to = |end: u32| (0..end).map(|rank| self.contribution(rank)).collect::<Vec<_>>();
        let kernel = KERNELS[self.kernel];
        match self.action {
            Action::Allreduce(_) => Some(oracle(kernel, &up_to(ranks))),
            Action::Reduce { to, .. } => (rank == to).then(|| oracle(kernel, &up_to(ranks))),
            Action::Broadcast { from } => (rank != from).then(|| self.contribution(from)),
            Action::Transfer { from, to } => (rank == to).then(|| self.contribution(from)),
            Action::Barrier => None,
            Action::Allgather => Some(up_to(ranks).concat()),
            Action::Gather { to } => (rank == to).then(|| up_to(ranks).concat()),
            Action::Scatter { from, .. } => {
                (rank != from).then(|| self.contribution(from)[self.block(rank)].to_vec())
            }
            Action::ReduceScatter { .. } => {
                let block = |whole: Vec<u8>| whole[self.block(rank)].to_vec();
                let blocks: Vec<_> = up_to(ranks).into_iter().map(block).collect();
                Some(oracle(kernel, &blocks))
            }
            Action::Scan { inclusive, .. } => {
                let end = rank + u32::from(inclusive);
                (end > 0).then(|| oracle(kernel, &up_to(end)))
            }
        }
    }

    /// What `rank` has in its buffer before an operation in place.
    fn before_in_place(&self, rank: u32, ranks: u32) -> Vec<u8> {
        let mine = self.contribution(rank);
        if !self.gathers_at(rank) {
            return mine;
        }
        let mut all = vec![0xa5; mine.len() * ranks as usize];
        all[rank as usize * mine.len()..][..mine.len()].copy_from_slice(&mine);
        all
    }

    /// Whether the target of `rank` has room for the contributions of all.
    fn gathers_at(&self, rank: u32) -> bool {
        match self.action {
            Action::Allgather => true,
            Action::Gather { to } => to == rank,
            _ => false,
        }
    }

    fn name(&self) -> String {
        let kind = match self.action {
            Action::Allreduce(_) => "allreduce".to_owned(),
            Action::Reduce { to, .. } => format!("reduce to {to}"),
            Action::Broadcast { from } => format!("broadcast from {from}"),
            Action::Transfer { from, to } => format!("transfer from {from} to {to}"),
            Action::Barrier => "barrier".to_owned(),
            Action::Allgather => "allgather".to_owned(),
            Action::Gather { to } => format!("gather to {to}"),
            Action::Scatter { from, .. } => format!("scatter from {from} at {:?}", self.cuts),
            Action::ReduceScatter { .. } => format!("reduce-scatter at {:?}", self.cuts),
            Action::Scan { inclusive, .. } => format!("scan, inclusive {inclusive}"),
        };
        format!(
            "{kind}, {} bytes, kernel {}, in place {}",
            self.len_bytes, self.kernel, self.in_place
        )
    }
}

/// Plays a script on one rank and checks every result.
///
/// # Panics
/// At the first result that is not as the oracle says.
pub(super) fn play(group: &mut HostGroup, manner: Manner) -> Result<(), Lost> {
    play_by(group, manner, |group, operation, own, _| perform(group, operation, own))
}

/// Plays a script up to operation `at`, drives that by `polls` polls, and is killed.
pub(super) fn play_until_death(
    group: &mut HostGroup,
    manner: Manner,
    at: u32,
    polls: u32,
) -> Result<(), Lost> {
    play_by(group, manner, |group, operation, own, index| {
        if index < at {
            return perform(group, operation, own);
        }
        // SAFETY: the buffers live as long as this process does.
        unsafe { group.start(operation)? };
        for _ in 0..polls {
            let _ = group.poll()?;
        }
        // SAFETY: a system call without memory.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        unreachable!("SIGKILL cannot be ignored")
    })
}

fn play_by(
    group: &mut HostGroup,
    manner: Manner,
    mut perform: impl FnMut(&mut HostGroup, Operation, &mut Pcg64Mcg, u32) -> Result<(), Lost>,
) -> Result<(), Lost> {
    let (rank, ranks) = (group.local_rank(), group.ranks());
    let mut shared = Pcg64Mcg::seed_from_u64(manner.seed);
    let mut own = Pcg64Mcg::seed_from_u64(manner.seed ^ 0x5eed << 32 ^ u64::from(rank));
    for index in 0..manner.operations {
        let line = Line::draw(&mut shared, ranks, manner.len_bytes_max);
        if manner.delays && own.random_ratio(1, 16) {
            std::thread::sleep(Duration::from_micros(own.random_range(0..3000)));
        }
        let what =
            || format!("rank {rank} of {ranks}, seed {}, {index}: {}", manner.seed, line.name());
        let source = line.contribution(rank);
        let before = line.before_in_place(rank, ranks);
        let mut found = if line.in_place { before.clone() } else { vec![0xa5; before.len()] };
        let target = found.as_mut_ptr();
        let own_part = if line.gathers_at(rank) {
            target.wrapping_add(rank as usize * line.len_bytes)
        } else {
            target
        };
        let operation = Operation {
            action: line.action,
            source: if line.in_place { own_part } else { source.as_ptr() },
            target,
            len_bytes: line.len_bytes,
        };
        perform(group, operation, &mut own, index)?;
        let expected = line.expected(rank, ranks).unwrap_or_default();
        let (result, rest) = found.split_at(expected.len());
        assert!(*result == expected, "{}", what());
        // What a rank was not to receive must not have been touched.
        if line.in_place {
            assert!(*rest == before[expected.len()..], "{}: behind the result", what());
        } else {
            assert!(rest.iter().all(|&byte| byte == 0xa5), "{}: behind the result", what());
        }
    }
    Ok(())
}

/// Runs, polls busily, or polls and pauses, as chance has it.
fn perform(group: &mut HostGroup, operation: Operation, own: &mut Pcg64Mcg) -> Result<(), Lost> {
    let way = own.random_range(0..3);
    // SAFETY: the buffers outlive this call, which ends with the operation done or lost, and are
    // one or apart.
    unsafe {
        if way == 0 {
            return group.run(&operation);
        }
        group.start(operation)?;
    }
    let mut waiter = Waiter::new(group.policy());
    while group.poll()? == Poll::Pending {
        if way == 1 {
            std::thread::yield_now();
        } else {
            group.pause(&mut waiter);
        }
    }
    Ok(())
}
