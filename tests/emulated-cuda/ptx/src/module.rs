//! A module: its kernels, and its variables with their addresses and initial values.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use crate::code::{Code, window};
use crate::syntax::{self, Cursor, Initial, Items, Kernel, Space, Variable};
use crate::{decode, lexer};

/// A parsed module.
pub struct Module {
    /// PTX version, for example (8, 0).
    pub version: (u32, u32),
    /// What the code was made for, for example `sm_70`.
    pub target: String,
    entries: Vec<Entry>,
}

/// A kernel of a module.
pub struct Entry {
    /// Its name in the module.
    pub name: String,
    /// Its parameters in order.
    pub params: Vec<Param>,
    /// Bytes of shared memory that it declares itself.
    pub static_shared: u32,
    /// The most threads of a block that it allows.
    pub max_threads: Option<u32>,
    pub(crate) code: Code,
    pub(crate) variables: Arc<Variables>,
}

/// Where a parameter is among the bytes of all parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Bytes from the beginning.
    pub offset: u32,
    /// Bytes that it takes.
    pub size: u32,
    /// What its offset is a multiple of.
    pub align: u32,
}

/// Text that is not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, from 1 on.
    pub line: usize,
    /// What is wrong there.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PTX line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ParseError {}

/// The module's variables in constant and in global memory.
#[derive(Default)]
pub(crate) struct Variables {
    pub(crate) constants: Arena,
    pub(crate) globals: Mutex<Arena>,
}

/// Variables one after the other, with gaps so that what runs over an end hits nothing.
#[derive(Default)]
pub(crate) struct Arena {
    pub(crate) bytes: Vec<u8>,
    /// Offset and size of each variable, ascending.
    pub(crate) places: Vec<(u64, u64)>,
}

const GAP: u64 = 64;

impl Arena {
    fn place(&mut self, variable: &Variable) -> u64 {
        let size = variable.element * variable.count.unwrap_or(0);
        let offset = (self.bytes.len() as u64 + GAP).next_multiple_of(variable.align);
        self.bytes.resize((offset + size) as usize, 0);
        self.places.push((offset, size));
        offset
    }

    /// The variable that holds an offset.
    pub(crate) fn holding(&self, offset: u64) -> Option<(u64, u64)> {
        let after = self.places.partition_point(|(begin, _)| *begin <= offset);
        let (begin, size) = *self.places.get(after.checked_sub(1)?)?;
        (offset - begin < size).then_some((begin, size))
    }
}

impl Module {
    /// Parses a module. What is not understood is an error, wherever it is.
    pub fn parse(text: &str) -> Result<Module, ParseError> {
        let tokens = lexer::tokens(text)?;
        let items = syntax::items(&mut Cursor::new(&tokens))?;
        if items.version.0 == 0 {
            return Err(ParseError { line: 1, message: "no .version".into() });
        }
        let (addresses, variables) = variables(&items)?;
        let variables = Arc::new(variables);
        let shared: Vec<Variable> =
            items.variables.iter().filter(|v| v.space == Space::Shared).cloned().collect();
        let mut entries = Vec::new();
        for kernel in &items.kernels {
            entries.push(entry(kernel, &addresses, &shared, &variables)?);
        }
        Ok(Module { version: items.version, target: items.target, entries })
    }

    /// The kernel of a name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name)
    }

    /// All kernels in the order of the text.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }
}

impl Entry {
    /// Bytes of all parameters.
    pub fn param_bytes(&self) -> u32 {
        self.params.last().map_or(0, |p| p.offset + p.size)
    }
}

fn entry(
    kernel: &Kernel,
    addresses: &HashMap<String, (Space, u64)>,
    shared: &[Variable],
    variables: &Arc<Variables>,
) -> Result<Entry, ParseError> {
    let (mut params, mut names, mut end) = (Vec::new(), Vec::new(), 0u64);
    for param in &kernel.params {
        let size = param.element * param.count.unwrap_or(0);
        let offset = end.next_multiple_of(param.align);
        end = offset + size;
        if end > 1 << 16 {
            return Err(ParseError { line: param.line, message: "too many parameters".into() });
        }
        names.push((param.name.clone(), offset));
        params.push(Param { offset: offset as u32, size: size as u32, align: param.align as u32 });
    }
    let decoded = decode::kernel(kernel, &names, addresses, shared)?;
    Ok(Entry {
        name: kernel.name.clone(),
        params,
        static_shared: decoded.static_shared,
        max_threads: kernel.max_threads,
        code: decoded.code,
        variables: Arc::clone(variables),
    })
}

type Addresses = HashMap<String, (Space, u64)>;

fn variables(items: &Items) -> Result<(Addresses, Variables), ParseError> {
    let (mut constants, mut globals) = (Arena::default(), Arena::default());
    let mut addresses = HashMap::new();
    for variable in items.variables.iter().filter(|v| v.space != Space::Shared) {
        let size = variable.element * variable.count.unwrap_or(0);
        if size > 1 << 28 {
            return Err(ParseError { line: variable.line, message: "too large".into() });
        }
        let address = match variable.space {
            Space::Const => constants.place(variable),
            _ => window::VARIABLES + globals.place(variable),
        };
        addresses.insert(variable.name.clone(), (variable.space, address));
    }
    for variable in items.variables.iter().filter(|v| v.space != Space::Shared) {
        let bytes = initial_bytes(variable, &addresses)?;
        let (space, address) = addresses[&variable.name];
        let (arena, at) = match space {
            Space::Const => (&mut constants, address),
            _ => (&mut globals, address - window::VARIABLES),
        };
        arena.bytes[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
    }
    Ok((addresses, Variables { constants, globals: Mutex::new(globals) }))
}

fn initial_bytes(variable: &Variable, addresses: &Addresses) -> Result<Vec<u8>, ParseError> {
    let fail = |message: String| Err(ParseError { line: variable.line, message });
    if variable.initial.len() as u64 > variable.count.unwrap_or(0) {
        return fail("more initial values than elements".into());
    }
    let mut bytes = Vec::new();
    for value in &variable.initial {
        let bits = match value {
            Initial::Bits(bits) => *bits,
            Initial::Address(name, offset, generic) => match addresses.get(name) {
                Some((space, address)) if variable.element == 8 => {
                    let base = if *generic { window::base(*space) } else { 0 };
                    base.wrapping_add(*address).wrapping_add_signed(*offset)
                }
                _ => return fail(format!("the address of `{name}`")),
            },
        };
        match bits.to_le_bytes().get(..variable.element as usize) {
            Some(part) => bytes.extend_from_slice(part),
            None => return fail("initial values of vectors".into()),
        }
    }
    Ok(bytes)
}
