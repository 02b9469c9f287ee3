//! Faults.

use rand::RngExt;
use rand_pcg::Pcg64;

/// A fault and its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) at: u64,
    pub(crate) kind: FaultKind,
}

/// A fault. A `pick` chooses its target among those that exist at its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum FaultKind {
    /// A link's connection ends. With `resets`, what was on its way is lost.
    Cut { pick: u32, resets: bool },
    /// A bit of a frame's header flips on its way.
    Corrupt { pick: u32, bit: u16 },
    /// One end of a link stops reading for a while.
    Slow { pick: u32, for_ns: u64 },
    /// Machines in and out of a set (one bit each) cannot reach each other for a while.
    Partition { machines: u64, for_ns: u64 },
    /// An aggregation node's process dies: silently, as when its machine loses power, or not.
    NodeCrash { pick: u32, is_silent: bool, down_ns: u64 },
    /// A host dies, and every process on it.
    HostCrash { pick: u32, is_silent: bool },
    /// One process of a job dies.
    ProcessCrash { pick: u32, resets: bool },
    /// The manager dies and forgets everything.
    ManagerCrash { down_ns: u64 },
    /// A member's application gives up.
    Abort { pick: u32 },
    /// A member leaves before its operations are complete.
    LeaveEarly { pick: u32 },
    /// A member never joins.
    NeverJoin { pick: u32 },
    /// A member mistakes its next operation for another one.
    Disagree { pick: u32, how: Disagreement },
    /// A member of a group breaks the protocol.
    Offence { pick: u32, offence: Offence },
    /// A stranger sends a datagram in a member's name. It must do no harm.
    Spoof { pick: u32, offence: Offence },
    /// A member, link, aggregator or lease of a group with a stream lock, or waiting for one, is lost.
    StreamTrouble { pick: u32, holds: bool, how: StreamTrouble },
    /// Datagrams beside a link are lost for a while.
    DatagramsLost { pick: u32, for_ns: u64 },
    /// A process that belongs to no group connects to an aggregator.
    Intrusion { pick: u32, intrusion: Intrusion },
    /// An aggregator dies while members wait for results of a group that it serves.
    NodeDiesBusy { pick: u32, is_silent: bool, down_ns: u64 },
    /// What machines in a set send does not reach the others for a while; what those send arrives.
    OneWay { machines: u64, for_ns: u64 },
    /// A machine's clock jumps, forward or back.
    ClockJump { pick: u32, by_ns: i64 },
    /// An aggregator dies while leaders settle the loss of a tree, or take places in another.
    NodeDiesSettling { pick: u32, is_silent: bool, down_ns: u64 },
    /// A process dies whose leaders have no tree.
    ProcessDiesSettling { pick: u32 },
    /// A bit behind an authenticated frame's header flips on its way: of its payload, or of its code.
    Damage { pick: u32, bit: u32 },
}

/// The kinds of faults, in the order of [`FaultKind::index`].
pub const FAULT_NAMES: [&str; 23] = [
    "cut link",
    "corrupt frame",
    "slow reader",
    "partition",
    "node crash",
    "host crash",
    "process crash",
    "manager crash",
    "member aborts",
    "member leaves early",
    "member never joins",
    "members disagree",
    "member misbehaves",
    "spoofed datagram",
    "datagrams lost",
    "stream cut short",
    "intruder",
    "node dies in an operation",
    "one-way partition",
    "clock jump",
    "damaged payload",
    "node dies between trees",
    "process dies between trees",
];

/// How a member mistakes an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disagreement {
    /// One element more, or fewer.
    Length { longer: bool },
    /// A whole segment more: the common segments are equal.
    Segments,
    /// A barrier.
    Barrier,
    /// A stream where the others send segments, or the other way round.
    Course,
    /// A result for another member.
    Target,
    /// All members want the result to go to a member that does not exist.
    Nobody,
}

/// How a group that streams, or is about to, is cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamTrouble {
    /// A member's process dies.
    ProcessDies,
    /// A member's link ends.
    LinkCut,
    /// Its job's lease ends, so the manager takes the group back.
    Withdrawn,
    /// The aggregator with the lock dies, and comes back.
    NodeDies { down_ns: u64 },
}

/// How a member breaks the protocol on its own link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offence {
    /// It sends its last request again. This is harmless, and must never be counted twice.
    Replay { copies: u8 },
    /// A request with another capability.
    ForgedCapability,
    /// A segment that is longer than was granted.
    Oversized,
    /// A segment far beyond the window.
    OutsideWindow,
    /// A result, which only travels downward.
    WrongDirection,
    /// A frame in another child's name.
    AnotherChild,
    /// Joins again.
    JoinAgain,
    /// Bytes that are no frame.
    Garbage,
}

/// What a stranger does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intrusion {
    /// It joins an existing group with a forged capability.
    Forged,
    /// It joins with a capability that is in use.
    Stolen,
    /// It joins a group that does not exist.
    Nowhere,
    /// It sends a request without having joined.
    Unjoined,
    /// It sends bytes that are no frame.
    Garbage,
    /// It sends nothing.
    Silent,
}

/// The kinds of trouble in a run; every kind also comes alone.
#[derive(Clone, Copy)]
pub(super) struct Weather {
    pub(super) faults_max: u32,
    pub(super) span_ns: u64,
    pub(super) machines: u32,
}

impl Fault {
    pub(super) fn draw_all(random: &mut Pcg64, weather: Weather) -> Vec<Self> {
        if random.random_bool(0.12) {
            return Vec::new();
        }
        // A third of the runs have one kind of trouble only.
        let only = random.random_bool(0.33).then(|| random.random_range(0..KINDS));
        let count = random.random_range(1..=weather.faults_max);
        let mut faults: Vec<Self> = (0..count)
            .map(|_| {
                let kind = only.unwrap_or_else(|| random.random_range(0..KINDS));
                let at = random.random_range(1_000_000..weather.span_ns);
                Self { at, kind: FaultKind::draw(random, kind, weather) }
            })
            .collect();
        faults.sort_by_key(|fault| fault.at);
        faults
    }

    /// Adds faults of the further kinds; half of the time, in place of the others.
    pub(super) fn draw_further(
        random: &mut Pcg64,
        weather: Weather,
        faults: Vec<Self>,
    ) -> Vec<Self> {
        let mut faults = if random.random_bool(0.5) { Vec::new() } else { faults };
        for _ in 0..random.random_range(0..=3) {
            let at = random.random_range(1_000_000..weather.span_ns);
            faults.push(Self { at, kind: FaultKind::draw_further(random, weather) });
        }
        faults.sort_by_key(|fault| fault.at);
        faults
    }
}

impl Fault {
    /// Adds damage to payloads, which only authenticated frames show.
    pub(super) fn draw_damage(
        random: &mut Pcg64,
        weather: Weather,
        mut faults: Vec<Self>,
    ) -> Vec<Self> {
        for _ in 0..random.random_range(0..=2) {
            let at = random.random_range(1_000_000..weather.span_ns);
            let kind = FaultKind::Damage { pick: random.random(), bit: random.random() };
            faults.push(Self { at, kind });
        }
        faults.sort_by_key(|fault| fault.at);
        faults
    }
}

impl Fault {
    /// Adds the loss of trees, and faults while it is settled; half of the time, in place of the others.
    pub(super) fn draw_losses(
        random: &mut Pcg64,
        weather: Weather,
        faults: Vec<Self>,
    ) -> Vec<Self> {
        let mut faults = if random.random_bool(0.5) { Vec::new() } else { faults };
        for _ in 0..random.random_range(1..=4) {
            let at = random.random_range(1_000_000..weather.span_ns);
            faults.push(Self { at, kind: FaultKind::draw_loss(random) });
        }
        faults.sort_by_key(|fault| fault.at);
        faults
    }
}

const KINDS: u32 = 26;

impl FaultKind {
    /// Its index in [`FAULT_NAMES`].
    pub(crate) fn index(&self) -> usize {
        match self {
            Self::Cut { .. } => 0,
            Self::Corrupt { .. } => 1,
            Self::Slow { .. } => 2,
            Self::Partition { .. } => 3,
            Self::NodeCrash { .. } => 4,
            Self::HostCrash { .. } => 5,
            Self::ProcessCrash { .. } => 6,
            Self::ManagerCrash { .. } => 7,
            Self::Abort { .. } => 8,
            Self::LeaveEarly { .. } => 9,
            Self::NeverJoin { .. } => 10,
            Self::Disagree { .. } => 11,
            Self::Offence { .. } => 12,
            Self::Spoof { .. } => 13,
            Self::DatagramsLost { .. } => 14,
            Self::StreamTrouble { .. } => 15,
            Self::Intrusion { .. } => 16,
            Self::NodeDiesBusy { .. } => 17,
            Self::OneWay { .. } => 18,
            Self::ClockJump { .. } => 19,
            Self::Damage { .. } => 20,
            Self::NodeDiesSettling { .. } => 21,
            Self::ProcessDiesSettling { .. } => 22,
        }
    }

    fn draw(random: &mut Pcg64, kind: u32, weather: Weather) -> Self {
        let pick = random.random();
        let short_ns = random.random_range(10_000..3_000_000);
        match kind {
            0 | 1 => Self::Cut { pick, resets: random.random_bool(0.3) },
            2 => Self::Corrupt { pick, bit: random.random() },
            3 | 4 => Self::Slow { pick, for_ns: short_ns },
            5 => Self::Partition {
                machines: random.random_range(1..(1_u64 << weather.machines) - 1),
                for_ns: if random.random_bool(0.5) { short_ns } else { short_ns + 6_000_000_000 },
            },
            6 | 7 => Self::NodeCrash {
                pick,
                is_silent: random.random_bool(0.3),
                down_ns: random.random_range(100_000..5_000_000_000),
            },
            8 => Self::HostCrash { pick, is_silent: random.random_bool(0.5) },
            9 => Self::ProcessCrash { pick, resets: random.random_bool(0.5) },
            10 => Self::ManagerCrash { down_ns: random.random_range(100_000..2_000_000_000) },
            11 => Self::Abort { pick },
            12 => Self::LeaveEarly { pick },
            13 => Self::NeverJoin { pick },
            14 => Self::Disagree { pick, how: Disagreement::draw(random) },
            15..18 => Self::Offence { pick, offence: Offence::draw(random) },
            18 => Self::Spoof { pick, offence: Offence::draw(random) },
            19 | 20 => Self::DatagramsLost {
                pick,
                for_ns: if random.random_bool(0.5) { short_ns } else { u64::MAX / 2 },
            },
            21..24 => Self::StreamTrouble {
                pick,
                holds: random.random_bool(0.6),
                how: StreamTrouble::draw(random),
            },
            _ => Self::Intrusion { pick, intrusion: Intrusion::draw(random) },
        }
    }
}

impl FaultKind {
    fn draw_loss(random: &mut Pcg64) -> Self {
        let pick = random.random();
        let is_silent = random.random_bool(0.2);
        let down_ns = match random.random_bool(0.7) {
            true => random.random_range(100_000..30_000_000),
            false => random.random_range(100_000..3_000_000_000),
        };
        match random.random_range(0..9) {
            0..4 => Self::NodeDiesBusy { pick, is_silent, down_ns },
            4 | 5 => Self::Cut { pick, resets: random.random_bool(0.5) },
            6 | 7 => Self::NodeDiesSettling { pick, is_silent, down_ns },
            _ => Self::ProcessDiesSettling { pick },
        }
    }

    fn draw_further(random: &mut Pcg64, weather: Weather) -> Self {
        let short_ns = random.random_range(10_000..3_000_000);
        match random.random_range(0..4) {
            0 | 1 => Self::NodeDiesBusy {
                pick: random.random(),
                is_silent: random.random_bool(0.3),
                down_ns: random.random_range(100_000..5_000_000_000),
            },
            2 => Self::OneWay {
                machines: random.random_range(1..(1_u64 << weather.machines) - 1),
                for_ns: if random.random_bool(0.5) { short_ns } else { short_ns + 7_000_000_000 },
            },
            _ => Self::ClockJump {
                pick: random.random(),
                by_ns: match random.random_range(0..4) {
                    0 => random.random_range(-20_000_000_000..20_000_000_000),
                    1 => random.random_range(-50_000_000..0),
                    _ => random.random_range(-3_000_000..3_000_000),
                },
            },
        }
    }
}

impl Disagreement {
    fn draw(random: &mut Pcg64) -> Self {
        match random.random_range(0..7) {
            0 => Self::Length { longer: true },
            1 => Self::Length { longer: false },
            2 => Self::Segments,
            3 => Self::Barrier,
            4 => Self::Nobody,
            5 => Self::Course,
            _ => Self::Target,
        }
    }
}

impl StreamTrouble {
    fn draw(random: &mut Pcg64) -> Self {
        match random.random_range(0..4) {
            0 => Self::ProcessDies,
            1 => Self::LinkCut,
            2 => Self::Withdrawn,
            _ => Self::NodeDies { down_ns: random.random_range(100_000..2_000_000_000) },
        }
    }
}

impl Offence {
    fn draw(random: &mut Pcg64) -> Self {
        match random.random_range(0..12) {
            0..5 => Self::Replay { copies: random.random_range(1..=3) },
            5 => Self::ForgedCapability,
            6 => Self::Oversized,
            7 => Self::OutsideWindow,
            8 => Self::WrongDirection,
            9 => Self::AnotherChild,
            10 => Self::JoinAgain,
            _ => Self::Garbage,
        }
    }
}

impl Intrusion {
    fn draw(random: &mut Pcg64) -> Self {
        match random.random_range(0..6) {
            0 => Self::Forged,
            1 => Self::Stolen,
            2 => Self::Nowhere,
            3 => Self::Unjoined,
            4 => Self::Garbage,
            _ => Self::Silent,
        }
    }
}
