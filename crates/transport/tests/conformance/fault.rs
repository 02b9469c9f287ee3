//! The wrapper's faults: they happen, they are seen at the other end, and a seed repeats them.

use std::thread;

use tributary_transport::fault::{FaultPlan, FaultyLink};
use tributary_transport::{Link, ReceiveError, SendError, Sent};

use crate::common::{MakePair, check, frame, guarded, shm_pair, tcp_pair};

const FRAMES: u32 = 2000;

/// Sends until the link breaks or all is sent: how many were taken, what arrived whole, and how the
/// receiving end ended.
fn suffer(pair: MakePair, plan: FaultPlan) -> (u32, u32, ReceiveError) {
    let (near, mut far) = pair(200);
    let mut near = FaultyLink::new(near, plan);
    let mut arrived = 0;
    let mut drain = |expected_intact: bool| loop {
        match far.receive() {
            Ok(None) => return None,
            Ok(Some(got)) if expected_intact => check(&got, arrived, arrived as usize % 200),
            Ok(Some(_)) => {}
            Err(error) => return Some(error),
        }
        arrived += 1;
    };
    let intact = plan.corruptions_per_million == 0;
    let mut taken = 0;
    let mut end = None;
    'sending: while taken < FRAMES && end.is_none() {
        let (header, payload) = frame(taken, taken as usize % 200);
        loop {
            match near.send(&header, &payload) {
                Ok(Sent::Taken) => break,
                Ok(Sent::Full) => {}
                Err(SendError::Closed) => break 'sending,
                Err(error) => panic!("{error}"),
            }
            end = end.or(drain(intact));
        }
        taken += 1;
        end = end.or(drain(intact));
    }
    while near.flush() == Ok(Sent::Full) {
        end = end.or(drain(intact));
    }
    assert_eq!(near.is_cut(), taken < FRAMES && plan.cuts_per_million > 0);
    drop(near);
    while end.is_none() {
        end = drain(intact);
        thread::yield_now();
    }
    (taken, arrived, end.expect("the loop above ends with one"))
}

#[test]
fn cuts_break_the_link_in_the_middle_of_a_frame() {
    guarded("cuts", || {
        for pair in [shm_pair as MakePair, tcp_pair] {
            for seed in 0..20 {
                let plan = FaultPlan { seed, cuts_per_million: 10_000, ..FaultPlan::default() };
                let (taken, arrived, error) = suffer(pair, plan);
                assert!(taken < FRAMES, "2,000 frames at one in a hundred");
                assert_eq!(arrived, taken, "what was taken before the cut arrives");
                assert!(
                    matches!(error, ReceiveError::Closed | ReceiveError::Truncated { .. }),
                    "{error}"
                );
                assert_eq!(suffer(pair, plan).0, taken, "a seed repeats its faults");
            }
        }
    });
}

#[test]
fn corruption_is_found_or_makes_another_valid_frame() {
    guarded("corruption", || {
        for pair in [shm_pair as MakePair, tcp_pair] {
            for seed in 0..20 {
                let plan =
                    FaultPlan { seed, corruptions_per_million: 50_000, ..FaultPlan::default() };
                let (_, arrived, error) = suffer(pair, plan);
                assert!(arrived < FRAMES, "a hundred flipped bits and none of them found");
                assert!(
                    matches!(error, ReceiveError::Decode(_) | ReceiveError::TooLong { .. }),
                    "{error}"
                );
            }
        }
    });
}

#[test]
fn delays_lose_and_reorder_nothing() {
    guarded("delays", || {
        for pair in [shm_pair as MakePair, tcp_pair] {
            let plan = FaultPlan {
                seed: 3,
                delays_per_million: 300_000,
                delay_calls_max: 30,
                ..FaultPlan::default()
            };
            assert_eq!(suffer(pair, plan), (FRAMES, FRAMES, ReceiveError::Closed));
        }
    });
}
