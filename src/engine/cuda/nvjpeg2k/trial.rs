//! A known tile, decoded once before anything of the user's is.

use super::super::driver::Answer;
use super::{NvJpeg2k, Order};
use crate::engine::jpeg2000::Codestream;

/// 32 x 32 bytes: see [`pixel`].
const STREAM: &[u8] = include_bytes!("known.j2k");
const SIDE: usize = 32;
/// For its pixels; what the library has besides.
const PIXELS: usize = SIDE * SIDE;
const BESIDES: usize = 4 << 20;

fn pixel(x: usize, y: usize) -> u8 {
    (5 * x + 3 * y + x * y / 8) as u8
}

impl NvJpeg2k {
    pub(super) fn try_known_tile(&self) -> Result<(), String> {
        let header = Codestream::find(STREAM)?;
        let order = Order { header: &header, stream: STREAM, to: 0, room: [SIDE; 2] };
        let known: Vec<u8> = (0..PIXELS).map(|i| pixel(i % SIDE, i / SIDE)).collect();
        match self.trial(order) {
            Ok(Some(pixels)) if pixels == known => Ok(()),
            Ok(_) => Err("nvJPEG2000 does not decode a known tile here".into()),
            Err(fault) => Err(format!("nvJPEG2000 does not work here ({fault})")),
        }
    }

    /// The pixels, unless the library refuses.
    fn trial(&self, order: Order<'_>) -> Answer<Option<Vec<u8>>> {
        let current = self.device.enter()?;
        let memory = current.allocate(PIXELS + BESIDES)?;
        let stream = current.stream()?;
        let start = memory.address() + PIXELS as u64;
        if !self.memory.open(start, BESIDES, BESIDES) {
            return Ok(None);
        }
        let slot = self.make();
        let mut pixels = vec![0; PIXELS];
        let outcome = match slot {
            // SAFETY: a fresh slot, and memory that stays until the stream was waited for.
            Some(slot) => unsafe {
                match self.decode(slot, &Order { to: memory.address(), ..order }, &stream) {
                    true => stream
                        .download(memory.address(), pixels.as_mut_ptr(), PIXELS)
                        .and_then(|()| stream.synchronize())
                        .map(|()| Some(pixels)),
                    false => stream.synchronize().map(|()| None),
                }
            },
            None => Ok(None),
        };
        if outcome.is_ok() {
            self.destroy(slot.into_iter().collect());
        }
        self.memory.close();
        outcome
    }
}
