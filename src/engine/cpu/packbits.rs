//! PackBits (TIFF compression 32773): runs of bytes and literal stretches.
//!
//! The decoder knows nothing of rows: a run may cross them, as libtiff lets it. The encoder packs
//! each row by itself, as the specification wants it. Any input decodes to something; a stream that ends in the middle of a run yields what came before that run.

use super::codec::CodecError;

/// Decodes `src` into the front of `dst` and returns how many bytes were made.
///
/// Stops when `dst` is full. Fewer bytes than `dst` holds is not an error here.
pub fn decode(src: &[u8], dst: &mut [u8]) -> Result<usize, CodecError> {
    let (mut ip, mut op) = (0, 0);
    while op < dst.len() {
        let Some(&head) = src.get(ip) else { break };
        ip += 1;
        let room = dst.len() - op;
        if head < 128 {
            let n = (usize::from(head) + 1).min(room);
            let Some(bytes) = src.get(ip..ip + n) else {
                break;
            };
            dst[op..op + n].copy_from_slice(bytes);
            ip += n;
            op += n;
        } else if head > 128 {
            let n = (257 - usize::from(head)).min(room);
            let Some(&byte) = src.get(ip) else { break };
            dst[op..op + n].fill(byte);
            ip += 1;
            op += n;
        }
    }
    Ok(op)
}

/// The longest run or stretch that one head byte can announce.
const LONGEST: usize = 128;
/// The shortest run that always pays. One of two bytes costs as much as two literals do.
const SHORTEST: usize = 3;

/// The most bytes that `encode` makes of `rows` rows of `row_bytes`.
pub fn bound(row_bytes: usize, rows: usize) -> usize {
    row_bytes.saturating_add(row_bytes.div_ceil(LONGEST)).saturating_mul(rows)
}

/// Encodes `src`, row by row, into the front of `dst` and returns how many bytes were made.
pub fn encode(src: &[u8], row_bytes: usize, dst: &mut [u8]) -> Result<usize, CodecError> {
    let mut op = 0;
    for row in src.chunks(row_bytes.max(1)) {
        op += encode_row(row, &mut dst[op..]).ok_or(CodecError::NoRoom)?;
    }
    Ok(op)
}

fn encode_row(row: &[u8], dst: &mut [u8]) -> Option<usize> {
    let (mut ip, mut op) = (0, 0);
    while ip < row.len() {
        let run = ip + next_run(&row[ip..]);
        // Pairs before anything else of a stretch save its head byte if there is nothing else.
        while run - ip >= 2 && row[ip] == row[ip + 1] {
            dst.get_mut(op..op + 2)?.copy_from_slice(&[255, row[ip]]);
            (ip, op) = (ip + 2, op + 2);
        }
        for piece in row[ip..run].chunks(LONGEST) {
            let (head, bytes) = dst.get_mut(op..op + 1 + piece.len())?.split_first_mut()?;
            *head = (piece.len() - 1) as u8;
            bytes.copy_from_slice(piece);
            op += 1 + piece.len();
        }
        ip = run;
        let Some(&byte) = row.get(ip) else { break };
        let mut len = 1 + row[ip + 1..].iter().take_while(|&&b| b == byte).count();
        // What is too short for a run at the end of a long one belongs to the next stretch.
        while len >= SHORTEST {
            let now = len.min(LONGEST);
            dst.get_mut(op..op + 2)?.copy_from_slice(&[(257 - now) as u8, byte]);
            (ip, op, len) = (ip + now, op + 2, len - now);
        }
    }
    Some(op)
}

/// Where the first run of at least `SHORTEST` bytes begins, or the end.
fn next_run(row: &[u8]) -> usize {
    const LOW: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = u64::from_le_bytes([128; 8]);
    let mut at = 0;
    while let Some(bytes) = row[at..].first_chunk::<{ 8 + SHORTEST - 1 }>() {
        let word = |i: usize| bytes[i..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        // Zero bytes are where three bytes are equal; the lowest of them is found exactly.
        let unequal = (word(0) ^ word(1)) | (word(0) ^ word(2));
        let zero = unequal.wrapping_sub(LOW) & !unequal & HIGH;
        if zero != 0 {
            return at + zero.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let rest = row[at..].windows(SHORTEST).position(|w| w[0] == w[1] && w[0] == w[2]);
    rest.map_or(row.len(), |i| at + i)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another encoder than the one under test.
    fn other(data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut i = 0;
        while i < data.len() {
            let run = data[i..].iter().take(128).take_while(|&&b| b == data[i]).count();
            if run >= 2 {
                out.extend([(257 - run) as u8, data[i]]);
                i += run;
            } else {
                let end = (i + 1..data.len().min(i + 128))
                    .find(|&k| data[k] == data[k - 1])
                    .map_or(data.len().min(i + 128), |k| k - 1);
                out.push((end - i - 1) as u8);
                out.extend(&data[i..end]);
                i = end;
            }
        }
        out
    }

    fn random(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    }

    #[test]
    fn round_trips_and_damaged_streams_stay_inside() {
        let first = 0x5eed_0001_u64;
        println!("seed {first:#x}");
        let mut s = first;
        for case in 0..3000 {
            let spread = 1 + random(&mut s) % 4;
            let len = (random(&mut s) % 600) as usize;
            let data: Vec<u8> = (0..len).map(|_| (random(&mut s) % spread) as u8).collect();
            let mut code = other(&data);
            let mut out = vec![0xA5; len + 64];
            assert_eq!(decode(&code, &mut out[32..32 + len]), Ok(len), "case {case}");
            assert_eq!(&out[32..32 + len], &data[..], "case {case}");
            if !code.is_empty() {
                let at = random(&mut s) as usize % code.len();
                code[at] ^= random(&mut s) as u8;
                code.truncate(random(&mut s) as usize % (code.len() + 1));
                assert!(decode(&code, &mut out[32..32 + len]).unwrap() <= len);
            }
            assert!(out[..32].iter().chain(&out[32 + len..]).all(|&b| b == 0xA5), "case {case}");
        }
    }

    #[test]
    fn the_odd_shapes_of_libtiff() {
        let mut out = [0; 4];
        assert_eq!(decode(&[128, 128, 0, 7], &mut out), Ok(1));
        assert_eq!(decode(&[0x81, 9], &mut out), Ok(4), "a run longer than the tile is cut");
        assert_eq!(out, [9; 4]);
        assert_eq!(decode(&[100, 1, 2, 3, 4], &mut out), Ok(4), "and so are literals");
        assert_eq!(decode(&[100, 1, 2, 3], &mut out), Ok(0), "a stretch that is cut off is lost");
        assert_eq!(decode(&[0x81], &mut out), Ok(0));
    }

    /// The size that libtiff's state machine makes of a row, which closes a stretch at every pair
    /// but one between two literals.
    fn libtiff_size(row: &[u8]) -> usize {
        enum State {
            Base,
            Literal(usize),
            Run,
            /// A stretch, then a run of so many.
            Both(usize, usize),
        }
        let (mut size, mut state, mut ip) = (0, State::Base, 0);
        while ip < row.len() {
            let mut n = row[ip..].iter().take_while(|&&b| b == row[ip]).count();
            ip += n;
            while n > 0 {
                if let State::Both(literals, run) = state {
                    state = match literals + 2 {
                        128 if n == 1 && run == 2 => State::Base,
                        more if n == 1 && run == 2 && more < 128 => State::Literal(more),
                        _ => State::Run,
                    };
                }
                let now = n.min(128);
                (size, state) = match state {
                    State::Literal(127) if now == 1 => (size + 1, State::Base),
                    State::Literal(literals) if now == 1 => {
                        (size + 1, State::Literal(literals + 1))
                    }
                    State::Literal(literals) => (size + 2, State::Both(literals, now)),
                    _ if now == 1 => (size + 2, State::Literal(1)),
                    _ => (size + 2, State::Run),
                };
                n -= now;
            }
        }
        size
    }

    #[test]
    fn encodes_within_the_bound_and_no_larger_than_libtiff() {
        let first = 0x5eed_0021_u64;
        println!("seed {first:#x}");
        let (mut s, mut ours, mut libtiffs) = (first, 0, 0);
        for case in 0..6000 {
            let spread = [1, 2, 3, 4, 256][random(&mut s) as usize % 5];
            let row_bytes = 1 + random(&mut s) as usize % [5, 50, 300, 600][case % 4];
            let rows = random(&mut s) as usize % 4;
            let mut data = Vec::new();
            while data.len() < row_bytes * rows {
                let run = 1 + random(&mut s) as usize % [1, 2, 3, 300][case / 4 % 4];
                data.extend(std::iter::repeat_n((random(&mut s) % spread) as u8, run));
            }
            data.truncate(row_bytes * rows);
            let room = bound(row_bytes, rows);
            let mut code = vec![0xA5; room + 32];
            let made = encode(&data, row_bytes, &mut code[..room]).unwrap();
            assert!(code[made..].iter().all(|&b| b == 0xA5), "case {case}");
            let mut out = vec![0; data.len()];
            assert_eq!(decode(&code[..made], &mut out), Ok(data.len()), "case {case}");
            assert!(out == data, "case {case}");
            assert!(made == 0 || encode(&data, row_bytes, &mut code[..made - 1]).is_err());
            let size: usize = data.chunks(row_bytes).map(libtiff_size).sum();
            assert!(made <= size, "case {case}: {made} and {size}");
            (ours, libtiffs) = (ours + made, libtiffs + size);
        }
        println!("{ours} bytes, libtiff {libtiffs}");
    }

    #[test]
    fn rows_are_packed_by_themselves() {
        let mut code = [0; 20];
        assert_eq!(encode(&[7; 8], 4, &mut code), Ok(4));
        assert_eq!(code[..4], [253, 7, 253, 7]);
        assert_eq!(encode(&[], 4, &mut code), Ok(0));
        assert_eq!(encode(&[9], 4, &mut code), Ok(2));
        assert_eq!(code[..2], [0, 9]);
        assert_eq!(encode(&[1, 1, 2, 2, 3], 5, &mut code), Ok(6));
        assert_eq!(code[..6], [255, 1, 255, 2, 0, 3]);
        assert_eq!(encode(&[0, 1, 1, 2, 2, 3], 6, &mut code), Ok(7));
        assert_eq!(code[..7], [5, 0, 1, 1, 2, 2, 3]);
        let long: Vec<u8> = std::iter::repeat_n(5, 257).collect();
        assert_eq!(encode(&long, 257, &mut code), Ok(6));
        assert_eq!(code[..6], [129, 5, 129, 5, 0, 5], "what is left of a run");
    }
}
