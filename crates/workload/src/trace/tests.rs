//! Goal: what is recorded is read as it was, bounds hold, and a truncated trace is still a program.

use super::recorder::Limits;
use super::*;

const KIND: CollectiveKind = CollectiveKind::Allreduce;

fn measured(started_ns: u64, ended_ns: u64) -> Measured {
    Measured { kind: KIND, root: 0, bytes: 8, path: Path::Passed, started_ns, ended_ns }
}

fn recorded(rank: u32, operations: u64) -> String {
    let recorder = Recorder::default();
    recorder.begin(2, 1_000);
    let world = recorder.communicator(&[0, 1]);
    let twin = recorder.communicator(&[0, 1]);
    for number in 0..operations {
        let started_ns = 2_000 + 1_000 * number;
        let communicator = if number % 3 == 2 { twin } else { world };
        recorder.add(communicator, &measured(started_ns, started_ns + 300));
    }
    recorder.add_nonblocking();
    let head = if rank == 0 { recorder.head() } else { String::new() };
    head + &recorder.section(rank, "node 1", 9_000_000)
}

fn trace(first: u64, second: u64) -> Trace {
    read(&(recorded(0, first) + &recorded(1, second))).unwrap()
}

#[test]
fn what_is_recorded_is_read() {
    let trace = trace(4, 4);
    let rank = &trace.ranks[1];
    assert_eq!((rank.host.as_str(), rank.program_ns), ("node1", 8_999_000));
    assert_eq!((rank.left_out, rank.nonblocking), (0, 1));
    let both = |ordinal| TracedCommunicator { ordinal, members: [0, 1].into() };
    assert_eq!(rank.communicators, [both(0), both(1)]);
    let gaps: Vec<u64> = rank.operations.iter().map(|traced| traced.gap_ns).collect();
    assert_eq!(gaps, [1000, 700, 700, 700]);
    let expected = Traced {
        communicator: 1,
        kind: KIND,
        root: 0,
        bytes: 8,
        path: Path::Passed,
        gap_ns: 700,
        length_ns: 300,
    };
    assert_eq!(rank.operations[2], expected);
}

#[test]
fn a_full_record_counts_what_it_leaves_out() {
    let recorder = Recorder::default();
    let limits = Limits::of_job(1 << 20);
    recorder.begin(1 << 20, 0);
    let world = recorder.communicator(&[0]);
    let many = 1_000;
    for number in 0..many {
        recorder.add(world, &measured(number * 10, number * 10 + 5));
    }
    let rank = read(&(recorder.head() + &recorder.section(0, "a", 5))).unwrap().ranks.remove(0);
    assert_eq!(rank.operations.len(), limits.operations_max);
    assert_eq!(rank.left_out, many - limits.operations_max as u64);
    // Every other rank is a range of its own.
    let scattered: Vec<u32> = (0..4_000).map(|number| 2 * number).collect();
    assert_eq!(recorder.communicator(&scattered), None);
}

#[test]
fn before_it_begins_nothing_is_recorded() {
    let recorder = Recorder::default();
    assert_eq!(recorder.communicator(&[0]), None);
    recorder.add(Some(0), &measured(1, 2));
    assert_eq!(recorder.head() + &recorder.section(0, "a", 5), "");
}

#[test]
fn a_program_ends_where_a_rank_stopped_recording() {
    let trace = trace(7, 4);
    let joint = Joint::new(&trace).unwrap();
    let workload = joint.workload("test");
    assert_eq!(workload.steps(0).count(), 4);
    assert_eq!(workload.steps(1).count(), 4);
    assert_eq!(workload.communicators.len(), 2);
    assert_eq!(workload.hosts, [0, 0]);
    assert_eq!(joint.recorded_ns(), 1_000 + 3 * 700 + 4 * 300);
    assert!(joint.operations().all(|operation| operation.shortest_ns == 300));
}

#[test]
fn ranks_must_agree() {
    let mut trace = trace(4, 4);
    trace.ranks[1].operations[2].kind = CollectiveKind::Barrier;
    let message = Joint::new(&trace).unwrap_err().to_string();
    assert!(message.starts_with(
        "operation 0 over 2 ranks from rank 0 on is allreduce at rank 0 and barrier at"
    ));
}

#[test]
fn members_are_lists_of_ranges() {
    for list in [vec![0], vec![0, 1, 2, 3, 8, 10, 11], vec![3, 2, 1], vec![5, 6, 0]] {
        assert_eq!(members::read(&members::write(&list), 12), Some(list));
    }
    for wrong in ["", "0-", "3-1", "0,0", "0-12", "a", "0-4294967295"] {
        assert_eq!(members::read(wrong, 12), None, "{wrong}");
    }
}

#[test]
fn every_mistake_is_one_line() {
    let good = "rank 0 host a program_ns 1 left_out 0 nonblocking 0\ncommunicator 0 0 0-1\n\
                0 bcast 1 8 tree 5 6\n";
    let text =
        |line: &str, by: &str| format!("tributary-trace 1\nranks 2\n{}", good.replace(line, by));
    assert_eq!(read(&text("x", "x")).unwrap().ranks[0].operations.len(), 1);
    let cases = [
        ("rank 0", "rank 2", "line 3: `rank 2 host"),
        ("0-1", "0-2", "line 4: `communicator 0 0 0-2`; allowed: `communicator NUMBER ORDINAL"),
        ("0-1", "1", "line 4: "),
        ("0 bcast", "1 bcast", "line 5: `1 bcast 1 8 tree 5 6`; allowed: `COMMUNICATOR COLLECTIVE"),
        ("0 bcast 1", "0 bcast 2", "line 5: "),
        ("tree", "trees", "line 5: "),
        ("tree 5 6", "tree 5", "line 5: "),
    ];
    for (line, by, message) in cases {
        let error = read(&text(line, by)).unwrap_err().to_string();
        assert!(error.starts_with(message) && !error.contains('\n'), "{by}: {error}");
    }
    assert!(read("").unwrap_err().to_string().starts_with("line 1: `nothing`; allowed: "));
    assert!(read("tributary-trace 1\nranks 0").unwrap_err().to_string().starts_with("line 2: "));
}
