//! PackBits (TIFF compression 32773): runs of bytes and literal stretches.
//!
//! Knows nothing of rows: a run may cross them, as libtiff lets it. Any input decodes to
//! something; a stream that ends in the middle of a run yields what came before that run.

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

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(data: &[u8]) -> Vec<u8> {
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
            let mut code = encode(&data);
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
}
