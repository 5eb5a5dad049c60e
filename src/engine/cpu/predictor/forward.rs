//! TIFF predictors 2 and 3 as a writer applies them, in place: what `super` undoes.
//!
//! Differences wrap around. Unlike sums they do not depend on each other, so plain loops over
//! fixed blocks are enough; they are compiled once more for AVX2. A row is differenced from its
//! end to its beginning, so that a block still finds the samples before it as they were.

/// Replaces each sample by its difference to the one before it (predictor 2) in every whole row
/// of `data`.
///
/// With `swap` each difference is then brought from the native byte order into the other one.
/// `sample_bytes` is 1, 2, 4 or 8, `samples` the number of samples of a pixel in a row.
pub fn apply_horizontal(
    data: &mut [u8],
    row_bytes: usize,
    samples: usize,
    sample_bytes: usize,
    swap: bool,
) {
    if row_bytes == 0 || samples == 0 {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        unsafe { x86::difference_rows(data, row_bytes, samples, sample_bytes) };
        if swap {
            super::swap_samples(data, sample_bytes);
        }
        return;
    }
    difference_rows(data, row_bytes, samples, sample_bytes);
    if swap {
        super::swap_samples(data, sample_bytes);
    }
}

/// Takes the bytes of native samples apart into planes and differences these (predictor 3) in
/// every whole row of `data`. The result does not depend on the file's byte order.
///
/// `sample_bytes` is 2, 3, 4 or 8. `scratch` has room for a row; without that nothing is done.
pub fn apply_floating_point(
    data: &mut [u8],
    row_bytes: usize,
    samples: usize,
    sample_bytes: usize,
    scratch: &mut [u8],
) {
    if row_bytes == 0 {
        return;
    }
    let Some(scratch) = scratch.get_mut(..row_bytes) else { return };
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { x86::scatter_rows(data, row_bytes, samples, sample_bytes, scratch) };
    }
    scatter_rows(data, row_bytes, samples, sample_bytes, scratch);
}

#[inline(always)]
fn difference_rows(data: &mut [u8], row_bytes: usize, samples: usize, sample_bytes: usize) {
    for row in data.chunks_exact_mut(row_bytes) {
        match sample_bytes {
            1 => difference::<1>(row, samples),
            2 => difference::<2>(row, samples * 2),
            4 => difference::<4>(row, samples * 4),
            _ => difference::<8>(row, samples * 8),
        }
    }
}

/// Differences of samples of `N` bytes in pixels of `pixel` bytes, from right to left.
#[inline(always)]
fn difference<const N: usize>(row: &mut [u8], pixel: usize) {
    // A rest that is no whole sample stays as it is, as when it is undone.
    let end = row.len() / N * N;
    let end = by_blocks::<N, 64>(row, pixel, end);
    let end = by_blocks::<N, 16>(row, pixel, end);
    by_blocks::<N, N>(row, pixel, end);
}

/// Differences of what is before `end`, as many whole blocks of `B` bytes as there are, `B` being
/// a multiple of `N`; returns where the last one began.
#[inline(always)]
fn by_blocks<const N: usize, const B: usize>(
    row: &mut [u8],
    pixel: usize,
    mut end: usize,
) -> usize {
    while end >= pixel + B {
        let at = end - B;
        let (Some(now), Some(before)) =
            (row[at..].first_chunk::<B>(), row[at - pixel..].first_chunk::<B>())
        else {
            break;
        };
        let mut block = *now;
        for (a, b) in block.as_chunks_mut::<N>().0.iter_mut().zip(before.as_chunks::<N>().0) {
            *a = less::<N>(*a, *b);
        }
        row[at..end].copy_from_slice(&block);
        end = at;
    }
    end
}

/// The difference of two samples of `N` bytes in native order, wrapping around.
#[inline(always)]
fn less<const N: usize>(a: [u8; N], b: [u8; N]) -> [u8; N] {
    let start = if cfg!(target_endian = "big") { 8 - N } else { 0 };
    let wide = |s: [u8; N]| {
        let mut bytes = [0; 8];
        bytes[start..start + N].copy_from_slice(&s);
        u64::from_ne_bytes(bytes)
    };
    let difference = wide(a).wrapping_sub(wide(b)).to_ne_bytes();
    std::array::from_fn(|i| difference[start + i])
}

#[inline(always)]
fn scatter_rows(
    data: &mut [u8],
    row_bytes: usize,
    samples: usize,
    sample_bytes: usize,
    scratch: &mut [u8],
) {
    for row in data.chunks_exact_mut(row_bytes) {
        match sample_bytes {
            2 => scatter::<2>(row, scratch),
            3 => scatter::<3>(row, scratch),
            4 => scatter::<4>(row, scratch),
            _ => scatter::<8>(row, scratch),
        }
        let samples = samples.min(row_bytes);
        row[..samples].copy_from_slice(&scratch[..samples]);
        let pairs = scratch[samples..].iter().zip(&*scratch);
        for (to, (now, before)) in row[samples..].iter_mut().zip(pairs) {
            *to = now.wrapping_sub(*before);
        }
    }
}

/// Takes the bytes of samples apart into planes of equal significance, the highest first.
#[inline(always)]
fn scatter<const N: usize>(row: &[u8], planes: &mut [u8]) {
    let count = row.len() / N;
    let whole = count * N;
    planes[whole..].copy_from_slice(&row[whole..]);
    let row = &row.as_chunks::<N>().0[..count];
    let mut planes = planes[..whole].chunks_exact_mut(count.max(1));
    let planes: [&mut [u8]; N] = std::array::from_fn(|_| planes.next().unwrap_or_default());
    for (i, plane) in planes.into_iter().enumerate() {
        let byte = if cfg!(target_endian = "big") { i } else { N - 1 - i };
        for (to, sample) in plane.iter_mut().zip(row) {
            *to = sample[byte];
        }
    }
}

/// The loops above, compiled for AVX2.
#[cfg(target_arch = "x86_64")]
mod x86 {
    #[target_feature(enable = "avx2")]
    pub(super) fn difference_rows(data: &mut [u8], row_bytes: usize, samples: usize, unit: usize) {
        super::difference_rows(data, row_bytes, samples, unit);
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn scatter_rows(
        data: &mut [u8],
        row_bytes: usize,
        samples: usize,
        unit: usize,
        scratch: &mut [u8],
    ) {
        super::scatter_rows(data, row_bytes, samples, unit, scratch);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{undo_floating_point, undo_horizontal};
    use super::*;

    fn random(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed
    }

    /// Both ways through both implementations, against the functions that read.
    #[test]
    fn what_is_applied_can_be_undone() {
        let first = 0x5eed_0016_u64;
        println!("seed {first:#x}");
        let (mut s, mut scratch) = (first, Vec::new());
        for case in 0..6000 {
            let unit = [1, 2, 4, 8][random(&mut s) as usize % 4];
            let samples = 1 + random(&mut s) as usize % if case % 5 == 0 { 80 } else { 5 };
            let width = random(&mut s) as usize % if case % 10 == 0 { 300 } else { 40 };
            let row_bytes = width * samples * unit;
            let rows = random(&mut s) as usize % 4;
            let data: Vec<u8> = (0..row_bytes * rows).map(|_| random(&mut s) as u8).collect();
            let what = format!("case {case}: {rows} rows of {width} x {samples} x {unit}");
            for swap in [false, true] {
                let mut there = data.clone();
                apply_horizontal(&mut there, row_bytes, samples, unit, swap);
                if row_bytes > 0 && !swap {
                    let mut portable = data.clone();
                    difference_rows(&mut portable, row_bytes, samples, unit);
                    assert!(there == portable, "{what}, portable");
                }
                undo_horizontal(&mut there, row_bytes, samples, unit, swap);
                assert!(there == data, "{what}, swap {swap}");
            }
            let unit = [2, 3, 4, 8][random(&mut s) as usize % 4];
            let row_bytes = width * samples * unit;
            let data: Vec<u8> = (0..row_bytes * rows).map(|_| random(&mut s) as u8).collect();
            let (mut there, mut row) = (data.clone(), vec![0; row_bytes + case % 3]);
            apply_floating_point(&mut there, row_bytes, samples, unit, &mut row);
            if row_bytes > 0 {
                let (mut portable, mut row) = (data.clone(), vec![0; row_bytes]);
                scatter_rows(&mut portable, row_bytes, samples, unit, &mut row);
                assert!(there == portable, "{what} as floats of {unit}, portable");
            }
            undo_floating_point(&mut there, row_bytes, samples, unit, &mut scratch);
            assert!(there == data, "{what} as floats of {unit}");
        }
    }

    #[test]
    fn known_values() {
        let mut data = [1, 2, 4, 8, 16, 9];
        apply_horizontal(&mut data, 5, 1, 1, false);
        assert_eq!(data, [1, 1, 2, 4, 8, 9], "the rest of a row is left alone");
        let mut data: Vec<u8> = [7_u16, 300, 299].iter().flat_map(|v| v.to_ne_bytes()).collect();
        apply_horizontal(&mut data, 6, 1, 2, true);
        let want: Vec<u8> =
            [7_u16, 293, 65535].iter().flat_map(|v| v.swap_bytes().to_ne_bytes()).collect();
        assert_eq!(data, want);
        let mut data: Vec<u8> =
            [0x0102_0304_u32, 0x1122_3344].iter().flat_map(|v| v.to_ne_bytes()).collect();
        apply_floating_point(&mut data, 8, 1, 4, &mut [0; 8]);
        assert_eq!(data, [0x01, 0x10, 0xF1, 0x20, 0xE1, 0x30, 0xD1, 0x40]);
    }
}
