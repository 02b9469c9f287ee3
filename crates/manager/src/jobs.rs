//! Admitted jobs.

use alloc::collections::BTreeMap;
use alloc::string::String;

use tributary_wire::control::{GroupRecord, JobAdmission, JobPlace, JobRequest};
use tributary_wire::{Capability, JobId};

use super::caller::Caller;
use super::config::{ManagerConfig, TEXT_MAX_BYTES, make_printable};
use super::error::{AdmitError, GroupError};
use super::groups::Member;
use super::places::PlaceKeys;
use super::secrets::Secrets;

pub(super) struct Job {
    /// The holder of the token that it came with.
    pub(super) owner: Caller,
    pub(super) name: String,
    pub(super) processes: u32,
    /// None while only its groups are known, by their aggregators: its next lease says it.
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
        owner: &Caller,
        request: JobRequest,
        places: &PlaceKeys,
        secrets: &mut Secrets,
    ) -> Result<JobAdmission, AdmitError> {
        let JobRequest { name, processes, resume } = request;
        let got_bytes = name.len();
        if got_bytes > TEXT_MAX_BYTES {
            return Err(AdmitError::Name { got_bytes, max_bytes: TEXT_MAX_BYTES });
        }
        let JobPlace { job, secret } = match resume {
            Some(place) => self.check_resumption(owner, place, places)?,
            None => {
                let job = self.free_number(config);
                JobPlace { job, secret: places.secret(job, owner, secrets.draw()) }
            }
        };
        if !self.jobs.contains_key(&job) {
            self.check_room(config, owner)?;
        }
        let name = make_printable(&name);
        let new = Job { owner: owner.clone(), name, processes, secret: None, leases: 0 };
        let entry = self.jobs.entry(job).or_insert(new);
        if *entry.secret.get_or_insert(secret) != secret {
            return Err(AdmitError::NumberTaken { job });
        }
        entry.leases += 1;
        Ok(JobAdmission {
            job,
            secret,
            authenticate_frames: config.authenticates_frames,
            has_tuning: config.has_tuning,
        })
    }

    /// Whether a place may be resumed. Nobody is believed who asks for a number, also where nothing is known of it
    /// yet: aggregators that come later tell of a job's groups, which would then be another's.
    fn check_resumption(
        &self,
        owner: &Caller,
        place: JobPlace,
        places: &PlaceKeys,
    ) -> Result<JobPlace, AdmitError> {
        let job = place.job;
        if self.jobs.get(&job).is_some_and(|entry| entry.owner != *owner) {
            return Err(AdmitError::OtherToken { job });
        }
        if !places.proves(place, owner) {
            return Err(AdmitError::NoProof { job });
        }
        Ok(place)
    }

    /// Whether there is room for one more job.
    fn check_room(&self, config: &ManagerConfig, owner: &Caller) -> Result<(), AdmitError> {
        if self.jobs.len() >= config.jobs_max as usize {
            return Err(AdmitError::TooManyJobs { max: config.jobs_max });
        }
        let Some(tenant) = owner.tenant() else { return Ok(()) };
        let max = config.tenants.get(tenant).and_then(|limits| limits.jobs);
        let has = self.jobs.values().filter(|entry| entry.owner == *owner).count();
        match max.filter(|max| has >= *max as usize) {
            Some(max) => Err(AdmitError::TenantLimit { tenant: tenant.into(), max }),
            None => Ok(()),
        }
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

    /// What aggregators keep of a group of an admitted job.
    pub(super) fn record(&self, job: JobId, label: &str, member: &Member) -> GroupRecord {
        let Job { owner, name, processes, .. } = &self.jobs[&job];
        GroupRecord {
            job,
            job_name: name.clone(),
            processes: *processes,
            label: label.into(),
            level: member.level,
            parent: member.parent.clone(),
            children: member.children.clone(),
            tenant: owner.tenant().map(String::from),
        }
    }

    /// A job of which an aggregator holds a group. `false` if there is no room for it, or the number is another owner's
    /// by now.
    pub(super) fn take_over(&mut self, config: &ManagerConfig, record: &GroupRecord) -> bool {
        let owner = Caller::from(record.tenant.clone());
        if let Some(entry) = self.jobs.get(&record.job) {
            return entry.owner == owner;
        }
        let has_room = self.jobs.len() < config.jobs_max as usize;
        if has_room {
            let (name, processes) = (make_printable(&record.job_name), record.processes);
            self.jobs.insert(record.job, Job { owner, name, processes, secret: None, leases: 0 });
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
        if tributary_protocol::planted::is_planted(tributary_protocol::planted::Bug::EternalJob) {
            return;
        }
        if self.jobs.get(&job).is_some_and(|entry| entry.leases == 0) {
            self.jobs.remove(&job);
        }
    }

    /// Whether the job is there and came with this token.
    pub(super) fn is_of(&self, job: JobId, owner: &Caller) -> bool {
        self.jobs.get(&job).is_some_and(|entry| entry.owner == *owner)
    }

    /// The job's name, if `caller` may know it.
    pub(super) fn visible_name(&self, job: JobId, caller: &Caller) -> Option<&str> {
        let entry = self.jobs.get(&job).filter(|entry| caller.may_see(&entry.owner))?;
        Some(&entry.name)
    }

    /// Whether `owner`'s token and the place's secret are those of the job.
    pub(super) fn check_place(&self, owner: &Caller, place: JobPlace) -> Result<(), GroupError> {
        let JobPlace { job, secret } = place;
        match self.jobs.get(&job) {
            None => Err(GroupError::UnknownJob { job }),
            Some(known) if known.owner != *owner => Err(GroupError::OtherToken { job }),
            Some(known) if known.secret != Some(secret) => Err(GroupError::WrongSecret { job }),
            Some(_) => Ok(()),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (JobId, &Job)> {
        self.jobs.iter().map(|(id, job)| (*id, job))
    }
}
