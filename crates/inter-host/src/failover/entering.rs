//! A place in a tree that is taken in the background, while operations go over direct links.
//!
//! A node that does not answer may take seconds to be given up. Nobody waits for that: hosts tell each other at
//! boundaries whether they have their places.

use std::sync::{Arc, Mutex, PoisonError};

use tributary_wire::control::GroupGrant;

use super::terms::Terms;
use crate::threads;
use crate::tree::TreeMember;

/// What a host says of its place, as bits that come together by "or".
pub(super) mod standing {
    /// It has its place.
    pub(in super::super) const TAKEN: u8 = 0;
    /// It has not yet.
    pub(in super::super) const UNDER_WAY: u8 = 1;
    /// There is none for it.
    pub(in super::super) const FAILED: u8 = 2;
}

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
    pub(super) fn failed() -> Self {
        Self(Arc::new(Mutex::new(Progress::Over(None))))
    }

    /// One of [`standing`].
    pub(super) fn standing(&self) -> u8 {
        match &*lock(&self.0) {
            Progress::UnderWay => standing::UNDER_WAY,
            Progress::Over(Some(_)) => standing::TAKEN,
            Progress::Over(None) => standing::FAILED,
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
