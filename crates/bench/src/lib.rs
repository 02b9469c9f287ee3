//! Collectives timed between processes of one machine, without any MPI; and the measurement of the cost model's constants.
//!
//! The parent ([`Benchmark`]) starts one child per rank ([`run_rank`]), is their bootstrap, and collects their times. If a rank ends
//! early, it says what happened to each. It runs no collective itself.
//!
//! Owns the ranks, what they run ([`Work`]) and check, and what becomes of their times. Must not know flags, fabrics, or how
//! figures are shown.

mod bootstrap;
mod children;
mod costs;
mod hub;
mod message;
mod overlap;
mod pattern;
#[allow(unsafe_code, reason = "ranks give the library their buffers by address")]
mod rank;
mod timing;
mod work;

pub use children::name_signal;
pub use costs::{MeasureError, measure_costs};
pub use hub::{BenchError, Benchmark, Outcomes, Row};
pub use overlap::Overlap;
pub use rank::run as run_rank;
pub use timing::{Quartiles, Summary};
pub use work::{Collective, Step, Work};
