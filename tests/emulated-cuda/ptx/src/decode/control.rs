//! Branches, barriers, and what the lanes of a warp do together.

use super::builder::Builder;
use super::exactly;
use crate::ParseError;
use crate::code::{Action, Ballot, Barrier, Direction, Gathered, Match, Shuffle, Vote};
use crate::registers::{Class, NONE};
use crate::syntax::{Instruction, Operand};

pub(super) fn action(
    builder: &mut Builder<'_>,
    i: &Instruction,
) -> Result<Option<Action>, ParseError> {
    let parts: Vec<&str> = i.opcode.split('.').collect();
    Ok(Some(match parts.as_slice() {
        ["bra"] | ["bra", "uni"] => {
            let [to] = exactly::<1>(builder, i)?;
            Action::Branch(builder.label(to)?)
        }
        ["brx", "idx"] | ["brx", "idx", "uni"] => table(builder, i)?,
        ["ret"] | ["ret", "uni"] | ["exit"] => {
            exactly::<0>(builder, i)?;
            Action::Exit
        }
        ["trap"] => Action::Trap,
        ["bar", "warp", "sync"] => {
            let [members] = exactly::<1>(builder, i)?;
            Action::WarpBarrier(builder.source(members, Class::Single)?)
        }
        ["bar" | "barrier", ..] => return barrier(builder, i, &parts),
        ["shfl", "sync", mode, "b32"] => return shuffle(builder, i, mode),
        ["vote", "sync", mode, kind] => return vote(builder, i, mode, kind),
        ["match", mode @ ("any" | "all"), "sync", kind] => {
            return matching(builder, i, *mode == "all", kind);
        }
        ["activemask", "b32"] => {
            let [d] = exactly::<1>(builder, i)?;
            Action::ActiveMask(builder.destination(d, Class::Single)?)
        }
        ["membar", "cta" | "gl" | "sys"]
        | ["fence", "cta" | "gpu" | "sys"]
        | ["fence", "sc" | "acq_rel", "cta" | "gpu" | "sys"] => {
            exactly::<0>(builder, i)?;
            Action::Nothing
        }
        ["nanosleep", "u32"] => {
            let [time] = exactly::<1>(builder, i)?;
            builder.source(time, Class::Single)?;
            Action::Nothing
        }
        _ => return Ok(None),
    }))
}

fn table(builder: &mut Builder<'_>, i: &Instruction) -> Result<Action, ParseError> {
    let [index, name] = exactly::<2>(builder, i)?;
    let index = builder.source(index, Class::Single)?;
    let Operand::Name(name) = name else { return builder.fail("brx without a table") };
    let scopes = &builder.scopes;
    let found = scopes.tables.find(&scopes.parents, builder.scope, name).cloned();
    let Some(targets) = found else {
        return builder.fail(format!("table `{name}` is not there"));
    };
    let targets: Result<Box<[u32]>, ParseError> =
        targets.into_iter().map(|name| builder.label(&Operand::Name(name))).collect();
    Ok(Action::Table(index, targets?))
}

/// `bar.sync`, `barrier.cta.sync.aligned`, `bar.red.popc.u32` and so on.
fn barrier(
    builder: &mut Builder<'_>,
    i: &Instruction,
    parts: &[&str],
) -> Result<Option<Action>, ParseError> {
    let mut aligned = parts[0] == "bar";
    let mut rest = Vec::new();
    for part in &parts[1..] {
        match *part {
            "cta" => {}
            "aligned" => aligned = true,
            other => rest.push(other),
        }
    }
    let (gathered, class) = match rest.as_slice() {
        ["sync"] => (Gathered::Nothing, Class::Predicate),
        ["red", "popc", "u32"] => (Gathered::Count, Class::Single),
        ["red", "and", "pred"] => (Gathered::All, Class::Predicate),
        ["red", "or", "pred"] => (Gathered::Any, Class::Predicate),
        _ => return Ok(None),
    };
    let (mut result, mut predicate, mut given) = (NONE, NONE, i.operands.as_slice());
    if gathered != Gathered::Nothing {
        let [d, middle @ .., p] = given else { return Ok(None) };
        result = builder.destination(d, class)?;
        predicate = builder.source(p, Class::Predicate)?;
        given = middle;
    }
    let (id, threads) = match given {
        [id] => (id, None),
        [id, threads] => (id, Some(threads)),
        _ => return builder.fail(format!("operands of `{}`", i.opcode)),
    };
    let id = builder.source(id, Class::Single)?;
    let threads = match threads {
        Some(threads) => builder.source(threads, Class::Single)?,
        None => NONE,
    };
    Ok(Some(Action::Barrier(Barrier { id, threads, aligned, gathered, result, predicate })))
}

/// `d` or `d|p`.
fn with_predicate(builder: &Builder<'_>, operand: &Operand) -> Result<(u32, u32), ParseError> {
    match operand {
        Operand::Pair(d, p) => {
            let p = match **p {
                Operand::Sink => NONE,
                _ => builder.destination(p, Class::Predicate)?,
            };
            Ok((builder.destination(d, Class::Single)?, p))
        }
        d => Ok((builder.destination(d, Class::Single)?, NONE)),
    }
}

fn shuffle(
    builder: &mut Builder<'_>,
    i: &Instruction,
    mode: &str,
) -> Result<Option<Action>, ParseError> {
    let direction = match mode {
        "up" => Direction::Up,
        "down" => Direction::Down,
        "bfly" => Direction::Butterfly,
        "idx" => Direction::Index,
        _ => return Ok(None),
    };
    let [d, a, b, c, members] = exactly::<5>(builder, i)?;
    let (d, in_range) = with_predicate(builder, d)?;
    Ok(Some(Action::Shuffle(Shuffle {
        direction,
        d,
        in_range,
        a: builder.source(a, Class::Single)?,
        b: builder.source(b, Class::Single)?,
        c: builder.source(c, Class::Single)?,
        members: builder.source(members, Class::Single)?,
    })))
}

fn vote(
    builder: &mut Builder<'_>,
    i: &Instruction,
    mode: &str,
    kind: &str,
) -> Result<Option<Action>, ParseError> {
    let (ballot, class) = match (mode, kind) {
        ("all", "pred") => (Ballot::All, Class::Predicate),
        ("any", "pred") => (Ballot::Any, Class::Predicate),
        ("uni", "pred") => (Ballot::Uniform, Class::Predicate),
        ("ballot", "b32") => (Ballot::Mask, Class::Single),
        _ => return Ok(None),
    };
    let [d, predicate, members] = exactly::<3>(builder, i)?;
    let d = builder.destination(d, class)?;
    let predicate = builder.source(predicate, Class::Predicate)?;
    let members = builder.source(members, Class::Single)?;
    Ok(Some(Action::Vote(Vote { ballot, d, predicate, members })))
}

fn matching(
    builder: &mut Builder<'_>,
    i: &Instruction,
    all: bool,
    kind: &str,
) -> Result<Option<Action>, ParseError> {
    let class = match kind {
        "b32" => Class::Single,
        "b64" => Class::Double,
        _ => return Ok(None),
    };
    let [d, a, members] = exactly::<3>(builder, i)?;
    let (d, equal) = with_predicate(builder, d)?;
    let a = builder.source(a, class)?;
    let members = builder.source(members, Class::Single)?;
    Ok(Some(Action::Match(Match { all, d, equal, class, a, members })))
}
