//! Writes the images of one file.
//!
//! Tiles are encoded in batches and appended in row-major order, plane after plane and image
//! after image, whatever order they come in: one that is encoded before its turn waits in a
//! scratch file. So the bytes of the file do not depend on who wrote first, on the batch size or
//! on the number of threads. A tile that is written again after it was appended is replaced in
//! place if it fits, else appended. A tile that holds the fill value only is left out by the next
//! flush if that is still the fill value then; else an encoded tile of the former value is written.
//!
//! The file's first 16 bytes stay zero until everything else is there; with the next write after
//! a flush they are zero again. After an error nothing more is written.
//!
//! `collect` gathers what comes in pieces, `swath` copies whole images, `flight` encodes in the
//! background, `courier` takes the result to the file, `finish` makes a TIFF of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::canvas::{Canvas, Place};
use super::counters::Counters;
use super::courier::{Courier, Parcel};
use super::flight::{Cargo, Flight, Landed, Manner, Pixels};
use super::reader::Limits;
use super::swath::Swaths;
use crate::engine::{Engine, Packed, PixelBatch};
use crate::error::{Error, Result};
use crate::io::ByteSink;
use crate::io::scratch::{Scratch, Slot};
use crate::process::memory;
use crate::tiff::directory::{Laid, MOST_CLASSIC, RESERVED, Strile};

/// How long a writer that gives up waits for tiles that are being encoded.
const LAST_PATIENCE: Duration = Duration::from_millis(200);
/// What lists of tiles are for, in messages.
const BATCH: &str = "the tiles of a batch";

/// What becomes of a tile whose turn it is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// It waits.
    Streaming,
    /// It is appended: somebody wants to read the file now.
    Flushing,
    /// What comes before it will never be written: it is filled in.
    Closing,
}

/// Classic or BigTIFF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Classic if everything fits.
    AsNeeded,
    /// BigTIFF.
    Big,
    /// Classic or an error.
    Classic,
}

/// A file that is being written.
pub struct Writer {
    pub(super) sink: Arc<dyn ByteSink>,
    pub(super) courier: Courier,
    engine: Arc<dyn Engine>,
    /// The first image's, where that has an engine of its own.
    special: Option<Arc<dyn Engine>>,
    pub(super) limits: Limits,
    pub(super) counters: Arc<Counters>,
    pub(super) canvases: Vec<Canvas>,
    pub(super) scratch: Scratch,
    /// Batches that are being encoded, the oldest first.
    pub(super) flights: VecDeque<Flight>,
    /// What it took to encode a tile of the last one.
    tile_time: Option<Duration>,
    pub(super) packed: Vec<Packed>,
    /// Complete tiles that wait for a batch, and how many bytes they are.
    pub(super) ready: BTreeMap<(usize, u64), Vec<Vec<u8>>>,
    pub(super) ready_bytes: usize,
    /// Open tiles in memory, the longest untouched first.
    pub(super) ages: BTreeMap<u64, (usize, u64)>,
    pub(super) open_bytes: usize,
    pub(super) clock: u64,
    /// Memory for planes.
    pub(super) spare: Vec<Vec<u8>>,
    pub(super) decoded: Option<(usize, u64, Vec<u8>)>,
    pub(super) swaths: Option<Swaths>,
    /// Where tiles that are being replaced were.
    pub(super) homes: BTreeMap<(usize, u64), Strile>,
    /// An encoded tile of fill: its image, its rows, its bytes.
    pub(super) blank: Option<(usize, usize, Vec<u8>)>,
    pub(super) size: Size,
    /// Where the next tile goes.
    pub(super) end: u64,
    /// Image and tile whose turn it is.
    pub(super) turn: (usize, u64),
    pub(super) mode: Mode,
    /// The header points to a directory.
    pub(super) sealed: bool,
    /// What was last written there.
    pub(super) laid: Option<Laid>,
    failed: Option<Error>,
}

/// Tiles that are about to be appended in one go.
#[derive(Default)]
pub(super) struct Run<'a> {
    parts: Vec<&'a [u8]>,
    bytes: u64,
}

impl Writer {
    /// A writer to `sink`, which is empty. Its first image is `canvas`.
    pub fn new(
        sink: Arc<dyn ByteSink>,
        scratch: Scratch,
        engine: Arc<dyn Engine>,
        limits: Limits,
        counters: Arc<Counters>,
        size: Size,
        canvas: Canvas,
    ) -> Writer {
        Writer {
            courier: Courier::new(Arc::clone(&sink)),
            sink,
            engine,
            special: None,
            limits,
            counters,
            canvases: vec![canvas],
            scratch,
            flights: VecDeque::new(),
            tile_time: None,
            packed: Vec::new(),
            ready: BTreeMap::new(),
            ready_bytes: 0,
            ages: BTreeMap::new(),
            open_bytes: 0,
            clock: 0,
            spare: Vec::new(),
            decoded: None,
            swaths: None,
            homes: BTreeMap::new(),
            blank: None,
            size,
            end: RESERVED,
            turn: (0, 0),
            mode: Mode::Streaming,
            sealed: false,
            laid: None,
            failed: None,
        }
    }

    /// Gives the first image an engine of its own.
    pub fn set_engine(&mut self, engine: Arc<dyn Engine>) {
        self.special = Some(engine);
    }

    /// Replaces the first image's engine, since tags that its codec depends on have changed. Tiles that
    /// are encoded are decoded by the engine before, and encoded again at the end.
    pub fn replace_engine(&mut self, engine: Arc<dyn Engine>) -> Result<()> {
        self.attempt(Self::reopen_encoded)?;
        self.set_engine(engine);
        Ok(())
    }

    /// Whether a tile of the first image is encoded, or being encoded.
    pub fn has_encoded(&self) -> bool {
        let encoded = |place: &Place| matches!(place, Place::Waiting(..) | Place::There(_));
        !self.flights.is_empty() || self.canvases[0].places.iter().any(encoded)
    }

    /// Whether an image has an engine of its own, which has GTiff encode tiles.
    pub(super) fn has_own_engine(&self, image: usize) -> bool {
        image == 0 && self.special.is_some()
    }

    /// The engine of an image.
    pub fn engine(&self, image: usize) -> &Arc<dyn Engine> {
        self.special.as_ref().filter(|_| image == 0).unwrap_or(&self.engine)
    }

    /// Adds an image behind those that are there; returns its number.
    pub fn add(&mut self, canvas: Canvas) -> usize {
        self.canvases.push(canvas);
        self.canvases.len() - 1
    }

    /// How many images there are.
    pub fn images(&self) -> usize {
        self.canvases.len()
    }

    /// An image.
    pub fn canvas(&self, image: usize) -> &Canvas {
        &self.canvases[image]
    }

    /// Leaves out no tile that is written.
    pub fn write_all(&mut self, image: usize) {
        self.canvases[image].writes_all = true;
    }

    /// What stands where nothing was written, one sample of it. Tiles that are complete were compared
    /// with the value before, whatever the batch size.
    pub fn set_fill(&mut self, image: usize, sample: &[u8]) -> Result<()> {
        let bytes = self.canvases[image].fill.len().min(sample.len());
        if self.canvases[image].fill[..bytes] == sample[..bytes] {
            return Ok(());
        }
        self.attempt(Self::land)?;
        self.blank = None;
        let canvas = &mut self.canvases[image];
        canvas.writes_all |= !canvas.leaves_out_nodata && canvas.fill.iter().any(|&byte| byte != 0);
        canvas.fill[..bytes].copy_from_slice(&sample[..bytes]);
        Ok(())
    }

    /// Runs `work` unless something failed before; remembers if it fails.
    pub(super) fn attempt<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = memory::check("pixels to be written").and_then(|()| work(self));
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    /// Bytes of pixels in one batch.
    pub(super) fn batch_bytes(&self, image: usize) -> usize {
        let spec = &self.canvases[image].spec;
        self.engine(image).encode_appetite(spec, self.limits.batch_bytes)
    }

    /// Sends a batch off, if need be when the oldest one in the air has landed; that one goes
    /// into the file while this one is being encoded.
    pub(super) fn launch(&mut self, image: usize, ids: &[u64], pixels: Pixels) -> Result<()> {
        let abreast = pixels.abreast(&**self.engine(image));
        // More than one, where there were more abreast before.
        while self.flights.len() > abreast {
            let landed = self.take_landed()?;
            landed.map_or(Ok(()), |landed| self.unload(landed))?;
        }
        let full = self.flights.len() == abreast;
        let before = if full { self.take_landed()? } else { None };
        let canvas = &self.canvases[image];
        let batch = self.batch(image, ids)?;
        let cargo = Cargo {
            spec: Arc::clone(&canvas.spec),
            grid: canvas.grid,
            fill: canvas.fill.clone(),
            // Collected tiles were compared when they were complete.
            sparse: canvas.sparse && !matches!(pixels, Pixels::Collected(_)),
            pixels,
            watch: Arc::default(),
        };
        let packed = self.packed.pop().unwrap_or_default();
        let manner = Manner { told: self.swaths.is_some(), before: self.tile_time };
        let flight = Flight::start(self.engine(image), image, batch, cargo, packed, manner)?;
        self.flights.push_back(flight);
        before.map_or(Ok(()), |before| self.unload(before))
    }

    pub(super) fn batch(&self, image: usize, ids: &[u64]) -> Result<PixelBatch> {
        let canvas = &self.canvases[image];
        self.counters.batches.bump();
        Ok(PixelBatch {
            spec: Arc::clone(&canvas.spec),
            level: canvas.level,
            tiles: memory::collect(ids.iter().map(|&id| canvas.job(id)), BATCH)?,
            threads: self.limits.threads,
        })
    }

    /// Waits for what is in the air and puts it into the file.
    pub(super) fn land(&mut self) -> Result<()> {
        while let Some(landed) = self.take_landed()? {
            self.unload(landed)?;
        }
        Ok(())
    }

    pub(super) fn take_landed(&mut self) -> Result<Option<Landed>> {
        let Some(flight) = self.flights.pop_front() else { return Ok(None) };
        let mut landed = flight.land();
        self.tile_time = Some(landed.tile_time);
        std::mem::replace(&mut landed.result, Ok(()))?;
        Ok(Some(landed))
    }

    /// Puts a batch into the file and keeps its memory for the next.
    pub(super) fn unload(&mut self, landed: Landed) -> Result<()> {
        let Landed { image, ids, packed, cargo, .. } = landed;
        if let Some(Cargo { pixels: Pixels::Originals(originals, piece), .. }) = &cargo {
            if !originals.settle() {
                self.packed.push(packed);
                self.ask_for(*piece);
                return Ok(());
            }
            self.counters.tiles_recoded.add(ids.len() as u64);
        }
        self.count_swath(ids.len());
        self.counters.tiles_encoded.add(ids.len() as u64);
        let free = self.ship(image, &ids, packed)?;
        self.packed.push(free);
        match cargo.map(|cargo| cargo.pixels) {
            Some(Pixels::Collected(tiles)) => {
                let worth = self.ready_planes(image).saturating_sub(self.spare.len());
                let planes = tiles.into_values().flatten().take(worth);
                memory::extend(&mut self.spare, planes, BATCH)?;
            }
            Some(Pixels::Swath(swath)) => {
                if let Some(swaths) = &mut self.swaths {
                    swaths.recycle(swath.data);
                }
            }
            Some(Pixels::Originals(..)) | None => {}
        }
        Ok(())
    }

    /// Puts packed tiles where they belong, those for the end of the file in the background; returns
    /// memory to pack the next in.
    pub(super) fn ship(&mut self, image: usize, ids: &[u64], packed: Packed) -> Result<Packed> {
        let run = self.put_in_order(image, ids, &packed)?;
        let base = packed.bytes.as_ptr().addr();
        let part = |part: &&[u8]| {
            let start = part.as_ptr().addr() - base;
            start..start + part.len()
        };
        let parts = memory::collect(run.parts.iter().map(part), BATCH)?;
        let offset = self.end - run.bytes;
        if self.limits.threads == 1 {
            self.sink.write_at(offset, &run.parts)?;
            return Ok(packed);
        }
        self.courier.send(Parcel { offset, parts, packed })
    }

    /// Planes that are worth keeping for the next batch.
    fn ready_planes(&self, image: usize) -> usize {
        self.batch_bytes(image) / self.canvases[image].plane_bytes().max(1) + 1
    }

    /// Puts encoded tiles where they belong.
    pub(super) fn commit(&mut self, image: usize, ids: &[u64], packed: &Packed) -> Result<()> {
        self.counters.tiles_encoded.add(ids.len() as u64);
        let mut run = self.put_in_order(image, ids, packed)?;
        self.write_run(&mut run)
    }

    /// Finds the places of encoded tiles; those for the end of the file come back, the others
    /// are where they belong.
    fn put_in_order<'a>(
        &mut self,
        image: usize,
        ids: &[u64],
        packed: &'a Packed,
    ) -> Result<Run<'a>> {
        let mut run = Run::default();
        for (&id, range) in ids.iter().zip(&packed.tiles) {
            self.place(image, id, &packed.bytes[range.clone()], &mut run)?;
        }
        Ok(run)
    }

    /// Puts one tile where it belongs; no bytes: it is left out.
    pub(super) fn place<'a>(
        &mut self,
        image: usize,
        id: u64,
        bytes: &'a [u8],
        run: &mut Run<'a>,
    ) -> Result<()> {
        self.unseal()?;
        if self.mode == Mode::Closing && self.turn < (image, id) {
            self.write_run(run)?;
            self.fill_up_to(image, id)?;
        }
        let home = self.homes.remove(&(image, id));
        let place = if bytes.is_empty() {
            // Its home is kept: what a flush wrote is replaced and not left out.
            self.homes.extend(home.map(|home| ((image, id), home)));
            self.canvases[image].blank()
        } else if let Some(home) = home.filter(|home| bytes.len() <= home.len as usize) {
            // What was there before may still be on its way.
            self.courier.wait()?;
            self.sink.write_at(home.offset, &[bytes])?;
            Place::There(Strile { offset: home.offset, len: bytes.len() as u32 })
        } else if self.turn >= (image, id) || self.mode == Mode::Flushing {
            self.append(bytes, run)?
        } else {
            let slot = self.scratch.take()?;
            self.scratch.write(slot, 0, bytes)?;
            self.counters.bytes_spilled.add(bytes.len() as u64);
            Place::Waiting(slot, bytes.len() as u32)
        };
        self.canvases[image].places[id as usize] = place;
        if self.turn == (image, id) {
            self.advance(run)?;
        }
        Ok(())
    }

    fn append<'a>(&mut self, bytes: &'a [u8], run: &mut Run<'a>) -> Result<Place> {
        let strile = Strile { offset: self.end, len: bytes.len() as u32 };
        self.grow(bytes.len())?;
        memory::push(&mut run.parts, bytes, BATCH)?;
        run.bytes += bytes.len() as u64;
        Ok(Place::There(strile))
    }

    /// Makes room at the end.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<()> {
        let end = self.end + bytes as u64;
        if self.size == Size::Classic && end > MOST_CLASSIC {
            return Err(Error::TooLarge);
        }
        self.end = end;
        self.counters.bytes_written.add(bytes as u64);
        Ok(())
    }

    /// Writes what was gathered for the end of the file.
    pub(super) fn write_run(&mut self, run: &mut Run<'_>) -> Result<()> {
        if !run.parts.is_empty() {
            self.sink.write_at(self.end - run.bytes, &run.parts)?;
            *run = Run::default();
        }
        Ok(())
    }

    /// Goes on to the next tile that is not there yet; takes those that wait along.
    pub(super) fn advance(&mut self, run: &mut Run<'_>) -> Result<()> {
        while let Some(canvas) = self.canvases.get(self.turn.0) {
            let id = self.turn.1 as usize;
            match canvas.places.get(id) {
                Some(Place::There(_) | Place::Blank(_) | Place::LeftOut) => self.turn.1 += 1,
                Some(&Place::Waiting(slot, len)) => {
                    self.write_run(run)?;
                    let place = self.append_waiting(slot, len)?;
                    self.canvases[self.turn.0].places[id] = place;
                    self.turn.1 += 1;
                }
                Some(_) => break,
                None if self.turn.0 + 1 < self.canvases.len() => self.turn = (self.turn.0 + 1, 0),
                None => break,
            }
        }
        Ok(())
    }

    pub(super) fn append_waiting(&mut self, slot: Slot, len: u32) -> Result<Place> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        memory::resize(&mut bytes, len as usize, "an encoded tile")?;
        self.scratch.read(slot, 0, &mut bytes)?;
        self.scratch.give_back(slot);
        let strile = Strile { offset: self.end, len };
        self.grow(bytes.len())?;
        self.sink.write_at(strile.offset, &[&bytes])?;
        Ok(Place::There(strile))
    }
}

impl Drop for Writer {
    /// Nobody wants what is in the air any more. The workers end the tiles that they are in; the
    /// batch owns all that they need for it, so that nobody has to wait where it takes long. What is
    /// on a device is waited for.
    fn drop(&mut self) {
        let left_alone = self.engine.decodes_singly();
        self.flights.iter().for_each(Flight::stop);
        for flight in self.flights.drain(..) {
            if !left_alone || flight.lands_within(LAST_PATIENCE) {
                flight.land();
            }
        }
    }
}
