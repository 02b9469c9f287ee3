//! How long one small sum takes through aggregation nodes of this process.
//!
//! One thread plays every member and only polls; each aggregator has its data thread. So a tree of one
//! aggregator needs two cores, and deeper trees on two cores show what sharing them costs. Prints
//! quartiles in microseconds: `cargo bench -p tributary-daemon`.
#![allow(clippy::unwrap_used, reason = "a measurement that can't go on fails here")]
#![allow(clippy::print_stdout, reason = "printing is its purpose")]

#[path = "../tests/fabric/common.rs"]
#[allow(dead_code, reason = "shared with the tests")]
mod common;

use std::time::{Duration, Instant};

use common::{Job, Way, hosts, members};
use tributary_daemon::embedded::{Fabric, FabricOptions};

const WARM_UP: usize = 500;
const ROUNDS: usize = 5000;
const NODE_SPIN: Duration = Duration::from_micros(50);

fn main() {
    println!(
        "{:>6} {:>6} {:>5} {:>6} {:>9} {:>9} {:>9}",
        "hosts", "leaves", "way", "spin", "q1_us", "median_us", "q3_us"
    );
    for (hosts, leaves) in [(2, 0), (4, 2)] {
        for way in [Way::Shm, Way::Tcp] {
            for spin in [Duration::ZERO, NODE_SPIN] {
                let quartiles = measure(hosts, leaves, way, spin);
                let [q1, median, q3] = quartiles.map(|time| time.as_secs_f64() * 1e6);
                let way = if way == Way::Shm { "shm" } else { "tcp" };
                let spin = spin.as_micros();
                println!(
                    "{hosts:>6} {leaves:>6} {way:>5} {spin:>6} {q1:>9.2} {median:>9.2} {q3:>9.2}"
                );
            }
        }
    }
}

fn measure(count: u32, leaves: u16, way: Way, spin: Duration) -> [Duration; 3] {
    let options = FabricOptions { hosts: count, leaves, spin, ..FabricOptions::default() };
    let fabric = Fabric::start(&options).unwrap();
    let job = Job::admit(&fabric);
    let mut members = members(&job.group(&hosts(count), 4, 4096), way);
    let mut times: Vec<Duration> = (0..WARM_UP + ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            members.iter_mut().for_each(|member| member.contribute(&[1.0]));
            for member in &mut members {
                assert_eq!(member.result_polling(), Ok(vec![f64::from(count)]));
            }
            begun.elapsed()
        })
        .skip(WARM_UP)
        .collect();
    times.sort_unstable();
    [1, 2, 3].map(|quarter| times[quarter * ROUNDS / 4])
}
