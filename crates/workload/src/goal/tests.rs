//! Goal: what is written is read as it was, and a mistake is one line that names it.

use proptest::prelude::*;

use super::*;

fn task(ranks: u32) -> impl Strategy<Value = Task> {
    let tag = 0..u32::MAX - 1;
    prop_oneof![
        (0..=CALC_MAX_NS).prop_map(|ns| Task::Calc { ns }),
        (any::<u32>(), 0..ranks, tag.clone()).prop_map(|(bytes, to, tag)| Task::Send {
            bytes,
            to,
            tag
        }),
        (any::<u32>(), proptest::option::of(0..ranks), proptest::option::of(tag))
            .prop_map(|(bytes, from, tag)| Task::Receive { bytes, from, tag }),
    ]
}

fn operations(ranks: u32) -> impl Strategy<Value = Vec<Operation>> {
    proptest::collection::vec((task(ranks), any::<u8>(), any::<u8>()), 0..12).prop_flat_map(|all| {
        let count = all.len() as u32;
        let list = proptest::collection::vec(0..count.max(1), 0..if count > 0 { 3 } else { 1 });
        let lists = proptest::collection::vec((list.clone(), list), all.len());
        (Just(all), lists).prop_map(|(all, lists)| {
            let make = |((task, cpu, nic), (requires, irequires))| Operation {
                task,
                cpu,
                nic,
                requires,
                irequires,
            };
            all.into_iter().zip(lists).map(make).collect()
        })
    })
}

fn goal() -> impl Strategy<Value = Goal> {
    (1_u32..6).prop_flat_map(|ranks| {
        proptest::collection::vec(operations(ranks), ranks as usize)
            .prop_map(|ranks| Goal { ranks })
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(goal in goal()) {
        let text = write(&goal);
        prop_assert_eq!(read(&text), Ok(goal), "{}", text);
    }
}

#[test]
fn comments_blank_lines_and_operations_without_labels_are_read() {
    let text = "\n// a comment\nnum_ranks 2\r\n\nrank 1 { /* of\ntwo lines */\n recv 8b from -1 tag -1\n\
                a: calc 5 cpu 1\nb: send 3b to 0\nb irequires a }\n";
    let goal = read(text.trim_start()).unwrap();
    assert!(goal.ranks[0].is_empty());
    let [receive, calc, send] = &goal.ranks[1][..] else { panic!("{goal:?}") };
    assert_eq!(receive.task, Task::Receive { bytes: 8, from: None, tag: None });
    assert_eq!((calc.task, calc.cpu), (Task::Calc { ns: 5 }, 1));
    assert_eq!(send.task, Task::Send { bytes: 3, to: 0, tag: 0 });
    assert_eq!((&send.requires, &send.irequires), (&vec![], &vec![1]));
}

#[test]
fn every_mistake_is_one_line_with_its_number() {
    let cases = [
        ("", "line 1: the end of the file; allowed: num_ranks N in the first line"),
        ("num_ranks 2000000", "line 1: num_ranks is 2000000; allowed: up to 1048576"),
        ("num_ranks 1\nrank 1 {\n}", "line 2: rank is 1; allowed: up to 0"),
        ("num_ranks 1\nrank 0 {\n}\nrank 0 {\n}", "line 4: rank 0 a second time; allowed: once"),
        ("num_ranks 1\nrank 0 {\nsend 8 to 0\n}", "line 3: `8`; allowed: send Nb to RANK"),
        ("num_ranks 1\nrank 0 {\nsend 8b to 3\n}", "line 3: to is 3; allowed: up to 0"),
        (
            "num_ranks 1\nrank 0 {\na: calc 1\nb requires a\n}",
            "line 4: no operation is called `b`; allowed: a label of an earlier line",
        ),
        (
            "num_ranks 1\nrank 0 {\na: calc 1\na: calc 1\n}",
            "line 4: label `a` a second time; allowed: once",
        ),
        (
            "num_ranks 1\nrank 0 {\ncalc 1 tag 3\n}",
            "line 3: `tag`; allowed: tag N of a message, cpu N, nic N, or the end of the line",
        ),
        (
            "num_ranks 1\nrank 0 {\ncalc 1\n",
            "line 4: the end of the file; allowed: an operation, `LABEL requires LABEL`, or }",
        ),
        ("num_ranks 1 /* x", "line 1: `/*`; allowed: a comment that ends with */"),
        ("num_ranks 0\nrank 0 {\n}", "line 1: `0`; allowed: num_ranks N in the first line"),
    ];
    for (text, message) in cases {
        assert_eq!(read(text).unwrap_err().to_string(), message, "{text:?}");
    }
}
