//! A decode as an operation: writes the samples when it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::allocators::Block;
use super::openjpeg::Image;
use super::settings::Corrupt;
use crate::clock;
use crate::ledger::Kind;
use crate::nvcomp::{noise, slice_mut};
use crate::random::{Random, digest};
use crate::status::Code;
use crate::task::{Bench, DeviceFault};

/// What samples become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sample {
    U8,
    U16,
    I16,
}

impl Sample {
    pub(super) fn bytes(self) -> usize {
        match self {
            Sample::U8 => 1,
            Sample::U16 | Sample::I16 => 2,
        }
    }

    /// Whether all values of a component can be told in it.
    pub(super) fn fits(self, precision: u8, is_signed: bool) -> bool {
        match self {
            Sample::U8 => !is_signed && precision <= 8,
            Sample::U16 => !is_signed && precision <= 16,
            Sample::I16 => precision <= if is_signed { 16 } else { 15 },
        }
    }
}

/// One plane of the output: a component, or all of them interleaved.
#[derive(Clone, Debug)]
pub(super) struct Plane {
    pub(super) address: u64,
    pub(super) pitch: u64,
    pub(super) width: usize,
    pub(super) height: usize,
    /// The components whose samples alternate.
    pub(super) components: std::ops::Range<usize>,
}

/// A decode with its arguments.
pub(crate) struct Decode {
    pub(super) symbol: &'static str,
    pub(super) planes: Vec<Plane>,
    pub(super) sample: Sample,
    /// None where the stream is corrupt.
    pub(super) image: Option<Arc<Image>>,
    pub(super) corrupt: Corrupt,
    /// The codestream in the state's pinned memory, and its digest.
    pub(super) input: Block,
    pub(super) digest: u64,
    pub(super) work: Block,
    pub(super) is_spoiled: Arc<AtomicBool>,
}

impl Plane {
    fn row_bytes(&self, sample: Sample) -> u64 {
        (self.width * self.components.len() * sample.bytes()) as u64
    }
}

impl Decode {
    pub(crate) fn name(&self) -> &'static str {
        self.symbol
    }

    /// How many bytes of samples come out.
    pub(crate) fn bytes(&self) -> u64 {
        self.planes.iter().map(|one| one.row_bytes(self.sample) * one.height as u64).sum()
    }

    /// Runs it; its modelled duration.
    pub(crate) fn run(&self, bench: &mut Bench<'_>) -> Result<u64, DeviceFault> {
        let duration = clock::duration(Kind::Nvjpeg2k, self.bytes());
        if self.is_spoiled.load(Ordering::Relaxed) {
            self.garbage(bench)?;
            return Ok(duration);
        }
        // SAFETY: pinned memory that the state holds; a state that gave it back spoils this.
        let input = unsafe {
            std::slice::from_raw_parts(self.input.address as *const u8, self.input.bytes)
        };
        let is_intact = digest(input) == self.digest;
        noise(bench, self.work.address, self.work.bytes as u64)?;
        match &self.image {
            Some(image) if is_intact => {
                self.write(bench, image)?;
                bench.ledger.nvjpeg2k.decoded += 1;
                bench.ledger.nvjpeg2k.bytes += self.bytes();
            }
            Some(_) => {
                let text = "the pinned memory of a decode was written before it ran";
                bench.ledger.nvjpeg2k.misuse += 1;
                bench.ledger.error(self.symbol, 0, text.into());
                self.garbage(bench)?;
            }
            None => {
                bench.ledger.nvjpeg2k.corrupt += 1;
                match self.corrupt {
                    Corrupt::Unwritten => (),
                    Corrupt::Fault => {
                        let message = "a corrupt codestream".into();
                        return Err(DeviceFault { code: Code::LAUNCH_FAILED, message });
                    }
                    _ => self.garbage(bench)?,
                }
            }
        }
        Ok(duration)
    }

    /// The rows of the output, each checked; what is between them is not touched.
    fn rows(
        &self,
        bench: &Bench<'_>,
        mut each: impl FnMut(&Plane, usize, &mut [u8]),
    ) -> Result<(), DeviceFault> {
        for plane in &self.planes {
            for row in 0..plane.height {
                let at = plane.address.saturating_add(row as u64 * plane.pitch);
                each(plane, row, slice_mut(bench, at, plane.row_bytes(self.sample))?);
            }
        }
        Ok(())
    }

    fn garbage(&self, bench: &Bench<'_>) -> Result<(), DeviceFault> {
        let mut random = Random::new(bench.settings.seed ^ bench.operation);
        self.rows(bench, |_, _, bytes| random.fill(bytes))
    }

    fn write(&self, bench: &Bench<'_>, image: &Image) -> Result<(), DeviceFault> {
        let size = self.sample.bytes();
        self.rows(bench, |plane, row, bytes| {
            let count = plane.components.len();
            for (index, place) in bytes.chunks_exact_mut(size).enumerate() {
                let component = plane.components.start + index % count;
                let value = image.planes[component][row * plane.width + index / count];
                // The lower bytes of the number, whatever its sign.
                place.copy_from_slice(&value.to_le_bytes()[..size]);
            }
        })
    }
}
