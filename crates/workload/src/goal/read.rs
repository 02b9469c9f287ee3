//! Reading GOAL. What is kept is at most a constant multiple of the text, and 24 bytes for each rank.

use std::collections::HashMap;

use super::error::GoalError;
use super::tokens::{Token, Tokens};
use super::{CALC_MAX_NS, Goal, Operation, RANKS_MAX, Task};

/// Reads a program.
///
/// # Errors
/// [`GoalError`], always one line.
pub fn read(text: &str) -> Result<Goal, GoalError> {
    let mut reader = Reader { tokens: Tokens::new(text) };
    reader.goal()
}

struct Reader<'a> {
    tokens: Tokens<'a>,
}

/// The labels of a rank, with the places of their operations.
type Labels<'a> = HashMap<&'a str, u32>;

impl<'a> Reader<'a> {
    fn goal(&mut self) -> Result<Goal, GoalError> {
        const NUM_RANKS: &str = "num_ranks N in the first line";
        match self.after_blank_lines()? {
            Some(Token::Word("num_ranks")) => {}
            Some(other) => return Err(self.wrong(other, NUM_RANKS)),
            None => return Err(self.tokens.wrong("the end of the file", NUM_RANKS)),
        }
        let ranks = self.number("num_ranks", u64::from(RANKS_MAX), NUM_RANKS)?;
        if ranks == 0 {
            return Err(self.wrong(Token::Number(0), NUM_RANKS));
        }
        self.end_of_statement("the end of the line")?;
        let mut goal = Goal { ranks: vec![Vec::new(); ranks as usize] };
        let mut is_there = vec![false; ranks as usize];
        while let Some(word) = self.after_blank_lines()? {
            const RANK: &str = "rank N {";
            if word != Token::Word("rank") {
                return Err(self.wrong(word, RANK));
            }
            let rank = self.number("rank", ranks - 1, RANK)? as usize;
            if core::mem::replace(&mut is_there[rank], true) {
                return Err(self.twice(format!("rank {rank}")));
            }
            self.expect(Token::Sign('{'), RANK)?;
            goal.ranks[rank] = self.section(ranks)?;
        }
        Ok(goal)
    }

    /// The operations of a rank, up to the closing bracket.
    fn section(&mut self, ranks: u64) -> Result<Vec<Operation>, GoalError> {
        const STATEMENT: &str = "an operation, `LABEL requires LABEL`, or }";
        let mut operations = Vec::new();
        let mut labels = Labels::new();
        loop {
            let Some(first) = self.after_blank_lines()? else {
                return Err(self.tokens.wrong("the end of the file", STATEMENT));
            };
            let word = match first {
                Token::Sign('}') => return Ok(operations),
                Token::Word(word) => word,
                other => return Err(self.wrong(other, STATEMENT)),
            };
            if let "send" | "recv" | "calc" = word {
                operations.push(self.operation(word, ranks)?);
                continue;
            }
            match self.next("a label's `:`, requires or irequires")? {
                Token::Sign(':') => {
                    let place = operations.len() as u32;
                    if labels.insert(word, place).is_some() {
                        return Err(self.twice(format!("label `{word}`")));
                    }
                    let kind = self.word("send, recv or calc")?;
                    operations.push(self.operation(kind, ranks)?);
                }
                Token::Word(how @ ("requires" | "irequires")) => {
                    let later = self.place(&labels, word)? as usize;
                    let name = self.word("a label")?;
                    let earlier = self.place(&labels, name)?;
                    self.end_of_statement("the end of the line")?;
                    let operation = &mut operations[later];
                    let list = if how == "requires" {
                        &mut operation.requires
                    } else {
                        &mut operation.irequires
                    };
                    list.push(earlier);
                }
                other => return Err(self.wrong(other, "a label's `:`, requires or irequires")),
            }
        }
    }

    /// An operation after its first word, to the end of its line.
    fn operation(&mut self, kind: &str, ranks: u64) -> Result<Operation, GoalError> {
        let rank_max = ranks - 1;
        let mut operation = match kind {
            "calc" => {
                let ns = self.number("calc", CALC_MAX_NS, "calc NANOSECONDS")?;
                Operation::new(Task::Calc { ns })
            }
            "send" => {
                const SEND: &str = "send Nb to RANK";
                let bytes = self.bytes(SEND)?;
                self.word_of("to", SEND)?;
                let to = self.number("to", rank_max, SEND)? as u32;
                Operation::new(Task::Send { bytes, to, tag: 0 })
            }
            "recv" => {
                const RECEIVE: &str = "recv Nb from RANK, or from -1";
                let bytes = self.bytes(RECEIVE)?;
                self.word_of("from", RECEIVE)?;
                let from = self.number_or_any("from", rank_max, RECEIVE)?.map(|from| from as u32);
                Operation::new(Task::Receive { bytes, from, tag: Some(0) })
            }
            other => return Err(self.wrong(Token::Word(other), "send, recv or calc")),
        };
        self.options(&mut operation)?;
        Ok(operation)
    }

    /// `tag N`, `cpu N` and `nic N`, to the end of the statement.
    fn options(&mut self, operation: &mut Operation) -> Result<(), GoalError> {
        const OPTIONS: &str = "tag N of a message, cpu N, nic N, or the end of the line";
        loop {
            let before = self.tokens.clone();
            match self.tokens.next()? {
                Some(Token::Word("cpu")) => operation.cpu = self.number("cpu", 255, OPTIONS)? as u8,
                Some(Token::Word("nic")) => operation.nic = self.number("nic", 255, OPTIONS)? as u8,
                Some(Token::Word("tag")) => match &mut operation.task {
                    Task::Send { tag, .. } => *tag = self.tag(OPTIONS)?,
                    Task::Receive { tag, .. } => {
                        let max = u64::from(u32::MAX - 1);
                        *tag = self.number_or_any("tag", max, OPTIONS)?.map(|tag| tag as u32);
                    }
                    Task::Calc { .. } => return Err(self.wrong(Token::Word("tag"), OPTIONS)),
                },
                _ => {
                    self.tokens = before;
                    return self.end_of_statement(OPTIONS);
                }
            }
        }
    }

    /// The end of the line, or the bracket that closes the section and stays.
    fn end_of_statement(&mut self, allowed: &'static str) -> Result<(), GoalError> {
        let before = self.tokens.clone();
        match self.tokens.next()? {
            None | Some(Token::EndOfLine) => Ok(()),
            Some(Token::Sign('}')) => {
                self.tokens = before;
                Ok(())
            }
            Some(other) => Err(self.wrong(other, allowed)),
        }
    }

    fn tag(&mut self, allowed: &'static str) -> Result<u32, GoalError> {
        Ok(self.number("tag", u64::from(u32::MAX - 1), allowed)? as u32)
    }

    fn place(&self, labels: &Labels<'_>, label: &str) -> Result<u32, GoalError> {
        labels
            .get(label)
            .copied()
            .ok_or_else(|| GoalError::NoLabel { line: self.tokens.line(), label: label.to_owned() })
    }

    fn after_blank_lines(&mut self) -> Result<Option<Token<'a>>, GoalError> {
        loop {
            match self.tokens.next()? {
                Some(Token::EndOfLine) => {}
                other => return Ok(other),
            }
        }
    }

    fn next(&mut self, allowed: &'static str) -> Result<Token<'a>, GoalError> {
        self.tokens.next()?.ok_or_else(|| self.tokens.wrong("the end of the file", allowed))
    }

    fn word(&mut self, allowed: &'static str) -> Result<&'a str, GoalError> {
        match self.next(allowed)? {
            Token::Word(word) => Ok(word),
            other => Err(self.wrong(other, allowed)),
        }
    }

    fn word_of(&mut self, word: &'static str, allowed: &'static str) -> Result<(), GoalError> {
        self.expect(Token::Word(word), allowed)
    }

    fn expect(&mut self, wanted: Token<'_>, allowed: &'static str) -> Result<(), GoalError> {
        let found = self.next(allowed)?;
        if found == wanted { Ok(()) } else { Err(self.wrong(found, allowed)) }
    }

    fn bytes(&mut self, allowed: &'static str) -> Result<u32, GoalError> {
        match self.next(allowed)? {
            Token::Bytes(number) => {
                Ok(self.within("the length", number, u64::from(u32::MAX))? as u32)
            }
            other => Err(self.wrong(other, allowed)),
        }
    }

    fn number(
        &mut self,
        what: &'static str,
        max: u64,
        allowed: &'static str,
    ) -> Result<u64, GoalError> {
        match self.next(allowed)? {
            Token::Number(number) => self.within(what, number, max),
            other => Err(self.wrong(other, allowed)),
        }
    }

    fn number_or_any(
        &mut self,
        what: &'static str,
        max: u64,
        allowed: &'static str,
    ) -> Result<Option<u64>, GoalError> {
        match self.next(allowed)? {
            Token::Any => Ok(None),
            Token::Number(number) => Ok(Some(self.within(what, number, max)?)),
            other => Err(self.wrong(other, allowed)),
        }
    }

    fn within(&self, what: &'static str, value: u64, max: u64) -> Result<u64, GoalError> {
        let line = self.tokens.line();
        if value <= max { Ok(value) } else { Err(GoalError::TooLarge { line, what, value, max }) }
    }

    fn twice(&self, what: String) -> GoalError {
        GoalError::Twice { line: self.tokens.line(), what }
    }

    fn wrong(&self, found: Token<'_>, allowed: &'static str) -> GoalError {
        let found = match found {
            Token::Word(word) => format!("`{word}`"),
            Token::Number(number) => format!("`{number}`"),
            Token::Bytes(number) => format!("`{number}b`"),
            Token::Any => "`-1`".to_owned(),
            Token::Sign(sign) => format!("`{sign}`"),
            Token::EndOfLine => "the end of the line".to_owned(),
        };
        self.tokens.wrong(found, allowed)
    }
}
