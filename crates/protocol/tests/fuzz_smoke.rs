//! Goal: what the fuzzers check also holds on a stable compiler, in every run of the tests. Method:
//! the same bodies (`fuzz/bodies`) over seeded random bytes, with checks of how deep the inputs
//! get.

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tributary_wire::Datatype;

#[path = "../../../fuzz/bodies/endpoint.rs"]
mod endpoint;
#[path = "../../../fuzz/bodies/frame.rs"]
mod frame;
#[path = "../../../fuzz/bodies/node.rs"]
mod node;

const DECODES: u64 = 200_000;
const NODE_RUNS: u64 = 20_000;
const ENDPOINT_RUNS: u64 = 20_000;

#[test]
fn frames() {
    let mut random = Pcg64::seed_from_u64(1);
    let mut bytes = [0; 80];
    let mut frames = 0_u64;
    for round in 0..DECODES {
        random.fill_bytes(&mut bytes);
        let mut length = random.random_range(0..=bytes.len());
        // Random codes are hardly ever all valid, so half of the inputs are nearly valid headers.
        if round % 2 == 0 {
            length = bytes.len();
            dress(&mut bytes, &mut random);
        }
        frames += u64::from(frame::run(&bytes[..length]));
    }
    assert!(frames > DECODES / 50, "only {frames} inputs were frames");
}

/// Makes bytes a header that is likely valid: small codes, and zeros where its kind has them.
fn dress(bytes: &mut [u8; 80], random: &mut Pcg64) {
    let kinds = [0, 1, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 17, 18, 19, 20];
    bytes[5] = kinds[usize::from(bytes[5]) % kinds.len()];
    let kind = bytes[5];
    let is_part = matches!(kind, 3 | 4 | 18 | 19);
    let is_ask = kind == 16;
    let has_data = is_part && random.random_bool(0.8);
    bytes[6] = u8::from(has_data);
    bytes[7] = if kind == 5 { bytes[7] % 9 } else { 0 };
    if !matches!(kind, 3 | 4 | 8 | 9 | 10 | 18 | 19) {
        bytes[43] = 0;
    }
    if !matches!(kind, 4 | 7) {
        bytes[46..48].fill(0);
    }
    bytes[40..43].fill(0);
    if is_part || is_ask {
        bytes[40..43].copy_from_slice(&[1, 2, 1].map(|least| least + random.random_range(0..3)));
        bytes[41] += random.random_range(0..15);
        bytes[42] += random.random_range(0..13);
    }
    if !is_part {
        let first = if kind < 16 { 20 } else { 24 };
        bytes[first..28].fill(0);
        if !matches!(kind, 10 | 11) {
            bytes[28..32].fill(0);
        }
    }
    let elements = if is_part || is_ask { random.random_range(0..4_u32) } else { 0 };
    bytes[32..36].copy_from_slice(&elements.to_le_bytes());
    if kind != 5 && random.random_bool(0.7) {
        bytes[36..40].fill(0);
    }
    let size = Datatype::from_code(bytes[41]).map_or(0, Datatype::size_bytes) as u32;
    let payload = if has_data { elements * size } else { 0 };
    bytes[8..12].copy_from_slice(&payload.to_le_bytes());
}

#[test]
fn node_inputs() {
    let mut random = Pcg64::seed_from_u64(2);
    let mut bytes = vec![0; 1200];
    let mut total = node::Reached::default();
    for _ in 0..NODE_RUNS {
        let length = random.random_range(0..=bytes.len());
        random.fill_bytes(&mut bytes[..length]);
        let reached = node::run(&bytes[..length]);
        total.honest_sums += reached.honest_sums;
        total.requests += reached.requests;
        total.results += reached.results;
        total.refused += reached.refused;
        total.groups_failed += reached.groups_failed;
        total.repeated += reached.repeated;
        total.acks += reached.acks;
        total.chunks += reached.chunks;
        total.streams += reached.streams;
    }
    assert!(total.groups_failed > NODE_RUNS, "{total:?}");
    assert!(total.refused > NODE_RUNS, "{total:?}");
    assert!(total.honest_sums > NODE_RUNS, "{total:?}");
    assert!(total.repeated > 300 && total.acks > 20, "{total:?}");
    let strangers = total.requests - 2 * total.honest_sums;
    assert!(strangers > 100, "attacked groups must get to reduce, too: {total:?}");
    // The honest group streams once in every run: six chunks' contributions.
    assert!(total.streams > NODE_RUNS && total.chunks > 6 * NODE_RUNS + 1000, "{total:?}");
}

#[test]
fn endpoint_inputs() {
    let mut random = Pcg64::seed_from_u64(3);
    let mut bytes = vec![0; 600];
    let mut total = endpoint::Reached::default();
    for _ in 0..ENDPOINT_RUNS {
        let length = random.random_range(0..=bytes.len());
        random.fill_bytes(&mut bytes[..length]);
        let reached = endpoint::run(&bytes[..length]);
        total.completed += reached.completed;
        total.refused += reached.refused;
        total.failed += reached.failed;
        total.repeated += reached.repeated;
        total.chunks += reached.chunks;
    }
    assert!(total.chunks > 1000, "{total:?}");
    assert!(total.completed > 1000 && total.refused > 1000 && total.failed > 1000, "{total:?}");
    assert!(total.repeated > 1000, "{total:?}");
}
