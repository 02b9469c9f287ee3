//! Goal: hosts joined directly agree whatever happens on the links. Method: hosts are threads, their
//! links loopback TCP; a watchdog ends what hangs.

mod blame;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use tributary_transport::{Link as _, connect_tcp};
use tributary_wire::frame::{Edge, Header, Message};
use tributary_wire::{ChildIndex, Epoch};

use super::*;
use crate::kernels::kernel;
use crate::settings::AlgorithmChoice;

/// Longest a test's hosts may take: they deadlock, or they are done long before.
const WATCHDOG: Duration = Duration::from_secs(60);

fn identity(byte: u8) -> Identity {
    Identity::from_bytes([byte; Identity::BYTES])
}

/// Where the frames of `host` say that they come from.
fn edge_of(identity: Identity, host: u16) -> Edge {
    Edge {
        group: identity.group,
        epoch: Epoch(0),
        child: ChildIndex(host),
        capability: identity.secret,
    }
}

/// Hosts with open doors, and their addresses.
fn meshes(hosts: u32, named: AlgorithmChoice) -> (Vec<Mesh>, Vec<SocketAddr>) {
    let doors: Vec<_> =
        (0..hosts).map(|_| Door::open(Ipv4Addr::LOCALHOST.into()).unwrap()).collect();
    let addresses: Vec<_> = doors.iter().map(|(_, address)| *address).collect();
    let mesh = |(host, (door, _))| {
        Mesh::new(host, identity(7), door, addresses.clone(), Choice::new(named, None))
    };
    let meshes = (0..hosts).zip(doors).map(mesh).collect();
    (meshes, addresses)
}

/// Runs `body` at every host, and gives what they return.
fn on_all<T: Send + 'static>(
    meshes: Vec<Mesh>,
    body: impl Fn(u32, Mesh) -> T + Send + Sync + Copy + 'static,
) -> Vec<T> {
    let (done, finished) = mpsc::channel();
    let hosts = meshes.len();
    for (host, mesh) in meshes.into_iter().enumerate() {
        let done = done.clone();
        std::thread::spawn(move || {
            done.send((host, body(host as u32, mesh))).expect("the test waits");
        });
    }
    let deadline = Instant::now() + WATCHDOG;
    let mut results: Vec<_> = (0..hosts)
        .map(|_| {
            let left = deadline.saturating_duration_since(Instant::now());
            finished.recv_timeout(left).expect("hosts neither fail nor hang")
        })
        .collect();
    results.sort_by_key(|(host, _)| *host);
    results.into_iter().map(|(_, result)| result).collect()
}

fn allreduce_of(vector: &mut [f32]) -> MeshOperation {
    MeshOperation {
        collective: Collective::Allreduce,
        operator: Operator::Sum,
        datatype: Datatype::F32,
        elements: vector.len() as u64,
        measured: AlgorithmChoice::Auto,
        kernel: kernel(Operator::Sum, Datatype::F32),
        source: std::ptr::null(),
        vector: vector.as_mut_ptr().cast(),
    }
}

fn allreduce(mesh: &mut Mesh, vector: &mut [f32]) -> Result<(), Abort> {
    // SAFETY: the vector is borrowed until the operation is over or has failed.
    unsafe { mesh.start(&allreduce_of(vector))? };
    while !mesh.poll()? {
        mesh.sleep(Duration::from_millis(5));
        mesh.check_peers();
    }
    Ok(())
}

/// Values whose sum depends on the order.
fn contribution(host: u32, elements: usize) -> Vec<f32> {
    (0..elements)
        .map(|at| ((at as f32) * 0.37 + host as f32).sin() * 10_f32.powi(host as i32))
        .collect()
}

/// One collective of 4 hosts at `host`, out of `source`; its vector in the end.
fn run_from(
    host: u32,
    mesh: &mut Mesh,
    collective: Collective,
    source: &[f32],
    in_place: bool,
) -> Vec<u32> {
    let mut vector = if in_place { source.to_vec() } else { vec![f32::NAN; source.len()] };
    let operation = MeshOperation {
        collective,
        source: if in_place { std::ptr::null() } else { source.as_ptr().cast() },
        ..allreduce_of(&mut vector)
    };
    // SAFETY: both are borrowed until the operation is over.
    unsafe { mesh.start(&operation).unwrap() };
    while !mesh.poll().unwrap() {
        mesh.sleep(Duration::from_millis(5));
    }
    let has_result = collective.root().is_none_or(|root| root == host);
    if has_result { vector.iter().map(|value| value.to_bits()).collect() } else { Vec::new() }
}

/// Nothing is copied beforehand, so what a host contributes is combined from two places.
#[test]
fn a_contribution_that_stays_where_it_is_gives_the_bits_of_one_in_the_vector() {
    for named in AlgorithmChoice::all() {
        let runs = on_all(meshes(4, named).0, |host, mut mesh| {
            for elements in [1, 3, 5, 1000, 100_003] {
                let source = contribution(host, elements);
                for collective in [
                    Collective::Allreduce,
                    Collective::Reduce { root: 0 },
                    Collective::Reduce { root: 2 },
                ] {
                    let [there, here] = [false, true]
                        .map(|in_place| run_from(host, &mut mesh, collective, &source, in_place));
                    assert_eq!(there, here, "{elements} elements, {collective:?}");
                    let untouched = contribution(host, elements);
                    assert!(source.iter().zip(&untouched).all(|(a, b)| a.to_bits() == b.to_bits()));
                }
            }
            mesh.leave();
        });
        assert_eq!(runs.len(), 4);
    }
}

/// Vectors far longer than what sockets hold, so that everybody sends while nobody reads.
#[test]
fn long_vectors_pass_each_other_and_bits_are_equal_on_all_hosts_and_runs() {
    for named in
        [AlgorithmChoice::RecursiveDoubling, AlgorithmChoice::Ring, AlgorithmChoice::Linear]
    {
        let run = || {
            on_all(meshes(3, named).0, |host, mut mesh| {
                let mut vector = contribution(host, 2_000_003);
                allreduce(&mut mesh, &mut vector).unwrap();
                mesh.leave();
                vector.iter().map(|value| value.to_bits()).collect::<Vec<_>>()
            })
        };
        let (first, second) = (run(), run());
        assert!(first.iter().chain(&second).all(|bits| *bits == first[0]), "{named:?}");
    }
}

/// In a ring of five, host 3 is connected to 2 and 4 only.
#[test]
fn every_waiting_host_learns_which_one_died() {
    let outcomes = on_all(meshes(5, AlgorithmChoice::Ring).0, |host, mut mesh| {
        let mut vector = contribution(host, 1000);
        let first = allreduce(&mut mesh, &mut vector);
        if host == 3 {
            // Ends without a word, as a killed process does; others may still be in the first.
            return Ok(());
        }
        first.and_then(|()| allreduce(&mut mesh, &mut vector))
    });
    for (host, outcome) in outcomes.into_iter().enumerate() {
        let died = Abort { reason: AbortReason::MemberLost, at_fault: EndpointId(3) };
        assert_eq!(outcome, if host == 3 { Ok(()) } else { Err(died) }, "host {host}");
    }
}

#[test]
fn a_host_that_leaves_after_its_part_harms_nobody() {
    on_all(meshes(3, AlgorithmChoice::Binomial).0, |host, mut mesh| {
        for _ in 0..50 {
            allreduce(&mut mesh, &mut contribution(host, 10)).unwrap();
        }
        mesh.leave();
    });
}

#[test]
fn an_aborting_host_is_named_by_the_others() {
    let outcomes = on_all(meshes(3, AlgorithmChoice::Ring).0, |host, mut mesh| {
        let first = allreduce(&mut mesh, &mut contribution(host, 10));
        if host == 1 {
            mesh.abort(AbortReason::MemberAborted);
        }
        first.and_then(|()| allreduce(&mut mesh, &mut contribution(host, 10)))
    });
    let aborted = Abort { reason: AbortReason::MemberAborted, at_fault: EndpointId(1) };
    assert_eq!(outcomes, [Err(aborted); 3]);
}

/// Strangers at every door: silent ones, garbage, the wrong secret, the right words by a host that
/// should be called instead of calling.
#[test]
fn strangers_are_turned_away() {
    let (meshes, addresses) = meshes(3, AlgorithmChoice::RecursiveDoubling);
    let call = |address, identity: Identity, host| {
        let mut link = connect_tcp(address, door::options(), WATCHDOG).unwrap();
        let edge = edge_of(identity, host);
        let join = Header { edge, message: Message::Join }.encode();
        assert_eq!(link.send(&join, &[]), Ok(Sent::Taken));
        link
    };
    let mut strangers = Vec::new();
    for address in addresses {
        strangers.push(connect_tcp(address, door::options(), WATCHDOG).unwrap());
        strangers.push(call(address, identity(8), 0));
        strangers.push(call(address, identity(7), 2));
        strangers.push(call(address, identity(7), 999));
    }
    let sums = on_all(meshes, |host, mut mesh| {
        let mut vector = [host as f32 + 1.0];
        allreduce(&mut mesh, &mut vector).unwrap();
        mesh.leave();
        vector[0]
    });
    assert_eq!(sums, [6.0; 3]);
    drop(strangers);
}
