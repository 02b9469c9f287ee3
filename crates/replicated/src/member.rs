//! The machine of one member.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::operation::{Members, Operation, Outcome, one};
use crate::patience::Patience;
use crate::{
    Call, Datagram, Failure, Landing, MEMBERS_MAX, Message, Output, Place, REPEATED_MAX_BYTES,
};

/// One member of a replicated group.
#[derive(Debug)]
pub struct Member {
    me: u8,
    members: u8,
    window: u64,
    patience: Patience,
    /// By number modulo their count: those under way, and as many before them that others may ask about.
    operations: Vec<Operation>,
    /// The next to begin.
    next: u64,
    /// All before this one are over here.
    over: u64,
    dead: Members,
    /// Members that have left, and those that have said that they lack nothing of this one's.
    left: Members,
    farewells: Members,
    /// Members that leave and wait, each until this member has completed all before a number.
    leaving: Vec<(u8, u64)>,
    has_left: bool,
    has_failed: Option<Failure>,
    outputs: VecDeque<Output>,
}

/// Why an operation cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotNow {
    /// As many as the window holds are under way.
    WindowFull,
    /// The group has failed, or this member has left.
    Over,
}

impl Member {
    /// Member `me` of a group of `members`, with so many operations under way at once at most. It asks for a contribution that is
    /// `ask_after_ns` late, or later where datagrams [take longer](Self::set_round_trip).
    ///
    /// # Panics
    /// If the group has fewer than two members or more than [`MEMBERS_MAX`], or there is no such member, or no window.
    #[must_use]
    pub fn new(me: u8, members: u8, window: u16, ask_after_ns: u64) -> Self {
        assert!((2..=MEMBERS_MAX).contains(&members) && me < members && window > 0);
        let places = 2 * u64::from(window);
        Self {
            me,
            members,
            window: u64::from(window),
            patience: Patience::new(ask_after_ns),
            operations: (0..places).map(|number| Operation::new(number, members)).collect(),
            next: 0,
            over: 0,
            dead: 0,
            left: 0,
            farewells: 0,
            leaving: Vec::new(),
            has_left: false,
            has_failed: None,
            outputs: VecDeque::new(),
        }
    }

    /// How many places the driver's memory has.
    #[must_use]
    pub fn places(&self) -> usize {
        self.operations.len()
    }

    /// How many operations it has begun.
    #[must_use]
    pub fn begun_count(&self) -> u64 {
        self.next
    }

    /// Where this member's contribution to the next operation goes, before [`Self::begin`].
    #[must_use]
    pub fn next_place(&self) -> Place {
        Place::Contribution { place: self.place(self.next), member: self.me }
    }

    /// Begins the next operation, with the contribution at [`Self::next_place`].
    ///
    /// # Errors
    /// [`NotNow`] if it has to wait for one under way, or none can begin any more.
    pub fn begin(&mut self, call: Call, now_ns: u64) -> Result<u64, NotNow> {
        if self.has_left || self.has_failed.is_some() {
            return Err(NotNow::Over);
        }
        if self.next >= self.over + self.window {
            return Err(NotNow::WindowFull);
        }
        let number = self.next;
        self.next += 1;
        self.open(number);
        let (me, place) = (self.me, self.place(number));
        let operation = &mut self.operations[place];
        operation.is_begun = true;
        operation.patience_ns = self.patience.ask_after_ns();
        operation.ask_at_ns = now_ns + operation.patience_ns;
        operation.take(me, call);
        let owed = core::mem::take(&mut operation.owed);
        let previous = self.repeated_contribution(number);
        let datagram = Datagram { operation: number, call, previous: previous.map(|it| it.0) };
        let payload = Place::Contribution { place, member: me };
        let previous = previous.map(|it| it.1);
        self.outputs.push_back(Output::Send { datagram, payload, previous });
        #[cfg(feature = "planted-bugs")]
        let owed =
            if crate::planted::is_planted(crate::planted::Bug::OwedForgotten) { 0 } else { owed };
        self.each(owed, |this, to| this.push_contribution(to, number));
        self.each(self.dead, |this, of| this.ask_others(number, of));
        self.advance(number);
        Ok(number)
    }

    /// Begins no operation any more. The process may end once [`Self::may_end`].
    pub fn leave(&mut self) {
        if !core::mem::replace(&mut self.has_left, true) {
            let message = Message::Leave { before: self.next };
            self.each(self.others(), |this, to| this.tell(to, message, None));
        }
    }

    /// Whether nobody needs this member any more.
    #[must_use]
    pub fn may_end(&self) -> bool {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is_planted(crate::planted::Bug::LeavesAtOnce) {
            return self.has_left && self.over == self.next;
        }
        let heard = self.farewells | self.dead;
        if self.has_failed.is_some() {
            return self.has_left;
        }
        self.has_left && self.over == self.next && heard & self.others() == self.others()
    }

    /// A datagram has come. Its payload goes where the answer says, before the next output is taken.
    pub fn handle_datagram(&mut self, from: u8, datagram: &Datagram) -> Landing {
        if !self.is_other(from) {
            return Landing::default();
        }
        let Datagram { operation, call, previous } = *datagram;
        // The one before first: it may be what this member waits for.
        let before = previous.and_then(|call| self.take(from, operation.checked_sub(1)?, call));
        let current = self.take(from, operation, call);
        // A later frame of the same sender: what it sent before is lost, or late.
        for number in self.over..operation.min(self.next) {
            self.ask_if_lacking(number, from);
        }
        Landing { current, previous: before }
    }

    /// A message has come over the link to a member. Its payload goes to the place.
    pub fn handle_message(&mut self, from: u8, message: Message) -> Option<Place> {
        if !self.is_other(from) {
            return None;
        }
        match message {
            Message::Ask { operation } => self.answer(from, operation),
            Message::AskFor { operation, of } if of < self.members => {
                self.answer_for(from, operation, of);
            }
            Message::NotYet { operation, lacks: Some(of) } if of < self.members => {
                if let Some(operation) = self.known_mut(operation) {
                    operation.lacking[usize::from(of)] |= one(from);
                    let number = operation.number;
                    self.give_up_if_lost(number, of);
                }
            }
            Message::NotYet { operation, lacks: None } => {
                if let Some(operation) = self.known_mut(operation) {
                    operation.late |= one(from);
                }
            }
            Message::AskForSum { operation } => {
                if self.known_at(operation).is_some_and(|it| it.outcome == Outcome::Completed) {
                    self.push_sum(from, operation);
                }
            }
            Message::Contribution { operation, call } => return self.take(from, operation, call),
            Message::Passed { operation, of, call } if of < self.members => {
                return self.take_passed(of, operation, call);
            }
            Message::Sum { operation } => return self.take_sum(operation),
            Message::Failed { failure } => self.handle_failed(failure),
            Message::Leave { before } => {
                if self.left & one(from) == 0 {
                    self.left |= one(from);
                    self.leaving.push((from, before));
                    self.say_farewells();
                }
            }
            Message::Farewell => self.farewells |= one(from),
            Message::AskFor { .. } | Message::NotYet { .. } | Message::Passed { .. } => {}
        }
        None
    }

    /// The link to a member has ended: it is dead, unless it has left and nobody needs it.
    pub fn handle_link_closed(&mut self, of: u8) {
        if !self.is_other(of) || self.dead & one(of) != 0 {
            return;
        }
        self.dead |= one(of);
        for number in self.over..self.next {
            self.ask_others(number, of);
            // A death may leave nobody who could still answer for another.
            self.each(self.dead, |this, dead| this.give_up_if_lost(number, dead));
        }
    }

    /// So long a question and its answer take on the way to the slowest member and back. A contribution that is late by less than
    /// twice as long may be on its way.
    pub fn set_round_trip(&mut self, round_trip_ns: u64) {
        let more_ns = self.patience.set_round_trip(round_trip_ns);
        for number in self.over..self.next {
            let place = self.place(number);
            let operation = &mut self.operations[place];
            if !operation.has_doubted && operation.ask_at_ns != u64::MAX {
                operation.patience_ns += more_ns;
                operation.ask_at_ns += more_ns;
            }
        }
    }

    /// Time has come to [`Self::next_timer_ns`].
    pub fn handle_timer(&mut self, now_ns: u64) {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is_planted(crate::planted::Bug::NoTimer) {
            return;
        }
        for number in self.over..self.next {
            let place = self.place(number);
            let operation = &mut self.operations[place];
            if operation.ask_at_ns <= now_ns {
                let is_first = !core::mem::replace(&mut operation.has_doubted, true);
                operation.patience_ns = operation.patience_ns.saturating_mul(2);
                operation.ask_at_ns = now_ns.saturating_add(operation.patience_ns);
                if is_first {
                    self.each(self.others(), |this, from| this.ask_if_lacking(number, from));
                } else {
                    self.ask_for_sum(number);
                }
            }
        }
    }

    /// When to call [`Self::handle_timer`].
    #[must_use]
    pub fn next_timer_ns(&self) -> Option<u64> {
        if self.has_failed.is_some() {
            return None;
        }
        let open =
            (self.over..self.next).map(|number| self.operations[self.place(number)].ask_at_ns);
        open.min().filter(|at_ns| *at_ns != u64::MAX)
    }

    /// How many contributions to operations that this member has begun are not here yet.
    #[must_use]
    pub fn lacking(&self) -> u32 {
        let lacking = |number| self.others() & !self.operations[self.place(number)].present;
        (self.over..self.next).map(|number| lacking(number).count_ones()).sum()
    }

    /// What a member called, as far as this one knows and remembers it.
    #[must_use]
    pub fn call(&self, operation: u64, member: u8) -> Option<Call> {
        self.known_at(operation).filter(|_| member < self.members)?.call(member)
    }

    /// What to do next.
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn place(&self, number: u64) -> usize {
        (number % self.operations.len() as u64) as usize
    }

    fn others(&self) -> Members {
        (u64::MAX >> (64 - u32::from(self.members))) & !one(self.me)
    }

    fn is_other(&self, member: u8) -> bool {
        member < self.members && member != self.me
    }

    fn each(&mut self, members: Members, mut act: impl FnMut(&mut Self, u8)) {
        (0..self.members).filter(|it| members & one(*it) != 0).for_each(|it| act(self, it));
    }

    fn tell(&mut self, to: u8, message: Message, payload: Option<Place>) {
        if self.dead & one(to) == 0 {
            self.outputs.push_back(Output::Tell { to, message, payload });
        }
    }

    /// Gives a place to an operation. A member that has begun it has completed the one a window before, which all began
    /// after they had completed the one two windows before: nobody asks about that any more.
    fn open(&mut self, number: u64) {
        let place = self.place(number);
        if self.operations[place].number < number {
            self.operations[place] = Operation::new(number, self.members);
        }
    }

    /// Whether an operation is one that others may have begun, and that is not over here.
    fn is_open(&self, number: u64) -> bool {
        (self.over..self.next + self.window).contains(&number)
            && self.has_failed.is_none()
            && self.known_at(number).is_none_or(|it| it.outcome == Outcome::Open)
    }

    fn known_at(&self, number: u64) -> Option<&Operation> {
        Some(&self.operations[self.place(number)]).filter(|it| it.number == number)
    }

    fn known_mut(&mut self, number: u64) -> Option<&mut Operation> {
        let place = self.place(number);
        Some(&mut self.operations[place]).filter(|it| it.number == number)
    }

    /// This member's contribution before an operation, if it is short enough to be sent again.
    fn repeated_contribution(&self, number: u64) -> Option<(Call, Place)> {
        let number = number.checked_sub(1)?;
        let call = self.known_at(number)?.call(self.me)?;
        let place = Place::Contribution { place: self.place(number), member: self.me };
        (call.len_bytes <= REPEATED_MAX_BYTES).then_some((call, place))
    }

    fn take(&mut self, from: u8, number: u64, call: Call) -> Option<Place> {
        if !self.is_open(number) {
            return None;
        }
        self.open(number);
        let place = self.place(number);
        if !self.operations[place].take(from, call) {
            return None;
        }
        self.advance(number);
        Some(Place::Contribution { place, member: from })
    }

    /// Of a dead member only that is taken from others which they were asked for.
    fn take_passed(&mut self, of: u8, number: u64, call: Call) -> Option<Place> {
        let operation = self.known_mut(number)?;
        if operation.asked_for & one(of) == 0 {
            return None;
        }
        operation.cut &= !one(of);
        self.take(of, number, call)
    }

    fn take_sum(&mut self, number: u64) -> Option<Place> {
        if !self.is_open(number) || number >= self.next {
            return None;
        }
        let place = self.place(number);
        self.complete(number);
        Some(Place::Sum { place })
    }

    /// Completes an operation, or fails it, if all contributions are here.
    fn advance(&mut self, number: u64) {
        let (everybody, place) = (self.others() | one(self.me), self.place(number));
        let operation = &self.operations[place];
        if !operation.is_begun || operation.outcome != Outcome::Open {
            return;
        }
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is_planted(crate::planted::Bug::NamedAsSeen) {
            let own = operation.call(self.me);
            let other = (0..self.members)
                .find(|it| operation.call(*it).is_some() && operation.call(*it) != own);
            if let Some(other) = other {
                return self.fail(number, Failure::Disagreement(self.me, other));
            }
        }
        if operation.present != everybody {
            return;
        }
        match operation.disagreement() {
            Some((first, second)) => self.fail(number, Failure::Disagreement(first, second)),
            None => {
                self.outputs.push_back(Output::Fold { place });
                self.complete(number);
            }
        }
    }

    fn complete(&mut self, number: u64) {
        let place = self.place(number);
        self.operations[place].end(Outcome::Completed);
        let owed = core::mem::take(&mut self.operations[place].owed_sum);
        self.outputs.push_back(Output::Completed { operation: number, place });
        self.each(owed, |this, to| this.push_sum(to, number));
        while self.over < self.next
            && self.operations[self.place(self.over)].outcome == Outcome::Completed
        {
            self.over += 1;
        }
        self.say_farewells();
    }

    /// Fails an operation, and tells all: nobody waits for one that this member does not begin.
    fn fail(&mut self, number: u64, failure: Failure) {
        let place = self.place(number);
        self.operations[place].end(Outcome::Failed);
        self.has_failed = Some(failure);
        self.outputs.push_back(Output::Failed { operation: number, failure });
        let message = Message::Failed { failure };
        self.each(self.others(), |this, to| this.tell(to, message, None));
    }

    /// Another member failed: so does the first operation under way here, since that member may be gone before it has
    /// answered for it; or nothing begins any more. What is complete stays so.
    fn handle_failed(&mut self, failure: Failure) {
        let named = match failure {
            Failure::Disagreement(first, second) => first.max(second),
            Failure::Dead(member) => member,
        };
        if self.has_failed.is_some() || named >= self.members {
            return;
        }
        let open = (self.over..self.next)
            .find(|it| self.known_at(*it).is_some_and(|it| it.outcome == Outcome::Open));
        match open {
            Some(number) => self.fail(number, failure),
            None => self.has_failed = Some(failure),
        }
    }

    fn say_farewells(&mut self) {
        let over = self.over;
        let leaving = core::mem::take(&mut self.leaving);
        for (member, before) in leaving {
            if over >= before {
                self.tell(member, Message::Farewell, None);
            } else {
                self.leaving.push((member, before));
            }
        }
    }

    fn push_contribution(&mut self, to: u8, number: u64) {
        let place = Place::Contribution { place: self.place(number), member: self.me };
        if let Some(call) = self.known_at(number).and_then(|it| it.call(self.me)) {
            self.tell(to, Message::Contribution { operation: number, call }, Some(place));
        }
    }

    fn push_sum(&mut self, to: u8, number: u64) {
        let place = Place::Sum { place: self.place(number) };
        self.tell(to, Message::Sum { operation: number }, Some(place));
    }

    /// Asks a member for its contribution, once: links lose nothing.
    fn ask_if_lacking(&mut self, number: u64, from: u8) {
        let Some(operation) = self.known_mut(number) else { return };
        let is_lacking = operation.outcome == Outcome::Open
            && (operation.present | operation.asked) & one(from) == 0;
        if is_lacking {
            operation.asked |= one(from);
            self.tell(from, Message::Ask { operation: number }, None);
        }
    }

    /// Asks members whose contributions are here for the sum: those that are not may compute, and answer nothing meanwhile,
    /// though they have sent what is lacking. None has the sum while one has not begun.
    fn ask_for_sum(&mut self, number: u64) {
        let place = self.place(number);
        let Operation { present, late, outcome, .. } = self.operations[place];
        if outcome == Outcome::Open && late & !present & !self.dead == 0 {
            let message = Message::AskForSum { operation: number };
            self.each(self.others() & present, |this, to| this.tell(to, message, None));
        }
    }

    fn answer(&mut self, to: u8, number: u64) {
        if number >= self.next + self.window {
            return;
        }
        self.open(number);
        let Some(operation) = self.known_mut(number) else { return };
        match (operation.outcome, operation.is_begun) {
            #[cfg(feature = "planted-bugs")]
            (Outcome::Completed, _)
                if crate::planted::is_planted(crate::planted::Bug::AnswersForgotten) => {}
            (Outcome::Completed, _) => self.push_sum(to, number),
            (Outcome::Open | Outcome::Failed, true) => self.push_contribution(to, number),
            (Outcome::Open | Outcome::Failed, false) => {
                operation.owed |= one(to);
                self.tell(to, Message::NotYet { operation: number, lacks: None }, None);
            }
        }
    }

    /// Asks all others for what a dead member contributed.
    fn ask_others(&mut self, number: u64, of: u8) {
        #[cfg(feature = "planted-bugs")]
        if crate::planted::is_planted(crate::planted::Bug::DeadNotAskedFor) {
            return;
        }
        let Some(operation) = self.known_mut(number) else { return };
        let is_lacking = operation.is_begun
            && operation.outcome == Outcome::Open
            && (operation.present | operation.asked_for) & one(of) == 0;
        if !is_lacking {
            return;
        }
        operation.asked_for |= one(of);
        // What others are told to be lacking stays so, whatever is still under way.
        operation.cut |= one(of);
        let message = Message::AskFor { operation: number, of };
        self.each(self.others(), |this, to| this.tell(to, message, None));
        self.give_up_if_lost(number, of);
    }

    fn answer_for(&mut self, to: u8, number: u64, of: u8) {
        if number >= self.next + self.window {
            return;
        }
        self.open(number);
        let Some(operation) = self.known_mut(number) else { return };
        if operation.outcome == Outcome::Completed {
            return self.push_sum(to, number);
        }
        // Not the sum alone: of two dead members this one may lack what the asking one has.
        if let Some(call) = operation.call(of) {
            let payload = Place::Contribution { place: self.place(number), member: of };
            return self.tell(to, Message::Passed { operation: number, of, call }, Some(payload));
        }
        operation.owed_sum |= one(to);
        operation.cut |= one(of);
        self.tell(to, Message::NotYet { operation: number, lacks: Some(of) }, None);
    }

    /// Fails an operation if nobody that lives has what a dead member contributed.
    fn give_up_if_lost(&mut self, number: u64, of: u8) {
        let (dead, others) = (self.dead, self.others());
        let Some(operation) = self.known_mut(number) else { return };
        let is_asked = operation.asked_for & one(of) != 0 && operation.outcome == Outcome::Open;
        let silent = others & !dead & !operation.lacking[usize::from(of)];
        if is_asked && silent == 0 && self.has_failed.is_none() {
            self.fail(number, Failure::Dead(of));
        }
    }
}
