//! Goal: the example of the host library runs, and finds the right sum. Method: it checks itself.
#![allow(clippy::print_stdout, reason = "the example shows what it found")]

#[path = "../../../examples/client.rs"]
mod client;

#[test]
fn the_example_of_the_host_library_sums_over_its_ranks() -> Result<(), String> {
    client::main().map_err(|error| error.to_string())
}
