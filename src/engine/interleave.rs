//! Taking interleaved pixels apart into planes, and putting them together again.
//!
//! Moves samples of 1, 2, 4, 8 or 16 bytes and knows nothing of what they mean. One pass over the
//! interleaved pixels serves all planes. The common pixels are written as plain loops with a constant number
//! of samples, compiled once more for AVX2, where the compiler makes good shuffles of them.

/// Copies each sample of interleaved pixels to its plane: `planes[s][i] = src[i * samples + s]`.
///
/// `unit` is the size of a sample in bytes: 1, 2, 4, 8 or 16. There are `samples` planes; as many
/// pixels are copied as the source and the shortest plane have.
pub fn deinterleave(src: &[u8], samples: usize, unit: usize, planes: &mut [&mut [u8]]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { deinterleave_avx2(src, samples, unit, planes) };
    }
    by_unit(src, samples, unit, planes);
}

/// `by_unit`, compiled for AVX2.
///
/// # Safety
/// The processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn deinterleave_avx2(src: &[u8], samples: usize, unit: usize, planes: &mut [&mut [u8]]) {
    match planes {
        [a, b, c] if samples == 3 && unit == 1 => {
            let done = x86::split_three(src, [a, b, c]);
            let rest = [&mut a[done..], &mut b[done..], &mut c[done..]];
            split::<1, 3>(src[done * 3..].as_chunks::<1>().0, rest);
        }
        _ => by_unit(src, samples, unit, planes),
    }
}

#[inline(always)]
fn by_unit(src: &[u8], samples: usize, unit: usize, planes: &mut [&mut [u8]]) {
    match unit {
        1 => by_samples::<1>(src, samples, planes),
        2 => by_samples::<2>(src, samples, planes),
        4 => by_samples::<4>(src, samples, planes),
        8 => by_samples::<8>(src, samples, planes),
        _ => by_samples::<16>(src, samples, planes),
    }
}

#[inline(always)]
fn by_samples<const N: usize>(src: &[u8], samples: usize, planes: &mut [&mut [u8]]) {
    let src = src.as_chunks::<N>().0;
    match planes {
        [a] if samples == 1 => {
            let n = a.len().min(src.len() * N) / N * N;
            a[..n].copy_from_slice(&src.as_flattened()[..n]);
        }
        [a, b] if samples == 2 => split::<N, 2>(src, [a, b]),
        [a, b, c] if samples == 3 => split::<N, 3>(src, [a, b, c]),
        [a, b, c, d] if samples == 4 => split::<N, 4>(src, [a, b, c, d]),
        _ => {
            for (sample, plane) in planes.iter_mut().enumerate().take(samples) {
                let plane = plane.as_chunks_mut::<N>().0;
                for (to, from) in plane.iter_mut().zip(src.iter().skip(sample).step_by(samples)) {
                    *to = *from;
                }
            }
        }
    }
}

#[inline(always)]
fn split<const N: usize, const S: usize>(src: &[[u8; N]], planes: [&mut [u8]; S]) {
    let pixels = src.as_chunks::<S>().0;
    let mut planes = planes.map(|p| p.as_chunks_mut::<N>().0);
    let count = planes.iter().fold(pixels.len(), |n, p| n.min(p.len()));
    let pixels = &pixels[..count];
    for plane in &mut planes {
        *plane = &mut std::mem::take(plane)[..count];
    }
    for (i, pixel) in pixels.iter().enumerate() {
        for (plane, sample) in planes.iter_mut().zip(pixel) {
            plane[i] = *sample;
        }
    }
}

/// Copies each sample of planes to its pixel: `dst[i * samples + s] = planes[s][i]`.
///
/// `unit` is the size of a sample in bytes: 1, 2, 4, 8 or 16. There are `samples` planes; as many
/// pixels are copied as the destination and the shortest plane have.
pub fn interleave(planes: &[&[u8]], samples: usize, unit: usize, dst: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { interleave_avx2(planes, samples, unit, dst) };
    }
    join_by_unit(planes, samples, unit, dst);
}

/// `join_by_unit`, compiled for AVX2.
///
/// # Safety
/// The processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn interleave_avx2(planes: &[&[u8]], samples: usize, unit: usize, dst: &mut [u8]) {
    match *planes {
        [a, b, c] if samples == 3 && unit == 1 => {
            let done = x86::join_three([a, b, c], dst);
            join_by_unit(&[&a[done..], &b[done..], &c[done..]], 3, 1, &mut dst[done * 3..]);
        }
        _ => join_by_unit(planes, samples, unit, dst),
    }
}

/// Three planes of bytes, the one case that compilers make no good shuffles of.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// Of each of three vectors, which byte goes where; 0x80 for a byte that another one has.
    type Mask = [[u8; 16]; 3];

    /// The masks of each plane, out of three vectors of pixels.
    const SPLIT: [Mask; 3] = masks(true);
    /// The masks of each vector of pixels, out of three planes.
    const JOIN: [Mask; 3] = masks(false);

    const fn masks(split: bool) -> [Mask; 3] {
        let mut masks = [[[0x80; 16]; 3]; 3];
        let mut at = 0;
        while at < 48 {
            let (pixel, plane) = (at / 3, at % 3);
            match split {
                true => masks[plane][at / 16][pixel] = (at % 16) as u8,
                false => masks[at / 16][plane][at % 16] = pixel as u8,
            }
            at += 1;
        }
        masks
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn gather(from: [__m128i; 3], mask: &Mask) -> __m128i {
        let [x, y, z] = [0, 1, 2].map(|i| _mm_shuffle_epi8(from[i], load(&mask[i])));
        _mm_or_si128(_mm_or_si128(x, y), z)
    }

    /// Takes apart as many pixels as fill whole vectors and returns how many these are.
    #[target_feature(enable = "avx2")]
    pub(super) fn split_three(src: &[u8], planes: [&mut [u8]; 3]) -> usize {
        let [a, b, c] = planes.map(|p| p.as_chunks_mut::<16>().0);
        let mut done = 0;
        for (((block, a), b), c) in src.as_chunks::<48>().0.iter().zip(a).zip(b).zip(c) {
            let block = block.as_chunks::<16>().0;
            let (x, y, z) = (load(&block[0]), load(&block[1]), load(&block[2]));
            for (to, mask) in [a, b, c].into_iter().zip(&SPLIT) {
                store(to, gather([x, y, z], mask));
            }
            done += 16;
        }
        done
    }

    /// Puts together as many pixels as fill whole vectors and returns how many these are.
    #[target_feature(enable = "avx2")]
    pub(super) fn join_three(planes: [&[u8]; 3], dst: &mut [u8]) -> usize {
        let [a, b, c] = planes.map(|p| p.as_chunks::<16>().0);
        let blocks = dst.as_chunks_mut::<48>().0.iter_mut();
        let mut done = 0;
        for (((block, a), b), c) in blocks.zip(a).zip(b).zip(c) {
            let planes = [load(a), load(b), load(c)];
            for (to, mask) in block.as_chunks_mut::<16>().0.iter_mut().zip(&JOIN) {
                store(to, gather(planes, mask));
            }
            done += 16;
        }
        done
    }

    #[inline(always)]
    fn load(from: &[u8; 16]) -> __m128i {
        // SAFETY: the array has 16 bytes; SSE2 is part of x86-64.
        unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn store(to: &mut [u8; 16], v: __m128i) {
        // SAFETY: the array has 16 bytes; SSE2 is part of x86-64.
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), v) }
    }
}

#[inline(always)]
fn join_by_unit(planes: &[&[u8]], samples: usize, unit: usize, dst: &mut [u8]) {
    match unit {
        1 => join_by_samples::<1>(planes, samples, dst),
        2 => join_by_samples::<2>(planes, samples, dst),
        4 => join_by_samples::<4>(planes, samples, dst),
        8 => join_by_samples::<8>(planes, samples, dst),
        _ => join_by_samples::<16>(planes, samples, dst),
    }
}

#[inline(always)]
fn join_by_samples<const N: usize>(planes: &[&[u8]], samples: usize, dst: &mut [u8]) {
    let dst = dst.as_chunks_mut::<N>().0;
    match *planes {
        [a] if samples == 1 => {
            let n = a.len().min(dst.len() * N) / N * N;
            dst.as_flattened_mut()[..n].copy_from_slice(&a[..n]);
        }
        [a, b] if samples == 2 => join::<N, 2>([a, b], dst),
        [a, b, c] if samples == 3 => join::<N, 3>([a, b, c], dst),
        [a, b, c, d] if samples == 4 => join::<N, 4>([a, b, c, d], dst),
        _ => {
            let count = planes.iter().map(|p| p.len() / N).min().unwrap_or(0);
            let count = count.min(dst.len() / samples.max(1));
            for (sample, plane) in planes.iter().enumerate().take(samples) {
                let plane = &plane.as_chunks::<N>().0[..count];
                for (from, to) in plane.iter().zip(dst.iter_mut().skip(sample).step_by(samples)) {
                    *to = *from;
                }
            }
        }
    }
}

#[inline(always)]
fn join<const N: usize, const S: usize>(planes: [&[u8]; S], dst: &mut [[u8; N]]) {
    let planes = planes.map(|p| p.as_chunks::<N>().0);
    let pixels = dst.as_chunks_mut::<S>().0;
    let count = planes.iter().fold(pixels.len(), |n, p| n.min(p.len()));
    let planes = planes.map(|p| &p[..count]);
    for (i, pixel) in pixels[..count].iter_mut().enumerate() {
        *pixel = std::array::from_fn(|s| planes[s][i]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    }

    fn check(s: &mut u64, run: fn(&[u8], usize, usize, &mut [&mut [u8]])) {
        for case in 0..3000 {
            let unit = [1, 2, 4, 8, 16][random(s) as usize % 5];
            let samples = 1 + random(s) as usize % 7;
            let width = random(s) as usize % if case % 10 == 0 { 500 } else { 70 };
            let src: Vec<u8> = (0..width * samples * unit).map(|_| random(s) as u8).collect();
            let mut out = vec![vec![0xA5_u8; width * unit + 32]; samples];
            let mut planes: Vec<&mut [u8]> =
                out.iter_mut().map(|p| &mut p[16..16 + width * unit]).collect();
            run(&src, samples, unit, &mut planes);
            for (sample, plane) in out.iter().enumerate() {
                for (i, bytes) in plane[16..16 + width * unit].chunks(unit).enumerate() {
                    let at = (i * samples + sample) * unit;
                    assert_eq!(bytes, &src[at..at + unit], "case {case}: {width} {samples} {unit}");
                }
                assert!(plane[..16].iter().chain(&plane[16 + width * unit..]).all(|&b| b == 0xA5));
            }
        }
    }

    #[test]
    fn every_sample_goes_to_its_plane() {
        let first = 0x5eed_0008_u64;
        println!("seed {first:#x}");
        check(&mut { first }, deinterleave);
        check(&mut { first }, by_unit);
    }
    fn check_joined(s: &mut u64, run: fn(&[&[u8]], usize, usize, &mut [u8])) {
        for case in 0..3000 {
            let unit = [1, 2, 4, 8, 16][random(s) as usize % 5];
            let samples = 1 + random(s) as usize % 7;
            let width = random(s) as usize % if case % 10 == 0 { 500 } else { 70 };
            let spare = random(s) as usize % 3 * unit;
            let planes: Vec<Vec<u8>> = (0..samples)
                .map(|_| (0..width * unit + spare).map(|_| random(s) as u8).collect())
                .collect();
            let mut out = vec![0xA5_u8; width * samples * unit + 32];
            let end = out.len() - 16;
            let planes: Vec<&[u8]> = planes.iter().map(|p| &p[..]).collect();
            run(&planes, samples, unit, &mut out[16..end]);
            for (i, bytes) in out[16..end].chunks(unit).enumerate() {
                let want = &planes[i % samples][i / samples * unit..][..unit];
                assert_eq!(bytes, want, "case {case}: {width} {samples} {unit}");
            }
            assert!(out[..16].iter().chain(&out[end..]).all(|&b| b == 0xA5));
        }
    }

    #[test]
    fn every_sample_goes_to_its_pixel() {
        let first = 0x5eed_0018_u64;
        println!("seed {first:#x}");
        check_joined(&mut { first }, interleave);
        check_joined(&mut { first }, join_by_unit);
    }

    #[test]
    fn the_shortest_plane_says_how_many_pixels() {
        for samples in 1..7 {
            let planes: Vec<&[u8]> = [&[1_u8; 9][..], &[2; 5], &[3; 6], &[4; 7], &[5; 8], &[6; 4]]
                .into_iter()
                .take(samples)
                .collect();
            let pixels = planes.iter().map(|p| p.len()).min().unwrap().min(8);
            let mut out = vec![0; 8 * samples + samples - 1];
            interleave(&planes, samples, 1, &mut out);
            assert!(out[..pixels * samples].iter().all(|&b| b > 0), "{samples}");
            assert!(out[pixels * samples..].iter().all(|&b| b == 0), "{samples}");
        }
    }
}
