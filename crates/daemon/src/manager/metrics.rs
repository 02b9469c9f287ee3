//! The manager's counters, as Prometheus reads them.

use metrics::{counter, gauge, with_local_recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use tributary_protocol::manager::ManagerStats;
use tributary_wire::control::Status;

/// A recorder of its own, because several daemons may live in one process.
pub(super) struct Metrics {
    recorder: PrometheusRecorder,
}

impl Metrics {
    pub(super) fn new() -> Self {
        Self { recorder: PrometheusBuilder::new().build_recorder() }
    }

    pub(super) fn render(&self, stats: &ManagerStats, status: &Status) -> String {
        with_local_recorder(&self.recorder, || {
            counter!("tributary_manager_groups_granted_total").absolute(stats.groups_granted);
            counter!("tributary_manager_groups_refused_total").absolute(stats.groups_refused);
            counter!("tributary_manager_groups_ended_total").absolute(stats.groups_ended);
            counter!("tributary_manager_groups_cut_total").absolute(stats.groups_cut);
            counter!("tributary_manager_stale_events_total").absolute(stats.events_stale);
            gauge!("tributary_manager_nodes").set(status.nodes.len() as f64);
            gauge!("tributary_manager_jobs").set(status.jobs.len() as f64);
            gauge!("tributary_manager_groups").set(status.groups.len() as f64);
            for node in &status.nodes {
                let name = node.registration.name.clone();
                gauge!("tributary_manager_node_osos", "node" => name.clone())
                    .set(f64::from(node.registration.osos));
                gauge!("tributary_manager_node_osos_used", "node" => name)
                    .set(f64::from(node.osos_used));
            }
        });
        self.recorder.handle().render()
    }
}
