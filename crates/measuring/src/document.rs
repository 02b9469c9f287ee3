//! The file to pass on: figures, the kind of network, versions and numbers; nothing that names a host or a person.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tributary_report::{CommunicatorReport, Report};

use crate::lines::{Adapter, Host};
use crate::names::{self, Names};
use crate::rows::{Measured, Row};

/// What a reader knows the file by.
const FORMAT: &str = "tributary-bench-1";

/// How the measurement was set up.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// How often the launcher was started with the library.
    pub rounds: u64,
    /// What was to join the hosts of the job.
    pub fabric: String,
    /// Whether a manager is named.
    pub manager_is_named: bool,
    /// The names of the knobs that were set. Names alone: a value may be an address or a path.
    pub knobs_set: Vec<String>,
    /// Names, besides the hosts', that the file must not hold: of this machine and its user.
    pub personal: Vec<String>,
}

/// The file's text.
///
/// # Errors
/// If the value has no form in JSON.
pub fn text(setting: &Setting, measured: &Measured, rows: &[Row]) -> serde_json::Result<String> {
    let facts = measured.facts();
    let hosts = facts.hosts.iter().map(|host| host.name.clone());
    let names = Names::new(hosts.chain(setting.personal.iter().cloned()).collect());
    let ranks_per_host = || facts.hosts.iter().map(|host| host.ranks);
    let document = json!({
        "format": FORMAT,
        "tributary": env!("CARGO_PKG_VERSION"),
        "mpi": {
            "library": names.without(&names::library(&facts.start.library)),
            "standard": facts.start.mpi_standard,
        },
        "ranks": facts.start.ranks,
        "hosts": facts.hosts.len(),
        "ranks_per_host_least": ranks_per_host().min(),
        "ranks_per_host_most": ranks_per_host().max(),
        "rounds": setting.rounds,
        "kinds_of_hosts": kinds_of_hosts(&facts.hosts, &names),
        "fabric": fabric(setting, facts.report.as_ref(), &names),
        "results": rows.iter().map(Row::json).collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

/// Hosts that are alike, counted; of their adapters, what they carried in the first round, of all such hosts together.
fn kinds_of_hosts(hosts: &[Host], names: &Names) -> Vec<Value> {
    let mut kinds: BTreeMap<_, Vec<&Host>> = BTreeMap::new();
    for host in hosts {
        let described = |one: &Adapter| (one.driver.clone(), one.speed_mbps, one.mtu_bytes);
        let adapters: Vec<_> = sort_adapters(host).into_iter().map(described).collect();
        let kind = (host.cores, host.kernel.clone(), host.rdma_ports, adapters);
        kinds.entry(kind).or_default().push(host);
    }
    let mut values = Vec::new();
    for ((cores, kernel, rdma_ports, adapters), alike) in kinds {
        let mut described = Vec::new();
        for (number, (driver, speed_mbps, mtu_bytes)) in adapters.iter().enumerate() {
            let of_all = || alike.iter().map(|host| sort_adapters(host)[number]);
            described.push(json!({
                "driver": names.without(driver),
                "speed_mbps": (*speed_mbps > 0).then_some(speed_mbps),
                "mtu_bytes": mtu_bytes,
                "sent_bytes": of_all().map(|one| one.sent_bytes).sum::<u64>(),
                "received_bytes": of_all().map(|one| one.received_bytes).sum::<u64>(),
            }));
        }
        values.push(json!({
            "hosts": alike.len(),
            "cores": cores,
            "kernel": kernel,
            "active_rdma_ports": rdma_ports,
            "adapters": described,
        }));
    }
    values
}

/// A host's adapters in an order of their kinds, but for those of software that carried nothing.
fn sort_adapters(host: &Host) -> Vec<&Adapter> {
    let counts = |one: &&Adapter| one.speed_mbps > 0 || one.sent_bytes + one.received_bytes > 0;
    let mut adapters: Vec<&Adapter> = host.adapters.iter().filter(counts).collect();
    adapters.sort_by_key(|one| (&one.driver, one.speed_mbps, one.mtu_bytes));
    adapters
}

/// What joined the hosts, and which way operations went, of the library's report of the first round.
fn fabric(setting: &Setting, report: Option<&Report>, names: &Names) -> Value {
    let mut fabric = json!({
        "setting": names.without(&setting.fabric),
        "manager_is_named": setting.manager_is_named,
        "knobs_set": setting.knobs_set,
    });
    if let Some(report) = report {
        fabric["in_host"] = report.in_host.into();
        fabric["in_tree"] = report.in_tree.into();
        fabric["direct"] = report.direct.into();
        fabric["passed_through"] = report.passed_through.into();
        fabric["reasons"] = reasons(&report.reasons, names);
        fabric["communicators"] = report
            .communicators
            .iter()
            .map(|one| communicator(one, names))
            .collect::<Vec<_>>()
            .into();
    }
    fabric
}

fn communicator(one: &CommunicatorReport, names: &Names) -> Value {
    let collectives = one.collectives.iter().map(|(kind, counts)| {
        let counts = json!({
            "in_host": counts.in_host,
            "in_tree": counts.in_tree,
            "direct": counts.direct,
            "passed_through": counts.passed_through,
            "reasons": reasons(&counts.reasons, names),
        });
        (kind.name().to_owned(), counts)
    });
    json!({
        "ranks": one.ranks,
        "hosts": one.hosts,
        "note": names.without(&one.note),
        "carriers": names.without(&one.carriers),
        "memory": names.without(&one.memory),
        "collectives": collectives.collect::<serde_json::Map<_, _>>(),
    })
}

fn reasons(reasons: &BTreeMap<String, u64>, names: &Names) -> Value {
    let mut counted: BTreeMap<String, u64> = BTreeMap::new();
    for (reason, count) in reasons {
        *counted.entry(names.without(reason)).or_default() += count;
    }
    json!(counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, sent_bytes: u64) -> Host {
        let adapter = Adapter {
            driver: "mlx5_core".into(),
            speed_mbps: 100_000,
            mtu_bytes: 9_000,
            sent_bytes,
            received_bytes: 1,
        };
        let (kernel, adapters) = ("6.1.0".to_owned(), vec![adapter]);
        Host {
            name: name.into(),
            ranks: 2,
            cores: 64,
            kernel,
            boot: "b".into(),
            rdma_ports: 1,
            adapters,
        }
    }

    #[test]
    fn hosts_that_are_alike_are_counted_and_not_named() {
        let hosts = [host("h0", 10), host("h1", 20)];
        let kinds = kinds_of_hosts(&hosts, &Names::new(vec!["h0".into(), "h1".into()]));
        assert_eq!(kinds.len(), 1);
        assert_eq!((&kinds[0]["hosts"], &kinds[0]["cores"]), (&2.into(), &64.into()));
        assert_eq!(kinds[0]["adapters"][0]["sent_bytes"], 30);
        assert!(!kinds[0].to_string().contains("h0"));
    }

    #[test]
    fn reasons_of_several_hosts_become_one() {
        let told = [("host h0 is slow".to_owned(), 2), ("host h1 is slow".to_owned(), 3)].into();
        let shown = reasons(&told, &Names::new(vec!["h0".into(), "h1".into()]));
        assert_eq!(shown, json!({"host [removed] is slow": 5}));
    }
}
