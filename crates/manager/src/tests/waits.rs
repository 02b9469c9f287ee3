//! The late members, put together from what aggregation nodes say.

use tributary_wire::control::{GroupGrant, GroupWait, WaitingStatus};
use tributary_wire::{ChildIndex, Epoch};

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A group over both leaves: h0, h1 and h4, h5.
fn across() -> (Site, GroupGrant) {
    let mut site = Site::new(ManagerConfig::default(), 2, 8, 64);
    let job = site.job();
    let grant = site.grant(&job, &["h0", "h1", "h4", "h5"], 4);
    (site, grant)
}

/// `node` says that it waits for these children.
fn say(site: &mut Site, grant: &GroupGrant, node: &str, waits: Option<(u64, &[u16])>) {
    let waits = waits.map(|(waited_ms, missing)| GroupWait {
        group: grant.group,
        epoch: grant.epoch,
        operation: Some(7),
        waited_ms,
        missing: missing.iter().copied().map(ChildIndex).collect(),
    });
    let node = site.node[node];
    site.manager.note_waits(site.now, node, waits.into_iter().collect());
}

fn waiting(site: &Site) -> Option<WaitingStatus> {
    site.manager.status(site.now).groups[0].waiting.clone()
}

fn late(waited_ms: u64, hosts: &[&str], nodes: &[&str]) -> Option<WaitingStatus> {
    let owned = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    Some(WaitingStatus { operation: Some(7), waited_ms, hosts: owned(hosts), nodes: owned(nodes) })
}

#[test]
fn late_hosts_are_found_below_the_root() {
    let (mut site, grant) = across();
    assert_eq!(waiting(&site), None);
    site.now = Time(100 * SECOND);
    say(&mut site, &grant, "root", Some((1200, &[1])));
    assert_eq!(waiting(&site), late(1200, &["h4", "h5"], &[]), "nothing has come from the leaf");
    say(&mut site, &grant, "leaf1", Some((1500, &[1])));
    assert_eq!(waiting(&site), late(1500, &["h5"], &[]));
    site.now = Time(103 * SECOND);
    assert_eq!(waiting(&site), late(4500, &["h5"], &[]), "it still lasts");
    say(&mut site, &grant, "leaf1", Some((4600, &[])));
    assert_eq!(waiting(&site), late(4600, &[], &["leaf1"]), "its part is on its way");
    say(&mut site, &grant, "root", Some((4600, &[])));
    assert_eq!(waiting(&site), None, "nobody is late");
    say(&mut site, &grant, "leaf0", Some((4600, &[0])));
    say(&mut site, &grant, "root", None);
    assert_eq!(waiting(&site), late(4600, &["h0"], &[]), "the root has heard of nothing");
    say(&mut site, &grant, "leaf0", None);
    say(&mut site, &grant, "leaf1", None);
    assert_eq!(waiting(&site), None);
}

#[test]
fn a_wait_may_be_older_than_the_manager() {
    let (mut site, grant) = across();
    site.now = Time(SECOND);
    say(&mut site, &grant, "leaf0", Some((600_000, &[0])));
    assert_eq!(waiting(&site), late(600_000, &["h0"], &[]));
    say(&mut site, &grant, "leaf0", Some((u64::MAX, &[0])));
    site.now = Time(3 * SECOND);
    assert_eq!(waiting(&site), late(u64::MAX, &["h0"], &[]), "whatever a node says");
}

#[test]
fn each_wait_is_told_once() {
    let (mut site, grant) = across();
    site.now = Time(100 * SECOND);
    say(&mut site, &grant, "leaf0", Some((4000, &[0])));
    assert!(site.manager.take_late(site.now, 4001).is_empty());
    let [told] = &site.manager.take_late(site.now, 4000)[..] else { panic!("it is late") };
    assert_eq!((told.group, told.label.as_str()), (grant.group, "world"));
    assert_eq!(Some(told.waiting.clone()), late(4000, &["h0"], &[]));
    assert!(site.manager.take_late(site.now, 4000).is_empty(), "it was told");
    say(&mut site, &grant, "leaf0", None);
    assert!(site.manager.take_late(site.now, 0).is_empty());
    say(&mut site, &grant, "leaf0", Some((5000, &[0])));
    assert_eq!(site.manager.take_late(site.now, 4000).len(), 1, "it waits once more");
}

#[test]
fn what_is_said_of_other_groups_is_ignored() {
    let (mut site, mut grant) = across();
    let (leaf, epoch) = (site.node["leaf0"], grant.epoch);
    grant.epoch = Epoch(epoch.0.wrapping_add(1));
    say(&mut site, &grant, "leaf0", Some((4000, &[0])));
    grant.epoch = epoch;
    say(&mut site, &grant, "leaf1", Some((4000, &[77])));
    assert_eq!(waiting(&site), None, "another incarnation's, and a child that is none");
    site.manager.note_waits(site.now, NodeId(leaf.0 + 100), Vec::new());
}
