//! A known tile, decoded once before anything of the user's is.

use super::super::driver::Answer;
use super::{NvJpeg2k, Order};
use crate::engine::jpeg2000::Codestream;

/// 32 x 32 bytes: see [`pixel`].
const STREAM: &[u8] = include_bytes!("known.j2k");
const SIDE: usize = 32;
const PIXELS: usize = SIDE * SIDE;

fn pixel(x: usize, y: usize) -> u8 {
    (5 * x + 3 * y + x * y / 8) as u8
}

impl NvJpeg2k {
    /// Whether the tile comes out right, or what kept it from being tried.
    pub(super) fn try_known_tile(&self) -> Result<bool, String> {
        let header = Codestream::find(STREAM)?;
        let order = Order { header: &header, stream: STREAM, to: 0, room: [SIDE; 2] };
        let pixels = self.trial(order).map_err(|fault| fault.to_string())?;
        if pixels.is_none() && self.memory.ran_short() {
            return Err("no memory".into());
        }
        Ok(pixels.is_some_and(|all| (0..PIXELS).all(|i| all[i] == pixel(i % SIDE, i / SIDE))))
    }

    /// The pixels, unless the library refuses. What it asks for is the driver's: should it keep some of
    /// that for itself, it may.
    fn trial(&self, order: Order<'_>) -> Answer<Option<Vec<u8>>> {
        let current = self.device.enter()?;
        let memory = current.allocate(PIXELS)?;
        let stream = current.stream()?;
        let Some(slot) = self.make() else { return Ok(None) };
        let mut pixels = vec![0; PIXELS];
        // SAFETY: a fresh slot, and memory that stays until the stream was waited for.
        let outcome = unsafe {
            match self.decode(slot, &Order { to: memory.address(), ..order }, &stream) {
                true => stream
                    .download(memory.address(), pixels.as_mut_ptr(), PIXELS)
                    .and_then(|()| stream.synchronize())
                    .map(|()| Some(pixels)),
                false => stream.synchronize().map(|()| None),
            }
        };
        if outcome.is_ok() || stream.synchronize().is_ok() {
            self.destroy(vec![slot]);
        }
        outcome
    }
}
