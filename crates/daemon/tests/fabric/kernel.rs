//! Aggregators that take short segments inside the kernel, at the loopback interface.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use tributary_daemon::embedded::{Fabric, FabricOptions, StartError};
use tributary_daemon::node::{KernelOptions, NodeError};
use tributary_wire::Datatype;
use tributary_wire::control::{KernelCounts, KernelState};
use tributary_wire::frame::{Header, Message, Shape};

use crate::common::{End, Job, eventually, guarded, hosts, metric, part, to_bytes};
use crate::datagrams::pair;

const TAKEN: &str = "tributary_node_kernel_taken_total";
const RESULTS: &str = "tributary_node_kernel_results_total";
const GATHERED: &str = "tributary_node_kernel_gathered_total";

/// A fabric whose aggregators take short segments inside the kernel; none where that is not permitted, which is
/// an error with `CI=true`.
fn fabric() -> Option<Fabric> {
    let kernel = KernelOptions::Required(vec!["lo".to_owned()]);
    match Fabric::start(&FabricOptions { hosts: 2, leaves: 0, kernel, ..FabricOptions::default() })
    {
        Ok(fabric) => Some(fabric),
        Err(StartError::Node { source: NodeError::Kernel(reason), .. }) => {
            let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
            assert!(!is_ci, "not possible here: {reason}");
            tracing::warn!("SKIPPED: {reason}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn count(fabric: &Fabric, name: &str) -> f64 {
    metric(fabric, "root", name, "")
}

#[test]
fn short_sums_are_made_inside_the_kernel() {
    guarded(|| {
        let Some(fabric) = fabric() else { return };
        let job = Job::admit(&fabric);
        let [mut one, mut two] = pair(&fabric, &job);
        for round in 0..300 {
            one.ask(round, f64::from(round));
            if round % 3 == 0 {
                // Again, while its sibling is late.
                one.attempt = 1;
                one.ask(round, f64::from(round));
                let sequence = part(1, round).sequence;
                assert_eq!(one.receive().0.message, Message::Ack { sequence, attempt: 1 });
                one.attempt = 0;
            }
            two.ask(round, 0.25);
            for member in [&mut one, &mut two] {
                assert_eq!(member.receive_sum(round).1, to_bytes(&[f64::from(round) + 0.25]));
            }
        }
        eventually("the counters", || {
            count(&fabric, TAKEN) == 600.0
                && count(&fabric, RESULTS) == 300.0
                && count(&fabric, "tributary_node_kernel_repeats_total") == 100.0
        });
        assert_eq!(count(&fabric, "tributary_node_requests_total"), 0.0, "no process was woken");
    });
}

#[test]
fn what_the_kernel_leaves_and_what_it_takes_alternate() {
    guarded(|| {
        let Some(fabric) = fabric() else { return };
        let job = Job::admit(&fabric);
        let [mut one, mut two] = pair(&fabric, &job);
        for round in 0..100 {
            match round % 4 {
                // A type that the kernel gathers for the process.
                0 => {
                    let mut part = part(1, round);
                    part.shape = Shape::new(part.shape.operator(), Datatype::F16, 4).unwrap();
                    for member in [&mut one, &mut two] {
                        member.say(Message::Request(part), &[0; 8]);
                    }
                    for member in [&mut one, &mut two] {
                        assert_eq!(member.receive_sum(round).1, [0; 8]);
                    }
                    continue;
                }
                // A member that has gone over to its link.
                1 => {
                    one.ask(round, 1.0);
                    let request = Message::Request(part(1, round));
                    two.member.say(request, &to_bytes(&[f64::from(round)]));
                    assert_eq!(two.member.result(), Ok(vec![1.0 + f64::from(round)]));
                    assert_eq!(one.receive_sum(round).1, to_bytes(&[1.0 + f64::from(round)]));
                    continue;
                }
                _ => {}
            }
            one.ask(round, 1.0);
            two.ask(round, f64::from(round));
            for member in [&mut one, &mut two] {
                assert_eq!(member.receive_sum(round).1, to_bytes(&[1.0 + f64::from(round)]));
            }
        }
        eventually("the counters", || {
            count(&fabric, RESULTS) == 50.0
                && count(&fabric, GATHERED) == 25.0
                && count(&fabric, "tributary_node_requests_total") == 100.0
        });
    });
}

#[test]
fn floods_of_garbage_change_nothing() {
    guarded(|| {
        let Some(fabric) = fabric() else { return };
        let job = Job::admit(&fabric);
        let [mut one, mut two] = pair(&fabric, &job);
        let (node, edge) = (one.node, one.member.edge);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                // A request as a member sends it, from elsewhere, and one that is none.
                let request = Message::Request(part(1, 0));
                let mut forged = Header { edge, message: request }.encode().to_vec();
                forged.extend(to_bytes(&[1e9]));
                while !is_over.load(Ordering::Relaxed) {
                    // A full queue drops some, as floods do.
                    let _ = socket.send_to(&forged, node);
                    let _ = socket.send_to(&forged[..40], node);
                    forged[24] = forged[24].wrapping_add(1);
                }
            });
            for round in 0..300 {
                one.ask(round, 1.0);
                two.ask(round, 2.0);
                for member in [&mut one, &mut two] {
                    assert_eq!(member.receive_sum(round).1, to_bytes(&[3.0]));
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        eventually("the counters", || {
            count(&fabric, RESULTS) == 300.0
                && count(&fabric, TAKEN) == 600.0
                && count(&fabric, "tributary_node_kernel_refused_total") > 300.0
        });
        assert_eq!(
            count(&fabric, "tributary_node_requests_total"),
            0.0,
            "no process was woken for any"
        );
    });
}

#[test]
fn a_member_that_leaves_its_sibling_waiting_is_noticed() {
    guarded(|| {
        let Some(fabric) = fabric() else { return };
        let job = Job::admit(&fabric);
        let [mut one, mut two] = pair(&fabric, &job);
        one.ask(0, 1.0);
        eventually("the kernel has it", || count(&fabric, TAKEN) == 1.0);
        two.member.say(Message::Leave, &[]);
        let end = one.member.receive().err();
        assert!(matches!(end, Some(End::Aborted(_))), "its sibling left in the middle: {end:?}");
    });
}

#[test]
fn each_node_at_an_interface_takes_its_own() {
    guarded(|| {
        let (Some(first), Some(second)) = (fabric(), fabric()) else { return };
        for fabric in [&first, &second] {
            let job = Job::admit(fabric);
            let [mut one, mut two] = pair(fabric, &job);
            for round in 0..20 {
                one.ask(round, 1.0);
                two.ask(round, 2.0);
                for member in [&mut one, &mut two] {
                    assert_eq!(member.receive_sum(round).1, to_bytes(&[3.0]));
                }
            }
            eventually("the counters", || count(fabric, RESULTS) == 20.0);
            assert_eq!(count(fabric, "tributary_node_requests_total"), 0.0, "no process has any");
        }
    });
}

#[test]
fn a_late_member_is_known_inside_the_kernel() {
    guarded(|| {
        let Some(fabric) = fabric() else { return };
        let job = Job::admit(&fabric);
        let [mut one, mut two] = pair(&fabric, &job);
        one.ask(0, 1.0);
        let waiting = || fabric.status().groups[0].waiting.clone();
        eventually("the late host is known", || {
            waiting().is_some_and(|it| it.hosts == hosts(2)[1..] && it.operation == Some(1))
        });
        assert_eq!(count(&fabric, "tributary_node_requests_total"), 0.0, "no process has it");
        two.ask(0, 2.0);
        eventually("nobody is late", || waiting().is_none());
    });
}

#[test]
fn a_node_without_the_interface_says_so_or_goes_on_without() {
    guarded(|| {
        let start = |kernel| {
            Fabric::start(&FabricOptions {
                hosts: 2,
                leaves: 0,
                kernel,
                ..FabricOptions::default()
            })
        };
        let interfaces = || vec!["no-such-if".to_owned()];
        let error = start(KernelOptions::Required(interfaces())).err().map(|it| it.to_string());
        let said = error.as_deref().unwrap_or_default();
        assert!(said.contains("no path inside the kernel: "), "{error:?}");
        let fabric = start(KernelOptions::Auto(interfaces())).unwrap();
        let job = Job::admit(&fabric);
        let [mut one, mut two] = pair(&fabric, &job);
        one.ask(0, 1.0);
        two.ask(0, 2.0);
        for member in [&mut one, &mut two] {
            assert_eq!(member.receive_sum(0).1, to_bytes(&[3.0]));
        }
        assert_eq!(count(&fabric, TAKEN), 0.0);
        let node = &fabric.status().nodes[0];
        let reason = "no network interface is called no-such-if".to_owned();
        assert_eq!(node.registration.kernel, Some(KernelState::Unavailable(reason)));
        assert_eq!(node.counts.and_then(|counts| counts.kernel), None);
    });
}

#[test]
fn status_says_what_the_kernel_took() {
    guarded(|| {
        let Some(fabric) = fabric() else { return };
        let kernel = || fabric.status().nodes[0].counts.and_then(|counts| counts.kernel);
        let state = fabric.status().nodes[0].registration.kernel.clone();
        assert_eq!(state, Some(KernelState::At(vec!["lo".to_owned()])));
        let job = Job::admit(&fabric);
        let [mut one, mut two] = pair(&fabric, &job);
        for round in 0..10 {
            one.ask(round, 1.0);
            two.ask(round, 2.0);
            for member in [&mut one, &mut two] {
                assert_eq!(member.receive_sum(round).1, to_bytes(&[3.0]));
            }
        }
        let expected =
            KernelCounts { groups: 1, taken: 20, results: 10, ..KernelCounts::default() };
        eventually("the status has the counts", || kernel() == Some(expected));
        assert_eq!(count(&fabric, "tributary_node_kernel_groups"), 1.0);
        drop((one, two, job));
        eventually("the group is gone", || kernel().is_some_and(|it| it.groups == 0));
    });
}

/// Starts an aggregator in a thread that lacks capabilities: the program is loaded by the thread that starts the
/// aggregator.
#[test]
fn a_node_without_the_capabilities_names_them() {
    guarded(|| {
        if fabric().is_none() {
            return;
        }
        let state = std::thread::spawn(|| {
            let mut sets = capabilities(None).unwrap();
            let dropped = CapabilitySet::BPF | CapabilitySet::SYS_ADMIN;
            sets.effective -= dropped;
            set_capabilities(None, sets).unwrap();
            let kernel = KernelOptions::Auto(vec!["lo".to_owned()]);
            let options = FabricOptions { hosts: 2, leaves: 0, kernel, ..FabricOptions::default() };
            let fabric = Fabric::start(&options).unwrap();
            fabric.status().nodes[0].registration.kernel.clone()
        });
        let reason = "this process lacks CAP_BPF".to_owned();
        assert_eq!(state.join().unwrap(), Some(KernelState::Unavailable(reason)));
    });
}
