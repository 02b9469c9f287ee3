//! Plans of runs: a fabric, its groups, their members' operations, and the expected results.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tributary_protocol::StreamTerms;
use tributary_protocol::node::StreamLimits;
use tributary_protocol_testing::values::{Below, TreeShape};
use tributary_protocol_testing::workload::Mixture;
pub(crate) use tributary_protocol_testing::workload::OperationPlan;
use tributary_wire::{Capability, Datatype, EndpointId, Operator};

/// The aggregators' limits for streams, in one tree.
pub(crate) const STREAMS: StreamLimits =
    StreamLimits { trees: 1, window_max: 5, chunk_bytes_max: 100 };

/// What is computed.
const KERNELS: [(Operator, Datatype); 7] = [
    (Operator::Sum, Datatype::I64),
    (Operator::Sum, Datatype::F64),
    (Operator::Sum, Datatype::F32),
    (Operator::Sum, Datatype::F16),
    (Operator::Sum, Datatype::Bf16),
    (Operator::Max, Datatype::I32),
    (Operator::BitXor, Datatype::U64),
];

/// Everything that decides results. Timing is not part of it, because it must not matter.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    /// Parent of each aggregator of the fabric; aggregators come after their parents.
    pub(crate) fabric: Vec<Option<usize>>,
    pub(crate) groups: Vec<GroupPlan>,
}

/// One group: its tree, its grant and its operations.
#[derive(Clone, Debug)]
pub(crate) struct GroupPlan {
    pub(crate) osos: u16,
    pub(crate) payload_max_bytes: u32,
    /// What it may stream.
    pub(crate) stream: Option<StreamTerms>,
    /// Operations a member has under way at once.
    pub(crate) overlap: usize,
    /// Its aggregators, parents before children; the first is its root.
    pub(crate) tree: Vec<TreeNode>,
    pub(crate) members: u32,
    pub(crate) script: Vec<OperationPlan>,
}

/// One aggregator's part of a group's tree.
#[derive(Clone, Debug)]
pub(crate) struct TreeNode {
    /// The aggregator of the fabric.
    pub(crate) node: usize,
    /// Its parent in the group's tree, and its place among the parent's children.
    pub(crate) parent: Option<(usize, u16)>,
    pub(crate) children: Vec<Child>,
}

/// One child, with its grant.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    pub(crate) below: Below,
    pub(crate) capability: Capability,
    pub(crate) members: core::ops::Range<EndpointId>,
}

impl GroupPlan {
    /// What every member must have when an operation is complete; none if it receives nothing.
    pub(crate) fn expected(&self, seed: u64, operation: usize) -> Option<Vec<u8>> {
        let plan = &self.script[operation];
        let children = |node: &TreeNode| node.children.iter().map(|child| child.below).collect();
        let shape = TreeShape { nodes: self.tree.iter().map(children).collect() };
        (plan.operator != Operator::Barrier).then(|| shape.expected_result(plan, seed, operation))
    }
}

impl Scenario {
    /// A random scenario: fabrics to depth 5 and radix 8, one to three groups that share aggregators.
    pub(crate) fn random(seed: u64) -> Self {
        let mut random = Pcg64::seed_from_u64(seed);
        let fabric = random_fabric(&mut random);
        let groups = (0..random.random_range(1..=3))
            .map(|_| GroupPlan::random(&mut random, &fabric))
            .collect();
        Self { seed, fabric, groups }
    }

    /// A random scenario in which more groups overlap, and many vectors go as streams.
    pub(crate) fn random_streams(seed: u64) -> Self {
        let mut scenario = Self::random(seed);
        let mut random = Pcg64::new(u128::from(seed), 5);
        for _ in 0..random.random_range(1..=3) {
            scenario.groups.push(GroupPlan::random(&mut random, &scenario.fabric));
        }
        for plan in &mut scenario.groups {
            plan.stream = Some(StreamTerms {
                chunk_bytes: random.random_range(8..=STREAMS.chunk_bytes_max),
                window: random.random_range(1..=STREAMS.window_max),
            });
            for operation in &mut plan.script {
                operation.is_stream = operation.elements > 0 && random.random_bool(0.6);
            }
        }
        scenario
    }

    /// One group on one tree: `shape[i]` holds the children of aggregator `i`, depth first.
    pub(crate) fn one_group(fabric: Vec<Option<usize>>, members: &[u32], osos: u16) -> Self {
        let mut random = Pcg64::seed_from_u64(7);
        let mut plan = GroupPlan {
            osos,
            payload_max_bytes: 16,
            stream: None,
            overlap: 2,
            tree: Vec::new(),
            members: 0,
            script: Vec::new(),
        };
        plan.grow(&mut random, &fabric, members);
        Self { seed: 7, fabric, groups: vec![plan] }
    }
}

fn random_fabric(random: &mut Pcg64) -> Vec<Option<usize>> {
    let (depth_max, nodes_max) = (random.random_range(1..=5), random.random_range(1..=20));
    let mut fabric = vec![None];
    let mut depth = vec![1];
    let mut at = 0;
    while at < fabric.len() {
        // Chains half the time; otherwise few fabrics would be deep before they are full.
        let radix_max = if random.random_bool(0.5) { 2 } else { 8 };
        let radix = if depth[at] < depth_max { random.random_range(1..=radix_max) } else { 0 };
        for _ in 0..radix.min(nodes_max - fabric.len().min(nodes_max)) {
            fabric.push(Some(at));
            depth.push(depth[at] + 1);
        }
        at += 1;
    }
    fabric
}

impl GroupPlan {
    fn random(random: &mut Pcg64, fabric: &[Option<usize>]) -> Self {
        let mut members: Vec<u32> = (0..fabric.len())
            .map(|_| if random.random_bool(0.4) { random.random_range(1..=4) } else { 0 })
            .collect();
        if random.random_bool(0.1) {
            members.fill(0);
        }
        if members.iter().all(|count| *count == 0) {
            members[random.random_range(0..fabric.len())] = 1;
        }
        let payload_max_bytes = [8, 16, 40, 64, 256][random.random_range(0..5)];
        let mut plan = Self {
            osos: [1, 2, 3, 4, 8][random.random_range(0..5)],
            payload_max_bytes,
            stream: None,
            overlap: random.random_range(1..=4),
            tree: Vec::new(),
            members: 0,
            script: Vec::new(),
        };
        plan.grow(random, fabric, &members);
        let operations = random.random_range(1..=10);
        plan.script = (0..operations).map(|_| plan.random_operation(random)).collect();
        plan
    }

    fn random_operation(&self, random: &mut Pcg64) -> OperationPlan {
        let mut below = |end| random.random_range(0..end);
        let mixture = Mixture {
            kernels: &KERNELS,
            members: self.members,
            segment_bytes: self.payload_max_bytes,
            short_of_eight: 2,
            segments_max: 20,
        };
        mixture.draw(&mut below)
    }

    /// The subtree of the fabric that spans the members, numbered depth first.
    fn grow(&mut self, random: &mut Pcg64, fabric: &[Option<usize>], members: &[u32]) {
        let mut below = members.to_vec();
        for node in (1..fabric.len()).rev() {
            below[fabric[node].expect("only the first has no parent")] += below[node];
        }
        // The root is the highest aggregator below which the members do not all lie under one child.
        let mut root = 0;
        while members[root] == 0 && random.random_bool(0.7) {
            let mut children = (0..fabric.len()).filter(|node| fabric[*node] == Some(root));
            let Some(only) = children.find(|node| below[*node] == below[root]) else { break };
            root = only;
        }
        self.visit(random, fabric, members, &below, root, None);
    }

    fn visit(
        &mut self,
        random: &mut Pcg64,
        fabric: &[Option<usize>],
        members: &[u32],
        below: &[u32],
        node: usize,
        parent: Option<(usize, u16)>,
    ) -> usize {
        let at = self.tree.len();
        self.tree.push(TreeNode { node, parent, children: Vec::new() });
        let nodes = (0..fabric.len()).filter(|it| fabric[*it] == Some(node) && below[*it] > 0);
        let mut slots: Vec<Option<usize>> = nodes.map(Some).collect();
        for _ in 0..members[node] {
            slots.insert(random.random_range(0..=slots.len()), None);
        }
        for (index, slot) in slots.into_iter().enumerate() {
            let first = EndpointId(self.members);
            let below = match slot {
                None => {
                    self.members += 1;
                    Below::Member(first.0)
                }
                Some(child) => {
                    let parent = Some((at, index as u16));
                    Below::Node(self.visit(random, fabric, members, below, child, parent))
                }
            };
            let capability = Capability::from_bytes(random.random());
            let members = first..EndpointId(self.members);
            self.tree[at].children.push(Child { below, capability, members });
        }
        at
    }
}
