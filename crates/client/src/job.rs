//! A job's place at the manager, as one of its processes holds it.

use std::sync::{Arc, Mutex, PoisonError};

use tributary_wire::control::{
    GroupGrant, GroupRequest, JobAdmission, JobPlace, JobRequest, RefusalCode,
};

use crate::manager::{Lease, ManagerClient, ManagerError};

/// How often a group is asked for when the manager forgot the job, or aggregators are lost meanwhile.
const ATTEMPTS_MAX: u32 = 4;

/// Asks the manager on behalf of the job. Clones share what they hold.
///
/// The place survives the manager and the process that opened it: a process that finds that the manager does not know
/// the job resumes the place, and holds a lease of it from then on.
#[derive(Clone)]
pub(crate) struct Job(Arc<AdmittedJob>);

struct AdmittedJob {
    manager: ManagerClient,
    request: JobRequest,
    admission: JobAdmission,
    /// At the process that was admitted, and at those that have resumed the place.
    lease: Mutex<Option<Lease>>,
}

impl Job {
    /// The place of a job that asked for it so; `lease` at the process that was admitted.
    pub(crate) fn new(
        manager: ManagerClient,
        request: JobRequest,
        admission: JobAdmission,
        lease: Option<Lease>,
    ) -> Self {
        Self(Arc::new(AdmittedJob { manager, request, admission, lease: Mutex::new(lease) }))
    }

    pub(crate) fn admission(&self) -> &JobAdmission {
        &self.0.admission
    }

    /// Asks for a group.
    ///
    /// # Errors
    /// If the manager doesn't answer or refuses.
    pub(crate) fn request_group(&self, request: &GroupRequest) -> Result<GroupGrant, ManagerError> {
        let mut attempts = ATTEMPTS_MAX;
        loop {
            attempts -= 1;
            match self.0.manager.request_group(&self.0.admission, request) {
                Err(ManagerError::Refused(it)) if attempts > 0 && is_forgotten(it.code) => {
                    self.resume()?;
                }
                // Without the aggregator that was lost, the next answer may be another.
                Err(ManagerError::Refused(it))
                    if attempts > 0 && it.code == RefusalCode::NodeSilent => {}
                answer => return answer,
            }
        }
    }

    fn resume(&self) -> Result<(), ManagerError> {
        let JobAdmission { job, secret, .. } = self.0.admission;
        let resume = Some(JobPlace { job, secret });
        let lease = self.0.manager.admit(&JobRequest { resume, ..self.0.request.clone() })?;
        *self.0.lease.lock().unwrap_or_else(PoisonError::into_inner) = Some(lease);
        Ok(())
    }
}

/// Whether the manager does not know the job, or only its groups.
fn is_forgotten(code: RefusalCode) -> bool {
    matches!(code, RefusalCode::NotFound | RefusalCode::Forbidden)
}
