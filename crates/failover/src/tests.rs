//! Goal: wherever its members stand when a tree is lost, a group can finish what it began. Method: every
//! state that three members and two operations can come to, each member cut off at every moment.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::*;

const MEMBERS: usize = 3;
const OPERATIONS: u32 = 2;
const SEGMENTS: u32 = 3;
const WINDOW: u16 = 2;
/// All numbers wrap.
const FIRST: OperationNumber = OperationNumber(u32::MAX);

/// A member, in place: a result lies where the contribution was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Member {
    /// Operations completed.
    completed: u32,
    is_started: bool,
    /// Segments of the present operation that it has contributed to.
    sent: u32,
    /// A bit for each segment with a result.
    has: u8,
    is_cut_off: bool,
}

impl Member {
    fn has(&self, segment: u32) -> bool {
        self.has >> segment & 1 == 1
    }

    fn prefix(&self) -> u32 {
        (0..SEGMENTS).find(|segment| !self.has(*segment)).unwrap_or(SEGMENTS)
    }

    /// Whether it has contributed to this segment of this operation.
    fn has_contributed(&self, operation: u32, segment: u32) -> bool {
        self.completed > operation || self.completed == operation && self.sent > segment
    }

    fn standing(&self) -> Standing {
        let prefix = self.prefix();
        Standing {
            operation: number(self.completed),
            is_started: self.is_started,
            complete: Segments {
                prefix,
                window: (prefix..prefix + u32::from(WINDOW)).map(|it| self.has(it)).collect(),
            },
        }
    }
}

fn number(operation: u32) -> OperationNumber {
    OperationNumber(FIRST.0.wrapping_add(operation))
}

type Group = [Member; MEMBERS];

/// Every state one event later. A tree that is lost for one member may still serve another.
fn successors(group: &Group) -> Vec<Group> {
    let mut next = Vec::new();
    for index in 0..MEMBERS {
        let member = group[index];
        if member.is_cut_off {
            continue;
        }
        let mut with = |changed: Member| {
            let mut group = *group;
            group[index] = changed;
            next.push(group);
        };
        with(Member { is_cut_off: true, ..member });
        if !member.is_started {
            if member.completed < OPERATIONS {
                with(Member { is_started: true, ..member });
            }
            continue;
        }
        if member.sent < SEGMENTS.min(member.prefix() + u32::from(WINDOW)) {
            with(Member { sent: member.sent + 1, ..member });
        }
        for segment in (0..member.sent).filter(|segment| !member.has(*segment)) {
            if !group.iter().all(|it| it.has_contributed(member.completed, segment)) {
                continue;
            }
            let taken = Member { has: member.has | 1 << segment, ..member };
            if taken.prefix() == SEGMENTS {
                with(Member { completed: member.completed + 1, ..Member::default() });
            } else {
                with(taken);
            }
        }
    }
    next
}

/// What was seen, so that the test can't pass without seeing it.
#[derive(Debug, Default)]
struct Seen {
    restarts: u32,
    redone: u32,
    supplied_from_tail: u32,
    supplied_under_way: u32,
}

/// Settles a group that is cut off, and checks that everything needed is where it is looked for.
fn check(group: &Group, receivers: Receivers, seen: &mut Seen) {
    let standings: Vec<Standing> = group.iter().map(Member::standing).collect();
    let operation = match settle(&standings).expect("members of one group") {
        Settlement::Restart(operation) => {
            seen.restarts += 1;
            let is_untouched = |it: &Member| it.has == 0 && number(it.completed) == operation;
            assert!(group.iter().all(is_untouched), "{group:?}");
            return;
        }
        Settlement::Finish(operation) => operation,
    };
    let cut = Cut { segment_bytes: 8, segments: SEGMENTS, len_bytes: 20, window: WINDOW };
    let is_behind = |member: &Member| number(member.completed) == operation;
    let mut after = *group;
    for Step { segments, action } in steps(&standings, operation, SEGMENTS, receivers) {
        for segment in segments {
            match action {
                Action::Supply { from } => {
                    let holder = &group[from];
                    if is_behind(holder) {
                        seen.supplied_under_way += 1;
                        assert!(holder.has(segment), "{group:?}");
                    } else {
                        seen.supplied_from_tail += 1;
                        assert!(cut.tail().contains(&segment), "{group:?}");
                    }
                }
                Action::Redo => {
                    seen.redone += 1;
                    for (index, member) in group.iter().enumerate() {
                        let gets_result =
                            receivers != Receivers::All && receivers != Receivers::Member(index);
                        let is_there = if is_behind(member) {
                            member.is_started && (gets_result || !member.has(segment))
                        } else {
                            gets_result && cut.tail().contains(&segment)
                        };
                        assert!(is_there, "{receivers:?} {segment} {group:?}");
                    }
                }
            }
            after.iter_mut().filter(|it| is_behind(it)).for_each(|it| it.has |= 1 << segment);
        }
    }
    for (index, member) in after.iter().enumerate().filter(|(_, it)| is_behind(it)) {
        assert!(member.is_started, "what is finished was begun: {group:?}");
        let gets_result = receivers == Receivers::All || receivers == Receivers::Member(index);
        assert!(!gets_result || member.prefix() == SEGMENTS, "{receivers:?} {group:?}");
    }
    // Nobody has a result of the operation behind it, which is started again.
    let is_ahead = |it: &&Member| !is_behind(it);
    assert!(group.iter().filter(is_ahead).all(|it| it.has == 0), "{group:?}");
}

#[test]
fn wherever_its_members_stand_a_group_can_finish_what_it_began() {
    for receivers in [Receivers::All, Receivers::Member(0), Receivers::Member(2)] {
        let mut seen = Seen::default();
        let start = [Member::default(); MEMBERS];
        let mut known = BTreeSet::from([start]);
        let mut open = vec![start];
        while let Some(group) = open.pop() {
            if group.iter().all(|member| member.is_cut_off) {
                check(&group, receivers, &mut seen);
            }
            open.extend(successors(&group).into_iter().filter(|next| known.insert(*next)));
        }
        assert!(seen.restarts > 0 && seen.redone > 0, "{seen:?}");
        let supplies = [seen.supplied_from_tail, seen.supplied_under_way];
        match receivers {
            Receivers::All => assert!(supplies.iter().all(|it| *it > 0), "{seen:?}"),
            Receivers::Member(_) => assert_eq!(supplies, [0, 0], "only one member has results"),
        }
        assert!(known.len() > 5_000, "{} states", known.len());
    }
}

#[test]
fn standings_of_different_groups_are_told_apart() {
    let at = |operation| Standing {
        operation: number(operation),
        is_started: true,
        complete: Segments::default(),
    };
    let far = [0, 2].map(at);
    assert_eq!(settle(&far), Err(Torn { first: number(0), other: number(2) }));
    let spread = [1, 0, 2].map(at);
    assert_eq!(settle(&spread), Err(Torn { first: number(0), other: number(2) }));
}

#[test]
fn what_nobody_has_is_computed_in_one_step_however_long_it_is() {
    let standing = |prefix: u32, window: &[bool]| Standing {
        operation: FIRST,
        is_started: true,
        complete: Segments { prefix, window: window.to_vec() },
    };
    let standings = [standing(4, &[false, true]), standing(3, &[false, false])];
    let expected = [
        Step { segments: 3..4, action: Action::Supply { from: 0 } },
        Step { segments: 4..5, action: Action::Redo },
        Step { segments: 5..6, action: Action::Supply { from: 0 } },
        Step { segments: 6..u32::MAX, action: Action::Redo },
    ];
    assert_eq!(steps(&standings, FIRST, u32::MAX, Receivers::All), expected);
}
