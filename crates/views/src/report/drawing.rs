//! The times of a report as a drawing: one panel for each collective, one series for each path and the
//! baseline, one box for each size class.

use std::collections::{BTreeMap, BTreeSet};

use tributary_charts::{Axis, Chart, DrawingError, Mark, Quantity, Scale, Series};
use tributary_report::CollectiveKind;
use tributary_report::{Measured, PathTaken, Times, compare};

use super::units::size;

/// Distance of the boxes of neighbouring series, in size classes.
const STEP: f64 = 0.16;
/// Lowest and highest point, quartiles and middle of a box.
const SHARES: [f64; 5] = [0.01, 0.25, 0.5, 0.75, 0.99];
/// Names on the axis of sizes, at most; more would run into each other.
const NAMES_MAX: usize = 12;

/// The operations of one series, by size class.
type Sizes = BTreeMap<u64, Measured>;

/// The drawing as SVG. `times` has at least one row.
pub fn svg(times: &Times, baseline: Option<&Times>) -> Result<String, DrawingError> {
    let kinds: Vec<CollectiveKind> = times.collectives.keys().copied().collect();
    let panels: Result<Vec<String>, DrawingError> =
        kinds.into_iter().map(|kind| panel(kind, times, baseline)).collect();
    Ok(stack(&panels?))
}

fn panel(
    kind: CollectiveKind,
    times: &Times,
    baseline: Option<&Times>,
) -> Result<String, DrawingError> {
    let all = series_of(kind, times, baseline);
    let sizes: BTreeSet<u64> = all.iter().flat_map(|(_, sizes)| sizes.keys().copied()).collect();
    let sizes: Vec<u64> = sizes.into_iter().collect();
    let middle = (all.len() - 1) as f64 / 2.0;
    let series = all.iter().enumerate().map(|(index, (name, measured))| {
        let points = boxes(measured, &sizes, (index as f64 - middle) * STEP);
        Series::new(name.as_str(), Mark::Boxes, points)
    });
    let chart = Chart {
        x: Axis {
            label: "contribution of a rank".to_owned(),
            scale: Scale::Linear,
            shows: Quantity::Named(names(&sizes)),
        },
        y: Axis {
            label: "time of a call, microseconds".to_owned(),
            scale: Scale::Logarithmic,
            shows: Quantity::Number,
        },
        series: series.collect(),
    };
    let caption = "Boxes: the middle half of the calls, and their median. Lines: from the fastest to the \
                   slowest hundredth.";
    chart.svg(&title(kind, times, baseline), &[caption.to_owned()])
}

/// Every path that the report has, and the baseline whatever path it took there; empty where the collective
/// has none. So each has the same colour in all panels.
fn series_of(
    kind: CollectiveKind,
    times: &Times,
    baseline: Option<&Times>,
) -> Vec<(String, Sizes)> {
    let paths: BTreeSet<PathTaken> = times.rows().map(|(_, path, ..)| path).collect();
    let of_kind = times.collectives.get(&kind);
    let sizes = |path| of_kind.and_then(|paths| paths.get(&path)).cloned().unwrap_or_default();
    let mut all: Vec<(String, Sizes)> =
        paths.into_iter().map(|path| (path.name().to_owned(), sizes(path))).collect();
    if let Some(baseline) = baseline {
        let mut joined = Sizes::new();
        for (_, _, from_bytes, measured) in baseline.rows().filter(|(of, ..)| *of == kind) {
            joined.entry(from_bytes).or_default().merge(measured);
        }
        all.push(("baseline".to_owned(), joined));
    }
    all
}

/// Five points for each size class that has operations.
fn boxes(measured: &Sizes, sizes: &[u64], shift: f64) -> Vec<(f64, f64)> {
    let mut points = Vec::new();
    for (place, from_bytes) in (1_u32..).zip(sizes) {
        let Some(measured) = measured.get(from_bytes) else { continue };
        for bounds in SHARES.into_iter().filter_map(|share| measured.quantile(share)) {
            // A logarithmic axis has no zero.
            let us = bounds.middle_ns().max(1.0) / 1e3;
            points.push((f64::from(place) + shift, us));
        }
    }
    points
}

/// The names of the size classes; empty ones between if there are too many.
fn names(sizes: &[u64]) -> Vec<String> {
    let step = sizes.len().div_ceil(NAMES_MAX).max(1);
    let name = |(place, from_bytes): (usize, &u64)| {
        if place.is_multiple_of(step) { size(*from_bytes) } else { String::new() }
    };
    sizes.iter().enumerate().map(name).collect()
}

/// What the collective cost in all, and what of it the baseline.
fn title(kind: CollectiveKind, times: &Times, baseline: Option<&Times>) -> String {
    let empty = Times::default();
    let rows = compare(times, baseline.unwrap_or(&empty));
    let of_kind = || rows.iter().filter(|row| row.kind == kind);
    let calls: u64 = of_kind().map(|row| row.ours.calls).sum();
    let total_ns: u64 = of_kind().map(|row| row.ours.total_ns).sum();
    let baseline_ns: u64 = of_kind().map(|row| row.baseline.total_ns).sum();
    let against = match baseline {
        Some(_) => format!(", {:.3} s in the baseline", baseline_ns as f64 / 1e9),
        None => String::new(),
    };
    let total_s = total_ns as f64 / 1e9;
    format!("{}: {calls} calls at {} ranks, {total_s:.3} s{against}", kind.name(), times.ranks)
}

/// The panels one below the other, each an SVG of its own.
fn stack(panels: &[String]) -> String {
    let sizes: Vec<(f64, f64)> = panels.iter().map(|panel| extent(panel)).collect();
    let width = sizes.iter().map(|size| size.0).fold(0.0, f64::max);
    let height: f64 = sizes.iter().map(|size| size.1).sum();
    let mut text = format!(
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         xmlns=\"http://www.w3.org/2000/svg\">\n"
    );
    let mut top = 0.0;
    for (panel, size) in panels.iter().zip(&sizes) {
        text += &panel.replacen("<svg ", &format!("<svg y=\"{top}\" "), 1);
        text += "\n";
        top += size.1;
    }
    text + "</svg>\n"
}

/// Width and height of an SVG in its own units.
fn extent(panel: &str) -> (f64, f64) {
    let number = |name: &str| {
        let after = panel.split_once(&format!(" {name}=\"")).map_or("", |(_, after)| after);
        after.split('"').next().and_then(|number| number.parse().ok()).unwrap_or(0.0)
    };
    (number("width"), number("height"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_report::TimeCells;

    fn times(path: PathTaken) -> Times {
        let cells = TimeCells::new();
        for power in 0..20 {
            cells.add(CollectiveKind::Allreduce, path, 1 << power, 1000 << power);
        }
        cells.add(CollectiveKind::Barrier, path, 0, 900);
        cells.times(1)
    }

    #[test]
    fn every_collective_has_a_panel_with_a_box_for_each_size_and_series() {
        let ours = times(PathTaken::InTree);
        let drawing = svg(&ours, Some(&times(PathTaken::PassedThrough))).unwrap();
        assert_eq!(drawing.matches("<svg ").count(), 3, "two panels in one drawing");
        for word in
            ["allreduce: 20 calls", "barrier: 1 calls", "in_tree", "baseline", "256-512 KiB"]
        {
            assert!(drawing.contains(word), "{word} is missing");
        }
        let alone = svg(&ours, None).unwrap();
        // Every box is a rectangle: 21 of the report, as many of the baseline, two in the legends.
        let rectangles = |text: &str| text.matches("<rect ").count();
        assert_eq!(rectangles(&drawing) - rectangles(&alone), 21 + 2);
    }

    #[test]
    fn panels_lie_below_each_other() {
        let drawing = svg(&times(PathTaken::InHost), None).unwrap();
        let height = extent(&drawing).1;
        let second = format!("<svg y=\"{}\"", height / 2.0);
        assert!(height > 0.0 && drawing.contains(&second), "{height}");
    }
}
