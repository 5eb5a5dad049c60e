//! The body of a kernel: declarations, labels and instructions with their operands.

use super::{Cursor, Instruction, Operand, Space, Statement, item};
use crate::ParseError;
use crate::lexer::Kind;

/// A body in braces; scopes inside become Open and Close.
pub(super) fn body(cursor: &mut Cursor<'_>) -> Result<Vec<Statement>, ParseError> {
    cursor.expect('{')?;
    let (mut body, mut depth) = (Vec::new(), 1);
    loop {
        if cursor.take('}') {
            depth -= 1;
            if depth == 0 {
                return Ok(body);
            }
            body.push(Statement::Close);
        } else if cursor.take('{') {
            depth += 1;
            body.push(Statement::Open);
        } else if !cursor.take(';') {
            statement(cursor, &mut body)?;
        }
    }
}

fn statement(cursor: &mut Cursor<'_>, body: &mut Vec<Statement>) -> Result<(), ParseError> {
    let line = cursor.line();
    if cursor.at_label() {
        let name = cursor.word()?.to_string();
        cursor.expect(':')?;
        if cursor.take_word(".branchtargets") {
            let targets = names(cursor)?;
            body.push(Statement::Targets(name, targets));
        } else {
            body.push(Statement::Label(name, line));
        }
        return Ok(());
    }
    if cursor.is('@') {
        body.push(Statement::Instruction(instruction(cursor)?));
        return Ok(());
    }
    match cursor.peek() {
        Some(Kind::Word(word)) if word.starts_with('.') => {
            cursor.next();
            match word.as_str() {
                ".loc" | ".file" => cursor.skip_line(),
                ".pragma" => item::skip_pragma(cursor)?,
                ".reg" => body.push(registers(cursor, line)?),
                ".shared" | ".local" => {
                    let space = if word == ".local" { Space::Local } else { Space::Shared };
                    let variable = item::variable(cursor, line, space, false)?;
                    body.push(Statement::Variable(variable));
                }
                _ => {
                    return Err(ParseError {
                        line,
                        message: format!("`{word}` is not understood"),
                    });
                }
            }
        }
        Some(Kind::Word(_)) => body.push(Statement::Instruction(instruction(cursor)?)),
        _ => return cursor.fail(format!("expected an instruction, found {}", cursor.shown())),
    }
    Ok(())
}

fn names(cursor: &mut Cursor<'_>) -> Result<Vec<String>, ParseError> {
    let mut names = vec![cursor.word()?.to_string()];
    while cursor.take(',') {
        names.push(cursor.word()?.to_string());
    }
    cursor.expect(';')?;
    Ok(names)
}

fn registers(cursor: &mut Cursor<'_>, line: usize) -> Result<Statement, ParseError> {
    let kind = cursor.word()?.to_string();
    let mut names = Vec::new();
    loop {
        let name = cursor.word()?.to_string();
        let count = if cursor.take('<') {
            let count = cursor.integer()?;
            cursor.expect('>')?;
            Some(count)
        } else {
            None
        };
        names.push((name, count));
        if !cursor.take(',') {
            break;
        }
    }
    cursor.expect(';')?;
    Ok(Statement::Registers(line, kind, names))
}

fn instruction(cursor: &mut Cursor<'_>) -> Result<Instruction, ParseError> {
    let line = cursor.line();
    let guard = if cursor.take('@') {
        let negated = cursor.take('!');
        Some((cursor.word()?.to_string(), negated))
    } else {
        None
    };
    let opcode = cursor.word()?.to_string();
    let mut operands = Vec::new();
    while !cursor.take(';') {
        if !operands.is_empty() {
            cursor.expect(',')?;
        }
        operands.push(operand(cursor)?);
    }
    Ok(Instruction { line, guard, opcode, operands })
}

fn operand(cursor: &mut Cursor<'_>) -> Result<Operand, ParseError> {
    let first = simple(cursor)?;
    if cursor.take('|') {
        let second = simple(cursor)?;
        return Ok(Operand::Pair(Box::new(first), Box::new(second)));
    }
    Ok(first)
}

fn simple(cursor: &mut Cursor<'_>) -> Result<Operand, ParseError> {
    if cursor.take('!') {
        return Ok(Operand::Negated(cursor.word()?.to_string()));
    }
    if cursor.take('[') {
        return address(cursor);
    }
    if cursor.take('{') {
        let mut parts = vec![simple(cursor)?];
        while cursor.take(',') {
            parts.push(simple(cursor)?);
        }
        cursor.expect('}')?;
        return Ok(Operand::Vector(parts));
    }
    match cursor.peek() {
        Some(Kind::Word(word)) => {
            cursor.next();
            if word == "_" {
                return Ok(Operand::Sink);
            }
            if cursor.take('+') {
                return Ok(Operand::Sum(word.clone(), cursor.integer()? as i64));
            }
            Ok(Operand::Name(word.clone()))
        }
        Some(Kind::Single(bits)) => {
            cursor.next();
            Ok(Operand::Single(*bits))
        }
        Some(Kind::Double(bits)) => {
            cursor.next();
            Ok(Operand::Double(*bits))
        }
        _ => Ok(Operand::Integer(cursor.integer()?)),
    }
}

/// What follows the bracket.
fn address(cursor: &mut Cursor<'_>) -> Result<Operand, ParseError> {
    let mut base = None;
    let mut offset = 0;
    if let Some(Kind::Word(word)) = cursor.peek() {
        cursor.next();
        base = Some(word.clone());
        if cursor.take('+') || cursor.is('-') {
            offset = cursor.integer()? as i64;
        }
    } else {
        offset = cursor.integer()? as i64;
    }
    cursor.expect(']')?;
    Ok(Operand::Address(base, offset))
}
