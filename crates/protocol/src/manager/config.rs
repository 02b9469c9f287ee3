//! What the manager is told at its start.

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
    /// OSOs that the groups of one job may add up to, which bounds what the job can hold on any
    /// one node; none for no bound but the nodes' own.
    pub osos_per_job_max: Option<u32>,
    /// How long the nodes of one level may take to answer an install, in nanoseconds.
    pub install_timeout_ns: u64,
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
        }
    }
}

/// Longest name, label or address that a peer may send, in bytes.
pub(super) const TEXT_MAX_BYTES: usize = 255;
