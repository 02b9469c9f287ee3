//! Goal: shipped mixes are in order at every size they are offered at, and each mistake is one line.

use super::*;

#[test]
fn shipped_mixes_have_a_source_and_divide_into_ranks() {
    for name in names() {
        let mix = read_shipped(name).unwrap();
        assert_eq!(mix.name, name);
        assert!(mix.source.len() > 20, "{name}: {}", mix.source);
        for ranks in [64, 1024, 16_384] {
            let workload = mix.workload(ranks, mix.processes_per_host).unwrap();
            assert_eq!(workload.ranks(), ranks);
            assert_eq!(workload.host_count(), ranks.div_ceil(mix.processes_per_host));
            assert!(workload.steps(ranks - 1).next().is_some());
        }
    }
}

#[test]
fn communicators_divide_the_world() {
    let divide = |blocks_of, stride, ranks| {
        MixCommunicator { name: "own".into(), blocks_of, stride }.divide(ranks).parts
    };
    assert_eq!(divide(Some(2), None, 5), [vec![0, 1], vec![2, 3], vec![4]]);
    assert_eq!(divide(None, Some(2), 5), [vec![0, 2, 4], vec![1, 3]]);
    assert_eq!(divide(None, Some(9), 2), [vec![0], vec![1]]);
}

/// A good file with one line replaced.
fn spoil(line: &str, by: &str) -> String {
    let good = "name = \"x\"\nranks = 8\nprocesses_per_host = 2\niterations = 3\n\
                skew = { distribution = \"uniform\", min_us = 1, max_us = 2 }\n\
                [[communicator]]\nname = \"row\"\nblocks_of = 4\n\
                [[phase]]\noperation = \"reduce\"\nbytes = 8\nroot = 3\ncommunicator = \"row\"\n";
    assert!(good.contains(line), "{line}");
    good.replace(line, by)
}

#[test]
fn every_mistake_is_one_line_with_key_value_and_what_is_allowed() {
    assert_eq!(read(&spoil("ranks = 8", "ranks = 8")).map(|mix| mix.ranks), Ok(8));
    let cases = [
        ("ranks = 8", "ranks = 0", "`ranks` is 0; allowed: 1 to 1048576"),
        ("iterations = 3", "iterations = 0", "`iterations` is 0; allowed: 1 to 1000000"),
        ("max_us = 2", "max_us = 0.5", "`skew.max_us` is 0.5; allowed: `skew.min_us`, 1, or more"),
        ("max_us = 2", "max_us = inf", "`skew.max_us` is inf; allowed: 0 to 1000000000"),
        ("\"uniform\"", "\"even\"", "`skew"),
        ("root = 3", "root = 4", "`phase[0].root` is 4; allowed: 0 to 3, the ranks of `row`"),
        (
            "communicator = \"row\"",
            "communicator = \"rows\"",
            "`phase[0].communicator` is `rows`; allowed: `world`, `row`",
        ),
        (
            "blocks_of = 4",
            "blocks_of = 4\nstride = 2",
            "`communicator[0]` is divided twice; allowed: either `blocks_of` or `stride`",
        ),
        (
            "name = \"row\"",
            "name = \"world\"",
            "`communicator[0].name` is `world`; allowed: a name that no other has",
        ),
        ("\"reduce\"", "\"alltoall\"", "`phase[0].operation`: "),
        ("bytes = 8", "byte = 8", "`phase[0].byte`: unknown field"),
        ("bytes = 8", "bytes = = 8", "line 11: "),
    ];
    for (line, by, message) in cases {
        let error = read(&spoil(line, by)).unwrap_err().to_string();
        assert!(error.starts_with(message) && !error.contains('\n'), "{by:?}: {error}");
    }
}
