//! A place in a tree that is taken in the background, while operations go over direct links.
//!
//! An aggregator that does not answer may take seconds to be given up. Nobody waits for that: hosts tell each other at
//! boundaries whether they have their places.

use std::sync::{Arc, Mutex, PoisonError};

use tributary_protocol::failover::boundaries::Place;
use tributary_wire::control::GroupGrant;

use super::terms::Terms;
use crate::threads;
use crate::tree::TreeMember;

/// A place that is being taken. Dropped, it is given up.
pub(super) struct Entering(Arc<Mutex<Progress>>);

enum Progress {
    UnderWay,
    Over(Option<Box<TreeMember>>),
}

impl Entering {
    /// Begins to take the place of `host`.
    pub(super) fn begin(terms: &Terms, grant: GroupGrant, host: u32) -> Self {
        let progress = Arc::new(Mutex::new(Progress::UnderWay));
        let (terms, shared) = (terms.clone(), Arc::clone(&progress));
        let spawned = threads::spawn("tributary-enter", move || {
            let place = terms.enter(&grant, host);
            *lock(&shared) = Progress::Over(place);
        });
        if spawned.is_err() {
            *lock(&progress) = Progress::Over(None);
        }
        Self(progress)
    }

    /// Where there is no place to take.
    pub(super) fn without_place() -> Self {
        Self(Arc::new(Mutex::new(Progress::Over(None))))
    }

    /// How far this host is.
    pub(super) fn place(&self) -> Place {
        match &*lock(&self.0) {
            Progress::UnderWay => Place::UnderWay,
            Progress::Over(Some(_)) => Place::Taken,
            Progress::Over(None) => Place::Failed,
        }
    }

    /// The place, if it was taken.
    pub(super) fn into_place(self) -> Option<Box<TreeMember>> {
        match std::mem::replace(&mut *lock(&self.0), Progress::UnderWay) {
            Progress::UnderWay => None,
            Progress::Over(place) => place,
        }
    }
}

fn lock(progress: &Mutex<Progress>) -> std::sync::MutexGuard<'_, Progress> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}
