//! A rank that is killed at every step of every kind of operation: the others name it and end, and
//! nothing is left of the group.
//!
//! Ranks are processes, this test program started again. The victim is killed before its first
//! store to the segment (or access to another rank's memory) in the operation, in the next run
//! before its second, and so on until it lives through the operation; see `death`. After the
//! operation all ranks perform a barrier, for a rank that only sends may be through before the
//! victim is gone.

use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use super::confined::{from_hex, to_hex};
use super::death;
use super::kernels::KERNELS;
use super::processes::{SAID, await_all, open_things, said, wait};
use crate::{Action, Blocks, HostGroup, Lost, LostCause, Offer, Operation, Policy};

const TASK: &str = "TRIBUTARY_KILL_TEST_TASK";
/// More steps than any operation here has: the enumeration ends by itself before.
const STEPS_MAX: i64 = 200;
/// The exit status of a victim that has lived through the operation.
const LIVED: i32 = 77;
/// Groups that lose a rank at the same time: nearly all that their others do is wait.
const GROUPS_AT_ONCE: usize = 6;

/// Whether an operation is run in one call, or begun and polled.
const BLOCKING: &str = "blocking";
const BEGUN: &str = "begun";

/// Ranks, operation, bytes a rank contributes, manner. Two ranks spin, and use each other's memory
/// for long vectors; three sleep, and stage them.
const CASES: [(u32, &str, usize, &str); 23] = [
    (2, "allreduce", 8, BLOCKING),
    (2, "allreduce", 8, BEGUN),
    (2, "allreduce", 9_000, BEGUN),
    (2, "allreduce", 40_000, BLOCKING),
    (2, "broadcast", 40_000, BEGUN),
    (2, "barrier", 0, BLOCKING),
    (3, "allreduce", 8, BLOCKING),
    (3, "allreduce", 150_000, BEGUN),
    (3, "reduce", 8, BLOCKING),
    (3, "reduce", 150_000, BEGUN),
    (3, "broadcast", 8, BLOCKING),
    (3, "broadcast", 150_000, BEGUN),
    (3, "transfer", 8, BLOCKING),
    (3, "barrier", 0, BEGUN),
    (3, "reduce-scatter", 24, BEGUN),
    (3, "reduce-scatter", 150_000, BLOCKING),
    (3, "allgather", 8, BEGUN),
    (3, "gather", 8, BLOCKING),
    (3, "gather", 150_000, BEGUN),
    (3, "scatter", 24, BLOCKING),
    (3, "scatter", 150_000, BEGUN),
    (3, "scan", 8, BLOCKING),
    (3, "scan", 40_000, BEGUN),
];

fn action(kind: &str) -> Action {
    let kernel = KERNELS[0];
    match kind {
        "allreduce" => Action::Allreduce(kernel),
        "reduce" => Action::Reduce { to: 0, kernel },
        "broadcast" => Action::Broadcast { from: 0 },
        "transfer" => Action::Transfer { from: 0, to: 1 },
        "barrier" => Action::Barrier,
        "reduce-scatter" => Action::ReduceScatter { kernel, blocks: Blocks::Even },
        "allgather" => Action::Allgather,
        "gather" => Action::Gather { to: 0 },
        "scatter" => Action::Scatter { from: 0, element_bytes: 1, blocks: Blocks::Even },
        "scan" => Action::Scan { kernel, inclusive: true },
        other => panic!("no operation {other}"),
    }
}

/// Runs one operation of the group.
fn perform(
    group: &mut HostGroup,
    kind: &str,
    len_bytes: usize,
    is_begun: bool,
) -> Result<(), Lost> {
    let source = vec![1_u8; len_bytes];
    let mut target = vec![0_u8; len_bytes * group.ranks() as usize];
    let operation = Operation {
        action: action(kind),
        source: source.as_ptr(),
        target: target.as_mut_ptr(),
        len_bytes,
    };
    // SAFETY: the buffers outlive the operation, and are apart.
    unsafe {
        if !is_begun {
            return group.run(&operation);
        }
        group.start(operation)?;
    }
    group.complete()
}

/// The task is `offer rank ranks operation bytes manner step`; step 0 is never.
#[test]
#[ignore = "a rank of the other test of this file, started by it"]
fn worker() {
    let Ok(task) = std::env::var(TASK) else { return };
    let fields: Vec<&str> = task.split(' ').collect();
    let number = |at: usize| fields[at].parse::<u32>().unwrap();
    let (rank, ranks, len_bytes) = (number(1), number(2), number(4) as usize);
    let (kind, is_begun, step) = (fields[3], fields[5] == BEGUN, fields[6].parse().unwrap());
    let before = open_things();
    let offer = Offer::from_bytes(&from_hex(fields[0])).unwrap();
    let attachment = HostGroup::attach(&offer, rank, ranks).unwrap();
    await_all(&attachment);
    let mut group = attachment.settle_as(if ranks == 2 { Policy::Spin } else { Policy::Sleep });
    // All have settled before one dies, so that all have found out the same about direct access.
    perform(&mut group, "barrier", 0, false).unwrap();
    if step > 0 {
        death::die_before_step(step);
        perform(&mut group, kind, len_bytes, is_begun).unwrap();
        death::die_before_step(0);
        // Without a word to the others, as if it had been killed now.
        std::process::exit(LIVED);
    }
    let outcome = perform(&mut group, kind, len_bytes, is_begun)
        .and_then(|()| perform(&mut group, "barrier", 0, false));
    drop(group);
    assert_eq!(open_things(), before, "descriptors or mappings leaked");
    println!("\n{SAID}{outcome:?}");
}

fn start(task: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["tests::kill::worker", "--exact", "--ignored", "--nocapture"])
        .env(TASK, task)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Kills `victim` at one step after the other; how many steps there were.
fn kill_at_every_step(case: (u32, &str, usize, &str), victim: u32) -> i64 {
    let (ranks, kind, len_bytes, manner) = case;
    let lost = Lost::new(victim, LostCause::Died);
    for step in 1..STEPS_MAX {
        let (offer, handle) = HostGroup::offer(ranks).unwrap();
        let hex = to_hex(&offer.to_bytes());
        let mut workers: Vec<_> = (0..ranks)
            .map(|rank| {
                let step = if rank == victim { step } else { 0 };
                start(&format!("{hex} {rank} {ranks} {kind} {len_bytes} {manner} {step}"))
            })
            .collect();
        let killed = wait(workers.remove(victim as usize));
        drop(handle);
        for worker in workers {
            let said = said(&wait(worker));
            let what = format!("{case:?}, rank {victim} at step {step}");
            assert_eq!(said, format!("{:?}", Err::<(), _>(lost)), "{what}");
        }
        if killed.status.code() == Some(LIVED) {
            return step - 1;
        }
        assert_eq!(killed.status.code(), None, "a victim broke down: {killed:?}");
    }
    panic!("{case:?} has more than {STEPS_MAX} steps");
}

#[test]
fn a_rank_killed_at_every_step_is_named_by_all_others() {
    let victims = CASES.iter().flat_map(|case| [(*case, 0), (*case, case.0 - 1)]);
    let to_do = Mutex::new(victims.collect::<Vec<_>>());
    std::thread::scope(|scope| {
        for _ in 0..GROUPS_AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = to_do.lock().unwrap().pop();
                    let Some((case, victim)) = next else { return };
                    let steps = kill_at_every_step(case, victim);
                    // A rank that only receives tells the others that it has.
                    assert!(steps > 0, "{case:?}, rank {victim}");
                }
            });
        }
    });
    let names = std::fs::read_dir("/dev/shm").unwrap().flatten().map(|entry| entry.file_name());
    let ours: Vec<_> =
        names.filter(|name| name.to_string_lossy().contains("tributary-host")).collect();
    assert!(ours.is_empty(), "left behind: {ours:?}");
}
