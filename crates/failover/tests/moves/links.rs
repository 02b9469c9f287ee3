//! Collectives over direct links. Each member goes through them in its own time, all in the same order.

use std::collections::VecDeque;

use tributary_failover::Step;

use super::system::MEMBERS;

/// What a collective is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Purpose {
    /// In a settlement.
    Call,
    Standings,
    Step(Step),
    /// At a boundary.
    Announcement,
    Grant,
    Places,
    /// An operation of the program.
    Operation,
}

/// The members that have to contribute before a member can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Needs {
    One(usize),
    All,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Collective {
    purpose: Purpose,
    needs: Needs,
    given: [Option<Vec<u8>>; MEMBERS],
}

/// The collectives that some member has begun and not all are through with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Links {
    collectives: VecDeque<Collective>,
    /// By member: the collective that it is in, or will be in next.
    at: [usize; MEMBERS],
    is_in: [bool; MEMBERS],
}

impl Links {
    /// A member begins its next collective.
    pub(super) fn begin(
        &mut self,
        member: usize,
        purpose: Purpose,
        needs: Needs,
        bytes: Vec<u8>,
    ) -> Result<(), String> {
        assert!(!self.is_in[member], "one at a time");
        let at = self.at[member];
        if self.collectives.len() == at {
            let given = [const { None }; MEMBERS];
            self.collectives.push_back(Collective { purpose: purpose.clone(), needs, given });
        }
        let collective = &mut self.collectives[at];
        if collective.purpose != purpose {
            let theirs = &collective.purpose;
            return Err(format!("member {member} is at {purpose:?}, others are at {theirs:?}"));
        }
        collective.given[member] = Some(bytes);
        self.is_in[member] = true;
        Ok(())
    }

    /// Whether a member is in a collective.
    pub(super) fn is_in(&self, member: usize) -> bool {
        self.is_in[member]
    }

    /// Whether all has come that a member waits for.
    pub(super) fn can_end(&self, member: usize) -> bool {
        let collective = &self.collectives[self.at[member]];
        self.is_in[member]
            && match collective.needs {
                Needs::One(from) => collective.given[from].is_some(),
                Needs::All => collective.given.iter().all(Option::is_some),
            }
    }

    /// Whether another member calls this one to a settlement, which it is not in.
    pub(super) fn is_called(&self, member: usize) -> bool {
        let next = self.collectives.get(self.at[member]);
        !self.is_in[member]
            && next.is_some_and(|it| it.purpose == Purpose::Call && it.given[0].is_some())
    }

    /// Ends a member's collective: what it was for, and what comes of it. Contributions come together by "or".
    pub(super) fn end(&mut self, member: usize) -> (Purpose, Vec<u8>) {
        let Collective { purpose, needs, given } = &self.collectives[self.at[member]];
        let bytes = match needs {
            Needs::One(from) => given[*from].clone().expect("it has come"),
            Needs::All => given.iter().flatten().fold(Vec::new(), |mut all, bytes| {
                all.resize(all.len().max(bytes.len()), 0);
                all.iter_mut().zip(bytes).for_each(|(all, byte)| *all |= byte);
                all
            }),
        };
        let ended = (purpose.clone(), bytes);
        self.is_in[member] = false;
        self.at[member] += 1;
        while self.at.iter().all(|at| *at > 0) {
            self.collectives.pop_front();
            self.at.iter_mut().for_each(|at| *at -= 1);
        }
        ended
    }
}
