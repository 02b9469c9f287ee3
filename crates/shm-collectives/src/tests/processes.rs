//! Groups whose ranks are processes: this test program, started again as `worker`.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::script::{Manner, play, play_until_death};
use crate::{Attachment, HostGroup, Lost, LostCause, Offer};

const TASK: &str = "TRIBUTARY_HOST_TEST_TASK";
const DEADLINE: Duration = Duration::from_secs(240);
/// Marks the line in which a worker says how it ended; the test harness prints lines of its own.
pub(super) const SAID: &str = "worker says: ";

/// The line in which a worker says that its group has settled.
const SETTLED: &str = "worker settled";

/// What a worker is to do: `offer local_rank ranks processes scenario seed`.
fn start(offer: &Offer, rank: u32, ranks: u32, scenario: &str, seed: u64) -> Child {
    let mut hex = String::new();
    offer.to_bytes().iter().for_each(|byte| write!(hex, "{byte:02x}").unwrap());
    Command::new(std::env::current_exe().unwrap())
        .args(["tests::processes::worker", "--exact", "--ignored", "--nocapture"])
        .env(TASK, format!("{hex} {rank} {ranks} {scenario} {seed}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for a worker; kills it and fails if it takes longer than the watchdog allows.
pub(super) fn wait(mut child: Child) -> Output {
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if since.elapsed() > DEADLINE {
            child.kill().unwrap();
            panic!("watchdog: a worker hangs: {:?}", child.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// Reads what a worker prints until it has settled. A worker that never settles ends by its own
/// watchdog, and with it its output.
fn await_settling(worker: &mut Child) {
    let output = BufReader::new(worker.stdout.as_mut().unwrap());
    assert!(output.lines().any(|line| line.unwrap() == SETTLED), "a worker broke down");
}

/// The last word of a worker.
pub(super) fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.split_once(SAID));
    line.unwrap_or_else(|| panic!("worker broke down: {output:?}")).1.to_owned()
}

#[test]
#[ignore = "a rank of the other tests of this file, started by them"]
fn worker() {
    let Ok(task) = std::env::var(TASK) else { return };
    let fields: Vec<&str> = task.split(' ').collect();
    let bytes: Vec<u8> = (0..Offer::BYTES)
        .map(|at| u8::from_str_radix(&fields[0][2 * at..2 * at + 2], 16).unwrap())
        .collect();
    let offer = Offer::from_bytes(bytes[..].try_into().unwrap()).unwrap();
    let number = |index: usize| fields[index].parse::<u64>().unwrap();
    let (rank, ranks, seed) = (number(1) as u32, number(2) as u32, number(4));
    let before = open_things();
    let attachment = HostGroup::attach(&offer, rank, ranks).unwrap();
    let mut group = settle(attachment, ranks);
    println!("\n{SETTLED}");
    let outcome = match fields[3] {
        "mixed" => {
            play(&mut group, Manner { seed, operations: 300, len_bytes_max: 200_000, delays: true })
        }
        "endless" => loop {
            if let Err(lost) = play(&mut group, endless(seed)) {
                break Err(lost);
            }
        },
        dies if dies.starts_with("dies-") => {
            let at = dies["dies-".len()..].parse().unwrap();
            // Every operation of the scripts takes a few polls at most.
            play_until_death(&mut group, endless(seed), at, at % 4)
        }
        other => panic!("no scenario {other}"),
    };
    drop(group);
    assert_eq!(open_things(), before, "descriptors or mappings leaked");
    println!("\n{SAID}{outcome:?}");
}

fn endless(seed: u64) -> Manner {
    Manner { seed, operations: 1000, len_bytes_max: 70_000, delays: false }
}

/// Descriptors, and mappings of segments, of this process.
pub(super) fn open_things() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (descriptors, maps.lines().filter(|line| line.contains("tributary")).count())
}

/// The workers have no other exchange than the segment.
fn settle(attachment: Attachment, ranks: u32) -> HostGroup {
    await_all(&attachment);
    attachment.settle(ranks).unwrap()
}

pub(super) fn await_all(attachment: &Attachment) {
    let since = Instant::now();
    while attachment.all_attached().is_err() {
        assert!(since.elapsed() < DEADLINE, "watchdog: not all attached");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn processes_agree_with_the_oracle_and_leak_nothing() {
    for ranks in [2, 3, 5] {
        let (offer, handle) = HostGroup::offer(ranks).unwrap();
        let workers: Vec<_> =
            (0..ranks).map(|rank| start(&offer, rank, ranks, "mixed", u64::from(ranks))).collect();
        for worker in workers {
            assert_eq!(said(&wait(worker)), "Ok(())");
        }
        drop(handle);
    }
}

#[test]
fn a_killed_process_is_noticed_by_all_others() {
    for (ranks, victim) in [(2, 0), (3, 2), (4, 1)] {
        let (offer, handle) = HostGroup::offer(ranks).unwrap();
        let mut workers: Vec<_> =
            (0..ranks).map(|rank| start(&offer, rank, ranks, "endless", 3)).collect();
        // From the first rank that settled it is known that all had attached. Which operation the
        // kill interrupts is left to chance; that the victim ran some is likely, not needed.
        await_settling(&mut workers[victim as usize]);
        std::thread::sleep(Duration::from_millis(100));
        drop(handle);
        let mut killed = workers.remove(victim as usize);
        killed.kill().unwrap();
        killed.wait().unwrap();
        let lost = Lost::new(victim, LostCause::Died);
        for worker in workers {
            assert_eq!(said(&wait(worker)), format!("{:?}", Err::<(), _>(lost)));
        }
    }
}

#[test]
fn a_process_killed_at_any_step_is_noticed_by_all_others() {
    for (ranks, victim) in [(2, 0), (2, 1), (3, 2)] {
        for at in 0..12 {
            let (offer, handle) = HostGroup::offer(ranks).unwrap();
            let scenario =
                |rank| if rank == victim { format!("dies-{at}") } else { "endless".into() };
            let mut workers: Vec<_> =
                (0..ranks).map(|rank| start(&offer, rank, ranks, &scenario(rank), 11)).collect();
            let killed = wait(workers.remove(victim as usize));
            assert!(!killed.status.success(), "the victim lives");
            drop(handle);
            let lost = Lost::new(victim, LostCause::Died);
            for worker in workers {
                let said = said(&wait(worker));
                assert_eq!(said, format!("{:?}", Err::<(), _>(lost)), "rank {victim} at {at}");
            }
        }
    }
}
