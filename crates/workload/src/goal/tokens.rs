//! The words of a GOAL file, with the lines that they are on.

use super::error::GoalError;

/// A word, number or sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A keyword or label.
    Word(&'a str),
    /// A number.
    Number(u64),
    /// A number followed by `b`.
    Bytes(u64),
    /// `-1`.
    Any,
    /// `{`, `}` or `:`.
    Sign(char),
    /// The end of a line.
    EndOfLine,
}

/// Reads a text word by word.
#[derive(Clone, Debug)]
pub(super) struct Tokens<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text, line: 1 }
    }

    /// The line of the next word, from 1.
    pub(super) fn line(&self) -> usize {
        self.line
    }

    /// The next word; none at the end of the text.
    pub(super) fn next(&mut self) -> Result<Option<Token<'a>>, GoalError> {
        self.skip_blanks()?;
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        let token = match first {
            '\n' => {
                self.line += 1;
                self.rest = &self.rest[1..];
                Token::EndOfLine
            }
            '{' | '}' | ':' => {
                self.rest = &self.rest[1..];
                Token::Sign(first)
            }
            '-' => self.any()?,
            '0'..='9' => self.number()?,
            'a'..='z' | 'A'..='Z' | '_' => {
                Token::Word(self.take(|letter| letter.is_ascii_alphanumeric() || letter == '_'))
            }
            other => return Err(self.wrong(format!("{other:?}"), "a word, a number or a bracket")),
        };
        Ok(Some(token))
    }

    pub(super) fn wrong(&self, found: impl ToString, allowed: &'static str) -> GoalError {
        GoalError::Syntax { line: self.line, found: found.to_string(), allowed }
    }

    fn take(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|letter| !belongs(letter)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn any(&mut self) -> Result<Token<'a>, GoalError> {
        match self.rest.strip_prefix("-1") {
            Some(rest) if !rest.starts_with(|next: char| next.is_ascii_alphanumeric()) => {
                self.rest = rest;
                Ok(Token::Any)
            }
            _ => Err(self.wrong("`-`", "-1 for any source or tag")),
        }
    }

    fn number(&mut self) -> Result<Token<'a>, GoalError> {
        let digits = self.take(|letter| letter.is_ascii_digit());
        let Ok(number) = digits.parse() else {
            let shown: String = digits.chars().take(24).collect();
            return Err(self.wrong(format!("`{shown}`"), "a number up to 18446744073709551615"));
        };
        match self.take(|letter| letter.is_ascii_alphanumeric() || letter == '_') {
            "" => Ok(Token::Number(number)),
            "b" => Ok(Token::Bytes(number)),
            _ => Err(self.wrong(format!("`{number}` and letters"), "a number, or one with `b`")),
        }
    }

    /// Skips what separates words, and comments.
    fn skip_blanks(&mut self) -> Result<(), GoalError> {
        loop {
            self.rest = self.rest.trim_start_matches([' ', '\t', '\r']);
            if self.rest.starts_with("//") {
                self.rest = &self.rest[self.rest.find('\n').unwrap_or(self.rest.len())..];
            } else if let Some(comment) = self.rest.strip_prefix("/*") {
                let Some(end) = comment.find("*/") else {
                    return Err(self.wrong("`/*`", "a comment that ends with */"));
                };
                self.line += comment[..end].matches('\n').count();
                self.rest = &comment[end + 2..];
            } else {
                return Ok(());
            }
        }
    }
}
