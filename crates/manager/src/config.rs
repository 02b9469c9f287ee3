//! Configuration of the manager.

use alloc::collections::BTreeMap;
use alloc::string::String;
use core::net::{Ipv4Addr, SocketAddrV4};

use tributary_wire::text::printable_within;
use tributary_wire::{Epoch, GroupId, JobId};

use super::caller::TenantLimits;

/// Limits and deadlines of a [`Manager`](super::Manager).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerConfig {
    /// Aggregation nodes at most.
    pub nodes_max: u32,
    /// Jobs at most.
    pub jobs_max: u32,
    /// Groups at most, those being installed included.
    pub groups_max: u32,
    /// Endpoints of one group at most.
    pub endpoints_max: u32,
    /// OSOs of one group at most; a request for more gets this many.
    pub osos_per_group_max: u16,
    /// OSOs of all groups of one job at most. This bounds what the job can use on any one aggregator;
    /// none for no limit.
    pub osos_per_job_max: Option<u32>,
    /// How long the aggregators of one level may take to answer an install, in nanoseconds.
    pub install_timeout_ns: u64,
    /// Addresses to which groups' results are multicast; none for no multicast.
    pub multicast: Option<MulticastRange>,
    /// The tenants by name, which may have jobs besides the operator, and how much of the fabric each may have.
    pub tenants: BTreeMap<String, TenantLimits>,
    /// Whether frames between hosts are authenticated: every group then gets a key of its own.
    pub authenticates_frames: bool,
    /// Whether it serves measurements of the site, which its admissions then say.
    pub has_tuning: bool,
    /// The first epoch of a group. Managers that follow each other should not use the same ones.
    pub first_epoch: Epoch,
    /// The number of the first job. As above.
    pub first_job: JobId,
}

/// Multicast addresses that groups may use, one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MulticastRange {
    /// The first.
    pub first: Ipv4Addr,
    /// How many. Groups with higher numbers have no multicast.
    pub addresses: u32,
    /// The UDP port of all.
    pub port: u16,
}

impl MulticastRange {
    /// A group's address, if there are enough.
    pub(super) fn address(&self, group: GroupId) -> Option<SocketAddrV4> {
        let ip = u32::from(self.first).checked_add(group.0)?;
        (group.0 < self.addresses).then(|| SocketAddrV4::new(ip.into(), self.port))
    }
}

impl Default for ManagerConfig {
    fn default() -> Self {
        Self {
            nodes_max: 4096,
            jobs_max: 4096,
            groups_max: 65_536,
            endpoints_max: 65_536,
            osos_per_group_max: 1024,
            osos_per_job_max: None,
            install_timeout_ns: 5_000_000_000,
            multicast: None,
            tenants: BTreeMap::new(),
            authenticates_frames: false,
            has_tuning: false,
            first_epoch: Epoch(1),
            first_job: JobId(0),
        }
    }
}

/// Longest name, label or address that a peer may send, in bytes.
pub const TEXT_MAX_BYTES: usize = 255;

/// A name or label as the manager keeps it: nothing that reads it from here on, be it a terminal, a log or a page, is
/// steered by it. It is no longer than a peer may send, so that the next manager takes it over.
pub(super) fn make_printable(text: &str) -> String {
    printable_within(text, TEXT_MAX_BYTES).into_owned()
}

/// Most interfaces at which an aggregator may take segments inside the kernel.
pub(super) const KERNEL_INTERFACES_MAX: usize = 256;
