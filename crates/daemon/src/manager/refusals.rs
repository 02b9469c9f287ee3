//! Which refusals have been logged.
//!
//! A job that has lost its tree asks for another again and again, and hears the same each time. Anybody who has the
//! token can ask in the name of any job, so no more than [`JOBS_MAX`] are remembered.

use std::collections::HashMap;

use tributary_wire::JobId;

const JOBS_MAX: usize = 1024;

/// Why each job's last request was refused.
#[derive(Default)]
pub(super) struct Refusals(HashMap<JobId, String>);

impl Refusals {
    /// Whether this is not what the job heard last time.
    pub(super) fn is_new(&mut self, job: JobId, why: &str) -> bool {
        if self.0.get(&job).is_some_and(|last| last == why) {
            return false;
        }
        if self.0.len() >= JOBS_MAX {
            self.0.clear();
        }
        self.0.insert(job, why.to_owned());
        true
    }

    /// The job has ended.
    pub(super) fn forget(&mut self, job: JobId) {
        self.0.remove(&job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_new_once_and_unknown_jobs_take_no_memory_without_end() {
        let mut refusals = Refusals::default();
        let reasons = ["no room", "no room", "no node", "no room"];
        assert_eq!(reasons.map(|why| refusals.is_new(JobId(1), why)), [true, false, true, true]);
        refusals.forget(JobId(1));
        assert!(refusals.is_new(JobId(1), "no room"));
        for job in 0..5000 {
            refusals.is_new(JobId(job), "not admitted");
            assert!(refusals.0.len() <= JOBS_MAX);
        }
    }
}
