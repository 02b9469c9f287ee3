//! Collectives in which every host has a part of its own, of any length.

use super::*;

/// Where the parts of 5 hosts begin, and the last one ends: one is empty, one has nearly all.
fn cuts_of(elements: u64) -> [u64; 6] {
    [0, elements / 7, elements / 7, elements / 7 + 1, elements - 2, elements]
}

/// Runs one operation to its end.
fn run(links: &mut Host, operation: &InterHostOperation) -> Result<(), Abort> {
    // SAFETY: the callers keep the buffers and the parts until this returns.
    unsafe { links.start(operation)? };
    while !links.poll()? {
        links.sleep(Duration::from_millis(5));
        links.check();
    }
    Ok(())
}

fn with_algorithm(
    collective: Collective,
    algorithm: Algorithm,
    cuts: &[u64],
    vector: &mut [f32],
) -> InterHostOperation {
    let parts = Blocks::At(cuts.as_ptr());
    InterHostOperation { collective, parts, ..allreduce_of(vector, algorithm) }
}

fn bits(vector: &[f32]) -> Vec<u32> {
    vector.iter().map(|value| value.to_bits()).collect()
}

/// Small whole numbers, whose sums are exact in any order.
fn exact(host: u32, elements: usize) -> Vec<f32> {
    (0..elements).map(|at| ((at + 3 * host as usize) % 64) as f32).collect()
}

#[test]
fn every_host_gets_its_part_reduced_and_leaves_the_others_what_they_are() {
    for algorithm in [Algorithm::Ring, Algorithm::Linear, Algorithm::RecursiveDoubling] {
        let (hosts, _) = listening(5, AlgorithmChoice::Auto, identities()[0]);
        on_all(hosts, move |host, mut links| {
            // The longest is far longer than what sockets hold.
            for elements in [9, 1000, 700_003] {
                let cuts = cuts_of(elements as u64);
                let own = cuts[host as usize] as usize..cuts[host as usize + 1] as usize;
                let sum = |at: usize| (0..5).map(|of| exact(of, elements)[at]).sum::<f32>();
                let all: Vec<f32> = if elements > 1000 {
                    let of_hosts: Vec<_> = (0..5).map(|of| exact(of, elements)).collect();
                    own.clone().map(|at| of_hosts.iter().map(|it| it[at]).sum()).collect()
                } else {
                    own.clone().map(sum).collect()
                };
                for is_apart in [false, true] {
                    let source = exact(host, elements);
                    let mut vector =
                        if is_apart { vec![f32::NAN; elements] } else { source.clone() };
                    let collective = Collective::ReduceScatter;
                    let mut operation = with_algorithm(collective, algorithm, &cuts, &mut vector);
                    if is_apart {
                        operation.source = source.as_ptr().cast();
                    }
                    run(&mut links, &operation).unwrap();
                    assert_eq!(vector[own.clone()], all, "{algorithm:?}, {elements} elements");
                    assert_eq!(source, exact(host, elements), "{algorithm:?} changed its source");
                }
            }
            links.leave();
        });
    }
}

#[test]
fn every_host_gets_the_parts_of_all() {
    for algorithm in [Algorithm::Ring, Algorithm::Linear, Algorithm::Dissemination] {
        let (hosts, _) = listening(5, AlgorithmChoice::Auto, identities()[0]);
        on_all(hosts, move |host, mut links| {
            for elements in [9, 1000, 700_003] {
                let cuts = cuts_of(elements as u64);
                let own = cuts[host as usize] as usize..cuts[host as usize + 1] as usize;
                let mut vector = vec![f32::NAN; elements];
                vector[own.clone()].copy_from_slice(&contribution(7, elements)[own]);
                let operation =
                    with_algorithm(Collective::Allgather, algorithm, &cuts, &mut vector);
                run(&mut links, &operation).unwrap();
                assert_eq!(bits(&vector), bits(&contribution(7, elements)), "{algorithm:?}");
            }
            links.leave();
        });
    }
}

/// A part that is found again is cut as it is now.
#[test]
fn other_parts_of_the_same_vector_take_other_steps() {
    let (hosts, _) = listening(3, AlgorithmChoice::Auto, identities()[0]);
    on_all(hosts, move |host, mut links| {
        for cuts in [[0, 1, 2, 6], [0, 4, 5, 6], [0, 1, 2, 6], [0, 0, 6, 6]] {
            let own = cuts[host as usize] as usize..cuts[host as usize + 1] as usize;
            let mut vector = vec![-1.0; 6];
            vector[own.clone()].copy_from_slice(&exact(1, 6)[own]);
            let ring = Algorithm::Ring;
            let operation = with_algorithm(Collective::Allgather, ring, &cuts, &mut vector);
            run(&mut links, &operation).unwrap();
            assert_eq!(vector, exact(1, 6), "{cuts:?}");
        }
        links.leave();
    });
}

#[test]
fn hosts_that_wait_for_a_part_learn_which_one_died() {
    for (collective, algorithm) in [
        (Collective::Allgather, Algorithm::Dissemination),
        (Collective::ReduceScatter, Algorithm::Ring),
        (Collective::ReduceScatter, Algorithm::RecursiveDoubling),
    ] {
        let (hosts, _) = listening(5, AlgorithmChoice::Auto, identities()[0]);
        let outcomes = on_all(hosts, move |host, mut links| {
            let mut vector = exact(host, 1000);
            let cuts = cuts_of(1000);
            let operation = with_algorithm(collective, algorithm, &cuts, &mut vector);
            let first = run(&mut links, &operation);
            if host == 3 {
                // Ends without a word, as a killed process does; others may still be in the first.
                return Ok(());
            }
            first.and_then(|()| run(&mut links, &operation))
        });
        for (host, outcome) in outcomes.into_iter().enumerate() {
            let died = Abort { reason: AbortReason::MemberLost, at_fault: EndpointId(3) };
            let expected = if host == 3 { Ok(()) } else { Err(died) };
            assert_eq!(outcome, expected, "{collective:?}, {algorithm:?}, host {host}");
        }
    }
}
