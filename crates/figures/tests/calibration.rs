//! The simulator's errors against the published values: it is deterministic, so the tests assert
//! bounds.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use tributary_charts::Cell;
use tributary_figures::{Effort, Progress};

/// The errors of a figure's rows with published values, in percent.
fn errors(name: &str, column: &str) -> Vec<f64> {
    let effort = Effort { seed: 1, operations: 60 };
    let figure = tributary_figures::make(name, &effort, &Progress::default()).unwrap();
    let at = figure.table.columns.iter().position(|known| known == column).unwrap();
    let number = |cell: &Cell| if let Cell::Number(value, _) = cell { Some(*value) } else { None };
    figure.table.rows.iter().filter_map(|row| number(&row[at])).collect()
}

#[test]
fn published_latencies_are_met() {
    let errors = errors("latency", "error_percent");
    assert_eq!(errors.len(), 7);
    let mean = errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len() as f64;
    assert!(mean <= 3.5, "mean error {mean:.1} %: {errors:?}");
    assert!(errors.iter().all(|error| error.abs() <= 7.5), "{errors:?}");
}

#[test]
fn published_grants_are_met_and_the_refused_one_is_refused() {
    let effort = Effort { seed: 1, operations: 60 };
    let figure = tributary_figures::make("table2", &effort, &Progress::default()).unwrap();
    let cell = |wanted: [u64; 4]| {
        let is_wanted = |row: &&Vec<Cell>| row[..4] == wanted.map(Cell::Whole)[..];
        figure.table.rows.iter().find(is_wanted).unwrap()[4].clone()
    };
    // One mechanism for windows of 4 and of 8, and for 1, 4 and 8 groups at once.
    for (wanted, published) in [
        ([8, 16, 1, 1], 2.210),
        ([2048, 64, 4, 1], 7.695),
        ([2048, 64, 4, 4], 8.374),
        ([2048, 128, 8, 1], 5.495),
        ([2048, 128, 8, 8], 10.351),
    ] {
        let Cell::Number(us, _) = cell(wanted) else { panic!("{wanted:?} was refused") };
        assert!(
            (us / published - 1.0).abs() <= 0.075,
            "{wanted:?}: {us} us, published {published}"
        );
    }
    assert_eq!(cell([8, 8, 1, 8]), Cell::Refused);
    assert_eq!(figure.table.rows.len(), 24);
}

/// The directions of effects that guide a choice of design; docs/evidence/simulator-accuracy.md has the values.
#[test]
fn published_directions_are_met() {
    let effort = Effort { seed: 1, operations: 20 };
    let figure = tributary_figures::make("statements", &effort, &Progress::default()).unwrap();
    let simulated = |id: &str| {
        let is_wanted = |row: &&Vec<Cell>| row[0] == Cell::Text(id.to_owned());
        let row = figure.table.rows.iter().find(is_wanted).unwrap();
        let (Cell::Number(value, _), Cell::Number(published, _)) = (&row[4], &row[6]) else {
            panic!("{id} has no number")
        };
        (*value, *published)
    };
    let (best, published) = simulated("S9");
    assert!((best - published).abs() < 0.5, "the best leader count is {best}");
    for id in ["S1", "S2", "S6", "S7", "S8", "S10", "S11", "S12"] {
        let (value, published) = simulated(id);
        assert!((value / published - 1.0).abs() <= 0.25, "{id}: {value}, published {published}");
    }
}
