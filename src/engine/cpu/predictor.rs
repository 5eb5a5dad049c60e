//! TIFF predictors 2 and 3, undone in place, and byte swapping; `forward` applies them.
//!
//! Works on rows of bytes and knows nothing of tiles, files or types beyond the size of a sample.
//! The results are those of libtiff 4.5.0: sums wrap around. Both predictors are running sums at
//! a fixed distance, so there is one kernel for them, `accumulate`: on x86-64 with AVX2 it sums
//! 16 bytes at once, elsewhere one pixel. Swapping and gathering are plain loops, compiled once
//! more for AVX2.
//!
//! Invariant: the vector kernel gives the bytes of the portable one for every length.

pub mod forward;

/// Undoes horizontal differencing (predictor 2) in every whole row of `data`.
///
/// With `swap` each sample is first brought from the other byte order into the native one.
/// `sample_bytes` is 1, 2, 4 or 8, `samples` the number of samples of a pixel in a row.
pub fn undo_horizontal(
    data: &mut [u8],
    row_bytes: usize,
    samples: usize,
    sample_bytes: usize,
    swap: bool,
) {
    if swap {
        swap_samples(data, sample_bytes);
    }
    match sample_bytes {
        1 => accumulate::<1>(data, row_bytes, samples),
        2 => accumulate::<2>(data, row_bytes, samples),
        4 => accumulate::<4>(data, row_bytes, samples),
        _ => accumulate::<8>(data, row_bytes, samples),
    }
}

/// Undoes the floating-point predictor (predictor 3) in every whole row of `data`; the samples
/// come out in native byte order.
///
/// `sample_bytes` is 2, 3, 4 or 8. `scratch` holds one row and is kept for the next call.
pub fn undo_floating_point(
    data: &mut [u8],
    row_bytes: usize,
    samples: usize,
    sample_bytes: usize,
    scratch: &mut Vec<u8>,
) {
    if row_bytes == 0 {
        return;
    }
    scratch.resize(row_bytes, 0);
    accumulate::<1>(data, row_bytes, samples);
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { x86::gather_rows(data, row_bytes, sample_bytes, scratch) };
    }
    gather_rows(data, row_bytes, sample_bytes, scratch);
}

/// Reverses the bytes of every whole sample of `unit` bytes; does nothing unless that is 2, 4, 8.
pub fn swap_samples(data: &mut [u8], unit: usize) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { x86::swap_samples(data, unit) };
    }
    swap_portable(data, unit);
}

#[inline(always)]
fn swap_portable(data: &mut [u8], unit: usize) {
    match unit {
        2 => data
            .as_chunks_mut()
            .0
            .iter_mut()
            .for_each(|s| *s = u16::from_be_bytes(*s).to_le_bytes()),
        4 => data
            .as_chunks_mut()
            .0
            .iter_mut()
            .for_each(|s| *s = u32::from_be_bytes(*s).to_le_bytes()),
        8 => data
            .as_chunks_mut()
            .0
            .iter_mut()
            .for_each(|s| *s = u64::from_be_bytes(*s).to_le_bytes()),
        _ => {}
    }
}

#[inline(always)]
fn gather_rows(data: &mut [u8], row_bytes: usize, sample_bytes: usize, scratch: &mut [u8]) {
    for row in data.chunks_exact_mut(row_bytes) {
        scratch.copy_from_slice(row);
        match sample_bytes {
            2 => gather::<2>(scratch, row),
            3 => gather::<3>(scratch, row),
            4 => gather::<4>(scratch, row),
            _ => gather::<8>(scratch, row),
        }
    }
}

/// Puts the bytes of samples together from planes of equal significance, the highest first.
#[inline(always)]
fn gather<const N: usize>(planes: &[u8], row: &mut [u8]) {
    let count = planes.len() / N;
    let plane: [&[u8]; N] = std::array::from_fn(|i| &planes[i * count..][..count]);
    let row = &mut row.as_chunks_mut::<N>().0[..count];
    for i in 0..count {
        let sample: [u8; N] = std::array::from_fn(|byte| {
            let big = cfg!(target_endian = "big");
            plane[if big { byte } else { N - 1 - byte }][i]
        });
        row[i] = sample;
    }
}

/// Adds to each sample of `N` bytes the one `samples` before it in its row, from left to right.
fn accumulate<const N: usize>(data: &mut [u8], row_bytes: usize, samples: usize) {
    if row_bytes == 0 || samples == 0 {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if (samples * N <= 16 || samples > 4) && is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { x86::accumulate::<N>(data, row_bytes, samples * N) };
    }
    for row in data.chunks_exact_mut(row_bytes) {
        accumulate_portable::<N>(row, samples);
    }
}

fn accumulate_portable<const N: usize>(row: &mut [u8], samples: usize) {
    match samples {
        1 => accumulate_few::<N, 1>(row),
        2 => accumulate_few::<N, 2>(row),
        3 => accumulate_few::<N, 3>(row),
        4 => accumulate_few::<N, 4>(row),
        _ => {
            let pixel = samples * N;
            let mut rest = row;
            while rest.len() > pixel {
                let (before, after) = rest.split_at_mut(pixel);
                for (a, b) in after.as_chunks_mut().0.iter_mut().zip(before.as_chunks().0) {
                    *a = add::<N>(*a, *b);
                }
                rest = after;
            }
        }
    }
}

/// The sums of up to four samples of a pixel, kept in registers.
fn accumulate_few<const N: usize, const S: usize>(row: &mut [u8]) {
    let mut sums = [[0; N]; S];
    let (pixels, rest) = row.as_chunks_mut::<N>().0.as_chunks_mut::<S>();
    for pixel in pixels {
        for (sum, sample) in sums.iter_mut().zip(pixel) {
            *sum = add::<N>(*sum, *sample);
            *sample = *sum;
        }
    }
    for (sum, sample) in sums.iter().zip(rest) {
        *sample = add::<N>(*sum, *sample);
    }
}

/// The sum of two samples of `N` bytes in native order, wrapping around.
#[inline(always)]
fn add<const N: usize>(a: [u8; N], b: [u8; N]) -> [u8; N] {
    let wide = |s: [u8; N]| {
        let mut bytes = [0; 8];
        let start = if cfg!(target_endian = "big") { 8 - N } else { 0 };
        bytes[start..start + N].copy_from_slice(&s);
        u64::from_ne_bytes(bytes)
    };
    let sum = wide(a).wrapping_add(wide(b)).to_ne_bytes();
    let start = if cfg!(target_endian = "big") { 8 - N } else { 0 };
    std::array::from_fn(|i| sum[start + i])
}

/// The running sum in 16-byte vectors: inside a vector by doubling distances, between vectors by
/// spreading the last pixel of one over the next. Pixels larger than a vector need neither, and
/// if they have few samples the portable loop is faster.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// `super::swap_portable`, compiled for AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) fn swap_samples(data: &mut [u8], unit: usize) {
        super::swap_portable(data, unit);
    }

    /// `super::gather_rows`, compiled for AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) fn gather_rows(data: &mut [u8], row_bytes: usize, unit: usize, scratch: &mut [u8]) {
        super::gather_rows(data, row_bytes, unit, scratch);
    }

    /// Like `super::accumulate`, for pixels of `pixel` bytes, at least 1.
    #[target_feature(enable = "avx2")]
    pub(super) fn accumulate<const N: usize>(data: &mut [u8], row_bytes: usize, pixel: usize) {
        match pixel {
            1 => near::<N, 4>(data, row_bytes, pixel),
            2..4 => near::<N, 3>(data, row_bytes, pixel),
            4..8 => near::<N, 2>(data, row_bytes, pixel),
            8..16 => near::<N, 1>(data, row_bytes, pixel),
            16 => near::<N, 0>(data, row_bytes, pixel),
            _ => far::<N>(data, row_bytes, pixel),
        }
    }

    /// Pixels of at most 16 bytes; after `STEPS` doublings no more than one is left in a vector.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn near<const N: usize, const STEPS: usize>(data: &mut [u8], row_bytes: usize, pixel: usize) {
        let shifts: [__m128i; STEPS] = std::array::from_fn(|step| {
            let by = pixel << step;
            mask(|i| if i < by { 0x80 } else { (i - by) as u8 })
        });
        let spread = mask(|i| (16 - pixel + i % pixel) as u8);
        for row in data.chunks_exact_mut(row_bytes) {
            let mut sum = _mm_setzero_si128();
            let (blocks, rest) = row.as_chunks_mut::<16>();
            for block in blocks {
                let mut v = load(block);
                for by in shifts {
                    v = add::<N>(v, _mm_shuffle_epi8(v, by));
                }
                sum = add::<N>(v, _mm_shuffle_epi8(sum, spread));
                store(block, sum);
            }
            let mut last = [0; 16];
            store(&mut last, _mm_shuffle_epi8(sum, spread));
            tail::<N>(rest, last.as_chunks::<N>().0, pixel / N);
        }
    }

    /// Pixels of more than 16 bytes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn far<const N: usize>(data: &mut [u8], row_bytes: usize, pixel: usize) {
        for row in data.chunks_exact_mut(row_bytes) {
            let mut rest = row;
            while rest.len() > pixel {
                let (before, after) = rest.split_at_mut(pixel);
                let count = pixel.min(after.len());
                let (blocks, end) = after[..count].as_chunks_mut::<16>();
                for (block, before) in blocks.iter_mut().zip(before.as_chunks::<16>().0) {
                    store(block, add::<N>(load(block), load(before)));
                }
                let before = before[blocks.len() * 16..].as_chunks::<N>().0;
                tail::<N>(end, before, pixel / N);
                rest = after;
            }
        }
    }

    /// The samples after the last whole vector; `before` is the pixel before them.
    #[inline]
    fn tail<const N: usize>(rest: &mut [u8], before: &[[u8; N]], samples: usize) {
        let rest = rest.as_chunks_mut::<N>().0;
        for i in 0..rest.len() {
            let before = if i < samples { before[i] } else { rest[i - samples] };
            rest[i] = super::add::<N>(rest[i], before);
        }
    }

    fn mask(byte: impl Fn(usize) -> u8) -> __m128i {
        load(&std::array::from_fn(byte))
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

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add<const N: usize>(a: __m128i, b: __m128i) -> __m128i {
        match N {
            1 => _mm_add_epi8(a, b),
            2 => _mm_add_epi16(a, b),
            4 => _mm_add_epi32(a, b),
            _ => _mm_add_epi64(a, b),
        }
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

    /// Predictor 2 as tif_predict.c has it, in one integer type for all sizes.
    fn horizontal(row: &mut [u8], samples: usize, unit: usize, swap: bool) {
        let count = row.len() / unit;
        let get = |row: &[u8], i: usize, swap: bool| {
            let little = cfg!(target_endian = "little") != swap;
            (0..unit).fold(0_u64, |v, k| {
                let byte = if little { unit - 1 - k } else { k };
                v << 8 | u64::from(row[i * unit + byte])
            })
        };
        for i in 0..count {
            let before = if i < samples { 0 } else { get(row, i - samples, false) };
            let sum = get(row, i, swap).wrapping_add(before);
            for k in 0..unit {
                let shift = if cfg!(target_endian = "little") { k } else { unit - 1 - k };
                row[i * unit + k] = (sum >> (8 * shift)) as u8;
            }
        }
    }

    /// Predictor 3 as tif_predict.c has it.
    fn floating(row: &mut [u8], samples: usize, unit: usize) {
        for i in samples..row.len() {
            row[i] = row[i].wrapping_add(row[i - samples]);
        }
        gather_naive(row, unit);
    }

    fn gather_naive(row: &mut [u8], unit: usize) {
        let (planes, count) = (row.to_vec(), row.len() / unit);
        for i in 0..count {
            for byte in 0..unit {
                let plane = if cfg!(target_endian = "big") { byte } else { unit - 1 - byte };
                row[i * unit + byte] = planes[plane * count + i];
            }
        }
    }

    #[test]
    fn both_predictors_agree_with_libtiffs_loops() {
        let first = 0x5eed_0006_u64;
        println!("seed {first:#x}");
        let (mut s, mut scratch) = (first, Vec::new());
        for case in 0..6000 {
            let unit = [1, 2, 4, 8][random(&mut s) as usize % 4];
            let samples = 1 + random(&mut s) as usize % if case % 5 == 0 { 20 } else { 5 };
            let width = random(&mut s) as usize % if case % 10 == 0 { 300 } else { 40 };
            let row_bytes = width * samples * unit;
            let rows = random(&mut s) as usize % 4;
            let data: Vec<u8> = (0..row_bytes * rows).map(|_| random(&mut s) as u8).collect();
            let what = format!("case {case}: {rows} rows of {width} x {samples} x {unit}");
            for swap in [false, true] {
                let (mut got, mut want) = (data.clone(), data.clone());
                undo_horizontal(&mut got, row_bytes, samples, unit, swap);
                want.chunks_mut(row_bytes.max(1))
                    .for_each(|row| horizontal(row, samples, unit, swap));
                assert!(got == want, "{what}, swap {swap}");
            }
            let unit = [2, 3, 4, 8][random(&mut s) as usize % 4];
            let row_bytes = width * samples * unit;
            let data: Vec<u8> = (0..row_bytes * rows).map(|_| random(&mut s) as u8).collect();
            let (mut got, mut want) = (data.clone(), data);
            undo_floating_point(&mut got, row_bytes, samples, unit, &mut scratch);
            want.chunks_mut(row_bytes.max(1)).for_each(|row| floating(row, samples, unit));
            assert!(got == want, "{what} as floats of {unit}");
            if row_bytes > 0 {
                let (mut a, mut b) = (got.clone(), got);
                gather_rows(&mut a, row_bytes, unit, &mut vec![0; row_bytes]);
                b.chunks_mut(row_bytes).for_each(|row| gather_naive(row, unit));
                assert!(a == b, "{what} as floats of {unit}, gathered portably");
            }
        }
    }

    #[test]
    fn the_portable_sum_is_the_same() {
        let first = 0x5eed_0007_u64;
        println!("seed {first:#x}");
        let mut s = first;
        for case in 0..3000 {
            let samples = 1 + random(&mut s) as usize % 9;
            let width = random(&mut s) as usize % 70;
            let data: Vec<u8> = (0..width * samples * 8).map(|_| random(&mut s) as u8).collect();
            type Fast = fn(&mut [u8], usize, usize);
            let check = |portable: fn(&mut [u8], usize), fast: Fast, unit| {
                let bytes = width * samples * unit;
                let (mut a, mut b) = (data[..bytes].to_vec(), data[..bytes].to_vec());
                portable(&mut a, samples);
                fast(&mut b, bytes, samples);
                assert!(a == b, "case {case}: {width} x {samples} x {unit}");
            };
            check(accumulate_portable::<1>, accumulate::<1>, 1);
            check(accumulate_portable::<2>, accumulate::<2>, 2);
            check(accumulate_portable::<4>, accumulate::<4>, 4);
            check(accumulate_portable::<8>, accumulate::<8>, 8);
        }
    }

    #[test]
    fn a_rest_of_a_row_is_left_alone() {
        let mut data = [1, 1, 1, 1, 1];
        undo_horizontal(&mut data, 3, 1, 1, false);
        assert_eq!(data, [1, 2, 3, 1, 1]);
        undo_horizontal(&mut data, 0, 1, 1, false);
        undo_floating_point(&mut data, 0, 1, 4, &mut Vec::new());
        assert_eq!(data, [1, 2, 3, 1, 1]);
    }

    #[test]
    fn swapping() {
        let mut data = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        swap_samples(&mut data, 1);
        swap_samples(&mut data, 2);
        assert_eq!(data, [2, 1, 4, 3, 6, 5, 8, 7, 9]);
        swap_samples(&mut data, 4);
        assert_eq!(data, [3, 4, 1, 2, 7, 8, 5, 6, 9]);
        swap_samples(&mut data, 8);
        assert_eq!(data, [6, 5, 8, 7, 2, 1, 4, 3, 9]);
        let mut again = data;
        swap_portable(&mut again, 4);
        swap_samples(&mut data, 4);
        assert_eq!(again, data);
    }
}
