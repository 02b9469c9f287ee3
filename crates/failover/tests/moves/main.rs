//! Goal: a group whose trees are lost, one after the other, loses no operation, and gets the same results at every
//! member. Method: every order of events of three members, two aggregators and a few operations, up to a number of
//! losses.
//!
//! [`system`] is what can happen, and what each event does. All that members decide is the product's: `Settler` and
//! `Boundaries`. [`links`] carries collectives between members as direct links do: whole, once and in order.
//! [`explore`] goes through all orders, breadth first, and tells the shortest that ends badly.

mod explore;
mod links;
mod system;

use explore::explore;
#[cfg(not(feature = "planted-bugs"))]
use system::Bounds;
use system::{Seen, System};

#[cfg(not(feature = "planted-bugs"))]
fn check(bounds: Bounds) -> (usize, Seen) {
    check_from(System::new(bounds), bounds)
}

#[cfg(not(feature = "planted-bugs"))]
fn check_from(system: System, bounds: Bounds) -> (usize, Seen) {
    let mut seen = Seen::default();
    match explore(system, &mut seen) {
        Ok(states) => (states, seen),
        Err(story) => panic!("{bounds:?}\n{story}"),
    }
}

#[cfg(not(feature = "planted-bugs"))]
#[test]
fn no_order_of_events_does_in_a_group_that_begins_without_a_tree() {
    let bounds = Bounds::SHORT;
    let (states, seen) = check_from(System::without_tree(bounds), bounds);
    println!("{states} states, {seen:?}");
    seen.assert_way_back();
}

#[cfg(not(feature = "planted-bugs"))]
#[test]
fn no_order_of_events_loses_an_operation_or_tears_results_apart() {
    let (states, seen) = check(Bounds::SHORT);
    println!("{states} states, {seen:?}");
    seen.assert_all();
}

#[cfg(not(feature = "planted-bugs"))]
#[test]
#[ignore = "minutes in a release build: `make test-model`"]
fn no_order_of_more_events_does() {
    for bounds in Bounds::LONG {
        let (states, seen) = check(bounds);
        println!("{bounds:?}: {states} states, {seen:?}");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn planted_bugs_are_found() {
    use tributary_failover::planted::{Bug, plant};
    for bug in [Bug::ComputedAnew, Bug::CompletedForgotten, Bug::BoundaryForgotten] {
        plant(Some(bug));
        let found = explore(System::new(system::Bounds::PLANTED), &mut Seen::default());
        let story = found.expect_err(&format!("{bug:?} is not found"));
        println!("{bug:?}\n{story}");
    }
    plant(None);
}
