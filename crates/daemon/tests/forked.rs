//! Goal: a job's place at the manager ends with the process that holds it, though a worker that it forked lives on.
//! Method: a real manager, the host library's own client, and a child that is forked while the client holds the place. It is
//! the only test of its program: a child has copies of whatever other tests have open.

#![allow(clippy::unwrap_used, reason = "a test that finds no value has failed")]

use std::time::{Duration, Instant};

use tributary_client::manager::ManagerClient;
use tributary_daemon::embedded::{Fabric, FabricOptions};
use tributary_wire::control::JobRequest;

/// A forked worker that waits until it is killed, when this value ends.
struct Worker(libc::pid_t);

impl Worker {
    fn fork() -> Self {
        // SAFETY: the child calls nothing but a function that may be called after `fork`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: always allowed.
                unsafe { libc::pause() };
            }
        }
        assert!(child > 0, "no child can be forked");
        Self(child)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // SAFETY: the child is this value's own, and not waited for yet.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

#[test]
fn a_jobs_place_ends_with_its_process_though_a_forked_worker_lives_on() {
    let fabric = Fabric::start(&FabricOptions::default()).unwrap();
    let address = fabric.manager().to_string();
    let client = ManagerClient::new(&address, Some(fabric.token_file())).unwrap();
    let request = JobRequest { name: "forks".into(), processes: 2, resume: None };
    let lease = client.admit(&request).unwrap();
    let _worker = Worker::fork();
    assert_eq!(client.status().unwrap().jobs.len(), 1);
    drop(lease);
    let begun = Instant::now();
    while !client.status().unwrap().jobs.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(10), "the manager still has the job");
        std::thread::sleep(Duration::from_millis(20));
    }
}
