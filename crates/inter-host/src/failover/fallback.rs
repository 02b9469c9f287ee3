//! What a leader has for the case that its tree is lost.

use std::sync::Arc;

use tributary_wire::Epoch;
use tributary_wire::frame::Abort;

use super::rejoin::Request;
use super::settling::Settling;
use super::terms::Terms;
use crate::direct::DirectLinks;
use crate::tree::{TreeMember, suspects};
use crate::watch::Alarm;

/// Links to the other hosts, and the way into another tree.
pub(super) struct Fallback {
    pub(super) links: DirectLinks,
    pub(super) terms: Terms,
    pub(super) request: Request,
    pub(super) alarm: Arc<Alarm>,
    /// Trees lost so far.
    lost: u32,
}

impl Fallback {
    pub(super) fn new(
        links: DirectLinks,
        terms: Terms,
        request: Request,
        alarm: Arc<Alarm>,
    ) -> Self {
        Self { links, terms, request, alarm, lost: 0 }
    }

    /// Whether other hosts want to settle the loss of the tree in which this one still is.
    pub(super) fn is_called(&mut self) -> Result<bool, Abort> {
        self.links.is_called(Epoch(self.lost + 1))
    }

    /// Cuts `member` off from the tree, and begins to settle its loss.
    pub(super) fn begin_to_settle(&mut self, member: TreeMember) -> Result<Box<Settling>, Abort> {
        self.alarm.ignore(self.links.descriptors());
        self.alarm.attend_to();
        self.alarm.call();
        suspects::suspect_all();
        self.lost += 1;
        let mut settling = Box::new(Settling::new(member.cut_off(), self.terms.window_max()));
        if self.links.me() != 0 {
            self.links.raise_alarm(Epoch(self.lost));
        }
        settling.begin(&mut self.links)?;
        Ok(settling)
    }
}
