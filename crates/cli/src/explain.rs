//! `tributary config --explain`: which path an operation takes, and why.

use std::io::{self, Write};

use tributary_algorithms::network::Network;
use tributary_client::explain::{Case, Explanation, explain};
use tributary_client::{CollectiveKind, FabricChoice, NetworkChoice, Settings};
use tributary_tuning::{Measurement, MessageCarrier, Method, Tuning};

use crate::bench::sizes;
use crate::flags::ConfigFlags;
use crate::usage::UsageError;
use tributary_views::tables;

/// Prints the path of the operation `typed`, such as `allreduce:65536`.
pub(crate) fn print(typed: &str, flags: &ConfigFlags, settings: Settings) -> anyhow::Result<()> {
    let (collective, len_bytes) = operation(typed)?;
    let tuning = settings.tuning.file().map(Tuning::read).transpose()?.unwrap_or_default();
    let case = Case {
        collective,
        len_bytes,
        hosts: flags.hosts as u32,
        ranks_per_host: flags.ppn as u32,
        leaves: flags.leaves as u32,
        network: (!flags.one_kernel).then(|| network(flags, &settings)),
        nodes_in_kernel: flags.nodes_in_kernel,
    };
    let explanation = explain_here(settings, &tuning, case);
    let mut out = io::stdout().lock();
    if flags.json {
        writeln!(out, "{}", serde_json::to_string(&explanation)?)?;
        return Ok(());
    }
    writeln!(out, "{explanation}")?;
    if !explanation.measured.is_empty() {
        writeln!(out, "\n{}", measurements_table(&explanation))?;
    }
    if !explanation.predicted.is_empty() {
        writeln!(out, "\n{}", predicted_table(&explanation))?;
    }
    Ok(())
}

/// The answer with these settings, and what another fabric would change.
fn explain_here(settings: Settings, tuning: &Tuning, case: Case) -> Explanation {
    if settings.manager.is_some() || case.hosts == 1 {
        return explain(&settings, tuning, case);
    }
    let fabric = settings.fabric;
    let with_manager = Settings {
        manager: Some("assumed:0".to_owned()),
        fabric: FabricChoice::Manager,
        ..settings.clone()
    };
    let with_manager = explain(&with_manager, tuning, case);
    if fabric.joins_by_job() {
        let mut explanation = explain(&settings, tuning, case);
        if with_manager.path != explanation.path {
            explanation
                .reasons
                .push(format!("With a manager its path would be {}", with_manager.path));
        }
        return explanation;
    }
    let mut explanation = with_manager;
    let why = match fabric {
        FabricChoice::Off => "TRIBUTARY_FABRIC is off",
        FabricChoice::Auto | FabricChoice::Job | FabricChoice::Manager => {
            "TRIBUTARY_MANAGER is not set"
        }
    };
    explanation.reasons.push(format!(
        "{why}, so the operation is passed through: this is what holds with a manager"
    ));
    explanation
}

/// The kind of network that is named. Which one ranks would recognise, this machine can't tell.
fn network(flags: &ConfigFlags, settings: &Settings) -> Network {
    let named = flags.network.as_deref();
    let named = Network::NAMED.iter().find(|(name, _)| Some(*name) == named);
    match (named, settings.network) {
        (Some((_, network)), _) => *network,
        (None, NetworkChoice::Named(network)) => network,
        (None, NetworkChoice::Auto) => Network::Ethernet25,
    }
}

fn operation(typed: &str) -> Result<(CollectiveKind, u64), UsageError> {
    let (name, length) = typed.split_once(':').unwrap_or((typed, ""));
    let refused = || {
        let names: Vec<&str> = CollectiveKind::ALL.map(CollectiveKind::name).into();
        let allowed = format!(
            "COLLECTIVE:BYTES such as allreduce:64K is allowed, or barrier; collectives are {}",
            names.join(", ")
        );
        UsageError::new("--explain", typed, allowed)
    };
    let kind = CollectiveKind::from_name(name).ok_or_else(refused)?;
    match (kind, length) {
        (CollectiveKind::Barrier, "") => Ok((kind, 0)),
        (_, "") => Err(refused()),
        (_, length) => match sizes::parse(length, 1).map_err(|_| refused())?.as_slice() {
            [bytes] => Ok((kind, *bytes)),
            _ => Err(refused()),
        },
    }
}

/// The predictions that were weighed, the fastest first.
fn predicted_table(explanation: &Explanation) -> String {
    let mut table = tables::plain(["predicted", "us"]);
    for row in &explanation.predicted {
        let carrier = row.carrier.unwrap_or_default();
        let path = path(row.method, carrier, row.algorithm.as_deref());
        table.add_row([path, format!("{:.1}", row.time_us)]);
    }
    tables::right(&mut table, 1..2);
    tables::text(&table)
}

/// A method, with the algorithm of direct links or of groups.
fn path(method: Method, carrier: MessageCarrier, algorithm: Option<&str>) -> String {
    let algorithm = algorithm.unwrap_or("auto");
    match (method, carrier) {
        (Method::Tree, _) => "tree".to_owned(),
        (Method::Direct, MessageCarrier::Links) => format!("direct, {algorithm}"),
        (Method::Direct, MessageCarrier::Datagrams) => format!("replicated, {algorithm}"),
    }
}

/// The measurements that were weighed, the fastest first.
fn measurements_table(explanation: &Explanation) -> String {
    let mut table =
        tables::plain(["measured", "leaders", "parts", "hosts", "ranks", "bytes", "us"]);
    for row in &explanation.measured {
        let &Measurement { method, carrier, algorithm, leaders, sub_partitions, .. } = row;
        let &Measurement { groups, hosts, ranks, len_bytes, time_us, .. } = row;
        let groups = groups.map(|groups| groups.to_string());
        let counts = [leaders, sub_partitions, hosts, ranks].map(|count| count.to_string());
        let [leaders, parts, hosts, ranks] = counts;
        table.add_row([
            path(method, carrier, groups.as_deref().or(Some(algorithm.name()))),
            leaders,
            parts,
            hosts,
            ranks,
            len_bytes.to_string(),
            format!("{time_us:.1}"),
        ]);
    }
    tables::right(&mut table, 1..7);
    tables::text(&table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_read_as_they_are_typed() {
        assert_eq!(operation("allreduce:65536"), Ok((CollectiveKind::Allreduce, 65_536)));
        assert_eq!(operation("bcast:4K"), Ok((CollectiveKind::Broadcast, 4096)));
        assert_eq!(operation("barrier"), Ok((CollectiveKind::Barrier, 0)));
        for wrong in ["allreduce", "alltoall:8", "allreduce:8,16", "allreduce:many", ""] {
            let error = operation(wrong).unwrap_err().to_string();
            assert!(error.contains("--explain") && error.contains("allreduce:64K"), "{error}");
        }
    }
}
