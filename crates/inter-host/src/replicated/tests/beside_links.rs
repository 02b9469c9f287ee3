//! Groups and links of one communicator: what each carries, and what hosts hear that wait in different ones.

use std::sync::{Arc, Barrier, Mutex, MutexGuard};

use tributary_algorithms::GROUP_BYTES_MAX;
use tributary_wire::frame::AbortReason;

use super::faults::{Faults, Rates};
use super::*;
use crate::watch::{Alarm, Attend};
use crate::{DirectMethod, ReplicatedGroups};

/// Elements of a vector that is too long for the groups.
const LONG: usize = GROUP_BYTES_MAX as usize / 8 + 1;

/// The hosts of groups of these sizes, which lose so many of 1,000 datagrams.
fn hosts(levels: &'static [u32], lost: u32) -> Vec<DirectMethod> {
    hosts_with(levels, |host| Faults::new(host, Rates { lost, ..Rates::default() }))
}

/// The same with the faults of each host.
fn hosts_with(levels: &'static [u32], faults: impl Fn(u64) -> Faults) -> Vec<DirectMethod> {
    let identity = identity(false);
    let algorithm = Algorithm::MixedRadix { radices: radices(levels) };
    let links = over_links(levels.iter().product(), identity);
    let members = members(levels, identity).into_iter().zip(0..);
    let groups = members.map(|(mut levels, host)| {
        levels.inject(faults(host));
        let alarm = Alarm::new().expect("a thread and two descriptors");
        ReplicatedGroups { levels, algorithm, alarm }
    });
    links.into_iter().zip(groups).map(|(links, it)| DirectMethod::new(links, Some(it))).collect()
}

/// The sum of `number` in each of so many elements, over all hosts.
fn sum_of(
    method: &mut DirectMethod,
    levels: &[u32],
    number: f64,
    elements: usize,
) -> Result<f64, Abort> {
    let mut vector = number.to_le_bytes().repeat(elements);
    let operation = allreduce_of(&mut vector, Operator::Sum, Datatype::F64, levels);
    run(method, &operation)?;
    let sums = vector.chunks_exact(8).map(|sum| f64::from_le_bytes(sum.try_into().expect("8 B")));
    let mut sums = sums.collect::<Vec<_>>();
    sums.dedup();
    assert_eq!(sums.len(), 1, "all elements are alike");
    Ok(sums[0])
}

/// Short and long operations in turn, with barriers: a host whose datagrams were lost waits in a short one while the others are in
/// the long one behind it, and answer it from there.
#[test]
fn each_operation_goes_by_the_carrier_of_its_length_whatever_is_lost() {
    for (levels, lost) in [(&[2][..], 0), (&[4], 0), (&[4], 300), (&[2, 2], 300), (&[3], 1000)] {
        let count: u32 = levels.iter().product();
        let expected = f64::from(count * (count + 1) / 2);
        let by_groups = on_all(hosts(levels, lost), move |host, mut method| {
            let mut by_groups = 0;
            for elements in [1, LONG, LONG - 1, LONG, 1] {
                let number = f64::from(host + 1);
                assert_eq!(sum_of(&mut method, levels, number, elements), Ok(expected));
                by_groups += u64::from(method.is_by_groups());
                let radices = radices(levels);
                let algorithm = Algorithm::MixedRadix { radices };
                let barrier = InterHostOperation { algorithm, ..InterHostOperation::BARRIER };
                run(&mut method, &barrier).expect("all hosts live");
                by_groups += u64::from(method.is_by_groups());
            }
            method.leave();
            by_groups
        });
        assert_eq!(by_groups, vec![3 + 5; count as usize], "{levels:?}, {lost} of 1,000 lost");
    }
}

/// One host calls a long sum where the others call a short one, or the other way round: they wait in different carriers.
#[test]
fn hosts_that_wait_in_different_carriers_hear_that_they_called_something_else() {
    for levels in [&[2][..], &[3], &[2, 2]] {
        let count: u32 = levels.iter().product();
        for (differs, is_short) in [(0, false), (count - 1, false), (0, true), (1, true)] {
            let outcomes = on_all(hosts(levels, 0), move |host, mut method| {
                // Others may have completed it and failed in the next before this host has.
                let first = sum_of(&mut method, levels, 1.0, 1);
                let elements = if (host == differs) == is_short { 1 } else { LONG };
                let told = first.and_then(|_| sum_of(&mut method, levels, 1.0, elements));
                let told = told.expect_err("the second are not");
                assert_eq!(told.reason, AbortReason::Disagreement, "{levels:?}, host {host}");
                let again = sum_of(&mut method, levels, 1.0, LONG - elements + 1);
                assert_eq!(again.expect_err("there is no going on").reason, told.reason);
                method.disagreement().expect("links tell it").members.map(|member| member.0)
            });
            for named in outcomes {
                assert!(named.contains(&differs), "{levels:?}, {differs} differs: {named:?}");
            }
        }
    }
}

/// One host calls a broadcast of its own where the others call a barrier: it sends, and waits for nobody. From there on its barriers
/// are one behind.
#[test]
fn a_call_that_waits_for_nobody_is_missed_in_the_next_that_goes_by_datagrams() {
    for levels in [&[2][..], &[3], &[2, 2]] {
        on_all(hosts(levels, 0), move |host, mut method| {
            let radices = radices(levels);
            let algorithm = Algorithm::MixedRadix { radices };
            let barrier = InterHostOperation { algorithm, ..InterHostOperation::BARRIER };
            let first = run(&mut method, &barrier);
            let mut vector = [1.0_f64.to_le_bytes()];
            let broadcast = InterHostOperation {
                collective: Collective::Broadcast { root: 1 },
                called: CollectiveKind::Broadcast,
                operator: Operator::Broadcast,
                algorithm: Algorithm::Linear,
                ..allreduce_of(vector.as_flattened_mut(), Operator::Sum, Datatype::F64, levels)
            };
            let differs = if host == 1 { &broadcast } else { &barrier };
            let told = first.and_then(|()| run(&mut method, differs));
            let told = told.and_then(|()| run(&mut method, &barrier));
            assert_eq!(told.map_err(|abort| abort.reason), Err(AbortReason::Disagreement));
            let named = method.disagreement().expect("links tell it").members;
            assert!(named.iter().any(|member| member.0 == 1), "{levels:?}: {named:?}");
        });
    }
}

#[test]
fn a_host_that_dies_is_missed_in_either_carrier() {
    for (levels, elements) in [(&[3][..], 1), (&[3], LONG), (&[2, 2], 1), (&[2, 2], LONG)] {
        let outcomes = on_all(hosts(levels, 0), move |host, mut method| {
            let short = sum_of(&mut method, levels, 1.0, 1);
            let long = short.and_then(|_| sum_of(&mut method, levels, 1.0, LONG));
            if host == 1 {
                return None;
            }
            let missed = long.and_then(|_| sum_of(&mut method, levels, 1.0, elements));
            let missed = missed.expect_err("host 1 is gone");
            let again = sum_of(&mut method, levels, 1.0, LONG - elements + 1);
            assert_eq!(again, Err(missed), "{levels:?}, host {host}");
            Some((missed.reason, missed.at_fault.0))
        });
        for (host, outcome) in (0..).zip(outcomes) {
            let expected = (host != 1).then_some((AbortReason::MemberLost, 1));
            assert_eq!(outcome, expected, "{levels:?}, {elements} elements, host {host}");
        }
    }
}

/// A host's call arrives before the first operation of another, which completes at once: all datagrams are there. What the first one
/// lacks is lost, and it asks for it when the other does something else, with nobody but the thread that watches links to answer.
#[test]
fn a_host_that_called_before_the_first_operation_is_answered_behind_it() {
    let hosts = hosts_with(&[2], |_| Faults::on_the_way_to(0));
    let has_begun = Arc::new(Barrier::new(2));
    let is_over = has_begun.clone();
    let sums = on_all(hosts, move |host, mut method| {
        if host == 1 {
            let attendant = Attended::of(method);
            has_begun.wait();
            // The thread that watches has found the call, and nothing to do.
            std::thread::sleep(Duration::from_millis(50));
            let sum = sum_of(&mut attendant.lock(), &[2], 2.0, 1);
            is_over.wait();
            attendant.lock().leave();
            return sum;
        }
        let mut vector = 1_f64.to_le_bytes();
        let operation = allreduce_of(&mut vector, Operator::Sum, Datatype::F64, &[2]);
        // SAFETY: the vector outlives the operation, which is polled to its end.
        unsafe { method.start(&operation) }.expect("all hosts live");
        has_begun.wait();
        let mut waiter = Waiter::new(Policy::Sleep);
        while !method.poll().expect("all hosts live") {
            method.pause(&mut waiter, Duration::from_millis(5));
        }
        is_over.wait();
        method.leave();
        Ok(f64::from_le_bytes(vector))
    });
    assert_eq!(sums, [Ok(3.0), Ok(3.0)]);
}

/// A host's place that the thread that watches attends to.
struct Attended(Arc<Mutex<DirectMethod>>);

impl Attended {
    fn of(mut method: DirectMethod) -> Self {
        let alarm = method.alarm().expect("groups have one").clone();
        method.watch();
        let method = Arc::new(Mutex::new(method));
        alarm.attended_by(Box::new(Self(method.clone())));
        Self(method)
    }

    fn lock(&self) -> MutexGuard<'_, DirectMethod> {
        self.0.lock().expect("no host fails")
    }
}

impl Attend for Attended {
    fn attend(&self) -> bool {
        let Ok(mut method) = self.0.try_lock() else { return true };
        method.attend();
        method.has_more_to_attend()
    }
}
