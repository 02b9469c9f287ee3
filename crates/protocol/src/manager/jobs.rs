//! Admitted jobs.

use alloc::collections::BTreeMap;

use tributary_wire::control::{JobAdmission, JobRequest};
use tributary_wire::{Capability, JobId};

use super::config::{ManagerConfig, TEXT_MAX_BYTES};
use super::error::{AdmitError, GroupError};
use super::secrets::Secrets;

pub(super) struct Job {
    pub(super) request: JobRequest,
    secret: Capability,
}

#[derive(Default)]
pub(super) struct JobTable {
    jobs: BTreeMap<JobId, Job>,
    next: u32,
}

impl JobTable {
    pub(super) fn admit(
        &mut self,
        config: &ManagerConfig,
        request: JobRequest,
        secrets: &mut Secrets,
    ) -> Result<JobAdmission, AdmitError> {
        let got_bytes = request.name.len();
        if got_bytes > TEXT_MAX_BYTES {
            return Err(AdmitError::Name { got_bytes, max_bytes: TEXT_MAX_BYTES });
        }
        if self.jobs.len() >= config.jobs_max as usize {
            return Err(AdmitError::TooManyJobs { max: config.jobs_max });
        }
        // Numbers wrap after 2^32 jobs; those of living jobs are skipped.
        while self.jobs.contains_key(&JobId(self.next)) {
            self.next = self.next.wrapping_add(1);
        }
        let job = JobId(self.next);
        self.next = self.next.wrapping_add(1);
        let secret = secrets.draw();
        self.jobs.insert(job, Job { request, secret });
        Ok(JobAdmission { job, secret, authenticate_frames: config.authenticates_frames })
    }

    /// Whether the job was there.
    pub(super) fn remove(&mut self, job: JobId) -> bool {
        self.jobs.remove(&job).is_some()
    }

    pub(super) fn check_secret(&self, job: JobId, secret: Capability) -> Result<(), GroupError> {
        match self.jobs.get(&job) {
            None => Err(GroupError::UnknownJob { job }),
            Some(known) if known.secret != secret => Err(GroupError::WrongSecret { job }),
            Some(_) => Ok(()),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.jobs.iter().map(|(id, job)| (*id, job))
    }
}
