//! One suite that every kind of link passes, then tests of each kind.
//!
//! Goal: users can't tell the kinds of link apart. Method: each function of `suite` takes a
//! function that makes a connected pair, and a macro applies it to every kind of link. Everything
//! that could hang runs under a watchdog.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails here")]

mod common;
mod fault;
mod killed;
mod shm;
mod suite;
mod tcp;

use common::{
    Pair, authenticated_tcp_pair, faultless_pair, ordered_tcp_pair, shm_pair, slow_pair, tcp_pair,
};

macro_rules! conformance {
    ($($link:ident: $pair:expr;)*) => { $(mod $link {
        use super::*;
        conformance!(@tests $pair;
            carries_every_length_in_order carries_frames_across_the_wrap
            is_full_and_loses_nothing reports_room_once_it_is_there
            carries_both_directions_at_once delivers_all_then_closed
            reports_a_cut_frame refuses_garbage survives_every_flipped_header_bit
            refuses_an_oversized_announcement refuses_what_the_caller_gets_wrong
            loses_no_wake_up_for_data loses_no_wake_up_for_room wakes_when_the_peer_goes
            gives_room_back_on_release shuts_down);
    })* };
    (@tests $pair:expr; $($test:ident)*) => { $(
        #[test]
        fn $test() {
            common::guarded(stringify!($test), || suite::$test($pair));
        }
    )* };
}

conformance! {
    over_shm: shm_pair as fn(u32) -> Pair;
    over_tcp: tcp_pair as fn(u32) -> Pair;
    over_authenticated_tcp: authenticated_tcp_pair as fn(u32) -> Pair;
    over_ordered_tcp: ordered_tcp_pair as fn(u32) -> Pair;
    wrapped_without_faults: faultless_pair as fn(u32) -> Pair;
    wrapped_with_delays: slow_pair as fn(u32) -> Pair;
}
