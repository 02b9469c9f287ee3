//! What a seed decides: a plan of hosts, what the network does to their datagrams, and what becomes of some of them.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tributary_algorithms::plan::Plan;

/// What tells these scenarios' numbers from those of the ranks of the same seed.
const LEVELS_SEED: u64 = 0x7265_706C_6963_6174;
/// The largest groups.
const MEMBERS_MAX: u32 = 8;
/// The longest contribution that the next datagram repeats, one that is not repeated, and none.
const LENGTHS: [u32; 4] = [0, 8, 64, 1_000];

#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    pub(super) plan: Plan,
    pub(super) operations: u64,
    pub(super) len_bytes: u32,
    /// Which part of the datagrams each receiver loses.
    pub(super) loss: f64,
    /// Which part comes twice.
    pub(super) doubled: f64,
    /// Up to how long a datagram or message is under way; a few datagrams take up to 3 ms more.
    pub(super) delay_ns_max: u64,
    /// Up to how long a host's program mostly computes between two operations.
    pub(super) think_ns_max: u64,
    pub(super) silences: Vec<Silence>,
    pub(super) fates: Vec<Fate>,
}

/// A time in which no datagrams of others come to a host: a switch has forgotten it, or a firewall shuts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Silence {
    pub(super) host: u32,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
}

/// What becomes of a host whose program has come to an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fate {
    pub(super) host: u32,
    pub(super) operation: u64,
    pub(super) kind: FateKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FateKind {
    /// It dies so long after it has begun the operation.
    Dies { after_ns: u64 },
    /// It leaves instead.
    Leaves,
    /// It calls something else.
    CallsElse,
    /// It computes so long before.
    Computes { for_ns: u64 },
}

impl Scenario {
    pub(super) fn draw(seed: u64) -> Self {
        let random = &mut Pcg64::seed_from_u64(seed ^ LEVELS_SEED);
        let plan = draw_plan(random);
        let operations = if random.random_ratio(1, 25) {
            random.random_range(60..=90)
        } else {
            random.random_range(1..=12)
        };
        let hosts = plan.hosts();
        let delay_ns_max = [5_000, 50_000, 1_000_000][random.random_range(0..3)];
        Self {
            seed,
            operations,
            len_bytes: LENGTHS[random.random_range(0..LENGTHS.len())],
            loss: [0.0, 0.0, 0.005, 0.1, 0.5, 1.0][random.random_range(0..6)],
            doubled: [0.0, 0.05, 0.3][random.random_range(0..3)],
            delay_ns_max,
            think_ns_max: [1_000, 20_000, 500_000][random.random_range(0..3)],
            silences: draw_silences(random, hosts, delay_ns_max * operations),
            fates: draw_fates(random, hosts, operations),
            plan,
        }
    }

    /// What becomes of a host at an operation.
    pub(super) fn fates_at(&self, host: u32, operation: u64) -> impl Iterator<Item = FateKind> {
        let is_met = move |fate: &&Fate| (fate.host, fate.operation) == (host, operation);
        self.fates.iter().filter(is_met).map(|fate| fate.kind)
    }

    /// What kind of call a host makes.
    pub(super) fn kind(&self, host: u32, operation: u64) -> u64 {
        u64::from(self.fates_at(host, operation).any(|kind| kind == FateKind::CallsElse))
    }

    /// Whether a datagram to a host is lost whatever the chance.
    pub(super) fn is_silent(&self, host: u32, at_ns: u64) -> bool {
        let is_in = |it: &Silence| it.host == host && (it.from_ns..it.to_ns).contains(&at_ns);
        self.silences.iter().any(is_in)
    }
}

/// Mostly few hosts, so that all of them meet in few groups; sometimes 30.
fn draw_plan(random: &mut Pcg64) -> Plan {
    let hosts_max = if random.random_ratio(1, 10) { 30 } else { 12 };
    let hosts = random.random_range(2..=hosts_max);
    let divisions = Plan::divisions(hosts, MEMBERS_MAX);
    let radices = divisions[random.random_range(0..divisions.len())];
    Plan::in_groups(hosts, radices).expect("a division divides the hosts into groups")
}

fn draw_silences(random: &mut Pcg64, hosts: u32, span_ns: u64) -> Vec<Silence> {
    let count = if random.random_ratio(1, 4) { random.random_range(1..=2) } else { 0 };
    let silence = |_| {
        let from_ns = random.random_range(0..=span_ns);
        let to_ns =
            if random.random() { u64::MAX } else { from_ns + random.random_range(0..=span_ns) };
        Silence { host: random.random_range(0..hosts), from_ns, to_ns }
    };
    (0..count).map(silence).collect()
}

/// A third of the scenarios have none.
fn draw_fates(random: &mut Pcg64, hosts: u32, operations: u64) -> Vec<Fate> {
    let count = if random.random_ratio(1, 3) { 0 } else { random.random_range(1..=3) };
    let kinds = random.random_range(0..5);
    let fate = |_| {
        let kind = match if kinds == 4 { random.random_range(0..4) } else { kinds } {
            0 => FateKind::Dies { after_ns: random.random_range(0..3_000_000) },
            1 => FateKind::Leaves,
            2 => FateKind::CallsElse,
            _ => FateKind::Computes {
                for_ns: [10_000_000, 300_000_000, 10_000_000_000][random.random_range(0..3)],
            },
        };
        let operation = random.random_range(0..operations);
        Fate { host: random.random_range(0..hosts), operation, kind }
    };
    (0..count).map(fate).collect()
}
