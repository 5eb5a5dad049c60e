//! PTX text as tokens with their lines. Knows characters only: no opcode, no directive.

use crate::ParseError;

/// What a token is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Opcodes, directives, registers and names: everything that begins like an identifier.
    Word(String),
    /// An integer, as its 64 bits.
    Integer(u64),
    /// `0f…`, as the bits of a single.
    Single(u32),
    /// `0d…` or a decimal fraction, as the bits of a double.
    Double(u64),
    /// The inside of a quoted string.
    Quoted(String),
    /// Punctuation.
    Mark(char),
}

/// A token and the line it is on.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) line: usize,
}

/// The tokens of a text; comments are dropped.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, ParseError> {
    let mut reader = Reader { text: text.as_bytes(), at: 0, line: 1, tokens: Vec::new() };
    reader.read()?;
    Ok(reader.tokens)
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    line: usize,
    tokens: Vec<Token>,
}

fn begins_word(c: u8) -> bool {
    c.is_ascii_alphabetic() || matches!(c, b'_' | b'$' | b'%' | b'.')
}

impl Reader<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.text.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn push(&mut self, kind: Kind) {
        self.tokens.push(Token { kind, line: self.line });
    }

    fn fail<T>(&self, message: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError { line: self.line, message: message.into() })
    }

    fn read(&mut self) -> Result<(), ParseError> {
        while self.at < self.text.len() {
            let c = self.peek(0);
            match c {
                b'\n' => {
                    self.line += 1;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' | 0 => self.at += 1,
                b'/' if self.peek(1) == b'/' => {
                    while self.at < self.text.len() && self.peek(0) != b'\n' {
                        self.at += 1;
                    }
                }
                b'/' if self.peek(1) == b'*' => self.block_comment()?,
                b'"' => self.quoted()?,
                b'0'..=b'9' => self.number()?,
                _ if begins_word(c) => self.word(),
                _ if c.is_ascii_punctuation() => {
                    self.push(Kind::Mark(c as char));
                    self.at += 1;
                }
                _ => return self.fail(format!("unexpected byte {c:#04x}")),
            }
        }
        Ok(())
    }

    fn block_comment(&mut self) -> Result<(), ParseError> {
        self.at += 2;
        loop {
            match (self.peek(0), self.peek(1)) {
                (b'*', b'/') => break,
                (b'\n', _) => self.line += 1,
                _ if self.at >= self.text.len() => return self.fail("comment without an end"),
                _ => {}
            }
            self.at += 1;
        }
        self.at += 2;
        Ok(())
    }

    fn quoted(&mut self) -> Result<(), ParseError> {
        let start = self.at + 1;
        self.at = start;
        while self.peek(0) != b'"' {
            if self.at >= self.text.len() || self.peek(0) == b'\n' {
                return self.fail("string without an end");
            }
            self.at += 1;
        }
        let inside = String::from_utf8_lossy(&self.text[start..self.at]).into_owned();
        self.push(Kind::Quoted(inside));
        self.at += 1;
        Ok(())
    }

    /// A word may hold dots, and `::` where a letter goes on (`.L2::128B`), but no single colon.
    fn word(&mut self) {
        let start = self.at;
        loop {
            let c = self.peek(0);
            if begins_word(c) || c.is_ascii_digit() {
                self.at += 1;
            } else if c == b':' && self.peek(1) == b':' {
                self.at += 2;
            } else {
                break;
            }
        }
        let word = String::from_utf8_lossy(&self.text[start..self.at]).into_owned();
        self.push(Kind::Word(word));
    }

    fn number(&mut self) -> Result<(), ParseError> {
        let start = self.at;
        while self.peek(0).is_ascii_alphanumeric() || self.peek(0) == b'.' {
            self.at += 1;
            // The sign of a decimal exponent belongs to the number.
            let exponent = matches!(self.text[self.at - 1], b'e' | b'E')
                && !self.text[start..].starts_with(b"0x")
                && !self.text[start..].starts_with(b"0f")
                && !self.text[start..].starts_with(b"0d");
            if exponent && matches!(self.peek(0), b'+' | b'-') {
                self.at += 1;
            }
        }
        let digits = String::from_utf8_lossy(&self.text[start..self.at]).to_ascii_lowercase();
        match number(&digits) {
            Some(kind) => self.push(kind),
            None => return self.fail(format!("`{digits}` is no number")),
        }
        Ok(())
    }
}

fn number(digits: &str) -> Option<Kind> {
    let radix = |text: &str, radix| u64::from_str_radix(text, radix).ok();
    if let Some(hex) = digits.strip_prefix("0x") {
        return radix(hex.trim_end_matches('u'), 16).map(Kind::Integer);
    }
    if let Some(hex) = digits.strip_prefix("0f") {
        return u32::from_str_radix(hex, 16).ok().map(Kind::Single);
    }
    if let Some(hex) = digits.strip_prefix("0d") {
        return radix(hex, 16).map(Kind::Double);
    }
    if let Some(binary) = digits.strip_prefix("0b") {
        return radix(binary.trim_end_matches('u'), 2).map(Kind::Integer);
    }
    if digits.contains(['.', 'e']) {
        return digits.parse::<f64>().ok().map(|v| Kind::Double(v.to_bits()));
    }
    let plain = digits.trim_end_matches('u');
    if plain.len() > 1 && plain.starts_with('0') {
        return radix(&plain[1..], 8).map(Kind::Integer);
    }
    plain.parse().ok().map(Kind::Integer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Kind> {
        tokens(text).unwrap().into_iter().map(|t| t.kind).collect()
    }

    #[test]
    fn numbers_of_every_form() {
        use Kind::*;
        let found = kinds("0x1F 017 0b101 42U 0f3F800000 0d3FF0000000000000 1.5 2e+1 0xffu");
        let expected = [
            Integer(31),
            Integer(15),
            Integer(5),
            Integer(42),
            Single(1.0f32.to_bits()),
            Double(1.0f64.to_bits()),
            Double(1.5f64.to_bits()),
            Double(20.0f64.to_bits()),
            Integer(255),
        ];
        assert_eq!(found, expected);
        assert!(tokens("12z").is_err());
    }

    #[test]
    fn lines_and_comments() {
        let found = tokens("a // b\n/* c\n d */ ld.global.L2::128B [%rd1+4];\n\"x y\"").unwrap();
        assert_eq!(found[0].line, 1);
        assert_eq!(found[1].kind, Kind::Word("ld.global.L2::128B".into()));
        assert_eq!(found[1].line, 3);
        assert_eq!(found.last().unwrap().kind, Kind::Quoted("x y".into()));
        assert_eq!(found.last().unwrap().line, 4);
        assert_eq!(tokens("\n\n/* open").unwrap_err().line, 3);
    }
}
