//! Builds whose frames are one version apart, side by side: in some scenarios each aggregator and job is of one of two,
//! and an aggregator that starts again is of the other. Apart from the version in their frames, nothing may differ.

use tributary_protocol_testing::frames::NEXT_BUILD;
use tributary_protocol_testing::values::mix;
use tributary_wire::control::GroupGrant;
use tributary_wire::frame::Versions;

use super::node_host::NodeHost;
use super::scenario::Scenario;

/// Whether all of a group are of the newer build.
pub(super) fn is_next(grant: &GroupGrant) -> bool {
    grant.frame_version == NEXT_BUILD.newest
}

/// Separates the choice of builds from all other numbers of a seed.
const BUILDS_SEED: u64 = 0x6275_696c_6473_2121;

impl Scenario {
    /// Whether two builds meet. The program of the kernel path serves one version alone, so where there is one,
    /// other groups would go there.
    fn mixes_builds(&self) -> bool {
        mix(self.seed ^ BUILDS_SEED).is_multiple_of(4) && !self.network.has_kernel_paths
    }

    /// What the process with this number of its kind speaks, in this of its lives.
    fn versions(&self, process: u64, life: u32) -> Versions {
        let is_new = mix(self.seed ^ BUILDS_SEED ^ process).wrapping_add(u64::from(life)) % 2 == 1;
        if self.mixes_builds() && is_new { NEXT_BUILD } else { Versions::SPOKEN }
    }

    /// What an aggregator speaks.
    pub(super) fn node_versions(&self, node: u32, life: u32) -> Versions {
        self.versions(1 << 32 | u64::from(node), life)
    }

    /// All aggregators, in their first lives.
    pub(super) fn new_nodes(&self) -> impl Iterator<Item = NodeHost> {
        let versions = (0..).map(|node| self.node_versions(node, 0));
        self.nodes.iter().zip(versions).map(|(plan, versions)| NodeHost::new(plan, versions))
    }

    /// What the processes of a job speak.
    pub(super) fn job_versions(&self, job: u32) -> Versions {
        self.versions(2 << 32 | u64::from(job), 0)
    }
}
