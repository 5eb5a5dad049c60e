//! nvCOMP without the engine around it, for reports: what it makes of frames that tiles never reach it as.

use std::sync::Arc;

use super::driver::Answer;
use super::frames::{Frame, ZSTD_PLAIN, zstd_frame};
use super::nvcomp::Tables;
use super::order::SENTINEL;
use super::tables::{Arrays, Chunk};
use super::{CudaEngine, Fault};
use crate::engine::Codec;

/// What the room for a chunk holds before.
const UNTOUCHED: u8 = 0xA5;
/// Where chunks, tables and room begin, and what is behind a chunk.
const ALIGN: usize = 256;

/// What nvCOMP made of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    /// Its status; -77 if it set none.
    pub status: i32,
    /// The size that it tells.
    pub size: u64,
    /// What is in the room for it.
    pub data: Vec<u8>,
}

/// A frame that says how large it is, as tiles get it where they do not; none if it is not one of those.
pub fn patched(frame: &[u8], bytes: usize) -> Option<Vec<u8>> {
    match zstd_frame(frame, bytes)? {
        Frame::Whole => None,
        Frame::Patched(header) => Some([&header, &frame[ZSTD_PLAIN..]].concat()),
    }
}

impl CudaEngine {
    /// Has nvCOMP unpack ZSTD frames of `bytes` bytes as they are, whatever that does to this process.
    pub fn unpack_zstd(
        &self,
        frames: &[Vec<u8>],
        bytes: usize,
    ) -> std::result::Result<Vec<Unpacked>, String> {
        self.try_frames(frames, bytes).map_err(|fault: Fault| fault.to_string())
    }

    fn try_frames(&self, frames: &[Vec<u8>], bytes: usize) -> Answer<Vec<Unpacked>> {
        let gpu = Arc::clone(&self.0.gpu);
        let current = gpu.device.enter()?;
        let (codec, count) = (Codec::Zstd, frames.len());
        let temporary_bytes = gpu.nvcomp.decompress_temp(codec, count, bytes)?;
        // Frames, tables and room for what comes out, as they go up and come down; then nvCOMP's own.
        let mut host = Vec::new();
        let mut starts = Vec::with_capacity(count);
        for frame in frames {
            starts.push(host.len());
            host.extend_from_slice(frame);
            host.resize((host.len() + 1).next_multiple_of(ALIGN), 0);
        }
        let arrays = Arrays::new(host.len(), count, 0, false);
        let (room, first) = (bytes.next_multiple_of(ALIGN), arrays.end.next_multiple_of(ALIGN));
        host.resize(first, 0);
        host.resize(first + count * room, UNTOUCHED);
        let memory = current.allocate(host.len() + temporary_bytes + ALIGN)?;
        let here = |offset: usize| memory.address() + offset as u64;
        for (n, (frame, &start)) in frames.iter().zip(&starts).enumerate() {
            let output = here(first + n * room);
            let chunk = Chunk { input: here(start), input_bytes: frame.len(), output, room: bytes };
            arrays.put_chunk(&mut host, n, chunk);
            arrays.put_tile(&mut host, n, &[0; 64], SENTINEL);
        }
        let tables = Tables {
            largest: bytes,
            temporary: here(host.len().next_multiple_of(ALIGN)),
            temporary_bytes,
            ..arrays.of_nvcomp(memory.address(), count)
        };
        let stream = current.stream()?;
        // SAFETY: memory of this call, waited for before it goes.
        let outcome = unsafe {
            stream
                .upload(host.as_ptr(), memory.address(), host.len())
                .and_then(|()| gpu.nvcomp.decompress(codec, &tables, &stream, &gpu.device))
                .and_then(|()| stream.download(memory.address(), host.as_mut_ptr(), host.len()))
        };
        outcome.and(stream.synchronize())?;
        let unpacked = |n: usize| Unpacked {
            status: i32::from_ne_bytes(word(&host, arrays.statuses + 4 * n)),
            size: u64::from_ne_bytes(word(&host, arrays.sizes + 8 * n)),
            data: host[first + n * room..][..bytes].to_vec(),
        };
        Ok((0..count).map(unpacked).collect())
    }
}

/// A number in memory.
fn word<const N: usize>(memory: &[u8], at: usize) -> [u8; N] {
    memory[at..].first_chunk().copied().unwrap_or([0; N])
}
