//! What a kernel's names stand for while its instructions are decoded: registers, constants,
//! variables and labels, by scope.

use std::collections::HashMap;

use crate::ParseError;
use crate::code::{Code, Special};
use crate::registers::{Class, NEGATED};
use crate::syntax::{Operand, Space, type_size};

/// What names stand for, by scope.
pub(super) struct Names<V>(HashMap<String, Vec<(usize, V)>>);

impl<V> Default for Names<V> {
    fn default() -> Self {
        Names(HashMap::new())
    }
}

impl<V> Names<V> {
    /// Enters a name; false if it is there already in the same scope.
    pub(super) fn insert(&mut self, scope: usize, name: &str, value: V) -> bool {
        let known = self.0.entry(name.to_string()).or_default();
        let new = known.iter().all(|(other, _)| *other != scope);
        known.push((scope, value));
        new
    }

    /// The value in a scope, or in the nearest one around it.
    pub(super) fn find(&self, parents: &[usize], scope: usize, name: &str) -> Option<&V> {
        let known = self.0.get(name)?;
        let mut at = scope;
        loop {
            if let Some((_, value)) = known.iter().find(|(scope, _)| *scope == at) {
                return Some(value);
            }
            if at == 0 {
                return None;
            }
            at = parents[at];
        }
    }
}

/// The scopes of a kernel and what is declared in them.
#[derive(Default)]
pub(super) struct Scopes {
    /// The scope around each; the outermost one is 0 and its own parent.
    pub(super) parents: Vec<usize>,
    pub(super) registers: Names<(Class, u32)>,
    pub(super) labels: Names<u32>,
    pub(super) tables: Names<Vec<String>>,
    pub(super) variables: Names<(Space, u64)>,
}

impl Scopes {
    /// A new scope inside of another.
    pub(super) fn open(&mut self, parent: usize) -> usize {
        self.parents.push(parent);
        self.parents.len() - 1
    }
}

/// A kernel under construction.
pub(super) struct Builder<'a> {
    pub(super) code: Code,
    pub(super) scopes: Scopes,
    pub(super) scope: usize,
    pub(super) line: usize,
    /// Variables of the module.
    pub(super) outside: &'a HashMap<String, (Space, u64)>,
    constants: HashMap<(Class, u64), u32>,
    specials: HashMap<(Special, Class), u32>,
}

/// The class of registers for a type of some bytes.
pub(super) fn class_of(bytes: u64) -> Class {
    match bytes {
        1 | 2 => Class::Half,
        4 => Class::Single,
        _ => Class::Double,
    }
}

impl<'a> Builder<'a> {
    pub(super) fn new(outside: &'a HashMap<String, (Space, u64)>) -> Self {
        Builder {
            code: Code::default(),
            scopes: Scopes::default(),
            scope: 0,
            line: 0,
            outside,
            constants: HashMap::new(),
            specials: HashMap::new(),
        }
    }

    pub(super) fn fail<T>(&self, message: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError { line: self.line, message: message.into() })
    }

    /// A fresh register.
    fn register(&mut self, class: Class) -> u32 {
        let count = match class {
            Class::Predicate => &mut self.code.predicates,
            Class::Half => &mut self.code.halves,
            Class::Single => &mut self.code.singles,
            Class::Double => &mut self.code.doubles,
        };
        *count += 1;
        (*count - 1) as u32
    }

    pub(super) fn declare(
        &mut self,
        kind: &str,
        names: &[(String, Option<u64>)],
    ) -> Result<(), ParseError> {
        let class = match kind {
            ".pred" => Class::Predicate,
            _ => match kind.strip_prefix('.').and_then(type_size) {
                Some(bytes) => class_of(bytes),
                None => return self.fail(format!("registers of type `{kind}`")),
            },
        };
        for (name, count) in names {
            if count.is_some_and(|n| n > 1 << 20) {
                return self.fail("more than a million registers");
            }
            let each: Vec<String> = match count {
                Some(count) => (0..*count).map(|i| format!("{name}{i}")).collect(),
                None => vec![name.clone()],
            };
            for name in each {
                let index = self.register(class);
                self.scopes.registers.insert(self.scope, &name, (class, index));
            }
        }
        Ok(())
    }

    pub(super) fn constant(&mut self, class: Class, value: u64) -> u32 {
        let value = match class {
            Class::Predicate => u64::from(value != 0),
            Class::Half => value & 0xffff,
            Class::Single => value & 0xffff_ffff,
            Class::Double => value,
        };
        if let Some(index) = self.constants.get(&(class, value)) {
            return *index;
        }
        let index = self.register(class);
        self.constants.insert((class, value), index);
        self.code.constants.push((class, index, value));
        index
    }

    fn special(&mut self, special: Special, class: Class) -> u32 {
        if let Some(index) = self.specials.get(&(special, class)) {
            return *index;
        }
        let index = self.register(class);
        self.specials.insert((special, class), index);
        self.code.specials.push((special, class, index));
        index
    }

    pub(super) fn find_register(&self, name: &str) -> Option<(Class, u32)> {
        self.scopes.registers.find(&self.scopes.parents, self.scope, name).copied()
    }

    pub(super) fn find_variable(&self, name: &str) -> Option<(Space, u64)> {
        let scopes = &self.scopes;
        scopes
            .variables
            .find(&scopes.parents, self.scope, name)
            .or_else(|| self.outside.get(name))
            .copied()
    }

    /// A register of the class, to be written.
    pub(super) fn destination(&self, operand: &Operand, class: Class) -> Result<u32, ParseError> {
        match operand {
            Operand::Name(name) => match self.find_register(name) {
                Some((found, index)) if found == class => Ok(index),
                Some((found, _)) => {
                    self.fail(format!("`{name}` is a {found:?} register, not a {class:?} one"))
                }
                None => self.fail(format!("`{name}` is no register")),
            },
            other => self.fail(format!("{other:?} cannot be written")),
        }
    }

    /// What is read as a value of the class.
    pub(super) fn source(&mut self, operand: &Operand, class: Class) -> Result<u32, ParseError> {
        let value = match (operand, class) {
            (Operand::Negated(name), Class::Predicate) => {
                return Ok(self.source(&Operand::Name(name.clone()), class)? ^ NEGATED);
            }
            (Operand::Name(name), _) => return self.named(name, class),
            (Operand::Sum(name, offset), Class::Single | Class::Double) => {
                match self.find_variable(name) {
                    Some((_, address)) => address.wrapping_add_signed(*offset),
                    None => return self.fail(format!("`{name}` is no variable")),
                }
            }
            (Operand::Integer(value), _) => *value,
            (Operand::Single(bits), Class::Single) => u64::from(*bits),
            (Operand::Double(bits), Class::Double) => *bits,
            (Operand::Double(bits), Class::Single) => {
                u64::from((f64::from_bits(*bits) as f32).to_bits())
            }
            (Operand::Single(bits), Class::Double) => f64::from(f32::from_bits(*bits)).to_bits(),
            (other, _) => return self.fail(format!("{other:?} is no {class:?} value")),
        };
        Ok(self.constant(class, value))
    }

    fn named(&mut self, name: &str, class: Class) -> Result<u32, ParseError> {
        if let Some((found, index)) = self.find_register(name) {
            if found == class {
                return Ok(index);
            }
            return self.fail(format!("`{name}` is a {found:?} register, not a {class:?} one"));
        }
        if name == "WARP_SZ" {
            return Ok(self.constant(class, 32));
        }
        if name.starts_with('%') {
            return match special(name) {
                Some(found) if class != Class::Predicate => Ok(self.special(found, class)),
                _ => self.fail(format!("`{name}` is no register")),
            };
        }
        match self.find_variable(name) {
            Some((_, address)) if matches!(class, Class::Single | Class::Double) => {
                Ok(self.constant(class, address))
            }
            Some(_) => self.fail(format!("the address of `{name}` does not fit")),
            None => self.fail(format!("`{name}` is not known")),
        }
    }

    pub(super) fn label(&self, operand: &Operand) -> Result<u32, ParseError> {
        let Operand::Name(name) = operand else {
            return self.fail(format!("{operand:?} is no label"));
        };
        match self.scopes.labels.find(&self.scopes.parents, self.scope, name) {
            Some(position) => Ok(*position),
            None => self.fail(format!("label `{name}` is not there")),
        }
    }
}

fn special(name: &str) -> Option<Special> {
    let axis = |name: &str| match name {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    if let Some((first, last)) = name.split_once('.') {
        let axis = axis(last)?;
        return match first {
            "%tid" => Some(Special::Thread(axis)),
            "%ctaid" => Some(Special::Block(axis)),
            "%ntid" => Some(Special::BlockSize(axis)),
            "%nctaid" => Some(Special::GridSize(axis)),
            _ => None,
        };
    }
    Some(match name {
        "%laneid" => Special::Lane,
        "%warpid" => Special::Warp,
        "%nwarpid" => Special::Warps,
        "%lanemask_eq" => Special::LanesEqual,
        "%lanemask_lt" => Special::LanesBelow,
        "%lanemask_le" => Special::LanesUpTo,
        "%lanemask_gt" => Special::LanesAbove,
        "%lanemask_ge" => Special::LanesFrom,
        "%dynamic_smem_size" => Special::DynamicShared,
        "%total_smem_size" => Special::TotalShared,
        "%smid" | "%gridid" => Special::Zero,
        "%nsmid" => Special::One,
        _ => return None,
    })
}
