//! Sums a vector over four ranks with the host library, without an MPI: `cargo run -p tributary-client --example client`.
//!
//! Here the ranks are threads. Usually they are processes, and a launcher, an MPI or a socket carries the few bytes that
//! `Launcher::allgather` exchanges. Settings come from the environment: with `TRIBUTARY_MANAGER` the ranks join a tree.
#![allow(clippy::print_stdout, reason = "an example shows what it found")]

use std::error::Error;
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;

use tributary_client::report::CounterRegistry;
use tributary_client::{
    Bootstrap, BootstrapError, Collective, Communicator, Context, Operation, Settings, Verdict,
};
use tributary_wire::{Datatype, Operator};

const RANKS: u32 = 4;
const ELEMENTS: usize = 1000;

/// One rank's way to the others while there is no communicator.
struct Launcher {
    rank: u32,
    shared: Arc<(Barrier, Mutex<Vec<Vec<u8>>>)>,
}

impl Bootstrap for Launcher {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        RANKS
    }

    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), BootstrapError> {
        let (barrier, table) = &*self.shared;
        let table = || table.lock().unwrap_or_else(PoisonError::into_inner);
        table()[self.rank as usize] = mine.to_vec();
        barrier.wait();
        all.copy_from_slice(&table().concat());
        barrier.wait();
        Ok(())
    }
}

/// What one rank does; the first element of the sum.
fn work(mut launcher: Launcher) -> Result<i32, Box<dyn Error + Send + Sync>> {
    let rank = launcher.rank();
    let settings = Settings::from_environment(|name| std::env::var(name).ok())?;
    let context = Arc::new(Context::open(&mut launcher, settings)?);
    let counters = CounterRegistry::default().open("world", RANKS, rank == 0);
    // Called while this rank waits: a user interface would look for a key here.
    let hook = Arc::new(|| Verdict::GoOn);
    let ranks = Communicator::create(&context, &mut launcher, &counters, hook)?;

    let own = vec![rank as i32 + 1; ELEMENTS];
    let mut sum = vec![0; ELEMENTS];
    let allreduce = Operation {
        collective: Collective::Allreduce,
        datatype: Datatype::I32,
        operator: Operator::Sum,
        elements: ELEMENTS as u64,
        source: own.as_ptr().cast(),
        target: sum.as_mut_ptr().cast(),
        ..Operation::BARRIER
    };
    // SAFETY: both vectors have ELEMENTS elements of that datatype and do not overlap, and nobody else uses them
    // until this returns.
    unsafe { ranks.run(&allreduce) }?;
    let first = sum[0];
    if sum.iter().any(|element| *element != first) {
        return Err(format!("rank {rank}: the elements of the sum differ").into());
    }
    Ok(first)
}

/// Starts the ranks, and waits for them.
///
/// # Errors
/// If one of them failed: why.
pub(crate) fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let table = Mutex::new(vec![Vec::new(); RANKS as usize]);
    let shared = Arc::new((Barrier::new(RANKS as usize), table));
    let start = |rank| {
        let launcher = Launcher { rank, shared: Arc::clone(&shared) };
        thread::spawn(move || work(launcher))
    };
    let ranks: Vec<_> = (0..RANKS).map(start).collect();
    for (rank, thread) in ranks.into_iter().enumerate() {
        let first = thread.join().map_err(|_| format!("rank {rank} panicked"))??;
        println!("rank {rank}: 1 + 2 + 3 + 4 = {first}");
        if first != 10 {
            return Err(format!("rank {rank} has {first}").into());
        }
    }
    Ok(())
}
