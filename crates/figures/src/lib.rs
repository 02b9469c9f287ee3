//! What the simulator is asked for: the published figures with the published values beside them, the
//! calibration against them, and predictions for a cluster.
//!
//! Owns the settings of each simulation, and its table and drawing. The published values are in
//! `published/`, and constants of hardware and software in the simulator's presets; the code holds none.
//! Start at [`make`].
#![forbid(unsafe_code)]

mod amg;
pub mod calibration;
mod communicators;
mod distribution;
mod full_hosts;
mod latency;
mod output;
pub mod plan;
mod published;
mod scale;
pub mod site;
mod statements;
mod streaming;
mod sweep;
mod tables;

pub use output::{Compared, Figure};
pub use sweep::{Effort, FigureError, Progress};

type Maker = fn(&Effort, &Progress) -> Result<Figure, FigureError>;

/// Every figure.
const FIGURES: &[(&str, Maker)] = &[
    ("table1", tables::table1),
    ("table2", tables::table2),
    ("latency", latency::latency),
    ("distribution", distribution::distribution),
    ("communicators", communicators::communicators),
    ("channels", full_hosts::channels),
    ("leaders", full_hosts::leaders),
    ("amg", amg::amg),
    ("dpml-edr", full_hosts::dpml_edr),
    ("dpml-omni-path", full_hosts::dpml_opa),
    ("dpml-10240", full_hosts::dpml_scale),
    ("streaming", streaming::allreduce),
    ("streaming-reduce", streaming::reduce),
    ("scale", scale::scale),
    ("statements", statements::statements),
];

/// The published statements about the subject of a figure.
const STATEMENTS: &[(&str, &[&str])] = &[
    ("latency", &["S1", "S4", "S5"]),
    ("communicators", &["S3"]),
    ("channels", &["S2"]),
    ("leaders", &["S10", "S11"]),
    ("dpml-edr", &["S8", "S9"]),
    ("streaming", &["S6", "S7"]),
    ("scale", &["S12"]),
];

/// Names of all figures.
pub fn names() -> impl Iterator<Item = &'static str> {
    FIGURES.iter().map(|(name, _)| *name)
}

/// Simulates a figure on all cores.
///
/// # Errors
/// [`FigureError`].
pub fn make(name: &str, effort: &Effort, progress: &Progress) -> Result<Figure, FigureError> {
    let found = FIGURES.iter().find(|(known, _)| *known == name);
    let (_, maker) = found.ok_or_else(|| FigureError::Unknown {
        name: name.to_owned(),
        known: names().collect::<Vec<_>>().join(", "),
    })?;
    maker(effort, progress)
}

/// The published statements about the subject of a figure, with the simulated values. A figure without
/// such statements has no rows. Neither has `statements`, which shows all of them itself.
///
/// # Errors
/// [`FigureError`].
pub fn compare(name: &str, effort: &Effort, progress: &Progress) -> Result<Compared, FigureError> {
    let of_figure = STATEMENTS.iter().find(|(figure, _)| *figure == name);
    statements::compare(of_figure.map_or(&[], |(_, ids)| *ids), effort, progress)
}
