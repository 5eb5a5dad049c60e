//! Finding repetitions: hash chains over a window of 32 KiB.

/// A literal byte, or a copy of earlier output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Token {
    Literal(u8),
    Copy { length: u16, distance: u16 },
}

impl Token {
    /// The bytes it stands for.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Token::Literal(_) => 1,
            Token::Copy { length, .. } => usize::from(length),
        }
    }
}

const HASH_BITS: u32 = 15;
const WINDOW: usize = 32768;
const LONGEST: usize = 258;
const NONE: u32 = u32::MAX;

/// How hard to look: none at all, or so many candidates.
pub(crate) fn effort(algorithm: i32) -> usize {
    match algorithm {
        0 => 0,
        1 => 1,
        2 | 3 => 4,
        4 => 16,
        _ => 64,
    }
}

/// The tokens of all the data.
pub(crate) fn tokens(data: &[u8], effort: usize) -> Vec<Token> {
    if effort == 0 {
        return data.iter().map(|byte| Token::Literal(*byte)).collect();
    }
    let mut finder =
        Finder { data, heads: vec![NONE; 1 << HASH_BITS], previous: vec![NONE; WINDOW], effort };
    let mut tokens = Vec::new();
    let mut at = 0;
    let mut misses = 0;
    while at < data.len() {
        match finder.best(at) {
            Some((length, distance)) => {
                misses = 0;
                tokens.push(Token::Copy { length: length as u16, distance: distance as u16 });
                // Long copies are entered sparsely: they repeat what is known already.
                let step = if length > 64 { 8 } else { 1 };
                (at..at + length).step_by(step).for_each(|position| finder.enter(position));
                at += length;
            }
            None => {
                // Where nothing repeats, not every position is tried.
                let step = (1 + misses / 64).min(8).min(data.len() - at);
                misses += 1;
                finder.enter(at);
                tokens.extend(data[at..at + step].iter().map(|byte| Token::Literal(*byte)));
                at += step;
            }
        }
    }
    tokens
}

struct Finder<'a> {
    data: &'a [u8],
    heads: Vec<u32>,
    previous: Vec<u32>,
    effort: usize,
}

impl Finder<'_> {
    fn slot(&self, at: usize) -> Option<usize> {
        let four = self.data.get(at..at + 4)?;
        let word = u32::from_le_bytes([four[0], four[1], four[2], four[3]]);
        Some((word.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize)
    }

    fn enter(&mut self, at: usize) {
        if let Some(slot) = self.slot(at) {
            self.previous[at % WINDOW] = self.heads[slot];
            self.heads[slot] = at as u32;
        }
    }

    /// The longest repetition at a position: its length and distance.
    fn best(&self, at: usize) -> Option<(usize, usize)> {
        let most = LONGEST.min(self.data.len() - at);
        let mut candidate = self.heads[self.slot(at)?];
        let mut best = None;
        let mut longest = 3;
        for _ in 0..self.effort {
            // A slot of the chain may have been taken over by a later position.
            if candidate == NONE || candidate as usize >= at {
                break;
            }
            let distance = at - candidate as usize;
            if distance >= WINDOW {
                break;
            }
            let earlier = &self.data[candidate as usize..];
            let here = &self.data[at..at + most];
            let length = earlier.iter().zip(here).take_while(|(a, b)| a == b).count();
            if length > longest {
                longest = length;
                best = Some((length, distance));
            }
            let next = self.previous[candidate as usize % WINDOW];
            if next >= candidate {
                break;
            }
            candidate = next;
        }
        best
    }
}
