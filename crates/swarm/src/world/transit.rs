//! Frames on their way over links, and the end of links.

use std::ops::Range;

use rand::RngExt;
use tributary_protocol::Carrier;
use tributary_wire::frame::Header;

use super::{Incoming, World};
use crate::agenda::{End, Item};
use crate::fault_record::{Key, MEMBER_LOST, NODE_LOST};
use crate::link::{Holder, Parcel};
use crate::timeouts::JOIN_TIMEOUT_NS;
use crate::verdict::Violation;

impl World<'_> {
    /// Sends a frame over a link, if the link still carries anything in that direction.
    pub(crate) fn send(&mut self, link: u32, to: End, mut bytes: Vec<u8>, is_forged: bool) {
        let delay_ns = self.delay_ns();
        let now = self.now;
        self.frames += 1;
        // A stranger has no key.
        if self.links[link as usize].edge.is_some() {
            self.seal(&mut bytes);
        }
        let entry = &mut self.links[link as usize];
        let flip = if is_forged { None } else { entry.flip[to as usize].take() };
        let damage = entry.damage[to as usize].filter(|_| !is_forged);
        if entry.has_ended[to.other() as usize] || !entry.is_open(to.other()) {
            self.recycle(bytes);
            return;
        }
        let is_damaged = damage.is_some_and(|bit| crate::inject::damage(&mut bytes, bit));
        if is_damaged {
            entry.damage[to as usize] = None;
        }
        if let Some(bit) = flip {
            crate::inject::flip(&mut bytes, bit);
        }
        let is_altered = is_damaged || flip.is_some();
        entry.is_tampered |= is_altered;
        self.trace.note_number(now ^ u64::from(link) << 48 ^ (to as u64) << 47);
        self.trace.note_bytes(&bytes);
        let is_forged = is_forged || is_altered;
        let at = entry.arrives_at(to, now, delay_ns);
        entry.queue[to as usize].push_back(Parcel::Frame { bytes, is_forged });
        self.agenda.put(at, Item::Arrive { link, to });
        if is_altered {
            self.blame_link(link, at);
        }
    }

    /// The processes at the link have cause, from `at` on, to fail its group.
    pub(crate) fn blame_link(&mut self, link: u32, at: u64) {
        let entry = &self.links[link as usize];
        let is_node = matches!(entry.holder(End::Lower), Holder::Node { .. });
        let cause = match entry.holder(End::Lower) {
            Holder::Node { .. } => NODE_LOST,
            Holder::Member(_) | Holder::Stranger => MEMBER_LOST,
        };
        if let Some(edge) = &entry.edge {
            // An aggregator does not know which child a link is for before it has joined. If the child is
            // an aggregator, that aggregator reports the failure to the manager first.
            let at = if entry.has_joined { at } else { at.max(self.now + JOIN_TIMEOUT_NS) };
            let (key, below, has_joined) = (edge.group, edge.below.clone(), entry.has_joined);
            // A parent takes the end of a child's link for the end of its leave, if it has left. The child, which was still to hear that all
            // have left, fails, and only the manager can tell the others.
            let has_left = is_node && self.have_said_leave(key, &below);
            let entry = self.fault_record.entry(key);
            entry.blame(at, cause, below);
            entry.may_withdraw |= !has_joined || has_left;
        }
    }

    fn have_said_leave(&self, key: Key, members: &Range<u32>) -> bool {
        let run = self.runs.iter().rfind(|run| run.key == key);
        let all = run.map_or(&[][..], |run| &run.members);
        let mut below =
            all.iter().filter(|member| members.contains(&self.members[**member as usize].number));
        below.all(|member| self.members[*member as usize].has_said_leave)
    }

    /// The next parcel of a link arrives.
    pub(super) fn arrive(&mut self, link: u32, to: End) {
        let now = self.now;
        let machines = self.links[link as usize].machines;
        let cut_until = self.cut_until(machines[to.other() as usize], machines[to as usize]);
        let entry = self.link(link);
        let until = entry.held_until[to as usize].max(cut_until.unwrap_or(0));
        if entry.is_open(to) && now < until {
            self.agenda.put(until, Item::Arrive { link, to });
            return;
        }
        let Some(parcel) = entry.queue[to as usize].pop_front() else { return };
        let is_open = entry.is_open(to);
        match parcel {
            Parcel::Frame { bytes, is_forged } => {
                if is_open {
                    self.deliver(link, to, Carrier::Link, &bytes, is_forged);
                }
                self.recycle(bytes);
            }
            Parcel::End if is_open => self.on_ended(link, to),
            Parcel::End => {}
        }
        self.after_arrival(link, to);
    }

    /// A parcel that has arrived makes room, and may have been the last unread one.
    fn after_arrival(&mut self, link: u32, to: End) {
        let entry = self.link(link);
        let source = to.other();
        let is_waited_for = std::mem::take(&mut entry.is_blocked[source as usize]);
        if is_waited_for && entry.is_open(source) {
            match entry.holder(source) {
                Holder::Node { node, port } => self.flush(node, port),
                Holder::Member(member) => self.restless_members.push(member),
                Holder::Stranger => {}
            }
        }
    }

    pub(crate) fn deliver(
        &mut self,
        link: u32,
        to: End,
        carrier: Carrier,
        bytes: &[u8],
        is_forged: bool,
    ) {
        let frame = Incoming { link, to, carrier, bytes, is_forged };
        match self.links[link as usize].holder(to) {
            Holder::Node { node, port } => self.node_takes(node, port, frame),
            Holder::Member(member) => self.member_takes(member, frame),
            Holder::Stranger => {
                let what = Header::decode(bytes).map(|header| format!("{:?}", header.message));
                let what = what.unwrap_or_else(|error| error.to_string());
                self.report(None, Violation::Leak { whom: "a stranger".to_owned(), what });
            }
        }
    }

    /// An end closes its direction, but still reads.
    pub(crate) fn say_end(&mut self, link: u32, end: End) {
        let delay_ns = self.delay_ns();
        let now = self.now;
        let entry = self.link(link);
        if std::mem::replace(&mut entry.has_ended[end as usize], true) {
            return;
        }
        let to = end.other();
        let at = entry.arrives_at(to, now, delay_ns);
        entry.queue[to as usize].push_back(Parcel::End);
        self.agenda.put(at, Item::Arrive { link, to });
    }

    /// The other end has closed its direction. No process keeps using only the other one.
    fn on_ended(&mut self, link: u32, to: End) {
        self.close(link, to);
    }

    /// An end closes, and its machine is told.
    pub(crate) fn close(&mut self, link: u32, end: End) {
        if self.shut(link, end) {
            self.say_end(link, end);
            self.tell_closed(link, end, false);
        }
    }

    /// An end closes because its peer broke the protocol.
    pub(crate) fn refuse(&mut self, link: u32, end: End) {
        if self.shut(link, end) {
            self.say_end(link, end);
            self.tell_closed(link, end, true);
        }
    }

    /// An end closes with an error: what it had sent may be lost.
    pub(crate) fn reset(&mut self, link: u32, end: End) {
        if !self.links[link as usize].is_open(end) {
            return;
        }
        self.lose_some(link, end.other());
        self.close(link, end);
    }

    /// An end vanishes without a message; its machine is not told.
    pub(crate) fn vanish(&mut self, link: u32, end: End, is_noticed_at: u64) {
        if self.shut(link, end) {
            self.link(link).has_ended[end as usize] = true;
            self.agenda.put(is_noticed_at, Item::LinkSilent { link, end: end.other() });
        }
    }

    /// An end's process dies, and its kernel closes the link; the machine is gone too.
    pub(crate) fn die(&mut self, link: u32, end: End) {
        let entry = &self.links[link as usize];
        if !entry.is_open(end) {
            return;
        }
        let has_unread = !entry.queue[end as usize].is_empty();
        if has_unread {
            self.lose_some(link, end.other());
        }
        self.shut(link, end);
        self.say_end(link, end);
    }

    /// Part of what is on its way to an end never arrives; the other, still open, is to close.
    pub(crate) fn lose_some(&mut self, link: u32, to: End) {
        let sent = self.links[link as usize].queue[to as usize].len();
        let kept = self.random.random_range(0..=sent);
        let entry = self.link(link);
        entry.queue[to as usize].truncate(kept);
        entry.has_ended[to.other() as usize] = false;
    }

    /// An end gives up its peer.
    pub(crate) fn give_up(&mut self, link: u32, end: End) {
        if self.shut(link, end) {
            self.say_end(link, end);
            self.tell_closed(link, end, false);
        }
    }

    fn shut(&mut self, link: u32, end: End) -> bool {
        let entry = self.link(link);
        let was_open = std::mem::take(&mut entry.is_open[end as usize]);
        if was_open {
            for parcel in std::mem::take(&mut self.link(link).queue[end as usize]) {
                if let Parcel::Frame { bytes, .. } = parcel {
                    self.recycle(bytes);
                }
            }
        }
        was_open
    }

    fn tell_closed(&mut self, link: u32, end: End, is_refused: bool) {
        let key = self.edge_key(link);
        self.trace.note(self.now, key, || {
            let how = if is_refused { "refuses its peer and closes" } else { "closes" };
            format!("link {link}: {end:?} end {how}")
        });
        match self.links[link as usize].holder(end) {
            Holder::Node { node, port } => self.node_unplugs(node, port, is_refused),
            Holder::Member(member) => self.member_unplugs(member, is_refused),
            Holder::Stranger => {}
        }
    }

    pub(crate) fn recycle(&mut self, mut bytes: Vec<u8>) {
        bytes.clear();
        self.spare.push(bytes);
    }
}
