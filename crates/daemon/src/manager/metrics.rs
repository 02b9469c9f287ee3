//! The manager's counters, as Prometheus reads them.

use metrics::Label;
use tributary_manager::ManagerStats;
use tributary_wire::control::{Share, Status};

use crate::metrics::{Meters, Registry, Table};

#[rustfmt::skip] // One metric a line.
const COUNTERS: Table<ManagerStats> = &[
    ("tributary_manager_groups_granted_total", "groups granted", |stats| stats.groups_granted),
    ("tributary_manager_groups_refused_total", "groups refused", |stats| stats.groups_refused),
    ("tributary_manager_groups_adopted_total", "groups taken over from another manager", |stats| stats.groups_adopted),
    ("tributary_manager_groups_ended_total", "groups that ended in good order", |stats| stats.groups_ended),
    ("tributary_manager_groups_cut_total", "groups cut short by a failure, an aggregation node's death or their job's end", |stats| stats.groups_cut),
    ("tributary_manager_stale_events_total", "events about groups that were over", |stats| stats.events_stale),
];

#[rustfmt::skip] // One metric a line.
const GAUGES: Table<Status> = &[
    ("tributary_manager_nodes", "registered aggregation nodes", |status| status.nodes.len() as u64),
    ("tributary_manager_jobs", "admitted jobs", |status| status.jobs.len() as u64),
    ("tributary_manager_groups", "groups that hold a grant", |status| status.groups.len() as u64),
];

/// The manager's metrics, read on request.
pub(super) struct Metrics {
    registry: Registry,
    stats: Meters<ManagerStats>,
    status: Meters<Status>,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let registry = Registry::new();
        let stats = Meters::new(&registry, COUNTERS, &[]);
        let status = Meters::new(&registry, &[], GAUGES);
        Self { registry, stats, status }
    }

    pub(super) fn render(&self, stats: &ManagerStats, status: &Status) -> String {
        self.stats.publish(stats);
        self.status.publish(status);
        for node in &status.nodes {
            let set = |name, help, osos: u32| {
                let label = Label::new("node", node.registration.name.clone());
                self.registry.gauge(name, help, Some(label)).set(f64::from(osos));
            };
            let (osos, used) = (node.registration.osos, node.osos_used);
            set(
                "tributary_manager_node_osos",
                "outstanding operations that an aggregation node offers",
                osos,
            );
            set(
                "tributary_manager_node_osos_used",
                "outstanding operations that groups hold",
                used,
            );
        }
        for tenant in &status.tenants {
            let set = |name, help, share: Share| {
                let label = Label::new("tenant", tenant.name.clone());
                self.registry.gauge(name, help, Some(label)).set(f64::from(share.used));
            };
            set("tributary_manager_tenant_jobs", "jobs that a tenant has", tenant.jobs);
            set("tributary_manager_tenant_groups", "groups that a tenant holds", tenant.groups);
            set(
                "tributary_manager_tenant_osos",
                "outstanding operations of a tenant on the aggregation node where it holds most",
                tenant.osos,
            );
        }
        self.registry.handle().render()
    }
}
