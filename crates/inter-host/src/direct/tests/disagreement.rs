//! Goal: hosts that call different operations all get an error that tells two calls, and none waits for ever. Method: one
//! of four hosts calls something else, and then all call barriers.

use tributary_waits::question::QUESTION_PATIENCE_NS;
use tributary_wire::frame::{Called, Disagreement};

use super::*;

/// Barriers after the operation that differs: hosts that only sent in that one have to meet.
const BARRIERS_MAX: usize = 4;
const HOSTS: u32 = 4;

const CALLS: [Collective; 9] = [
    Collective::Reduce { root: 0 },
    Collective::Reduce { root: 3 },
    Collective::Broadcast { root: 0 },
    Collective::Broadcast { root: 2 },
    Collective::Allreduce,
    Collective::Exscan,
    Collective::Reduce { root: 1 },
    Collective::ReduceScatter,
    Collective::Barrier,
];

fn operation_of(links: &Host, collective: Collective, vector: &mut [f32]) -> InterHostOperation {
    if collective == Collective::Barrier {
        return InterHostOperation::BARRIER;
    }
    let algorithm = match collective {
        Collective::Exscan => Algorithm::RecursiveDoubling,
        Collective::ReduceScatter => Algorithm::Ring,
        _ => links.algorithm(collective),
    };
    InterHostOperation { collective, called: collective.kind(), ..allreduce_of(vector, algorithm) }
}

fn run(links: &mut Host, collective: Collective) -> Result<(), Abort> {
    let mut vector = [1.0; 8];
    let operation = operation_of(links, collective, &mut vector);
    // SAFETY: the vector lives until the operation is over or has failed.
    unsafe { links.start(&operation)? };
    while !links.poll()? {
        links.sleep(Duration::from_millis(5));
        links.check();
    }
    Ok(())
}

/// When hosts call different operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// Before there are links.
    AtFirst,
    AfterBarrier,
}

/// What a host is told if `victim` calls `other` in place of `made`.
fn told(
    identity: Identity,
    victim: u32,
    when: When,
    made: Collective,
    other: Collective,
) -> Vec<(Option<Abort>, Option<Disagreement>)> {
    let (hosts, _) = listening(HOSTS, AlgorithmChoice::Binomial, identity);
    on_all(hosts, move |host, mut links| {
        let first = match when {
            When::AtFirst => Ok(()),
            When::AfterBarrier => run(&mut links, Collective::Barrier),
        };
        let differing =
            first.and_then(|()| run(&mut links, if host == victim { other } else { made }));
        let met = (0..BARRIERS_MAX).try_for_each(|_| run(&mut links, Collective::Barrier));
        (differing.and(met).err(), links.disagreement())
    })
}

fn check(identity: Identity, victim: u32, when: When, made: Collective, other: Collective) {
    let context = format!("{when:?}: {made:?}, at host {victim} {other:?}");
    let outcomes = told(identity, victim, when, made, other);
    for (host, (abort, disagreement)) in outcomes.into_iter().enumerate() {
        let abort = abort.unwrap_or_else(|| panic!("{context}: host {host} hears nothing"));
        assert_eq!(abort.reason, AbortReason::Disagreement, "{context}: host {host}");
        let told = disagreement.unwrap_or_else(|| panic!("{context}: host {host} isn't told what"));
        assert_ne!(told.members[0], told.members[1], "{context}: host {host}");
        assert!(told.members.iter().all(|member| member.0 < HOSTS), "{context}: host {host}");
        let is_known = |called: &Called| {
            let kinds = [made, other, Collective::Barrier].map(|it| it.kind() as u8);
            kinds.contains(&called.collective)
        };
        assert!(told.called.iter().all(is_known), "{context}: host {host}: {told:?}");
    }
}

/// Schedules of different operations may leave hosts waiting in a circle.
#[test]
fn hosts_that_call_different_operations_all_hear_what_two_called() {
    for identity in identities() {
        for (at, made) in CALLS.into_iter().enumerate() {
            let victims = [When::AtFirst, When::AfterBarrier]
                .into_iter()
                .flat_map(|when| (0..HOSTS).map(move |victim| (when, victim)));
            let checks = victims.map(|(when, victim)| {
                let other = CALLS[(at + 1 + victim as usize) % CALLS.len()];
                std::thread::spawn(move || check(identity, victim, when, made, other))
            });
            let checks: Vec<_> = checks.collect();
            checks.into_iter().for_each(|it| it.join().expect("the check says what is wrong"));
        }
    }
}

/// Two roots of one reduction wait for each other, or for hosts that wait for nobody.
#[test]
fn two_roots_of_one_reduction_do_not_wait_for_ever() {
    let [identity, _] = identities();
    let [made, other] = [0, 3].map(|root| Collective::Reduce { root });
    for (abort, disagreement) in told(identity, 3, When::AfterBarrier, made, other) {
        assert_eq!(abort.map(|it| it.reason), Some(AbortReason::Disagreement));
        let told = disagreement.expect("all are told what was called");
        assert!(told.called.iter().any(|it| it.collective == made.kind() as u8), "{told:?}");
    }
}

/// Hosts 0, 1 and 3 wait in a circle, and none of them needs the link that another has called over to ask.
#[test]
fn two_roots_of_the_first_reduction_do_not_wait_for_ever() {
    let [identity, _] = identities();
    let [made, other] = [1, 2].map(|root| Collective::Reduce { root });
    check(identity, 0, When::AtFirst, made, other);
}

/// Two hosts find out before the others have come to any operation, and go. Their schedules do not lead to the others.
#[test]
fn hosts_that_come_when_all_is_over_hear_why() {
    for identity in identities() {
        let (hosts, _) = listening(HOSTS, AlgorithmChoice::Linear, identity);
        let outcomes = on_all(hosts, |host, mut links| {
            let collective = match host {
                2 => Collective::Broadcast { root: 3 },
                3 => Collective::Broadcast { root: 2 },
                _ => {
                    std::thread::sleep(Duration::from_millis(700));
                    Collective::Allreduce
                }
            };
            let outcome = run(&mut links, collective);
            (
                outcome.and_then(|()| run(&mut links, Collective::Barrier)).err(),
                links.disagreement(),
            )
        });
        for (host, (abort, disagreement)) in outcomes.into_iter().enumerate() {
            let reason = abort.map(|it| it.reason);
            assert_eq!(reason, Some(AbortReason::Disagreement), "host {host}: {abort:?}");
            assert!(disagreement.is_some(), "host {host}");
        }
    }
}

/// A late host is no other one, however often it is asked.
#[test]
fn a_host_that_is_late_is_asked_and_goes_on() {
    for identity in identities() {
        let (hosts, _) = listening(HOSTS, AlgorithmChoice::Binomial, identity);
        let outcomes = on_all(hosts, |host, mut links| {
            let calls = CALLS.into_iter().chain([Collective::Barrier]);
            let outcome = calls.enumerate().try_for_each(|(at, collective)| {
                if at as u32 % HOSTS == host {
                    std::thread::sleep(Duration::from_millis(250));
                }
                run(&mut links, collective)
            });
            links.leave();
            outcome
        });
        assert_eq!(outcomes, [Ok(()); HOSTS as usize]);
    }
}

/// Lengths of which the kernel takes more than the other end's has room for, so that the rest is with the sender's when it
/// leaves.
const KEPT_BY_THE_SENDER: [usize; 4] = [20_000, 40_000, 80_000, 160_000];

/// The others ask while the root is late. It has no reason to read that before it leaves.
#[test]
fn a_root_that_was_late_and_leaves_takes_nothing_back() {
    const LATE: Duration = Duration::from_nanos(3 * QUESTION_PATIENCE_NS);
    for elements in KEPT_BY_THE_SENDER {
        let (hosts, _) = listening(2, AlgorithmChoice::Linear, identities()[0]);
        let outcomes = on_all(hosts, move |host, mut links| {
            run(&mut links, Collective::Barrier)?;
            let mut vector = vec![host as f32; elements];
            if host == 0 {
                std::thread::sleep(LATE);
            }
            let operation = operation_of(&links, Collective::Broadcast { root: 0 }, &mut vector);
            // SAFETY: the vector lives until the operation is over or has failed.
            unsafe { links.start(&operation)? };
            let began = std::time::Instant::now();
            let mut is_asleep = false;
            while !links.poll()? {
                links.sleep(Duration::from_millis(5));
                links.check();
                // Not scheduled while the root sends and leaves.
                if host == 1
                    && !std::mem::replace(&mut is_asleep, began.elapsed() > LATE / 2)
                    && is_asleep
                {
                    std::thread::sleep(LATE);
                }
            }
            links.leave();
            Ok::<_, Abort>(vector.iter().all(|element| *element == 0.0))
        });
        assert!(outcomes.iter().all(|outcome| *outcome == Ok(true)), "{elements}: {outcomes:?}");
    }
}

/// A host is not scheduled for as long as it may wait for the root, which meanwhile sends, leaves and ends. Its question comes
/// when the root is gone, and must not make the root's kernel take back what it still has.
#[test]
fn a_question_after_a_root_has_left_takes_nothing_back() {
    const UNSCHEDULED: Duration = Duration::from_nanos(3 * QUESTION_PATIENCE_NS);
    for elements in KEPT_BY_THE_SENDER {
        let (hosts, _) = listening(2, AlgorithmChoice::Linear, identities()[0]);
        let outcomes = on_all(hosts, move |host, mut links| {
            run(&mut links, Collective::Barrier)?;
            let mut vector = vec![host as f32; elements];
            let operation = operation_of(&links, Collective::Broadcast { root: 0 }, &mut vector);
            // SAFETY: the vector lives until the operation is over or has failed.
            unsafe { links.start(&operation)? };
            if host == 1 {
                assert!(!links.poll()?, "the root has not begun");
                // It has waited since now.
                links.check();
                std::thread::sleep(UNSCHEDULED);
                links.check();
            } else {
                std::thread::sleep(UNSCHEDULED / 3);
            }
            while !links.poll()? {
                links.sleep(Duration::from_millis(5));
                links.check();
            }
            links.leave();
            Ok::<_, Abort>(vector.iter().all(|element| *element == 0.0))
        });
        assert!(outcomes.iter().all(|outcome| *outcome == Ok(true)), "{elements}: {outcomes:?}");
    }
}
