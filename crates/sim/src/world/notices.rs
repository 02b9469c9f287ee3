//! What the members of replicated groups say to one another, and a rank's place in such groups.

use tributary_replicated::{Datagram, Levels, Message};

use super::ids::{NoticeId, RankId};
use crate::engine::Picos;

/// What one member says to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notice {
    /// Its receiver; of a multicast its sender.
    pub(super) to: RankId,
    /// What members call the group.
    pub(super) group: u32,
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

/// A rank's place in the groups of all levels.
pub(super) struct Groups {
    pub(super) levels: Levels,
    /// By group.
    pub(super) traffic: Vec<Traffic>,
    /// The length of a contribution to the operation under way.
    pub(super) len_bytes: Option<u32>,
    /// When it is to look for contributions that are late, if that is scheduled.
    pub(super) timer_at: Option<Picos>,
    /// What has come and is not taken.
    pub(super) inbox: Vec<Notice>,
    /// Whether an event is scheduled at which the rank takes what has come.
    pub(super) is_taking: bool,
}

/// What the machine of one group does not know.
pub(super) struct Traffic {
    /// Whether contributions are multicast.
    pub(super) multicasts: bool,
    /// The members, in child order.
    pub(super) ranks: Vec<RankId>,
}

impl Groups {
    pub(super) fn is_datagram_awaited(&self) -> bool {
        self.len_bytes.is_some()
    }

    /// The place of the group that members call so.
    pub(super) fn find(&self, tag: u32) -> usize {
        let place = self.levels.groups().iter().position(|group| group.tag() == tag);
        place.expect("members meet in groups of both")
    }
}
