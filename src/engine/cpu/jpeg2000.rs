//! JPEG 2000. The decoder itself is somebody else's, who hands it in ([`provide`]); here is what
//! must be true before it is asked, and what becomes of its samples.
//!
//! Invariant: the decoder sees codestreams that hold the tile they are stored for, and nothing else.
#![forbid(unsafe_code)]

use std::sync::OnceLock;

use super::openjpeg;
use crate::engine::jpeg2000::{Codestream, Kind, Sampling};
use crate::engine::{Codec, TileJob, TileSpec};
use crate::error::{Error, Result};
use crate::process::memory;

/// What a decoder is asked for.
pub struct Order<'a> {
    /// What it will find.
    pub header: &'a Codestream,
    /// The codestream.
    pub stream: &'a [u8],
    /// Where pixels go: samples as they are, side by side, in native byte order.
    pub pixels: &'a mut [u8],
    /// Bytes from a row to the next.
    pub row_bytes: usize,
}

/// Decodes, on any thread, or says why not.
pub type Decoder = fn(Order<'_>) -> std::result::Result<(), String>;

static DECODER: OnceLock<Decoder> = OnceLock::new();

/// Hands in the decoder of this process; the first one stays.
pub fn provide(decoder: Decoder) {
    let _ = DECODER.set(decoder);
}

/// Decodes a tile into `pixels`, which holds its first `job.rows` rows or more. Padding that is not
/// stored is zero.
pub(super) fn decode(
    spec: &TileSpec,
    job: &TileJob,
    bytes: &[u8],
    pixels: &mut [u8],
) -> Result<()> {
    let Codec::Jpeg2000(kind) = spec.codec else {
        return Err(Error::Unsupported("another codec".into()));
    };
    let mut header = Codestream::of_tile(spec, job, bytes)?;
    let failed = |what: String| Error::corrupt(format!("JPEG 2000: {what}"), job.offset);
    if (header.width, header.height) != (spec.width, spec.height) {
        pixels.fill(0);
    }
    let mut stream = &bytes[header.range.clone()];
    let row_bytes = spec.row_bytes();
    if let Sampling::Chroma(x, y) = header.sampling {
        let steps = [x, y].map(usize::from);
        return subsampled(&header, steps, stream, pixels, row_bytes).map_err(failed);
    }
    let decoder = DECODER.get().ok_or_else(|| failed("there is no decoder".into()))?;
    let mut copy;
    // GDAL's driver shows signed bytes as unsigned ones, without those below zero.
    let lifted = header.signed && header.bits == 8;
    if lifted {
        copy = memory::copied(stream, "a codestream")?;
        header.make_unsigned(&mut copy);
        stream = &copy;
    }
    decoder(Order { header: &header, stream, pixels, row_bytes }).map_err(failed)?;
    let stored = row_bytes / spec.width * header.width;
    for row in pixels.chunks_exact_mut(row_bytes).take(header.height) {
        let row = &mut row[..stored];
        if lifted {
            row.iter_mut().for_each(|sample| *sample ^= 0x80);
        }
        if wants_rgb(kind, &header) {
            row.chunks_exact_mut(3).for_each(to_rgb);
        }
    }
    Ok(())
}

/// Decodes YCbCr with fewer samples of chroma: each stands for all pixels around it.
fn subsampled(
    header: &Codestream,
    [x_step, y_step]: [usize; 2],
    stream: &[u8],
    pixels: &mut [u8],
    row_bytes: usize,
) -> std::result::Result<(), String> {
    let image = openjpeg::decode(stream)?;
    let (width, height) = (header.width, header.height);
    let small = [width.div_ceil(x_step), height.div_ceil(y_step)];
    let plane = |index, size| image.component(index, size).ok_or("OpenJPEG sees another image");
    let (luma, cb, cr) = (plane(0, [width, height])?, plane(1, small)?, plane(2, small)?);
    let byte = |sample: i32| sample.clamp(0, 255) as u8;
    for (y, row) in pixels.chunks_exact_mut(row_bytes).take(height).enumerate() {
        for (x, pixel) in row.chunks_exact_mut(3).take(width).enumerate() {
            let chroma = y / y_step * small[0] + x / x_step;
            pixel.copy_from_slice(&[luma[y * width + x], cb[chroma], cr[chroma]].map(byte));
            to_rgb(pixel);
        }
    }
    Ok(())
}

/// Whether what comes out of a decoder is YCbCr still.
pub(in crate::engine) fn wants_rgb(kind: Kind, header: &Codestream) -> bool {
    kind.ycbcr && !header.converts && header.sampling == Sampling::Full
}

/// From YCbCr as JFIF has it (BT.601, all 256 levels).
fn to_rgb(pixel: &mut [u8]) {
    let [y, cb, cr] = [pixel[0], pixel[1], pixel[2]].map(i32::from);
    let (luma, cb, cr) = ((y << 16) + (1 << 15), cb - 128, cr - 128);
    let byte = |sum: i32| (sum >> 16).clamp(0, 255) as u8;
    pixel[0] = byte(luma + 91_881 * cr);
    pixel[1] = byte(luma - 22_554 * cb - 46_802 * cr);
    pixel[2] = byte(luma + 116_130 * cb);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours() {
        for (ycbcr, rgb) in [
            ([0, 128, 128], [0, 0, 0]),
            ([255, 128, 128], [255, 255, 255]),
            ([76, 85, 255], [254, 0, 0]),
            ([150, 44, 21], [0, 255, 1]),
            ([29, 255, 107], [0, 0, 254]),
            ([0, 0, 0], [0, 135, 0]),
            ([255, 255, 255], [255, 121, 255]),
        ] {
            let mut pixel: [u8; 3] = ycbcr;
            to_rgb(&mut pixel);
            assert_eq!(pixel, rgb, "{ycbcr:?}");
        }
    }
}
