//! A report as people and programs see it, beside a baseline if there is one.

mod counts;
mod drawing;
mod machine;
mod times;
mod units;

pub use drawing::svg;
pub use machine::json;
pub use times::comparison;

use tributary_report::Report;

/// A report as text: counts, then times if it has any.
#[must_use]
pub fn text(report: &Report) -> String {
    let counts = counts::text(report);
    report
        .times
        .as_ref()
        .map_or(counts.clone(), |times| format!("{counts}\n\n{}", times::text(times)))
}
