//! Prefix codes of limited length, canonical as Deflate wants them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A code: for each symbol its bits, already reversed for writing, and their number.
pub(crate) struct Code {
    pub(crate) lengths: Vec<u8>,
    bits: Vec<u16>,
}

impl Code {
    /// A code for these frequencies; at least two symbols get one, so that it is complete.
    pub(crate) fn new(frequencies: &[u32], longest: u8) -> Code {
        let mut weights = frequencies.to_vec();
        let used = weights.iter().filter(|weight| **weight > 0).count();
        for weight in weights.iter_mut().filter(|weight| **weight == 0).take(2 - used.min(2)) {
            *weight = 1;
        }
        loop {
            let lengths = lengths(&weights);
            if lengths.iter().all(|length| *length <= longest) {
                return Code::from_lengths(lengths);
            }
            // Flatter weights give shorter codes.
            for weight in weights.iter_mut().filter(|weight| **weight > 0) {
                *weight = (*weight).div_ceil(4);
            }
        }
    }

    /// The canonical code with these lengths.
    pub(crate) fn from_lengths(lengths: Vec<u8>) -> Code {
        let mut counts = [0u16; 16];
        for length in lengths.iter().filter(|length| **length > 0) {
            counts[usize::from(*length)] += 1;
        }
        let mut next = [0u16; 17];
        for length in 1..16 {
            next[length + 1] = (next[length] + counts[length]) << 1;
        }
        let bits = lengths.iter().map(|length| {
            if *length == 0 {
                return 0;
            }
            let place = &mut next[usize::from(*length)];
            let code = *place;
            *place += 1;
            code.reverse_bits() >> (16 - length)
        });
        let bits = bits.collect();
        Code { lengths, bits }
    }

    /// The bits of a symbol and their number.
    pub(crate) fn of(&self, symbol: usize) -> (u32, u32) {
        (u32::from(self.bits[symbol]), u32::from(self.lengths[symbol]))
    }
}

/// Code lengths by Huffman's rule.
fn lengths(weights: &[u32]) -> Vec<u8> {
    let mut heap = BinaryHeap::new();
    let mut parents = vec![usize::MAX; weights.len()];
    for (symbol, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight > 0) {
        heap.push(Reverse((u64::from(*weight), symbol)));
    }
    while heap.len() > 1 {
        let Some(Reverse((light, one))) = heap.pop() else { break };
        let Some(Reverse((heavy, two))) = heap.pop() else { break };
        let parent = parents.len();
        parents.push(usize::MAX);
        parents[one] = parent;
        parents[two] = parent;
        heap.push(Reverse((light + heavy, parent)));
    }
    let mut depths = vec![0u32; parents.len()];
    for node in (0..parents.len()).rev() {
        if parents[node] != usize::MAX {
            depths[node] = depths[parents[node]] + 1;
        }
    }
    // A depth beyond a byte is beyond every limit too.
    (0..weights.len()).map(|symbol| depths[symbol].min(255) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn codes_are_complete_and_short_enough() {
        let mut fibonacci = vec![1u32, 1];
        for index in 2..40 {
            fibonacci.push(fibonacci[index - 1] + fibonacci[index - 2]);
        }
        for frequencies in [fibonacci, vec![0; 30], vec![0, 7, 0], vec![5; 286]] {
            let code = Code::new(&frequencies, 15);
            let used = code.lengths.iter().filter(|length| **length > 0);
            let sum: u32 = used.map(|length| 1 << (15 - length)).sum();
            assert_eq!(sum, 1 << 15);
            let missing = frequencies.iter().zip(&code.lengths);
            assert!(missing.filter(|(weight, _)| **weight > 0).all(|(_, length)| *length > 0));
        }
    }
}
