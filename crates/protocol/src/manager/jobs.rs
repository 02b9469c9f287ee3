//! Admitted jobs.

use alloc::collections::BTreeMap;
use alloc::string::String;

use tributary_wire::control::{GroupRecord, JobAdmission, JobPlace, JobRequest};
use tributary_wire::{Capability, JobId};

use super::config::{ManagerConfig, TEXT_MAX_BYTES};
use super::error::{AdmitError, GroupError};
use super::groups::Member;
use super::secrets::Secrets;

pub(super) struct Job {
    pub(super) name: String,
    pub(super) processes: u32,
    /// None while only its groups are known, by their nodes: its next lease says it.
    secret: Option<Capability>,
    /// Leases that it holds.
    leases: u32,
}

#[derive(Default)]
pub(super) struct JobTable {
    jobs: BTreeMap<JobId, Job>,
    /// How many numbers were given out.
    admitted: u32,
}

impl JobTable {
    pub(super) fn admit(
        &mut self,
        config: &ManagerConfig,
        request: JobRequest,
        secrets: &mut Secrets,
    ) -> Result<JobAdmission, AdmitError> {
        let JobRequest { name, processes, resume } = request;
        let got_bytes = name.len();
        if got_bytes > TEXT_MAX_BYTES {
            return Err(AdmitError::Name { got_bytes, max_bytes: TEXT_MAX_BYTES });
        }
        if self.jobs.len() >= config.jobs_max as usize {
            return Err(AdmitError::TooManyJobs { max: config.jobs_max });
        }
        let JobPlace { job, secret } = match resume {
            Some(place) => place,
            None => JobPlace { job: self.free_number(config), secret: secrets.draw() },
        };
        let entry =
            self.jobs.entry(job).or_insert(Job { name, processes, secret: None, leases: 0 });
        if *entry.secret.get_or_insert(secret) != secret {
            return Err(AdmitError::NumberTaken { job });
        }
        entry.leases += 1;
        Ok(JobAdmission { job, secret, authenticate_frames: config.authenticates_frames })
    }

    /// Numbers wrap after 2^32 jobs; those of living jobs are skipped.
    fn free_number(&mut self, config: &ManagerConfig) -> JobId {
        loop {
            let job = JobId(config.first_job.0.wrapping_add(self.admitted));
            self.admitted = self.admitted.wrapping_add(1);
            if !self.jobs.contains_key(&job) {
                return job;
            }
        }
    }

    /// What nodes keep of a group of an admitted job.
    pub(super) fn record(&self, job: JobId, label: &str, member: &Member) -> GroupRecord {
        let Job { name, processes, .. } = &self.jobs[&job];
        GroupRecord {
            job,
            job_name: name.clone(),
            processes: *processes,
            label: label.into(),
            level: member.level,
            parent: member.parent.clone(),
            children: member.children.clone(),
        }
    }

    /// A job of which a node holds a group. `false` if there is no room for it.
    pub(super) fn take_over(&mut self, config: &ManagerConfig, record: &GroupRecord) -> bool {
        if self.jobs.contains_key(&record.job) {
            return true;
        }
        let has_room = self.jobs.len() < config.jobs_max as usize;
        if has_room {
            let (name, processes) = (record.job_name.clone(), record.processes);
            self.jobs.insert(record.job, Job { name, processes, secret: None, leases: 0 });
        }
        has_room
    }

    /// One of the job's leases has ended. Whether it was the last, so that the job is gone.
    pub(super) fn give_back_lease(&mut self, job: JobId) -> bool {
        let Some(entry) = self.jobs.get_mut(&job) else { return false };
        entry.leases = entry.leases.saturating_sub(1);
        let is_gone = entry.leases == 0;
        if is_gone {
            self.jobs.remove(&job);
        }
        is_gone
    }

    /// The job has no group any more: one that nobody holds a lease of is gone.
    pub(super) fn on_groupless(&mut self, job: JobId) {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is_planted(crate::planted::Bug::EternalJob) {
            return;
        }
        if self.jobs.get(&job).is_some_and(|entry| entry.leases == 0) {
            self.jobs.remove(&job);
        }
    }

    pub(super) fn check_secret(&self, job: JobId, secret: Capability) -> Result<(), GroupError> {
        match self.jobs.get(&job) {
            None => Err(GroupError::UnknownJob { job }),
            Some(known) if known.secret != Some(secret) => Err(GroupError::WrongSecret { job }),
            Some(_) => Ok(()),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.jobs.iter().map(|(id, job)| (*id, job))
    }
}
