//! The outside of a module: its head, its variables, its kernels' signatures.

use super::{Cursor, Initial, Items, Kernel, Space, Variable, statement, type_size};
use crate::ParseError;
use crate::lexer::Kind;

/// Everything a module consists of.
pub(crate) fn items(cursor: &mut Cursor<'_>) -> Result<Items, ParseError> {
    let mut items = Items::default();
    while cursor.peek().is_some() {
        let line = cursor.line();
        let word = cursor.word()?;
        match word {
            ".version" => items.version = version(cursor)?,
            ".target" => {
                items.target = cursor.word()?.to_string();
                cursor.skip_line();
            }
            ".address_size" => {
                if cursor.integer()? != 64 {
                    return Err(ParseError { line, message: "addresses are not 64 bits".into() });
                }
            }
            ".file" | ".loc" => cursor.skip_line(),
            // Only debuggers look into sections.
            ".section" => {
                cursor.word()?;
                cursor.skip_block()?;
            }
            ".pragma" => skip_pragma(cursor)?,
            ".visible" | ".weak" | ".common" | ".extern" | ".entry" | ".global" | ".const"
            | ".shared" | ".func" => declaration(cursor, word, line, &mut items)?,
            _ => {
                return Err(ParseError { line, message: format!("`{word}` is not understood") });
            }
        }
    }
    Ok(items)
}

/// `8.0` is read as a fraction, so that its digits are found again through its bits.
fn version(cursor: &mut Cursor<'_>) -> Result<(u32, u32), ParseError> {
    match cursor.peek() {
        Some(Kind::Double(bits)) => {
            let tenths = (f64::from_bits(*bits) * 10.0).round() as u32;
            cursor.next();
            Ok((tenths / 10, tenths % 10))
        }
        _ => cursor.fail("expected a version"),
    }
}

pub(super) fn skip_pragma(cursor: &mut Cursor<'_>) -> Result<(), ParseError> {
    match cursor.next() {
        Some(Kind::Quoted(_)) => cursor.expect(';'),
        _ => cursor.fail("expected a string"),
    }
}

fn declaration(
    cursor: &mut Cursor<'_>,
    first: &str,
    line: usize,
    items: &mut Items,
) -> Result<(), ParseError> {
    let (mut word, mut external) = (first, false);
    while matches!(word, ".visible" | ".weak" | ".common" | ".extern") {
        external |= word == ".extern";
        word = cursor.word()?;
    }
    match word {
        ".entry" => items.kernels.push(kernel(cursor)?),
        ".global" => items.variables.push(variable(cursor, line, Space::Global, external)?),
        ".const" => items.variables.push(variable(cursor, line, Space::Const, external)?),
        ".shared" => items.variables.push(variable(cursor, line, Space::Shared, external)?),
        _ => return Err(ParseError { line, message: format!("`{word}` is not supported") }),
    }
    Ok(())
}

/// What follows the space's name: `.align 4 .b8 name[16] = {…};`
pub(super) fn variable(
    cursor: &mut Cursor<'_>,
    line: usize,
    space: Space,
    external: bool,
) -> Result<Variable, ParseError> {
    let mut found = signature(cursor, line, space)?;
    found.external = external;
    if cursor.take('=') {
        found.initial = initialiser(cursor)?;
    }
    cursor.expect(';')?;
    if external && !(space == Space::Shared && found.count.is_none()) {
        return Err(ParseError { line, message: "an external variable is not supported".into() });
    }
    if !external && found.count.is_none() {
        return Err(ParseError { line, message: "an array without a size".into() });
    }
    Ok(found)
}

/// `.align 4 .b8 name[16]`, with or without `.ptr` and the like.
fn signature(cursor: &mut Cursor<'_>, line: usize, space: Space) -> Result<Variable, ParseError> {
    let (mut align, mut element, mut lanes) = (None, None, 1);
    let name = loop {
        let word = cursor.word()?;
        match word {
            // After `.ptr` the alignment is that of what is pointed to.
            ".align" => {
                let value = cursor.integer()?;
                if element.is_none() {
                    align = Some(value);
                }
            }
            ".ptr" | ".global" | ".const" | ".shared" | ".local" if space == Space::Param => {}
            ".v2" => lanes = 2,
            ".v4" => lanes = 4,
            _ => match word.strip_prefix('.') {
                Some(name) => match type_size(name) {
                    Some(size) => element = Some(size),
                    None => return cursor.fail(format!("`{word}` is not understood")),
                },
                None => break word.to_string(),
            },
        }
    };
    let Some(element) = element else { return cursor.fail("a variable without a type") };
    let element = element * lanes;
    let mut count = Some(1);
    while cursor.take('[') {
        let length = if cursor.is(']') { None } else { Some(cursor.integer()?) };
        cursor.expect(']')?;
        count = count.zip(length).and_then(|(a, b): (u64, u64)| a.checked_mul(b));
    }
    let align = align.unwrap_or(element);
    if !align.is_power_of_two() || count.is_some_and(|n| n.checked_mul(element).is_none()) {
        return cursor.fail("a variable of an impossible size");
    }
    let initial = Vec::new();
    Ok(Variable { line, space, external: false, name, align, element, count, initial })
}

fn initialiser(cursor: &mut Cursor<'_>) -> Result<Vec<Initial>, ParseError> {
    let mut values = Vec::new();
    if !cursor.take('{') {
        values.push(initial(cursor)?);
        return Ok(values);
    }
    let mut depth = 1;
    while depth > 0 {
        if cursor.take('{') {
            depth += 1;
        } else if cursor.take('}') {
            depth -= 1;
        } else if !cursor.take(',') {
            values.push(initial(cursor)?);
        }
    }
    Ok(values)
}

fn initial(cursor: &mut Cursor<'_>) -> Result<Initial, ParseError> {
    match cursor.peek() {
        Some(Kind::Single(bits)) => {
            cursor.next();
            Ok(Initial::Bits(u64::from(*bits)))
        }
        Some(Kind::Double(bits)) => {
            cursor.next();
            Ok(Initial::Bits(*bits))
        }
        Some(Kind::Word(_)) => {
            let mut name = cursor.word()?;
            let generic = name == "generic" && cursor.take('(');
            if generic {
                name = cursor.word()?;
                cursor.expect(')')?;
            }
            let offset = if cursor.take('+') { cursor.integer()? as i64 } else { 0 };
            Ok(Initial::Address(name.to_string(), offset, generic))
        }
        _ => Ok(Initial::Bits(cursor.integer()?)),
    }
}

fn kernel(cursor: &mut Cursor<'_>) -> Result<Kernel, ParseError> {
    let name = cursor.word()?.to_string();
    let mut params = Vec::new();
    if cursor.take('(') {
        while !cursor.take(')') {
            let line = cursor.line();
            if !cursor.take_word(".param") {
                return cursor.fail("expected `.param`");
            }
            params.push(signature(cursor, line, Space::Param)?);
            if !cursor.is(')') {
                cursor.expect(',')?;
            }
        }
    }
    let max_threads = limits(cursor)?;
    let body = statement::body(cursor)?;
    Ok(Kernel { name, params, max_threads, body })
}

/// What stands between a kernel's parameters and its body.
fn limits(cursor: &mut Cursor<'_>) -> Result<Option<u32>, ParseError> {
    let mut threads = None;
    while !cursor.is('{') {
        match cursor.word()? {
            ".maxntid" | ".reqntid" => {
                let mut product = cursor.integer()?;
                while cursor.take(',') {
                    product = product.saturating_mul(cursor.integer()?);
                }
                threads = Some(u32::try_from(product).unwrap_or(u32::MAX));
            }
            ".minnctapersm" | ".maxnreg" => {
                cursor.integer()?;
            }
            ".pragma" => skip_pragma(cursor)?,
            ".noreturn" => {}
            other => return cursor.fail(format!("`{other}` is not understood")),
        }
    }
    Ok(threads)
}
