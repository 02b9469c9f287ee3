//! Processes that are threads: one has ended once it says so, after its last store.

use std::sync::Arc;

use loom::sync::atomic::{AtomicBool, Ordering};

/// Says whether a rank has ended.
#[derive(Clone)]
pub(super) struct ProcessWatch {
    has_ended: Arc<AtomicBool>,
}

impl ProcessWatch {
    pub(super) fn new() -> Self {
        Self { has_ended: Arc::new(AtomicBool::new(false)) }
    }

    /// The rank ends. The kernel tells of an end after it has taken the process off its core, so
    /// all that the process stored is seen by the process that is told.
    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }
}
