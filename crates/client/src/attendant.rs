//! Attends to a communicator when its tree may be lost or another host needs an answer, whatever the program does meanwhile.

use std::sync::Weak;

use tributary_inter_host::watch::{Alarm, Attend};

use crate::request::enlist;
use crate::shared::Shared;

/// What the watch of links wakes.
pub(crate) struct Attendant {
    pub(crate) shared: Weak<Shared>,
    pub(crate) alarm: Weak<Alarm>,
}

impl Attend for Attendant {
    fn attend(&self) -> bool {
        let Some(shared) = self.shared.upgrade() else { return false };
        let Some(mut engine) = shared.engine.try_lock() else {
            // The thread that has it attends, but may go before all is settled.
            return self.alarm.upgrade().is_some_and(|alarm| alarm.is_raised());
        };
        let has_more = engine.attend();
        // What aggregation nodes would have finished alone needs a thread now.
        let needs_driving = engine.needs_driving();
        drop(engine);
        if needs_driving {
            enlist(&shared);
        }
        has_more
    }
}
