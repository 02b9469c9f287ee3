//! Ranks as threads of one process, and the world that lets them find each other.

use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use tributary_client::{Bootstrap, BootstrapError};

/// Longest a test's ranks may take: they deadlock, or they are done long before.
const WATCHDOG: Duration = Duration::from_secs(120);

/// One rank's way to the others.
pub(crate) struct ThreadRanks {
    rank: u32,
    world: Arc<World>,
}

struct World {
    size: u32,
    barrier: Barrier,
    table: Mutex<Vec<Vec<u8>>>,
}

impl Bootstrap for ThreadRanks {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.world.size
    }

    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), BootstrapError> {
        self.world.table.lock().unwrap()[self.rank as usize] = mine.to_vec();
        self.world.barrier.wait();
        let gathered = self.world.table.lock().unwrap().concat();
        all.copy_from_slice(&gathered);
        // Nobody writes the next round's bytes before everybody has read these.
        self.world.barrier.wait();
        Ok(())
    }
}

/// Runs `body` as every rank of a world of `size`.
///
/// # Panics
/// If a rank fails, or they hang.
pub(crate) fn on_all_ranks(size: u32, body: impl Fn(ThreadRanks) + Send + Sync + 'static) {
    let world = Arc::new(World {
        size,
        barrier: Barrier::new(size as usize),
        table: Mutex::new(vec![Vec::new(); size as usize]),
    });
    let body = Arc::new(body);
    let start = |rank| {
        let (world, body) = (Arc::clone(&world), Arc::clone(&body));
        std::thread::spawn(move || body(ThreadRanks { rank, world }))
    };
    let threads: Vec<_> = (0..size).map(start).collect();
    let deadline = Instant::now() + WATCHDOG;
    while threads.iter().any(|thread| !thread.is_finished()) {
        // A rank that failed leaves the others waiting for it; they go when the tests end.
        let finished = threads.iter().filter(|thread| thread.is_finished()).count();
        assert!(Instant::now() < deadline, "{finished} of {size} ranks finished in {WATCHDOG:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
    for thread in threads {
        thread.join().unwrap();
    }
}
