//! Metrics in Prometheus' text format, rendered on request.
//!
//! Every daemon has its own registry instead of the process's global one, because an embedded
//! fabric runs several daemons in one process.

use metrics::{Counter, Gauge, Key, KeyName, Label, Level, Metadata, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

/// The metrics of one daemon.
pub(crate) struct Registry {
    recorder: PrometheusRecorder,
}

static METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

impl Registry {
    pub(crate) fn new() -> Self {
        Self { recorder: PrometheusBuilder::new().build_recorder() }
    }

    /// A count that only grows.
    pub(crate) fn counter(
        &self,
        name: &'static str,
        help: &'static str,
        label: Option<Label>,
    ) -> Counter {
        self.recorder.describe_counter(KeyName::from_const_str(name), None, help.into());
        self.recorder.register_counter(&key(name, label), &METADATA)
    }

    /// A value that goes up and down.
    pub(crate) fn gauge(
        &self,
        name: &'static str,
        help: &'static str,
        label: Option<Label>,
    ) -> Gauge {
        self.recorder.describe_gauge(KeyName::from_const_str(name), None, help.into());
        self.recorder.register_gauge(&key(name, label), &METADATA)
    }

    /// Renders all of them.
    pub(crate) fn handle(&self) -> PrometheusHandle {
        self.recorder.handle()
    }
}

fn key(name: &'static str, label: Option<Label>) -> Key {
    Key::from_parts(name, label.into_iter().collect::<Vec<_>>())
}

/// Metrics without labels: name, help text, and how to read the value.
pub(crate) type Table<S> = &'static [(&'static str, &'static str, Read<S>)];

type Read<S> = fn(&S) -> u64;

/// Metrics that are read from one `S`.
pub(crate) struct Meters<S: 'static> {
    counters: Vec<(Counter, Read<S>)>,
    gauges: Vec<(Gauge, Read<S>)>,
}

impl<S> Meters<S> {
    /// Registers all of them.
    pub(crate) fn new(registry: &Registry, counters: Table<S>, gauges: Table<S>) -> Self {
        let counter = |&(name, help, read): &_| (registry.counter(name, help, None), read);
        let gauge = |&(name, help, read): &_| (registry.gauge(name, help, None), read);
        Self {
            counters: counters.iter().map(counter).collect(),
            gauges: gauges.iter().map(gauge).collect(),
        }
    }

    /// Publishes the current values.
    pub(crate) fn publish(&self, source: &S) {
        for (counter, read) in &self.counters {
            counter.absolute(read(source));
        }
        for (gauge, read) in &self.gauges {
            gauge.set(read(source) as f64);
        }
    }
}
