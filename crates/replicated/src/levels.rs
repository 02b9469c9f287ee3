//! One host in the groups of all levels of a plan: the sum of one level is its contribution to the next.

use core::ops::Range;

use alloc::vec::Vec;

use tributary_algorithms::plan::{HostGroup, Plan};

use crate::{
    Call, Datagram, Failure, Landing, MEMBERS_MAX, Member, Message, NotNow, Output, Place,
};

/// Operations of a communicator run one by one.
const WINDOW: u16 = 1;

/// Bits of a group's tag that tell the level: a plan has 12 at most. The others tell groups apart in which the same hosts meet.
const LEVEL_BITS: u32 = 8;

/// Why the hosts of a plan are no replicated groups. All hosts come to the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoGroups {
    /// A group is larger than the machine's, or a host has nobody to meet at a level.
    #[error(
        "a group of level {level} has {members} members; a replicated group has 2 to {MEMBERS_MAX}"
    )]
    Members {
        /// The level, from the hosts on.
        level: usize,
        /// How many the group has.
        members: u32,
    },
    /// One host alone has no group.
    #[error("a plan without levels has no groups")]
    Alone,
}

/// One of a host's groups.
#[derive(Debug)]
pub struct Group {
    level: usize,
    tag: u32,
    hosts: Vec<u32>,
    me: u8,
    machine: Member,
}

impl Group {
    fn new(level: usize, group: HostGroup, host: u32, ask_after_ns: u64) -> Self {
        let HostGroup { round, hosts } = group;
        let me = hosts.iter().position(|member| *member == host);
        let me = me.expect("a host is a member of its groups") as u8;
        let machine = Member::new(me, hosts.len() as u8, WINDOW, ask_after_ns);
        #[cfg(feature = "planted-bugs")]
        let round =
            if crate::planted::is_planted(crate::planted::Bug::RoundForgotten) { 0 } else { round };
        Self { level, tag: level as u32 | round << LEVEL_BITS, hosts, me, machine }
    }

    /// Its level, from the hosts on.
    #[must_use]
    pub fn level(&self) -> usize {
        self.level
    }

    /// What all its members call it, in frames.
    #[must_use]
    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// Its members' hosts, in child order.
    #[must_use]
    pub fn hosts(&self) -> &[u32] {
        &self.hosts
    }

    /// This host's number as a member.
    #[must_use]
    pub fn me(&self) -> u8 {
        self.me
    }

    /// A member's host.
    ///
    /// # Panics
    /// If there is no such member.
    #[must_use]
    pub fn host(&self, member: u8) -> u32 {
        self.hosts[usize::from(member)]
    }

    /// The number of another host as a member.
    #[must_use]
    pub fn member(&self, host: u32) -> Option<u8> {
        let member = self.hosts.iter().position(|member| *member == host)? as u8;
        (member != self.me).then_some(member)
    }

    /// How many places the driver's memory has for it.
    #[must_use]
    pub fn places(&self) -> usize {
        self.machine.places()
    }

    /// Where this host's contribution to the next operation goes.
    #[must_use]
    pub fn next_place(&self) -> Place {
        self.machine.next_place()
    }

    /// How many operations it has begun here.
    #[must_use]
    pub fn begun_count(&self) -> u64 {
        self.machine.begun_count()
    }

    /// The whole number of an operation of which a frame tells the lower half: one that is near those under way.
    #[must_use]
    pub fn whole(&self, number: u32) -> Option<u64> {
        let distance = number.wrapping_sub(self.begun_count() as u32).cast_signed();
        self.begun_count().checked_add_signed(distance.into())
    }

    /// What a member called in an operation, as far as this host knows and remembers it.
    #[must_use]
    pub fn call(&self, operation: u64, member: u8) -> Option<Call> {
        self.machine.call(operation, member)
    }
}

/// What a driver is to do, in this order. Groups are told by their place in [`Levels::groups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send a datagram to all other members of a group.
    Send {
        /// The group.
        group: usize,
        /// What it says.
        datagram: Datagram,
        /// Its payload.
        payload: Place,
        /// The payload of the contribution before it.
        previous: Option<Place>,
    },
    /// Send a message over the link to a member of a group.
    Tell {
        /// The group.
        group: usize,
        /// To whom.
        to: u8,
        /// What.
        message: Message,
        /// Its payload, if it has one.
        payload: Option<Place>,
    },
    /// Fold all contributions of a place, from the first member's to the last's, into its sum.
    Fold {
        /// The group.
        group: usize,
        /// The place.
        place: usize,
    },
    /// The sum of a level is this host's contribution to the next one: put it at [`Group::next_place`] of all groups of that level, before
    /// the next step is taken.
    Raise {
        /// The group that has the sum.
        group: usize,
        /// Its place there.
        place: usize,
        /// The next level.
        to: usize,
    },
    /// The operation is over, and the sum of the last level its result.
    Completed {
        /// The group that has the sum.
        group: usize,
        /// Its place there.
        place: usize,
    },
    /// An operation failed in a group, and with it all of them.
    Failed {
        /// The group.
        group: usize,
        /// The operation.
        operation: u64,
        /// Why.
        failure: Failure,
    },
}

/// One host's groups of all levels, and the operation that goes through them.
#[derive(Debug)]
pub struct Levels {
    /// From the first level on. At each level first its own, whose sum goes to the next level, then those in which the host stands in
    /// for others.
    groups: Vec<Group>,
    /// Those of each level.
    levels: Vec<Range<usize>>,
    running: Option<Running>,
}

/// The operation under way.
#[derive(Clone, Copy, Debug)]
struct Running {
    call: Call,
    level: usize,
    /// The driver puts the contribution at its places, so the groups of the level have not begun.
    is_raised: bool,
    /// Groups of the level in which it is not complete.
    groups_left: usize,
    /// Where the sum of the level is, once its own group is complete.
    sum_place: Option<usize>,
}

impl Levels {
    /// One of the hosts of a plan. It asks for a contribution that is `ask_after_ns` late, or later where datagrams [take
    /// longer](Self::set_round_trip).
    ///
    /// # Errors
    /// [`NoGroups`] where the plan's groups are none that exchange datagrams; the same at all hosts.
    ///
    /// # Panics
    /// If the plan has no such host.
    pub fn new(plan: &Plan, host: u32, ask_after_ns: u64) -> Result<Self, NoGroups> {
        let mut groups: Vec<Group> = Vec::new();
        let mut levels = Vec::with_capacity(plan.levels());
        for (level, of_level) in groups_of(plan, host)?.into_iter().enumerate() {
            let first = groups.len();
            groups.extend(of_level.into_iter().map(|it| Group::new(level, it, host, ask_after_ns)));
            levels.push(first..groups.len());
        }
        Ok(Self { groups, levels, running: None })
    }

    /// All its groups.
    #[must_use]
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// How many levels there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.levels.len()
    }

    /// Which groups are those of a level.
    ///
    /// # Panics
    /// If there is no such level.
    #[must_use]
    pub fn of_level(&self, level: usize) -> Range<usize> {
        self.levels[level].clone()
    }

    /// The group that frames call so, and another host's number in it; none if that is not a member.
    #[must_use]
    pub fn find(&self, tag: u32, host: u32) -> Option<(usize, u8)> {
        let index = self.groups.iter().position(|group| group.tag == tag)?;
        Some((index, self.groups[index].member(host)?))
    }

    /// The level that the operation under way has come to.
    #[must_use]
    pub fn running_level(&self) -> Option<usize> {
        self.running.map(|running| running.level)
    }

    /// Begins the next operation, with the contribution at [`Group::next_place`] of all groups of the first level.
    ///
    /// # Errors
    /// [`NotNow`] if one is under way, or none can begin any more.
    pub fn begin(&mut self, call: Call, now_ns: u64) -> Result<(), NotNow> {
        if self.running.is_some() {
            return Err(NotNow::WindowFull);
        }
        let begun = self.begin_level(0, call, now_ns);
        if begun.is_err() {
            self.running = None;
        }
        begun
    }

    fn begin_level(&mut self, level: usize, call: Call, now_ns: u64) -> Result<(), NotNow> {
        let groups = self.of_level(level);
        let groups_left = groups.len();
        self.running =
            Some(Running { call, level, is_raised: false, groups_left, sum_place: None });
        for group in &mut self.groups[groups] {
            group.machine.begin(call, now_ns)?;
        }
        Ok(())
    }

    /// Gives the operation under way up: its driver has failed.
    pub fn give_up(&mut self) {
        self.running = None;
    }

    /// Begins no operation any more. The process may end once [`Self::may_end`].
    pub fn leave(&mut self) {
        self.groups.iter_mut().for_each(|group| group.machine.leave());
    }

    /// Whether nobody needs this host any more.
    #[must_use]
    pub fn may_end(&self) -> bool {
        self.groups.iter().all(|group| group.machine.may_end())
    }

    /// A datagram of a member of a group has come. Its payload goes where the answer says, before the next step is taken.
    ///
    /// # Panics
    /// If there is no such group.
    pub fn handle_datagram(&mut self, group: usize, from: u8, datagram: &Datagram) -> Landing {
        self.groups[group].machine.handle_datagram(from, datagram)
    }

    /// A message of a member of a group has come over its link. Its payload goes to the place.
    ///
    /// # Panics
    /// If there is no such group.
    pub fn handle_message(&mut self, group: usize, from: u8, message: Message) -> Option<Place> {
        self.groups[group].machine.handle_message(from, message)
    }

    /// The link to another host has ended: it is dead, unless it has left and nobody needs it.
    pub fn handle_link_closed(&mut self, host: u32) {
        for group in &mut self.groups {
            if let Some(member) = group.member(host) {
                group.machine.handle_link_closed(member);
            }
        }
    }

    /// See [`Member::set_round_trip`].
    pub fn set_round_trip(&mut self, round_trip_ns: u64) {
        self.groups.iter_mut().for_each(|group| group.machine.set_round_trip(round_trip_ns));
    }

    /// Time has come to [`Self::next_timer_ns`].
    pub fn handle_timer(&mut self, now_ns: u64) {
        for Group { machine, .. } in &mut self.groups {
            if machine.next_timer_ns().is_some_and(|at_ns| at_ns <= now_ns) {
                machine.handle_timer(now_ns);
            }
        }
    }

    /// When to call [`Self::handle_timer`].
    #[must_use]
    pub fn next_timer_ns(&self) -> Option<u64> {
        self.groups.iter().filter_map(|group| group.machine.next_timer_ns()).min()
    }

    /// How many contributions to operations that this host has begun are not here yet.
    #[must_use]
    pub fn lacking(&self) -> u32 {
        self.groups.iter().map(|group| group.machine.lacking()).sum()
    }

    /// What to do next.
    pub fn poll(&mut self, now_ns: u64) -> Option<Step> {
        if let Some(Running { call, level, is_raised: true, .. }) = self.running {
            // A group that has failed says so in its outputs.
            let _ = self.begin_level(level, call, now_ns);
        }
        (0..self.groups.len()).find_map(|group| self.poll_group(group))
    }

    fn poll_group(&mut self, group: usize) -> Option<Step> {
        while let Some(output) = self.groups[group].machine.poll() {
            return Some(match output {
                Output::Send { datagram, payload, previous } => {
                    Step::Send { group, datagram, payload, previous }
                }
                Output::Tell { to, message, payload } => Step::Tell { group, to, message, payload },
                Output::Fold { place } => Step::Fold { group, place },
                Output::Completed { place, .. } => match self.complete(group, place) {
                    Some(step) => step,
                    None => continue,
                },
                Output::Failed { operation, failure } => Step::Failed { group, operation, failure },
            });
        }
        None
    }

    /// The operation under way is complete in a group. Once it is in all groups of the level, it goes to the next one.
    fn complete(&mut self, group: usize, place: usize) -> Option<Step> {
        let running = self.running.as_mut()?;
        let of_level = self.levels[running.level].clone();
        assert!(of_level.contains(&group), "levels come one after the other");
        if group == of_level.start {
            running.sum_place = Some(place);
        }
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is_planted(crate::planted::Bug::RaisedEarly) {
            running.groups_left = 1;
        }
        running.groups_left -= 1;
        let place = running.sum_place.filter(|_| running.groups_left == 0)?;
        let (group, to) = (of_level.start, running.level + 1);
        if to == self.levels.len() {
            self.running = None;
            return Some(Step::Completed { group, place });
        }
        (running.level, running.is_raised) = (to, true);
        Some(Step::Raise { group, place, to })
    }
}

/// The groups that `host` belongs to at each level, from the first on: its own, then those in which it stands in.
fn groups_of(plan: &Plan, host: u32) -> Result<Vec<Vec<HostGroup>>, NoGroups> {
    if plan.levels() == 0 {
        return Err(NoGroups::Alone);
    }
    for level in 0..plan.levels() {
        let is_unfit = |members: &u32| !(2..=MEMBERS_MAX.into()).contains(members);
        if let Some(members) = plan.group_sizes(level).find(is_unfit) {
            return Err(NoGroups::Members { level, members });
        }
    }
    Ok(plan.groups_of(host))
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use alloc::vec;

    use tributary_algorithms::{Action, Collective, Division, Radices, Schedule};

    use super::*;

    fn even(hosts: u32, radices: &[u32]) -> Plan {
        Plan::even(hosts, Radices::new(radices).expect("radices")).expect("a plan")
    }

    #[test]
    fn they_are_those_that_its_schedule_exchanges_with() {
        for plan in [even(24, &[4, 3, 2]), even(17, &[5, 4]), even(29, &[4, 4, 2])] {
            exchanges_are_those_of_the_schedule(&Arc::new(plan));
        }
    }

    /// A host receives from the members of its own group at each level.
    fn exchanges_are_those_of_the_schedule(plan: &Arc<Plan>) {
        for host in 0..plan.hosts() {
            let schedule =
                Schedule::over_levels(plan, Division::Whole, Collective::Barrier, 0, host);
            let mut exchanged = vec![vec![host]; plan.levels()];
            for step in schedule.expect("a barrier goes over whole vectors") {
                if let Action::Receive { from, .. } = step.action {
                    exchanged[step.round as usize].push(from);
                }
            }
            exchanged.iter_mut().for_each(|hosts| hosts.sort_unstable());
            let levels = groups_of(plan, host).expect("groups").into_iter();
            let own: Vec<_> = levels.map(|mut groups| groups.swap_remove(0).hosts).collect();
            assert_eq!(own, exchanged, "host {host}");
        }
    }

    #[test]
    fn groups_that_a_machine_does_not_serve_are_refused_at_every_host() {
        for host in 0..3 {
            let alone = NoGroups::Members { level: 0, members: 1 };
            assert_eq!(groups_of(&even(3, &[2, 2]), host), Err(alone));
        }
        let large = NoGroups::Members { level: 0, members: 65 };
        assert_eq!(groups_of(&even(65, &[65]), 9), Err(large));
        assert_eq!(groups_of(&Plan::new(1, &[]).expect("a plan"), 0), Err(NoGroups::Alone));
    }
}
