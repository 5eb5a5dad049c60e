//! Pixels that stay on the device, in memory of the caller's.
//!
//! A batch goes its usual way up to the tiles that are laid out in the arena; then `place` puts the
//! wanted bands of them where the caller wants them, and only what became of each tile comes down.
//! What the CPU had to decode goes up and the same way ([`Upload`]), and so do the CPU's pixels that
//! the device's are compared with, there. Nothing is written before the caller's stream has come to
//! where it is now, and what that stream does after the call finds all of it written: both by events,
//! and on the host nobody waits but for what became of the tiles. Memory that nobody has a stream for
//! is written when a call returns.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

use super::driver::{Answer, Current, DeviceMemory, Event, Fault, Owner, Stream};
use super::kernels::{PlaceShape, PlaceTile, place_blocks};
use super::probe::Gpu;
use super::staging::Item;
use super::tables::Arrays;
use super::{Course, CudaEngine};
use crate::engine::cpu::CpuEngine;
use crate::engine::{Batch, Engine, Part, PixelSink, Pixels, Staged, TileError};
use crate::error::{Error, Result};
use crate::process::memory;

/// What is allocated for it, in messages.
const PIXELS: &str = "pixels for the device";
/// Bytes of pixels that go up at once.
const SLAB_BYTES: usize = 64 << 20;

/// Memory of the caller's that is about to be filled.
pub struct Landing {
    gpu: Arc<Gpu>,
    stream: Option<*mut c_void>,
    /// There until it is dropped, which they are before.
    gates: Option<Arc<Gates>>,
    strides: [i64; 3],
    /// Something may have been placed that nobody was made to wait for.
    loose: Cell<bool>,
}

/// When the caller's memory may be written, and when it was.
struct Gates {
    /// Behind what the caller does with it.
    ready: Event,
    /// Behind what was placed there last, in the one stream for that: it stands for all before.
    placed: Event,
}

impl Drop for Landing {
    /// Events are destroyed in their context. Nobody writes to the caller's memory after a panic.
    fn drop(&mut self) {
        let current = self.gpu.device.enter();
        if let Some(gates) = self.gates.take().filter(|_| self.loose.get()) {
            let _ = gates.placed.synchronize();
        }
        drop(current);
    }
}

/// Where pixels shall go.
#[derive(Debug, Clone, Copy)]
pub struct Ground {
    /// The lowest byte.
    pub first: u64,
    /// The highest.
    pub last: u64,
    /// The CUstream that they are ordered on; none for memory that nobody uses yet.
    pub stream: Option<*mut c_void>,
    /// Bytes from a pixel, a line, a band to the next.
    pub strides: [i64; 3],
}

/// Why pixels cannot go there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Misplaced {
    /// It is not device memory.
    Host,
    /// The memory is another device's or context's.
    Memory(String),
    /// The stream is.
    Stream(String),
    /// What the stream gets is recorded for a graph, and would be done with other memory then.
    Capturing,
    /// The driver failed.
    Failed(String),
}

impl From<Fault> for Misplaced {
    fn from(fault: Fault) -> Misplaced {
        Misplaced::Failed(fault.to_string())
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Error {
        Error::Device(fault.to_string())
    }
}

/// What is wanted of one tile.
#[derive(Debug, Clone, Copy)]
pub struct Spot {
    /// These pixels.
    pub part: Part,
    /// Where the first wanted sample of the first one goes.
    pub to: u64,
}

/// What is wanted of a batch.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Of each tile, by its id.
    pub spots: HashMap<u64, Spot>,
    /// Of each pixel: its samples in the order of the caller's bands, each once.
    pub which: Vec<u32>,
    /// Samples of a pixel.
    pub samples: usize,
    /// Bytes of one.
    pub bytes: usize,
}

/// Where the tiles of a batch go.
pub(super) struct Target {
    wanted: Wanted,
    strides: [i64; 3],
    gates: Arc<Gates>,
}

impl Target {
    /// Samples of a pixel that are wanted.
    pub(super) fn which(&self) -> &[u32] {
        &self.wanted.which
    }

    /// Where a tile goes that is laid out at `from`.
    pub(super) fn place(&self, item: &Item, from: u64) -> PlaceTile {
        let to = self.wanted.spots.get(&item.job.id).map_or(0, |spot| spot.to);
        let (width, height) = (item.part.width as u32, item.part.height as u32);
        PlaceTile { from, to, width, height, reserved: 0 }
    }

    /// What is submitted from now on comes after what the caller does with the memory.
    pub(super) fn order(&self, stream: &Stream) -> Answer<()> {
        stream.wait(&self.gates.ready)
    }

    /// What is placed there is submitted.
    pub(super) fn placed(&self, stream: &Stream) -> Answer<()> {
        stream.record(&self.gates.placed)
    }

    /// What all tiles have in common.
    pub(super) fn shape(&self, compare: bool) -> PlaceShape {
        PlaceShape {
            samples: self.wanted.samples as u32,
            bytes: self.wanted.bytes as u32,
            bands: self.wanted.which.len() as u32,
            compare: compare.into(),
            strides: self.strides,
        }
    }
}

/// Pixels of the host's: the wanted part of a tile, without gaps.
struct Piece {
    spot: Spot,
    data: Vec<u8>,
}

/// Takes what the CPU decoded of a batch, for the device.
pub(super) struct Upload<'a> {
    target: &'a Target,
    pieces: Mutex<Vec<Piece>>,
}

impl PixelSink for Upload<'_> {
    fn put(&self, id: u64, pixels: Pixels<'_>) {
        let wanted = &self.target.wanted;
        let Some(&spot) = wanted.spots.get(&id) else { return };
        let pixel = wanted.samples * wanted.bytes;
        let (left, width) = ((spot.part.x - pixels.x) * pixel, spot.part.width * pixel);
        let mut data = memory::or_unwind(memory::room(width * spot.part.height, PIXELS));
        let rows = pixels.data.chunks(pixels.row_bytes).skip(spot.part.y - pixels.y);
        for row in rows.take(spot.part.height) {
            data.extend_from_slice(&row[left..left + width]);
        }
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        memory::or_unwind(memory::push(&mut pieces, Piece { spot, data }, PIXELS));
    }
}

impl<'a> Upload<'a> {
    /// For tiles that go to `target`.
    pub(super) fn new(target: &'a Target) -> Upload<'a> {
        Upload { target, pieces: Mutex::default() }
    }

    /// Puts them where they belong.
    pub(super) fn land(self, gpu: &Arc<Gpu>) -> Answer<()> {
        self.send(gpu, false).map(drop)
    }

    /// Whether something else is there.
    pub(super) fn differs(self, gpu: &Arc<Gpu>) -> Answer<bool> {
        self.send(gpu, true)
    }

    fn send(self, gpu: &Arc<Gpu>, compare: bool) -> Answer<bool> {
        let pieces = self.pieces.into_inner().unwrap_or_else(PoisonError::into_inner);
        if pieces.is_empty() {
            return Ok(false);
        }
        let current = gpu.device.enter()?;
        let (mut rest, mut differs) = (&pieces[..], false);
        while !rest.is_empty() {
            let mut bytes = 0;
            let over = |piece: &Piece| {
                bytes += piece.data.len();
                bytes > SLAB_BYTES
            };
            let count = rest.iter().position(over).unwrap_or(rest.len()).max(1);
            let slab = memory::or_unwind(Slab::new(self.target, &rest[..count]));
            differs |= slab.send(gpu, &current, self.target, compare)?;
            rest = &rest[count..];
        }
        Ok(differs)
    }
}

/// Pieces and their tables as they go up: `PlaceTile`s, which samples, the pixels.
struct Slab {
    bytes: Vec<u8>,
    tiles: Vec<PlaceTile>,
    which: usize,
    rows: usize,
}

impl Slab {
    fn new(target: &Target, pieces: &[Piece]) -> Result<Slab> {
        let which = pieces.len() * Arrays::PLACE_BYTES;
        let start = (which + 4 * target.wanted.which.len()).next_multiple_of(16);
        let held: usize = pieces.iter().map(|p| p.data.len().next_multiple_of(16)).sum();
        let mut bytes = memory::room(start + held, PIXELS)?;
        bytes.resize(start, 0);
        for (n, sample) in target.wanted.which.iter().enumerate() {
            bytes[which + 4 * n..][..4].copy_from_slice(&sample.to_ne_bytes());
        }
        let mut tiles = memory::room(pieces.len(), PIXELS)?;
        for Piece { spot, data } in pieces {
            let (width, height) = (spot.part.width as u32, spot.part.height as u32);
            // From the start of the slab, whose address is not known yet.
            let from = bytes.len() as u64;
            tiles.push(PlaceTile { from, to: spot.to, width, height, reserved: 0 });
            bytes.extend_from_slice(data);
            bytes.resize(bytes.len().next_multiple_of(16), 0);
        }
        let rows = pieces.iter().map(|piece| piece.spot.part.height).max().unwrap_or(1);
        Ok(Slab { bytes, tiles, which, rows })
    }

    /// Sends it up and has it placed or compared; the device is done when this returns.
    fn send(
        mut self,
        gpu: &Gpu,
        current: &Current,
        target: &Target,
        compare: bool,
    ) -> Answer<bool> {
        let flags = 4 * self.tiles.len() * place_blocks(self.rows);
        let memory: DeviceMemory = current.allocate(self.bytes.len() + flags)?;
        let stream = current.stream()?;
        for (n, tile) in self.tiles.iter_mut().enumerate() {
            tile.from += memory.address();
            let at = n * Arrays::PLACE_BYTES;
            self.bytes[at..at + Arrays::PLACE_BYTES].copy_from_slice(&tile.bytes());
        }
        let here = |offset: usize| memory.address() + offset as u64;
        let found = memory::bytes(if compare { flags } else { 0 }, PIXELS);
        let mut found = memory::or_unwind(found);
        let outcome = (|| {
            target.gates.order(&stream)?;
            let tables = [here(0), here(self.which), here(self.bytes.len())];
            // SAFETY: memory of this call, alive until the stream was waited for; where tiles go
            // is the caller's word.
            unsafe {
                stream.upload(self.bytes.as_ptr(), memory.address(), self.bytes.len())?;
                let (count, shape) = (self.tiles.len(), target.shape(compare));
                gpu.kernels.place(&stream, count, self.rows, tables, shape)?;
                if compare {
                    stream.download(here(self.bytes.len()), found.as_mut_ptr(), flags)?;
                }
            }
            Ok(())
        })();
        // Whatever was submitted uses the memory.
        outcome.and(stream.synchronize())?;
        Ok(found.iter().any(|&flag| flag != 0))
    }
}

/// Device memory that pixels are kept in.
pub struct Allocation {
    memory: DeviceMemory,
    gpu: Arc<Gpu>,
}

impl Allocation {
    /// Its first byte; a multiple of 256.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }
}

impl Drop for Allocation {
    /// Frees the memory from whatever thread, if the device is still there.
    fn drop(&mut self) {
        let device = &self.gpu.device;
        // Nobody can be told that it failed: once more.
        match device.enter().or_else(|_| device.enter()) {
            Ok(_current) => self.memory.free(),
            Err(_) => self.memory.forsake(),
        }
    }
}

impl CudaEngine {
    /// The number of the device.
    pub fn ordinal(&self) -> i32 {
        self.0.gpu.device.ordinal
    }

    /// Device memory.
    pub fn allocate(&self, bytes: usize) -> Result<Allocation> {
        let gpu = Arc::clone(&self.0.gpu);
        let memory = gpu.device.enter().and_then(|current| current.allocate(bytes.max(1)));
        match memory {
            Ok(memory) => Ok(Allocation { memory, gpu }),
            Err(fault) if fault.is_out_of_memory() => {
                Err(Error::OutOfMemory { bytes: bytes as u64, place: "device memory" })
            }
            Err(fault) => Err(fault.into()),
        }
    }

    /// Looks at memory that is to be filled.
    ///
    /// # Safety
    /// The stream must be one, or a name of a default stream.
    pub unsafe fn landing(&self, ground: &Ground) -> std::result::Result<Landing, Misplaced> {
        let gpu = Arc::clone(&self.0.gpu);
        let current = gpu.device.enter()?;
        let name = || format!("{} (device {})", gpu.device.name, gpu.device.ordinal);
        for address in [ground.first, ground.last] {
            match current.owner(address)? {
                Owner::Here => {}
                Owner::Elsewhere => return Err(Misplaced::Memory(name())),
                Owner::Host => return Err(Misplaced::Host),
            }
        }
        let ready = match ground.stream {
            // SAFETY: the caller's promise.
            Some(stream) if unsafe { !current.is_ours(stream)? } => {
                return Err(Misplaced::Stream(name()));
            }
            // SAFETY: as above.
            Some(stream) if unsafe { current.is_capturing(stream)? } => {
                return Err(Misplaced::Capturing);
            }
            // SAFETY: as above.
            Some(stream) => unsafe { current.mark(stream)? },
            None => current.event()?,
        };
        let gates = Some(Arc::new(Gates { ready, placed: current.event()? }));
        drop(current);
        let loose = Cell::new(false);
        Ok(Landing { gpu, stream: ground.stream, gates, strides: ground.strides, loose })
    }

    /// Decodes a batch to where its tiles are wanted; those that nobody could decode come back.
    ///
    /// # Safety
    /// All samples must lie between the first and the last byte of the landing's ground, which is
    /// the caller's to write to, as the stream is to wait; in the thread that looked at it.
    pub unsafe fn decode_into(
        &self,
        landing: &Landing,
        mut batch: Batch,
        wanted: Wanted,
    ) -> Result<Vec<TileError>> {
        for job in &mut batch.tiles {
            job.part = wanted.spots.get(&job.id).map(|spot| spot.part);
        }
        let target = Arc::new(landing.target(wanted));
        let upload = Upload::new(&target);
        landing.loose.set(true);
        let failed = match Course::start(&self.0, batch, Some(Arc::clone(&target))) {
            Ok(course) => Box::new(course).decode(&upload),
            Err(batch) => {
                self.0.tally.left_to_cpu(batch.spec.codec, batch.tiles.len());
                CpuEngine.stage(batch)?.decode(&upload)
            }
        };
        let landed = upload.land(&landing.gpu);
        // SAFETY: the caller's promise. Whatever was submitted is ordered, even if more is missing.
        unsafe { landing.settle() }.and(landed)?;
        Ok(failed)
    }

    /// Brings bytes of such memory down.
    ///
    /// # Safety
    /// They must lie between the first and the last byte of the landing's ground.
    pub unsafe fn fetch(&self, landing: &Landing, from: u64, to: &mut [u8]) -> Result<()> {
        let current = landing.gpu.device.enter()?;
        let stream = current.stream()?;
        let outcome = landing.gates().order(&stream).and_then(|()| {
            // SAFETY: the caller's promise; waited for before `to` is anybody else's.
            unsafe { stream.download(from, to.as_mut_ptr(), to.len()) }
        });
        Ok(outcome.and(stream.synchronize())?)
    }

    /// Puts pixels of the host's where they are wanted: one tile, its part without gaps.
    ///
    /// # Safety
    /// As for `decode_into`.
    pub unsafe fn put_into(
        &self,
        landing: &Landing,
        wanted: Wanted,
        id: u64,
        data: &[u8],
    ) -> Result<()> {
        let Some(part) = wanted.spots.get(&id).map(|spot| spot.part) else { return Ok(()) };
        let row_bytes = part.width * wanted.samples * wanted.bytes;
        let target = landing.target(wanted);
        let upload = Upload::new(&target);
        upload.put(id, Pixels { data, rows: part.height, row_bytes, x: part.x, y: part.y });
        Ok(upload.land(&landing.gpu)?)
    }
}

impl Gates {
    /// What a stream of its own does from now on comes after what the caller does with the memory, and
    /// after what was placed there.
    fn order(&self, stream: &Stream) -> Answer<()> {
        stream.wait(&self.ready)?;
        stream.wait(&self.placed)
    }
}

impl Landing {
    fn gates(&self) -> &Arc<Gates> {
        self.gates.as_ref().expect("a landing that was not dropped")
    }

    fn target(&self, wanted: Wanted) -> Target {
        Target { wanted, strides: self.strides, gates: Arc::clone(self.gates()) }
    }

    /// Has the caller's stream wait for what was placed, or the host where there is none.
    ///
    /// # Safety
    /// The stream must still be one.
    unsafe fn settle(&self) -> Answer<()> {
        let (current, placed) = (self.gpu.device.enter()?, &self.gates().placed);
        let held = match self.stream {
            // SAFETY: the caller's promise.
            Some(stream) => unsafe { current.hold(stream, placed) }.is_ok(),
            None => false,
        };
        let settled = if held { Ok(()) } else { placed.synchronize() };
        self.loose.set(false);
        settled
    }
}
