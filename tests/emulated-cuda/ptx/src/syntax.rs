//! PTX as statements: what is written, not what it means. Names stay names here; an opcode is
//! one string, and no instruction is refused yet.

mod cursor;
mod item;
mod statement;

pub(crate) use cursor::Cursor;
pub(crate) use item::items;

/// Where a variable lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Param,
    Global,
    Shared,
    Local,
    Const,
    Generic,
}

/// An operand as it is written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand {
    /// A register, label or variable.
    Name(String),
    /// `!%p`
    Negated(String),
    /// `name+4`
    Sum(String, i64),
    Integer(u64),
    Single(u32),
    Double(u64),
    /// `[base+offset]`; without a base an absolute address.
    Address(Option<String>, i64),
    Vector(Vec<Operand>),
    /// `d|p`
    Pair(Box<Operand>, Box<Operand>),
    /// `_`
    Sink,
}

/// `@!%p opcode operands;`
#[derive(Clone, Debug)]
pub(crate) struct Instruction {
    pub(crate) line: usize,
    /// The predicate, and whether its opposite is meant.
    pub(crate) guard: Option<(String, bool)>,
    pub(crate) opcode: String,
    pub(crate) operands: Vec<Operand>,
}

/// A value in a variable's initialiser.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Initial {
    Bits(u64),
    /// The address of a variable plus an offset; whether a generic one is asked for.
    Address(String, i64, bool),
}

/// A variable's declaration.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) line: usize,
    pub(crate) space: Space,
    pub(crate) external: bool,
    pub(crate) name: String,
    pub(crate) align: u64,
    /// Bytes of an element.
    pub(crate) element: u64,
    /// None: an array whose size comes with the launch.
    pub(crate) count: Option<u64>,
    pub(crate) initial: Vec<Initial>,
}

/// What the body of a kernel is made of.
#[derive(Clone, Debug)]
pub(crate) enum Statement {
    Instruction(Instruction),
    Label(String, usize),
    /// Type, then names with the number of registers for `%r<n>`.
    Registers(usize, String, Vec<(String, Option<u64>)>),
    Variable(Variable),
    /// The table of an indexed branch.
    Targets(String, Vec<String>),
    Open,
    Close,
}

/// A kernel as it is written.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) params: Vec<Variable>,
    pub(crate) max_threads: Option<u32>,
    pub(crate) body: Vec<Statement>,
}

/// A module as it is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Items {
    pub(crate) version: (u32, u32),
    pub(crate) target: String,
    pub(crate) variables: Vec<Variable>,
    pub(crate) kernels: Vec<Kernel>,
}

/// Bytes and signedness of a type's name without its dot, or None if it is no such type.
pub(crate) fn type_size(name: &str) -> Option<u64> {
    Some(match name {
        "b8" | "u8" | "s8" => 1,
        "b16" | "u16" | "s16" | "f16" => 2,
        "b32" | "u32" | "s32" | "f32" | "f16x2" => 4,
        "b64" | "u64" | "s64" | "f64" => 8,
        _ => return None,
    })
}
