//! A position among the tokens, and what every room of the parser asks of it.

use crate::ParseError;
use crate::lexer::{Kind, Token};

pub(crate) struct Cursor<'a> {
    tokens: &'a [Token],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(tokens: &'a [Token]) -> Self {
        Cursor { tokens, at: 0 }
    }

    pub(crate) fn peek(&self) -> Option<&'a Kind> {
        self.tokens.get(self.at).map(|t| &t.kind)
    }

    pub(crate) fn next(&mut self) -> Option<&'a Kind> {
        let kind = self.peek();
        self.at += 1;
        kind
    }

    /// The line of the next token, or of the last one at the end.
    pub(crate) fn line(&self) -> usize {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |t| t.line)
    }

    pub(crate) fn fail<T>(&self, message: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError { line: self.line(), message: message.into() })
    }

    pub(crate) fn is(&self, mark: char) -> bool {
        self.peek() == Some(&Kind::Mark(mark))
    }

    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Kind::Word(w)) if w == word)
    }

    /// Goes over a mark if it is there.
    pub(crate) fn take(&mut self, mark: char) -> bool {
        let there = self.is(mark);
        self.at += usize::from(there);
        there
    }

    pub(crate) fn take_word(&mut self, word: &str) -> bool {
        let there = self.is_word(word);
        self.at += usize::from(there);
        there
    }

    pub(crate) fn expect(&mut self, mark: char) -> Result<(), ParseError> {
        if self.take(mark) {
            return Ok(());
        }
        self.fail(format!("expected `{mark}`, found {}", self.shown()))
    }

    pub(crate) fn word(&mut self) -> Result<&'a str, ParseError> {
        match self.peek() {
            Some(Kind::Word(word)) => {
                self.at += 1;
                Ok(word)
            }
            _ => self.fail(format!("expected a name, found {}", self.shown())),
        }
    }

    /// An integer with an optional sign.
    pub(crate) fn integer(&mut self) -> Result<u64, ParseError> {
        let negative = self.take('-');
        match self.peek() {
            Some(Kind::Integer(value)) => {
                self.at += 1;
                Ok(if negative { value.wrapping_neg() } else { *value })
            }
            _ => self.fail(format!("expected an integer, found {}", self.shown())),
        }
    }

    /// Drops what is left of the line of the token before.
    pub(crate) fn skip_line(&mut self) {
        let line = self.tokens[self.at.saturating_sub(1)].line;
        while self.tokens.get(self.at).is_some_and(|t| t.line == line) {
            self.at += 1;
        }
    }

    /// Drops a block in braces.
    pub(crate) fn skip_block(&mut self) -> Result<(), ParseError> {
        self.expect('{')?;
        let mut depth = 1;
        while depth > 0 {
            match self.next() {
                Some(Kind::Mark('{')) => depth += 1,
                Some(Kind::Mark('}')) => depth -= 1,
                Some(_) => {}
                None => return self.fail("block without an end"),
            }
        }
        Ok(())
    }

    /// Whether the next token is a name that ends with a colon.
    pub(crate) fn at_label(&self) -> bool {
        matches!(self.peek(), Some(Kind::Word(_)))
            && self.tokens.get(self.at + 1).is_some_and(|t| t.kind == Kind::Mark(':'))
    }

    pub(crate) fn shown(&self) -> String {
        match self.peek() {
            Some(Kind::Word(word)) => format!("`{word}`"),
            Some(Kind::Mark(mark)) => format!("`{mark}`"),
            Some(other) => format!("{other:?}"),
            None => "the end".into(),
        }
    }
}
