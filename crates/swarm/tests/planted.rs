//! Tests that the swarm finds bugs. `cargo test -p tributary-swarm --features planted-bugs` plants
//! one bug after the other in the machines. `docs/evidence/swarm.md` says which seed finds each and as what;
//! the test demands just that, so that the page stays true.

#![cfg(feature = "planted-bugs")]

mod page;

use tributary_exact::planted as exact;
use tributary_protocol::planted::{self as machines, Bug};
use tributary_replicated::planted::{self as replicated, Bug as GroupBug};
use tributary_swarm::{self as swarm, FAULT_NAMES, STATE_NAMES, Violation};
use tributary_swarm_hosts::{self as hosts, levels};

const SEEDS_MAX: u64 = 10_000;
/// Seeds that must be clean once nothing is planted.
const CLEAN: u64 = 100;

/// What is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    InMachines(Bug),
    InGroups(GroupBug),
    /// Readers of an exact sum lose the carries between its digits.
    LostCarry,
}

impl Planted {
    /// All of them, in the page's order.
    fn all() -> Vec<Self> {
        let in_machines = Bug::ALL.into_iter().map(Self::InMachines);
        let in_groups = GroupBug::ALL.into_iter().map(Self::InGroups);
        in_machines.chain([Self::LostCarry]).chain(in_groups).collect()
    }

    fn bug(self) -> Option<Bug> {
        match self {
            Self::InMachines(bug) => Some(bug),
            Self::InGroups(_) | Self::LostCarry => None,
        }
    }

    fn plant(self) {
        machines::plant(self.bug());
        exact::plant(self == Self::LostCarry);
        replicated::plant(match self {
            Self::InGroups(bug) => Some(bug),
            Self::InMachines(_) | Self::LostCarry => None,
        });
    }

    /// Its name on the page.
    fn name(self) -> &'static str {
        match self {
            Self::InMachines(bug) => name(bug),
            Self::InGroups(bug) => name_in_groups(bug),
            Self::LostCarry => "the carries between the digits of an exact sum are lost",
        }
    }
}

/// Removes what is planted.
fn remove() {
    machines::plant(None);
    exact::plant(false);
    replicated::plant(None);
}

/// A bug of replicated groups, as the page calls it.
fn name_in_groups(bug: GroupBug) -> &'static str {
    match bug {
        GroupBug::AnswersForgotten => "a completed operation of a group is not answered for",
        GroupBug::OwedForgotten => "a member that was told to wait is not sent the contribution",
        GroupBug::NoTimer => "a member asks only for what it sees to be lost",
        GroupBug::NamedAsSeen => "a disagreement names the member of which it was seen first",
        GroupBug::DeadNotAskedFor => "what a dead member contributed is not asked for elsewhere",
        GroupBug::LeavesAtOnce => "a member leaves without waiting for the others",
        GroupBug::RaisedEarly => {
            "a sum goes to the next level before all groups of a level have theirs"
        }
        GroupBug::RoundForgotten => "groups in which the same hosts meet have one name",
    }
}

/// A bug of the machines, as the page calls it.
fn name(bug: Bug) -> &'static str {
    match bug {
        Bug::DoubleCount => "a repeat over a link is counted twice",
        Bug::DoubleDatagram => "a repeated datagram is counted twice",
        Bug::SharedLock => "a stream lock is given twice",
        Bug::LostLock => "the lock of a group that fails while it streams is lost",
        Bug::UnfairLock => "a stream lock goes to the group that came last",
        Bug::SparedCopy => "a reliable copy is not sent to a child that asked over its link",
        Bug::NodeCalledMember => "a parent calls a lost node a lost member",
        Bug::SilentOrphan => "a node that loses its parent tells nobody below",
        Bug::TimeOnlyForward => "time that goes back is taken for impossible",
        Bug::CodeOfHeader => "a frame's code covers its header only",
        Bug::UncountedAdoption => "what groups hold that are taken over is not counted",
        Bug::EternalJob => "a job whose groups were taken over outlives them",
        Bug::ComputedAnew => "what some member has is computed again",
        Bug::CompletedForgotten => "an operation that some have completed is started again",
        Bug::WithdrawnIsTheEnd => "a withdrawn group is not a lost tree",
        Bug::BoundaryForgotten => "the next boundary is forgotten",
        Bug::ResultsUntold => "the machine is not told of results that were made inside the kernel",
        Bug::ForwardedUntold => "nor of what was sent to the parent there",
        Bug::FewNodesNamed => "only the first six nodes of a group are said to be nodes",
        Bug::NeverRung => "a host rings only where it had a link before",
        Bug::LeaveForgotten => "a leave over a ring ends no wait",
        Bug::GatheredInTurn => "a set-up's exchange looks only at the process whose part is next",
        Bug::HostOverlooked => "a leader that waits for other hosts does not look at its own",
        Bug::CopiesKept => "forked workers keep their copies of connections",
        Bug::LockBeforeRanks => {
            "the stream lock is asked for before the ranks of the host have come"
        }
        Bug::EndToldEarly => "members are told that all have left when those below their node have",
    }
}

/// What was found, as the page calls it; none for what no planted bug leads to.
fn kind(violation: &Violation) -> Option<&'static str> {
    match violation {
        Violation::WrongResult { .. } => Some("wrong result"),
        Violation::Different { .. } => Some("different results"),
        Violation::OutOfOrder { .. } => Some("out of order"),
        Violation::Unfounded { .. } => Some("fails without cause"),
        Violation::Lock { .. } => Some("lock given wrongly"),
        Violation::Stuck { .. }
        | Violation::Starved { .. }
        | Violation::Treeless { .. }
        | Violation::Restless { .. } => Some("waits for ever"),
        Violation::HonestRefused { .. } => Some("honest frame refused"),
        Violation::ForgeryAccepted { .. } => Some("damage accepted"),
        Violation::Misnamed { .. } => Some("misnamed"),
        Violation::Ranks(hosts::Violation::Late { .. }) => Some("told late"),
        Violation::Ranks(hosts::Violation::Stuck { .. }) => Some("waits for ever"),
        Violation::Groups(levels::Violation::WrongResult { .. }) => Some("wrong result"),
        Violation::Groups(levels::Violation::Misnamed { .. }) => Some("misnamed"),
        Violation::Groups(levels::Violation::Late { .. }) => Some("told late"),
        Violation::Groups(levels::Violation::Stuck { .. }) => Some("waits for ever"),
        Violation::Panicked { .. } => Some("panic"),
        Violation::InstallRefused { .. } => Some("granted twice"),
        Violation::Leftover { .. } => Some("leftover"),
        _ => None,
    }
}

/// The fault that must have hit in the run that finds a bug, if the bug stands for one.
fn needed_fault(bug: Bug) -> Option<&'static str> {
    match bug {
        Bug::NodeCalledMember => Some("node dies in an operation"),
        Bug::SilentOrphan => Some("one-way partition"),
        Bug::TimeOnlyForward => Some("clock jump"),
        Bug::CodeOfHeader => Some("damaged payload"),
        Bug::UncountedAdoption | Bug::EternalJob => Some("manager crash"),
        _ => None,
    }
}

/// The state that ranks must have come to in the run that finds a bug, if the bug stands for one.
fn needed_state(bug: Bug) -> Option<&'static str> {
    match bug {
        Bug::NeverRung => Some("death before the first link"),
        Bug::LeaveForgotten => Some("leave while others wait"),
        Bug::GatheredInTurn => Some("death during set-up"),
        Bug::HostOverlooked => Some("death of a rank that leads nobody"),
        Bug::CopiesKept => Some("death with a forked worker"),
        Bug::LockBeforeRanks => Some("streams in opposite orders"),
        _ => None,
    }
}

/// What a seed finds, if what the bug stands for has happened in the run.
fn find(planted: Planted, seed: u64) -> Option<Violation> {
    let outcome = swarm::run(seed);
    let has_hit = |fault: &str| {
        let at = FAULT_NAMES.iter().position(|name| *name == fault).expect("a fault's name");
        outcome.faults[at] > 0
    };
    let was_in = |state: &str| {
        let at = STATE_NAMES.iter().position(|name| *name == state).expect("a state's name");
        outcome.states[at] > 0
    };
    let bug = planted.bug();
    let is_fitting = bug.and_then(needed_fault).is_none_or(has_hit)
        && bug.and_then(needed_state).is_none_or(was_in);
    if is_fitting { outcome.violation } else { None }
}

/// The first seed that finds the bug, and as what.
fn find_first(planted: Planted) -> Option<(u64, Violation)> {
    (0..SEEDS_MAX).find_map(|seed| Some((seed, find(planted, seed)?)))
}

/// What to write into the page.
fn search(planted: Planted) -> String {
    match find_first(planted) {
        Some((seed, violation)) => format!("seed {seed} finds {planted:?}: {violation}"),
        None => format!("the swarm is broken: it misses {planted:?}"),
    }
}

/// After a change of what machines draw or send, most rows of the page are to be written anew.
#[test]
#[ignore = "takes minutes; prints the page's table"]
fn print_table() {
    for planted in Planted::all() {
        planted.plant();
        let (seed, violation) = find_first(planted).expect("a seed finds it");
        let kind = kind(&violation).unwrap_or("what no bug leads to");
        println!("| {} | {seed} | {kind} |", planted.name());
    }
    remove();
}

/// One test, because a bug is planted for the whole process.
#[test]
fn every_planted_bug_is_found_by_the_seed_that_the_page_names() {
    let rows = page::table("Is the swarm able to find anything?");
    assert_eq!(rows.len(), Planted::all().len(), "the page names every bug");
    for (row, planted) in rows.iter().zip(Planted::all()) {
        assert_eq!(row[0], planted.name());
        let seed: u64 = row[1].parse().expect("the second column is a seed");
        assert!(seed < SEEDS_MAX, "{planted:?} takes too many seeds");
        planted.plant();
        let found = find(planted, seed);
        let is_fitting = found.as_ref().is_some_and(|it| kind(it) == Some(row[2]));
        assert!(is_fitting, "seed {seed} finds {found:?}, but {}", search(planted));
        if planted.bug() == Some(Bug::DoubleCount) {
            let story = swarm::explain(seed).expect("a failing seed fails again");
            assert_eq!(story.seed, seed);
            assert!(story.lines.iter().any(|line| line.contains("VIOLATION")), "{:?}", story.lines);
        }
        remove();
        assert_eq!(swarm::run(seed).violation, None, "without {planted:?}");
    }
    for seed in 0..CLEAN {
        assert_eq!(swarm::run(seed).violation, None, "seed {seed}: what was planted is gone");
    }
}
