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
/// the job resumes the place, and holds a lease of it from then on. Where the manager was away when the job started, each
/// process that asks for a group takes a place for itself.
#[derive(Clone)]
pub(crate) struct Job(Arc<Place>);

struct Place {
    /// Or why this process can't ask it.
    manager: Result<ManagerClient, ManagerError>,
    request: JobRequest,
    state: Mutex<State>,
}

/// What the manager has given so far.
struct State {
    /// None until the job is admitted.
    admission: Option<JobAdmission>,
    /// At the process that was admitted, and at those that have resumed the place.
    _lease: Option<Lease>,
}

impl Job {
    /// The place of a job that asked for it so; `lease` at the process that was admitted.
    pub(crate) fn from_admission(
        manager: Result<ManagerClient, ManagerError>,
        request: JobRequest,
        admission: JobAdmission,
        lease: Option<Lease>,
    ) -> Self {
        let state = Mutex::new(State { admission: Some(admission), _lease: lease });
        Self(Arc::new(Place { manager, request, state }))
    }

    /// A job whose manager was away, and is asked again when a group is wanted.
    pub(crate) fn awaiting_manager(
        manager: Result<ManagerClient, ManagerError>,
        request: JobRequest,
    ) -> Self {
        let state = Mutex::new(State { admission: None, _lease: None });
        Self(Arc::new(Place { manager, request, state }))
    }

    /// What was admitted, if anything was so far.
    pub(crate) fn admission(&self) -> Option<JobAdmission> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).admission.clone()
    }

    /// Asks for a group. The secret in the request is set here.
    ///
    /// # Errors
    /// If the manager doesn't answer or refuses.
    pub(crate) fn request_group(&self, request: &GroupRequest) -> Result<GroupGrant, ManagerError> {
        let manager = self.0.manager.as_ref().map_err(Clone::clone)?;
        let mut admission = match self.admission() {
            Some(admission) => admission,
            None => self.take_place(manager, None)?,
        };
        let mut attempts = ATTEMPTS_MAX;
        loop {
            attempts -= 1;
            let request = GroupRequest { secret: admission.secret, ..request.clone() };
            match manager.request_group(&admission, &request) {
                Err(ManagerError::Refused(it)) if attempts > 0 && is_forgotten(it.code) => {
                    let JobAdmission { job, secret, .. } = admission;
                    admission = self.take_place(manager, Some(JobPlace { job, secret }))?;
                }
                // Without the aggregator that was lost, the next answer may be another.
                Err(ManagerError::Refused(it))
                    if attempts > 0 && it.code == RefusalCode::NodeSilent => {}
                answer => return answer,
            }
        }
    }

    /// Takes a place, or the one that the job had.
    fn take_place(
        &self,
        manager: &ManagerClient,
        resume: Option<JobPlace>,
    ) -> Result<JobAdmission, ManagerError> {
        let lease = manager.admit(&JobRequest { resume, ..self.0.request.clone() })?;
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been admitted meanwhile: the place that groups were asked for with stays.
        let admission = match (&state.admission, resume) {
            (Some(known), None) => return Ok(known.clone()),
            _ => lease.admission.clone(),
        };
        *state = State { admission: Some(admission.clone()), _lease: Some(lease) };
        Ok(admission)
    }
}

/// Whether the manager does not know the job, or only its groups.
fn is_forgotten(code: RefusalCode) -> bool {
    matches!(code, RefusalCode::NotFound | RefusalCode::Forbidden)
}
