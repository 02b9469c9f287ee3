//! Goal: advice follows the trace: what it measured, what a tree shortens, and which placements there are.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use tributary_replay::advice::{Advice, AdviceError, advise};
use tributary_sim::preset::{self, Preset};
use tributary_workload::trace::{self, Joint};

/// A trace of one rank a host, which computes `gap_us` before each of 80 allreduces of `length_us`.
fn text(ranks: u32, gap_us: u64, length_us: u64, path: &str) -> String {
    let mut text = format!("tributary-trace 1\nranks {ranks}\n");
    for rank in 0..ranks {
        text += &format!("rank {rank} host h{rank} program_ns 1 left_out 0 nonblocking 0\n");
        text += &format!("communicator 0 0 0-{}\n", ranks - 1);
        for _ in 0..80 {
            text += &format!("0 allreduce 0 8 {path} {} {}\n", gap_us * 1000, length_us * 1000);
        }
    }
    text
}

fn two_levels() -> Preset {
    preset::read(
        "name = \"two\"\nbase = \"edr-sharp\"\n[fabric]\nkind = \"fat-tree\"\ndown = [8, 4]\nup = [1, 2]\n",
    )
    .unwrap()
}

fn advice(preset: &Preset, text: &str) -> Result<Advice, AdviceError> {
    let trace = trace::read(text).unwrap();
    advise(preset, &Joint::new(&trace).unwrap(), 1)
}

#[test]
fn the_gain_is_what_the_tree_saves_of_the_measured_time() {
    let advice = advice(&two_levels(), &text(32, 10, 20, "passed")).unwrap();
    assert!((advice.recorded_us - 80.0 * 30.0).abs() < 1e-6);
    assert!((advice.collectives_share - 2.0 / 3.0).abs() < 1e-6);
    let [all, root] = &advice.placements[..] else { panic!("{advice:?}") };
    assert_eq!((all.nodes.in_switches, root.nodes.in_switches), (5, 1));
    // At least half of each allreduce goes, and not all of it.
    assert!(all.gain.likely > 1.3 && all.gain.likely < 3.0, "{advice:?}");
    assert!(all.gain.low <= all.gain.likely && all.gain.likely <= all.gain.high);
}

#[test]
fn where_hosts_share_cores_the_gain_is_that_of_the_whole_program_in_the_model() {
    let likely = |preset: &str, length_us| {
        let preset = preset::read(&format!("name = \"mine\"\nbase = {preset}")).unwrap();
        advice(&preset, &text(8, 10, length_us, "passed")).unwrap().placements[0].gain.likely
    };
    let shared = [50, 100].map(|length_us| likely("\"lab\"\n", length_us));
    assert_eq!(
        shared[0].to_bits(),
        shared[1].to_bits(),
        "how long it was measured does not matter"
    );
    assert!(shared[0] > 1.5, "{shared:?}");
    let apart = [50, 100].map(|length_us| likely("\"lab\"\nwithout = [\"machine\"]\n", length_us));
    assert_eq!(
        apart.map(f64::to_bits),
        [1.0_f64.to_bits(); 2],
        "with a core each a node takes longer"
    );
}

#[test]
fn a_program_that_computes_all_the_time_gains_nothing() {
    let advice = advice(&two_levels(), &text(32, 100_000, 5, "passed")).unwrap();
    assert!(advice.placements.iter().all(|placement| placement.gain.high < 1.001), "{advice:?}");
}

#[test]
fn a_root_with_too_many_children_is_refused() {
    let mut preset = two_levels();
    preset = preset::Tunable::read_shipped("edr-sharp")
        .unwrap()
        .with(&[("aggregation.radix", 16.0)])
        .map(|narrow| Preset { fabric: preset.fabric, ..narrow })
        .unwrap();
    let advice = advice(&preset, &text(32, 10, 20, "passed")).unwrap();
    let refused: Vec<bool> = advice.placements.iter().map(|own| own.is_refused).collect();
    assert_eq!(refused, [false, true]);
}

#[test]
fn traces_that_tell_nothing_are_refused() {
    let in_tree = advice(&two_levels(), &text(4, 10, 20, "tree")).unwrap_err();
    assert!(matches!(in_tree, AdviceError::InTree(320 | 80)), "{in_tree}");
    let inside = advice(&two_levels(), &text(4, 10, 20, "host")).unwrap_err();
    assert!(matches!(inside, AdviceError::NothingToGain), "{inside}");
}
