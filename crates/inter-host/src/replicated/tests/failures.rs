//! Hosts that die, and hosts that call something else.

use tributary_wire::EndpointId;
use tributary_wire::frame::{AbortReason, Disagreement};

use super::faults::{Faults, Rates};
use super::*;

/// Host `dies` ends without a word after some rounds, as a killed process does. The others end with what they know.
fn outcomes(
    levels: &'static [u32],
    dies: u32,
    last_round: u32,
    lost: u32,
) -> Vec<Result<(), Abort>> {
    let mut hosts = members(levels, identity(false));
    for (host, member) in (0..).zip(&mut hosts) {
        member.inject(Faults::new(host, Rates { lost, ..Rates::default() }));
    }
    on_all(hosts, move |host, mut member| {
        for round in 0..20 {
            if host == dies && round == last_round {
                return Ok(());
            }
            round_of_doubles(&mut member, host, levels, round)?;
        }
        member.leave();
        Ok(())
    })
}

#[test]
fn every_host_ends_with_the_name_of_the_one_that_died() {
    for levels in [&[2][..], &[4], &[2, 2], &[3, 3]] {
        let hosts: u32 = levels.iter().product();
        for (dies, last_round, lost) in [(0, 1, 0), (hosts - 1, 3, 0), (1, 4, 200), (0, 0, 500)] {
            let died = Abort { reason: AbortReason::MemberLost, at_fault: EndpointId(dies) };
            for (host, outcome) in (0..).zip(outcomes(levels, dies, last_round, lost)) {
                let expected = if host == dies { Ok(()) } else { Err(died) };
                assert_eq!(outcome, expected, "{levels:?}, host {host}, {dies} dies");
            }
        }
    }
}

/// A host that dies has sent its contribution in full: all others complete the operation, and fail in the next.
#[test]
fn a_host_that_dies_in_the_middle_of_an_operation_is_named_by_those_that_wait() {
    let levels = &[3][..];
    let outcomes = on_all(members(levels, identity(false)), move |host, mut member| {
        round_of_doubles(&mut member, host, levels, 0)?;
        if host == 1 {
            let mut vector = doubles(host, 1, 1);
            let operation = allreduce_of(&mut vector, Operator::Sum, Datatype::F64, levels);
            // SAFETY: the vector outlives the member, which is gone before it.
            unsafe { member.start(&operation)? };
            drop(member);
            return Ok(1);
        }
        std::thread::sleep(Duration::from_millis(50 * u64::from(host)));
        let mut completed = 1;
        for round in [6, 0] {
            round_of_doubles(&mut member, host, levels, round)
                .inspect_err(|abort| assert_eq!((abort.at_fault, completed), (EndpointId(1), 2)))
                .map_or_else(
                    |_| Ok(()),
                    |_| {
                        completed += 1;
                        Ok(())
                    },
                )?;
        }
        Ok::<u32, Abort>(completed)
    });
    assert_eq!(outcomes, [Ok(2), Ok(1), Ok(2)]);
}

#[test]
fn all_name_the_same_two_that_call_something_else() {
    type Change = fn(&mut InterHostOperation);
    let changes: [Change; 3] = [
        |operation| operation.elements -= 1,
        |operation| operation.operator = Operator::Max,
        |operation| operation.called = CollectiveKind::Scan,
    ];
    for (levels, odd) in [(&[2][..], 1), (&[4], 2), (&[4], 0), (&[2, 2], 3)] {
        for change in changes {
            let verdicts = on_all(members(levels, identity(false)), move |host, mut member| {
                // Others may have completed it and failed in the next before this host has.
                let first = round_of_doubles(&mut member, host, levels, 0);
                let mut vector = doubles(host, 0, 3);
                let mut operation = allreduce_of(&mut vector, Operator::Sum, Datatype::F64, levels);
                if host == odd {
                    change(&mut operation);
                }
                let abort = first.and_then(|_| run(&mut member, &operation)).unwrap_err();
                assert_eq!(abort.reason, AbortReason::Disagreement);
                member.disagreement().expect("two hosts called something else")
            });
            let Disagreement { members: [one, other], called } = verdicts[0];
            assert!(verdicts.iter().all(|it| *it == verdicts[0]), "{levels:?}: {verdicts:?}");
            assert!(one != other && [one, other].contains(&EndpointId(odd)), "{verdicts:?}");
            assert_eq!(
                called.iter().filter(|it| it.operator == Operator::Sum).count() < 2,
                called[0].operator != called[1].operator
            );
        }
    }
}

/// A host that can't go on says so, and all others fail with its reason.
#[test]
fn a_host_that_aborts_ends_all() {
    for levels in [&[3][..], &[2, 2]] {
        let outcomes = on_all(members(levels, identity(false)), move |host, mut member| {
            let first = round_of_doubles(&mut member, host, levels, 0);
            if host == 2 {
                member.abort(AbortReason::MemberAborted);
            }
            // Another may not have completed the first one by then.
            first.and_then(|_| round_of_doubles(&mut member, host, levels, 1)).unwrap_err()
        });
        let aborted = Abort { reason: AbortReason::MemberAborted, at_fault: EndpointId(2) };
        assert!(outcomes.iter().all(|it| *it == aborted), "{outcomes:?}");
    }
}
