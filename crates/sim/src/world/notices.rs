//! What the members of replicated groups say to one another, and a rank's place in such groups.

use std::ops::Range;

use tributary_replicated::{Call, Datagram, Member, Message};

use super::ids::{NoticeId, RankId};
use crate::engine::Picos;

/// What one member says to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notice {
    /// Its receiver; of a multicast its sender.
    pub(super) to: RankId,
    pub(super) group: GroupTag,
    /// Its sender, as a member of the group.
    pub(super) from: u8,
    pub(super) said: Said,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Said {
    Datagram(Datagram),
    Message(Message),
}

/// All notices under way, in reused places.
#[derive(Debug, Default)]
pub(super) struct Notices {
    places: Vec<Notice>,
    free: Vec<u32>,
}

impl Notices {
    pub(super) fn put(&mut self, notice: Notice) -> NoticeId {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = notice;
            return NoticeId(place);
        }
        self.places.push(notice);
        NoticeId(u32::try_from(self.places.len() - 1).expect("fewer than 2^32 notices at once"))
    }

    /// It is taken, or lost.
    pub(super) fn take(&mut self, id: NoticeId) -> Notice {
        self.free.push(id.0);
        self.places[id.0 as usize]
    }
}

/// What members call a group in which they meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupTag {
    pub(super) level: usize,
    pub(super) round: u32,
}

/// A rank's place in the groups of all levels.
pub(super) struct Groups {
    /// From the first level on, at each level first its own, then those in which it stands in for other ranks.
    pub(super) groups: Vec<Group>,
    /// Those of each level.
    pub(super) levels: Vec<Range<usize>>,
    /// The operation under way, its level, and in how many groups of that level it is not complete.
    pub(super) call: Option<Call>,
    pub(super) level: usize,
    pub(super) groups_left: usize,
    /// What has come and is not taken.
    pub(super) inbox: Vec<Notice>,
    /// Whether an event is scheduled at which the rank takes what has come.
    pub(super) is_taking: bool,
}

pub(super) struct Group {
    pub(super) tag: GroupTag,
    /// Whether contributions are multicast.
    pub(super) multicasts: bool,
    pub(super) machine: Member,
    /// The members, in child order.
    pub(super) ranks: Vec<RankId>,
    pub(super) timer_at: Option<Picos>,
}

impl Groups {
    pub(super) fn is_datagram_awaited(&self) -> bool {
        self.call.is_some()
    }

    /// The place of the group that members call so.
    pub(super) fn find(&self, tag: GroupTag) -> usize {
        let place = self.groups.iter().position(|group| group.tag == tag);
        place.expect("members meet in groups of both")
    }
}
