//! Seeded sequences of operations, what each rank contributes, and what must come out.

use std::task::Poll;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::kernels::{KERNELS, oracle};
use crate::host::{Action, HostGroup, Lost, Operation, Waiter};

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
        let action = match random.random_range(0..6) {
            0 | 1 => Action::Allreduce(KERNELS[kernel]),
            2 => Action::Reduce { to: one, kernel: KERNELS[kernel] },
            3 if ranks > 1 => {
                Action::Transfer { from: one, to: (one + random.random_range(1..ranks)) % ranks }
            }
            4 => Action::Barrier,
            _ => Action::Broadcast { from: one },
        };
        Self { action, kernel, len_bytes, in_place: random.random(), data_seed: random.random() }
    }

    fn contribution(&self, rank: u32) -> Vec<u8> {
        let mut random = Pcg64Mcg::seed_from_u64(self.data_seed ^ u64::from(rank) << 50);
        let mut bytes = vec![0; self.len_bytes];
        random.fill(&mut bytes[..]);
        bytes
    }

    /// What `rank` must find in its target; `None` where nothing is promised.
    fn expected(&self, rank: u32, ranks: u32) -> Option<Vec<u8>> {
        let all = || (0..ranks).map(|rank| self.contribution(rank)).collect::<Vec<_>>();
        match self.action {
            Action::Allreduce(_) => Some(oracle(KERNELS[self.kernel], &all())),
            Action::Reduce { to, .. } => (rank == to).then(|| oracle(KERNELS[self.kernel], &all())),
            Action::Broadcast { from } => (rank != from).then(|| self.contribution(from)),
            Action::Transfer { from, to } => (rank == to).then(|| self.contribution(from)),
            Action::Barrier => None,
        }
    }

    fn name(&self) -> String {
        let kind = match self.action {
            Action::Allreduce(_) => "allreduce".to_owned(),
            Action::Reduce { to, .. } => format!("reduce to {to}"),
            Action::Broadcast { from } => format!("broadcast from {from}"),
            Action::Transfer { from, to } => format!("transfer from {from} to {to}"),
            Action::Barrier => "barrier".to_owned(),
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
        let mut source = line.contribution(rank);
        let mut apart = vec![0xa5; if line.in_place { 0 } else { line.len_bytes }];
        let target = if line.in_place { source.as_mut_ptr() } else { apart.as_mut_ptr() };
        let operation = Operation {
            action: line.action,
            source: if line.in_place { target } else { source.as_ptr() },
            target,
            len_bytes: line.len_bytes,
        };
        perform(group, operation, &mut own, index)?;
        let found = if line.in_place { &source } else { &apart };
        match line.expected(rank, ranks) {
            Some(expected) => assert!(*found == expected, "{}", what()),
            // What a rank was not to receive must not have been touched.
            None if line.in_place => assert!(*found == line.contribution(rank), "{}", what()),
            None => assert!(found.iter().all(|&byte| byte == 0xa5), "{}", what()),
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
