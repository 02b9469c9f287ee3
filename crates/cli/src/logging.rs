//! Logs to standard error, filtered by the knob `TRIBUTARY_LOG`.
//!
//! A line is one line, however it came about: what peers call themselves is written out, cut, and not written again
//! and again without bound.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use tributary_client::knobs;
use tributary_client::lines::LineLimit;
use tributary_wire::text::printable_within;

use crate::usage::UsageError;

/// Longest line, in bytes.
const LINE_BYTES_MAX: usize = 2048;

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
        .event_format(BoundedLines::default())
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .init();
    Ok(())
}

/// Formats events as bounded lines.
#[derive(Default)]
struct BoundedLines {
    format: Format,
    /// By the place in the source.
    limits: Mutex<HashMap<tracing::callsite::Identifier, LineLimit>>,
}

impl BoundedLines {
    /// What is written behind an event's line; none if it is left out.
    fn remark(&self, event: &Event<'_>) -> Option<String> {
        // Somebody asked for those.
        if *event.metadata().level() > Level::INFO {
            return Some(String::new());
        }
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = limits.entry(event.metadata().callsite()).or_default();
        limit.judge(Instant::now()).remark()
    }
}

impl<S, N> FormatEvent<S, N> for BoundedLines
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(remark) = self.remark(event) else { return Ok(()) };
        // Without colours, which would be written out with all that peers could send.
        let mut line = String::new();
        self.format.format_event(context, Writer::new(&mut line), event)?;
        writeln!(writer, "{}{remark}", printable_within(line.trim_end(), LINE_BYTES_MAX))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tributary_client::lines::LINES_MAX;

    use super::*;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is logged by `work`.
    fn logged(work: impl FnOnce()) -> String {
        let memory = Memory::default();
        let target = memory.clone();
        let subscriber = tracing_subscriber::fmt()
            .event_format(BoundedLines::default())
            .with_max_level(Level::TRACE)
            .with_writer(move || target.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, work);
        let bytes = memory.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn what_a_loop_repeats_is_bounded_and_nothing_else_suffers() {
        let text = logged(|| {
            for number in 0..10_000 {
                tracing::error!(number, "cannot accept");
                tracing::info!("a node is there");
                tracing::debug!("asked for");
            }
        });
        let count = |part: &str| text.lines().filter(|line| line.contains(part)).count();
        assert_eq!(count("cannot accept"), LINES_MAX as usize);
        assert_eq!(count("a node is there"), LINES_MAX as usize);
        assert_eq!(count("asked for"), 10_000);
        assert_eq!(count("such lines are left out now"), 2);
    }

    #[test]
    fn what_peers_send_steers_no_terminal_and_feigns_no_line() {
        let text = logged(|| {
            let name = "\x1b[2J\n1970-01-01 INFO all is well\u{9b}0m";
            tracing::warn!(name, "refused: {name}");
            tracing::warn!(error = %name, "again");
            tracing::warn!("{}", "x".repeat(4 << 20));
        });
        assert_eq!(text.lines().count(), 3);
        assert!(text.chars().all(|character| character == '\n' || !character.is_control()));
        assert!(text.lines().all(|line| line.len() <= LINE_BYTES_MAX), "cut");
    }
}
