//! Logs to standard error, filtered by the knob `TRIBUTARY_LOG`.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tributary_client::knobs;

use crate::usage::UsageError;

/// Starts logging.
///
/// # Errors
/// If the knob does not hold a filter.
pub(crate) fn start() -> Result<(), UsageError> {
    let filter = knobs::LOG.value(|name| std::env::var(name).ok()).value;
    let filter = EnvFilter::try_new(&filter).map_err(|_| {
        UsageError::new(knobs::LOG.name, &filter, format!("allowed is {}", knobs::LOG.allowed))
    })?;
    // Where quartiles fall together, a chart's bar has no length, of which the rasterizer warns.
    let filter = filter.add_directive("tiny_skia=error".parse().expect("it is a directive"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
    Ok(())
}
