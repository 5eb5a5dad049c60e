//! From statements to code: names become indices, opcodes become functions. An instruction that
//! is not understood to the last modifier is an error.

mod bits;
mod builder;
mod compare;
mod control;
mod convert;
mod float;
mod integer;
mod memory;
mod movement;
mod plain;
mod recipe;

use std::collections::HashMap;

use crate::ParseError;
use crate::code::{Action, Code, Step};
use crate::registers::{Class, NEGATED, NONE};
use crate::syntax::{Instruction, Kernel, Operand, Space, Statement, Variable};
use builder::Builder;

/// A kernel's code and how much static shared memory it has.
pub(crate) struct Decoded {
    pub(crate) code: Code,
    pub(crate) static_shared: u32,
}

/// Decodes a kernel. `outside` are the module's variables with addresses; `shared` are those of
/// the module in shared memory, which get an address here, in each kernel that names them.
pub(crate) fn kernel(
    kernel: &Kernel,
    params: &[(String, u64)],
    outside: &HashMap<String, (Space, u64)>,
    shared: &[Variable],
) -> Result<Decoded, ParseError> {
    let mut builder = Builder::new(outside);
    builder.scopes.open(0);
    for (name, offset) in params {
        builder.scopes.variables.insert(0, name, (Space::Param, *offset));
    }
    let static_shared = declarations(&mut builder, kernel, shared)?;
    let (mut open, mut scope) = (0, vec![0]);
    for statement in &kernel.body {
        match statement {
            Statement::Open => {
                open += 1;
                scope.push(open);
            }
            Statement::Close => {
                scope.pop();
            }
            Statement::Instruction(instruction) => {
                builder.scope = *scope.last().unwrap_or(&0);
                builder.line = instruction.line;
                let step = step(&mut builder, instruction)?;
                builder.code.steps.push(step);
            }
            _ => {}
        }
    }
    // Falling off the end is leaving.
    let line = builder.line as u32;
    builder.code.steps.push(Step { line, guard: NONE, action: Action::Exit });
    Ok(Decoded { code: builder.code, static_shared })
}

/// Enters registers, labels, tables and variables of all scopes; gives the size of the static
/// variables in shared memory.
fn declarations(
    builder: &mut Builder<'_>,
    kernel: &Kernel,
    shared: &[Variable],
) -> Result<u32, ParseError> {
    let mut scope = vec![0];
    let mut position = 0u32;
    let mut sizes = Sizes::default();
    for statement in &kernel.body {
        builder.scope = *scope.last().unwrap_or(&0);
        match statement {
            Statement::Open => {
                let parent = builder.scope;
                scope.push(builder.scopes.open(parent));
            }
            Statement::Close => {
                scope.pop();
            }
            Statement::Instruction(_) => position += 1,
            Statement::Label(name, line) => {
                builder.line = *line;
                if !builder.scopes.labels.insert(builder.scope, name, position) {
                    return builder.fail(format!("label `{name}` is there twice"));
                }
            }
            Statement::Targets(name, targets) => {
                builder.scopes.tables.insert(builder.scope, name, targets.clone());
            }
            Statement::Registers(line, kind, names) => {
                builder.line = *line;
                builder.declare(kind, names)?;
            }
            Statement::Variable(variable) => {
                builder.line = variable.line;
                if !variable.initial.is_empty() {
                    return builder.fail("such a variable has no initial value");
                }
                let offset = sizes.place(variable);
                let (name, space) = (&variable.name, variable.space);
                builder.scopes.variables.insert(builder.scope, name, (space, offset));
            }
        }
    }
    place_module_shared(builder, kernel, shared, &mut sizes);
    builder.scope = 0;
    builder.code.local = match u32::try_from(sizes.local) {
        Ok(local) => local,
        Err(_) => return builder.fail("too much local memory"),
    };
    match u32::try_from(sizes.shared) {
        Ok(shared) => Ok(shared),
        Err(_) => builder.fail("too much shared memory"),
    }
}

/// Bytes taken so far.
#[derive(Default)]
struct Sizes {
    shared: u64,
    local: u64,
}

impl Sizes {
    fn place(&mut self, variable: &Variable) -> u64 {
        let taken = match variable.space {
            Space::Local => &mut self.local,
            _ => &mut self.shared,
        };
        let offset = taken.next_multiple_of(variable.align);
        *taken = offset.saturating_add(variable.element * variable.count.unwrap_or(0));
        offset
    }
}

/// Static ones first, then the array whose size comes with the launch.
fn place_module_shared(
    builder: &mut Builder<'_>,
    kernel: &Kernel,
    shared: &[Variable],
    sizes: &mut Sizes,
) {
    let used: Vec<&Variable> = shared.iter().filter(|v| names(kernel, &v.name)).collect();
    for variable in used.iter().filter(|v| !v.external) {
        let offset = sizes.place(variable);
        builder.scopes.variables.insert(0, &variable.name, (Space::Shared, offset));
    }
    let dynamic = || used.iter().filter(|v| v.external);
    let align = dynamic().map(|v| v.align).max().unwrap_or(1);
    let base = sizes.shared.next_multiple_of(align);
    for variable in dynamic() {
        builder.scopes.variables.insert(0, &variable.name, (Space::Shared, base));
    }
    builder.code.dynamic_base = u32::try_from(base).unwrap_or(u32::MAX);
}

fn names(kernel: &Kernel, name: &str) -> bool {
    fn names_it(operand: &Operand, name: &str) -> bool {
        match operand {
            Operand::Name(n) | Operand::Sum(n, _) | Operand::Address(Some(n), _) => n == name,
            Operand::Vector(parts) => parts.iter().any(|p| names_it(p, name)),
            _ => false,
        }
    }
    kernel.body.iter().any(|statement| match statement {
        Statement::Instruction(i) => i.operands.iter().any(|o| names_it(o, name)),
        _ => false,
    })
}

fn step(builder: &mut Builder<'_>, instruction: &Instruction) -> Result<Step, ParseError> {
    let guard = match &instruction.guard {
        Some((name, negated)) => {
            let index = builder.source(&Operand::Name(name.clone()), Class::Predicate)?;
            if *negated { index | NEGATED } else { index }
        }
        None => NONE,
    };
    let action = action(builder, instruction)?;
    Ok(Step { line: instruction.line as u32, guard, action })
}

fn action(builder: &mut Builder<'_>, i: &Instruction) -> Result<Action, ParseError> {
    let name = i.opcode.split('.').next().unwrap_or_default();
    let found = match name {
        "mov" | "selp" | "slct" | "cvta" | "isspacep" => movement::action(builder, i)?,
        "setp" | "set" | "cvt" => plain::typed(builder, i)?,
        "ld" | "ldu" | "st" | "atom" | "red" | "prefetch" | "prefetchu" => {
            memory::action(builder, i)?
        }
        "bra" | "brx" | "ret" | "exit" | "trap" | "bar" | "barrier" | "shfl" | "vote" | "match"
        | "activemask" | "membar" | "fence" | "nanosleep" => control::action(builder, i)?,
        _ => plain::action(builder, i)?,
    };
    match found {
        Some(action) => Ok(action),
        None => builder.fail(format!("`{}` is not understood", i.opcode)),
    }
}

/// The operands if there are as many as the instruction has.
fn exactly<'i, const N: usize>(
    builder: &Builder<'_>,
    i: &'i Instruction,
) -> Result<&'i [Operand; N], ParseError> {
    match i.operands.as_slice().try_into() {
        Ok(operands) => Ok(operands),
        Err(_) => {
            let (name, has) = (&i.opcode, i.operands.len());
            builder.fail(format!("`{name}` has {N} operands, not {has}"))
        }
    }
}
