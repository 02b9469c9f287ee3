//! Metrics in Prometheus' text format, rendered when somebody asks.
//!
//! Owns the registry of one daemon. Not the process's global one: an embedded fabric runs several
//! daemons in one process, each with its own figures.

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
        label: Option<(&'static str, &'static str)>,
    ) -> Counter {
        self.recorder.describe_counter(KeyName::from_const_str(name), None, help.into());
        let labels = label.map(|(key, value)| Label::from_static_parts(key, value));
        let key = Key::from_parts(name, labels.into_iter().collect::<Vec<_>>());
        self.recorder.register_counter(&key, &METADATA)
    }

    /// A value that goes up and down.
    pub(crate) fn gauge(&self, name: &'static str, help: &'static str) -> Gauge {
        self.recorder.describe_gauge(KeyName::from_const_str(name), None, help.into());
        self.recorder.register_gauge(&Key::from_static_name(name), &METADATA)
    }

    /// What renders them all.
    pub(crate) fn handle(&self) -> PrometheusHandle {
        self.recorder.handle()
    }
}
