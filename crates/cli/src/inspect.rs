//! `tributary status`, `tree`, `open` and `drain`: the manager's state, as text or JSON, and calls of one line.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::net::ToSocketAddrs;
use std::process::ExitCode;

use tributary_client::manager::{ManagerClient, ManagerError};
use tributary_wire::control::{
    DrainRequest, Drained, GroupStatus, KernelCounts, KernelState, NodeStatus, Share, Status,
    TenantStatus, WaitingStatus,
};

use crate::flags::{DrainFlags, FabricFlags, ManagerAddressFlags, OpenFlags, StatusFlags};
use crate::texts;
use crate::usage::UsageError;
use tributary_views::tables;

/// Prints aggregators, jobs and groups, or the groups that wait.
pub(crate) fn status(flags: &StatusFlags) -> anyhow::Result<ExitCode> {
    if !flags.waiting {
        return print(&flags.fabric, tables_of);
    }
    let mut status = ask(&flags.fabric)?;
    status.groups.retain(|group| group.waiting.is_some());
    let mut out = io::stdout().lock();
    if flags.fabric.json {
        writeln!(out, "{}", texts::json(&status.groups)?)?;
    } else {
        write!(out, "{}", waiting_of(&texts::printable_of(&status)?))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the fabric's tree and every group's.
pub(crate) fn tree(flags: FabricFlags) -> anyhow::Result<ExitCode> {
    print(&flags, trees_of)
}

/// Has an aggregator's groups moved away.
pub(crate) fn drain(flags: &DrainFlags) -> anyhow::Result<ExitCode> {
    let request = DrainRequest { node: flags.name.clone() };
    let drained = call(&flags.fabric.at, |manager| manager.drain(&request))?;
    let mut out = io::stdout().lock();
    if flags.fabric.json {
        writeln!(out, "{}", serde_json::to_string(&drained)?)?;
    } else {
        let Drained { groups } = drained;
        writeln!(
            out,
            "{} is drained of {groups} groups and gets no more: it may be stopped",
            flags.name
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a link that opens the manager's page.
pub(crate) fn open(flags: &OpenFlags) -> anyhow::Result<ExitCode> {
    let manager = &flags.at.manager;
    let code = call(&flags.at, ManagerClient::page_code)?.code;
    // Where nothing leaves this machine the manager takes plain HTTP, and a browser has no certificate to doubt.
    let scheme = if is_near(manager) { "http" } else { "https" };
    writeln!(io::stdout().lock(), "{scheme}://{manager}/open?code={code}")?;
    if scheme == "https" {
        writeln!(
            io::stderr().lock(),
            "tributary: browsers don't know the manager's certificate; without their warning it goes over \
             ssh -L 7470:127.0.0.1:PORT MANAGER, and tributary open --manager 127.0.0.1:7470"
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a manager's address is one of this machine's loopback.
fn is_near(manager: &str) -> bool {
    let mut addresses = manager.to_socket_addrs().into_iter().flatten().peekable();
    addresses.peek().is_some() && addresses.all(|address| address.ip().is_loopback())
}

fn print(flags: &FabricFlags, text: fn(&Status) -> String) -> anyhow::Result<ExitCode> {
    let status = ask(flags)?;
    let mut out = io::stdout().lock();
    if flags.json {
        writeln!(out, "{}", texts::json(&status)?)?;
    } else {
        write!(out, "{}", text(&texts::printable_of(&status)?))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn ask(flags: &FabricFlags) -> anyhow::Result<Status> {
    call(&flags.at, ManagerClient::status)
}

fn call<T>(
    flags: &ManagerAddressFlags,
    what: impl FnOnce(&ManagerClient) -> Result<T, ManagerError>,
) -> anyhow::Result<T> {
    let asked = ManagerClient::new(&flags.manager, Some(&flags.token_file))
        .and_then(|manager| what(&manager));
    asked.map_err(|error| match error {
        ManagerError::BadToken { path, problem } => {
            UsageError::new("--token-file", path.to_string_lossy(), problem).into()
        }
        other => other.into(),
    })
}

/// An aggregator's name, and that it is about to be stopped.
fn name_of(node: &NodeStatus) -> String {
    let remark = if node.is_draining { " (draining)" } else { "" };
    format!("{}{remark}", node.registration.name)
}

fn tables_of(status: &Status) -> String {
    let mut text = String::new();
    let mut nodes =
        tables::plain(["node", "name", "address", "parent", "radix", "osos_used", "osos"]);
    for node in &status.nodes {
        nodes.add_row([
            node.node.to_string(),
            name_of(node),
            node.registration.address.tcp.clone(),
            node.parent.clone().unwrap_or_else(|| "-".to_owned()),
            node.registration.radix.to_string(),
            node.osos_used.to_string(),
            node.registration.osos.to_string(),
        ]);
    }
    tables::right(&mut nodes, 4..7);
    section(&mut text, "nodes", status.nodes.len(), &nodes);
    add_kernel_paths(&mut text, status);
    let mut jobs = tables::plain(["job", "name", "tenant", "processes", "groups"]);
    for job in &status.jobs {
        jobs.add_row([
            job.job.to_string(),
            job.name.clone(),
            job.tenant.clone().unwrap_or_else(|| "-".to_owned()),
            job.processes.to_string(),
            job.groups.to_string(),
        ]);
    }
    tables::right(&mut jobs, 3..5);
    section(&mut text, "jobs", status.jobs.len(), &jobs);
    let mut groups = tables::plain(["group", "epoch", "job", "label", "osos", "nodes"]);
    for group in &status.groups {
        groups.add_row([
            group.group.to_string(),
            group.epoch.to_string(),
            group.job.to_string(),
            group.label.clone(),
            group.osos.to_string(),
            group.nodes.len().to_string(),
        ]);
    }
    tables::right(&mut groups, 4..6);
    section(&mut text, "groups", status.groups.len(), &groups);
    if !status.tenants.is_empty() {
        section(&mut text, "tenants", status.tenants.len(), &tenants_of(&status.tenants));
    }
    text
}

/// What tenants hold of what they may hold.
fn tenants_of(tenants: &[TenantStatus]) -> comfy_table::Table {
    let mut table = tables::plain(["tenant", "jobs", "groups", "osos_on_a_node", "streams"]);
    let text = |share: Share| match share.max {
        Some(max) => format!("{} of {max}", share.used),
        None => share.used.to_string(),
    };
    for TenantStatus { name, jobs, groups, osos, streams } in tenants {
        table.add_row([name.clone(), text(*jobs), text(*groups), text(*osos), text(*streams)]);
    }
    tables::right(&mut table, 1..5);
    table
}

/// What aggregators do inside the kernel, and why some do nothing there; nothing at all if none was asked to.
fn add_kernel_paths(text: &mut String, status: &Status) {
    let asked = |node: &&NodeStatus| {
        matches!(node.registration.kernel, Some(KernelState::At(_) | KernelState::Unavailable(_)))
    };
    let on = status.nodes.iter().filter(asked).count();
    if on == 0 {
        return;
    }
    let mut rows = tables::plain([
        "name", "groups", "taken", "results", "gathered", "repeats", "refused", "damaged",
        "passed", "state",
    ]);
    for node in &status.nodes {
        let counts = node.counts.and_then(|counts| counts.kernel);
        let state = match &node.registration.kernel {
            Some(KernelState::At(interfaces)) => format!("at {}", interfaces.join(", ")),
            Some(KernelState::Unavailable(reason)) => format!("off: {reason}"),
            Some(KernelState::Off) => "off: not asked for (--kernel, --interface)".to_owned(),
            None => "off: the aggregation node's version has none".to_owned(),
        };
        let [groups, taken, results, gathered, repeats, refused, damaged, passed] =
            format_counts(counts);
        let name = node.registration.name.clone();
        rows.add_row([
            name, groups, taken, results, gathered, repeats, refused, damaged, passed, state,
        ]);
    }
    tables::right(&mut rows, 1..9);
    section(text, "inside the kernel", on, &rows);
}

/// Counts as text; dashes where there are none.
fn format_counts(counts: Option<KernelCounts>) -> [String; 8] {
    counts.map_or([const { String::new() }; 8].map(|_| "-".to_owned()), |counts| {
        let KernelCounts { groups, taken, results, gathered, repeats, refused, damaged, passed } =
            counts;
        [groups, taken, results, gathered, repeats, refused, damaged, passed]
            .map(|count| count.to_string())
    })
}

/// The groups that wait, with their jobs, and who is late.
fn waiting_of(status: &Status) -> String {
    let mut rows = tables::plain(["group", "job", "name", "label", "waits_for", "seconds", "late"]);
    for group in &status.groups {
        let Some(waiting) = &group.waiting else { continue };
        let job = status.jobs.iter().find(|job| job.job == group.job);
        let operation = waiting.operation;
        rows.add_row([
            group.group.to_string(),
            group.job.to_string(),
            job.map_or_else(|| "-".to_owned(), |job| job.name.clone()),
            group.label.clone(),
            operation.map_or_else(|| "members".to_owned(), |it| format!("operation {it}")),
            format!("{:.1}", waiting.waited_ms as f64 / 1e3),
            late(waiting),
        ]);
    }
    tables::right(&mut rows, 5..6);
    let mut text = String::new();
    section(&mut text, "groups that wait", status.groups.len(), &rows);
    text
}

/// Hosts whose part has not come, then aggregators whose part is on its way.
fn late(waiting: &WaitingStatus) -> String {
    let nodes = waiting.nodes.iter().map(|node| format!("{node} (sent)"));
    waiting.hosts.iter().cloned().chain(nodes).collect::<Vec<_>>().join(" ")
}

fn section(text: &mut String, name: &str, rows: usize, table: &comfy_table::Table) {
    let separator = if text.is_empty() { "" } else { "\n" };
    // Writing into a string can't fail.
    let _ = writeln!(text, "{separator}{name}: {rows}");
    if rows > 0 {
        let _ = writeln!(text, "{}", tables::text(table));
    }
}

fn trees_of(status: &Status) -> String {
    let mut text = "fabric\n".to_owned();
    let mut below: BTreeMap<Option<&str>, Vec<&NodeStatus>> = BTreeMap::new();
    for node in &status.nodes {
        let parent = node
            .parent
            .as_deref()
            .filter(|parent| status.nodes.iter().any(|other| other.registration.name == *parent));
        below.entry(parent).or_default().push(node);
    }
    indent_nodes(&mut text, &below, None, 1);
    for group in &status.groups {
        let _ = writeln!(
            text,
            "group {} '{}' of job {}: epoch {}, {} osos",
            group.group, group.label, group.job, group.epoch, group.osos
        );
        for root in group.nodes.iter().filter(|node| node.parent.is_none()) {
            indent_group(&mut text, group, &root.name, 1);
        }
        if let Some(bound) = bandwidth_bound(group) {
            let _ = writeln!(text, "  {bound}");
        }
    }
    text
}

/// The bound that no implementation can beat: an aggregator on one link receives what all its children send.
fn bandwidth_bound(group: &GroupStatus) -> Option<String> {
    let busiest = group.nodes.iter().rev().max_by_key(|node| node.children.len())?;
    let children = busiest.children.len();
    (children > 1).then(|| {
        format!(
            "bound: {} receives the vectors of {children} children; on one link as fast as theirs, \
             each can send at most 1/{children} of its rate",
            busiest.name
        )
    })
}

/// Writes the aggregators below `parent`, indented by depth. A manager's tree has no cycles; a cycle would be
/// unreachable from `None`.
fn indent_nodes(
    text: &mut String,
    below: &BTreeMap<Option<&str>, Vec<&NodeStatus>>,
    parent: Option<&str>,
    depth: usize,
) {
    for node in below.get(&parent).into_iter().flatten() {
        let registration = &node.registration;
        let _ = writeln!(
            text,
            "{:indent$}{} at {}: {} of {} osos used",
            "",
            registration.name,
            registration.address.tcp,
            node.osos_used,
            registration.osos,
            indent = 2 * depth
        );
        indent_nodes(text, below, Some(&registration.name), depth + 1);
    }
}

/// Writes one aggregator of a group and its children, which are aggregators of the group or hosts.
fn indent_group(text: &mut String, group: &GroupStatus, name: &str, depth: usize) {
    let _ = writeln!(text, "{:indent$}{name}", "", indent = 2 * depth);
    if depth > group.nodes.len() {
        return;
    }
    let Some(node) = group.nodes.iter().find(|node| node.name == name) else { return };
    for child in &node.children {
        indent_group(text, group, child, depth + 1);
    }
}

#[cfg(test)]
mod tests {
    use tributary_wire::control::{GroupNodeStatus, NodeAddress, NodeCounts, NodeRegistration};
    use tributary_wire::frame::Versions;
    use tributary_wire::{Epoch, GroupId, JobId, NodeId};

    use super::*;

    fn node(number: u32, name: &str, parent: Option<&str>) -> NodeStatus {
        NodeStatus {
            node: NodeId(number),
            registration: NodeRegistration {
                name: name.into(),
                address: NodeAddress {
                    tcp: format!("10.0.0.{number}:7"),
                    machine: "m".into(),
                    shm: None,
                },
                radix: 4,
                osos: 64,
                payload_max_bytes: 256,
                frame_versions: Versions::SPOKEN,
                stream: None,
                kernel: None,
            },
            osos_used: 8,
            is_draining: false,
            parent: parent.map(Into::into),
            counts: None,
        }
    }

    fn group_node(name: &str, parent: Option<&str>, children: &[&str]) -> GroupNodeStatus {
        GroupNodeStatus {
            name: name.into(),
            parent: parent.map(Into::into),
            children: children.iter().map(|child| (*child).into()).collect(),
        }
    }

    fn sample() -> Status {
        Status {
            nodes: vec![
                node(1, "leaf0", Some("root")),
                node(2, "root", None),
                node(3, "leaf1", Some("root")),
            ],
            jobs: Vec::new(),
            groups: vec![GroupStatus {
                group: GroupId(7),
                epoch: Epoch(3),
                job: JobId(5),
                label: "world".into(),
                osos: 8,
                nodes: vec![
                    group_node("root", None, &["leaf0", "leaf1"]),
                    group_node("leaf0", Some("root"), &["m#0"]),
                    group_node("leaf1", Some("root"), &["m#1", "m#2"]),
                ],
                waiting: None,
            }],
            tenants: Vec::new(),
        }
    }

    #[test]
    fn trees_are_indented() {
        let expected = "\
fabric
  root at 10.0.0.2:7: 8 of 64 osos used
    leaf0 at 10.0.0.1:7: 8 of 64 osos used
    leaf1 at 10.0.0.3:7: 8 of 64 osos used
group 7 'world' of job 5: epoch 3, 8 osos
  root
    leaf0
      m#0
    leaf1
      m#1
      m#2
  bound: root receives the vectors of 2 children; on one link as fast as theirs, each can send at most 1/2 of its rate
";
        assert_eq!(trees_of(&sample()), expected);
    }

    #[test]
    fn status_counts_what_it_lists() {
        let text = tables_of(&sample());
        assert!(text.starts_with("nodes: 3\n"), "{text}");
        assert!(text.contains("\njobs: 0\n") && text.contains("\ngroups: 1\n"), "{text}");
    }

    #[test]
    fn kernel_paths_have_their_counts_or_why_there_are_none() {
        let mut status = sample();
        assert!(!tables_of(&status).contains("kernel"), "nobody asked");
        status.nodes[0].registration.kernel = Some(KernelState::Off);
        let kernel = KernelCounts {
            groups: 1,
            taken: 22,
            results: 11,
            gathered: 2,
            repeats: 3,
            refused: 4,
            damaged: 5,
            passed: 6,
        };
        status.nodes[1].registration.kernel = Some(KernelState::At(vec!["eth0".into()]));
        status.nodes[1].counts = Some(NodeCounts { kernel: Some(kernel), ..NodeCounts::default() });
        let reason = "this process lacks CAP_BPF".to_owned();
        status.nodes[2].registration.kernel = Some(KernelState::Unavailable(reason));
        let text = tables_of(&status);
        let lines: Vec<_> = text.lines().collect();
        let first = lines.iter().position(|line| *line == "inside the kernel: 2").unwrap();
        let row = |at: usize| lines[first + at].split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            [row(2), row(3), row(4)],
            [
                "leaf0 - - - - - - - - off: not asked for (--kernel, --interface)",
                "root 1 22 11 2 3 4 5 6 at eth0",
                "leaf1 - - - - - - - - off: this process lacks CAP_BPF",
            ],
            "{text}"
        );
    }

    #[test]
    fn late_hosts_are_named() {
        let mut status = sample();
        status.groups[0].waiting = Some(WaitingStatus {
            operation: Some(17),
            waited_ms: 12_340,
            hosts: vec!["m#1".into(), "m#2".into()],
            nodes: vec!["leaf0".into()],
        });
        let text = waiting_of(&status);
        let row = text.lines().last().unwrap().split_whitespace().collect::<Vec<_>>();
        let expected =
            ["7", "5", "-", "world", "operation", "17", "12.3", "m#1", "m#2", "leaf0", "(sent)"];
        assert_eq!(row, expected, "{text}");
    }
}
