//! One tile on one thread: read, unpack, undo the predictor, hand on.

use std::cell::RefCell;
use std::ops::Range;

use super::codec::CodecError;
use super::deflate::Deflate;
use super::encode::Encoders;
use super::lzw::Lzw;
use super::zstd::Zstd;
use super::{jpeg2000, packbits, predictor};
use crate::engine::{
    Codec, PixelSink, Pixels, Predictor, Sample, TileError, TileJob, TileSpec, allocate,
};
use crate::error::{Error, Result};
use crate::io::ByteSource;
use crate::process::memory;

/// Tiles closer together than this are read in one go, the gap included.
const READ_GAP: u64 = 4 << 10;
/// One read is at most this long, unless one tile is.
const READ_BYTES: u64 = 1 << 20;
/// A tile of JPEG 2000 may have so many bytes that next to nothing is stored of.
const BLANK_BYTES: usize = 64 << 20;
/// Scratch larger than this is given back when the task is done.
const KEEP_BYTES: usize = 8 << 20;

/// What a thread needs to decode and encode tiles, kept from tile to tile.
#[derive(Default)]
pub(super) struct Worker {
    input: Vec<u8>,
    pub(super) tile: Vec<u8>,
    pub(super) scratch: Vec<u8>,
    codecs: Codecs,
    pub(super) encoders: Encoders,
}

/// Decoder contexts, made when first used.
#[derive(Default)]
struct Codecs {
    lzw: Option<Lzw>,
    deflate: Option<Deflate>,
    zstd: Option<Zstd>,
}

thread_local! {
    static WORKERS: RefCell<Vec<Worker>> = RefCell::default();
}

impl Worker {
    /// Lends this thread's worker. A sink or source that comes back into the engine on the
    /// same thread gets another, which is kept as well.
    pub(super) fn with<T>(use_it: impl FnOnce(&mut Worker) -> T) -> T {
        WORKERS.with(|idle| {
            let mut worker = {
                let mut idle = idle.borrow_mut();
                // Room for it to come back to.
                idle.reserve(1);
                idle.pop().unwrap_or_default()
            };
            let result = use_it(&mut worker);
            worker.trim();
            idle.borrow_mut().push(worker);
            result
        })
    }

    fn trim(&mut self) {
        for buffer in [&mut self.input, &mut self.tile, &mut self.scratch] {
            if buffer.capacity() > KEEP_BYTES {
                *buffer = Vec::new();
            }
        }
        self.encoders.trim(KEEP_BYTES);
    }

    /// Reads the tiles, neighbours in the file together, and decodes each.
    pub(super) fn read_and_decode(
        &mut self,
        spec: &TileSpec,
        source: &dyn ByteSource,
        tiles: &[TileJob],
        sink: &dyn PixelSink,
        failed: &mut Vec<TileError>,
    ) {
        let mut input = std::mem::take(&mut self.input);
        reserve_input(spec, tiles.len(), &mut input);
        let mut rest = tiles;
        while !rest.is_empty() {
            if read_part(spec, source, &rest[0], sink, &mut input) {
                rest = &rest[1..];
                continue;
            }
            let run = neighbours(rest);
            let (now, later) = rest.split_at(run);
            rest = later;
            if run == 1 && read_in_place(spec, source, &now[0], sink, failed) {
                continue;
            }
            let start = now[0].offset;
            let end = now[run - 1].offset + now[run - 1].len as u64;
            match read(source, start, (end - start) as usize, &mut input) {
                Ok(bytes) => {
                    for tile in now {
                        let at = (tile.offset - start) as usize;
                        self.decode(spec, tile, &bytes[at..at + tile.len], sink, failed);
                    }
                }
                Err(error) if run == 1 => failed.push(TileError { id: now[0].id, error }),
                // One bad range must not fail its neighbours.
                Err(_) => {
                    for tile in now {
                        match read(source, tile.offset, tile.len, &mut input) {
                            Ok(bytes) => self.decode(spec, tile, bytes, sink, failed),
                            Err(error) => failed.push(TileError { id: tile.id, error }),
                        }
                    }
                }
            }
        }
        self.input = input;
    }

    /// Decodes one tile from its bytes and hands it on, or notes why not.
    pub(super) fn decode(
        &mut self,
        spec: &TileSpec,
        tile: &TileJob,
        bytes: &[u8],
        sink: &dyn PixelSink,
        failed: &mut Vec<TileError>,
    ) {
        if let Err(error) = self.try_decode(spec, tile, bytes, sink) {
            failed.push(TileError { id: tile.id, error });
        }
    }

    fn try_decode(
        &mut self,
        spec: &TileSpec,
        tile: &TileJob,
        bytes: &[u8],
        sink: &dyn PixelSink,
    ) -> Result<()> {
        let stored_row = spec.stored_row_bytes();
        let needed = stored_row * tile.rows;
        if spec.is_as_stored() {
            let data = bytes.get(..needed).ok_or_else(|| short(tile, bytes.len(), needed))?;
            sink.put(tile.id, Pixels::whole(data, tile.rows, stored_row));
            return Ok(());
        }
        plausible(spec, tile)?;
        let capacity = stored_row * spec.height;
        if capacity > KEEP_BYTES && needed == capacity && unpacks_in_place(spec) {
            // Where it belongs, if the sink has all of that place: a copy of a large tile is not
            // made beside it.
            let mut outcome = Ok(());
            if sink.take_as_stored(tile.id, needed, &mut |memory| {
                outcome = self.unpack_to(spec, tile, bytes, memory);
            }) {
                return outcome;
            }
        }
        if self.tile.len() < capacity {
            self.tile = Vec::new();
            self.tile = allocate(capacity, "a tile")?;
        }
        let unpacked = &mut self.tile[..capacity];
        if let Codec::Jpeg2000(_) = spec.codec {
            jpeg2000::decode(spec, tile, bytes, unpacked)?;
            sink.put(tile.id, Pixels::whole(&unpacked[..needed], tile.rows, stored_row));
            return Ok(());
        }
        let got = unpack(&mut self.codecs, spec.codec, bytes, unpacked)
            .map_err(|e| decode_error(e, tile))?;
        if got < needed {
            return Err(short(tile, got, needed));
        }
        let data = &mut unpacked[..needed];
        undo_predictor(spec, data, &mut self.scratch)?;
        let data: &[u8] = match spec.sample {
            Sample::Whole { .. } => data,
            Sample::Bit { on } => expand_bits(data, spec, tile.rows, on, &mut self.scratch)?,
        };
        sink.put(tile.id, Pixels::whole(data, tile.rows, spec.row_bytes()));
        Ok(())
    }
}

impl Worker {
    /// Decodes a whole tile of whole samples to where it belongs.
    fn unpack_to(
        &mut self,
        spec: &TileSpec,
        tile: &TileJob,
        bytes: &[u8],
        to: &mut [u8],
    ) -> Result<()> {
        let got = unpack(&mut self.codecs, spec.codec, bytes, to)
            .map_err(|error| decode_error(error, tile))?;
        if got < to.len() {
            return Err(short(tile, got, to.len()));
        }
        undo_predictor(spec, to, &mut self.scratch)?;
        Ok(())
    }
}

/// Reads a tile that needs no decoding straight to where it belongs, if the sink can.
fn read_in_place(
    spec: &TileSpec,
    source: &dyn ByteSource,
    tile: &TileJob,
    sink: &dyn PixelSink,
    failed: &mut Vec<TileError>,
) -> bool {
    let needed = spec.stored_row_bytes() * tile.rows;
    if !spec.is_as_stored() || tile.len < needed {
        return false;
    }
    let mut outcome = Ok(());
    let taken = sink.take_as_stored(tile.id, needed, &mut |memory| {
        outcome = source.read_at(tile.offset, memory);
    });
    if let Err(error) = outcome {
        failed.push(TileError { id: tile.id, error });
    }
    taken
}

/// The bytes of a tile that needs no decoding which hold all that is wanted of it, if so few that
/// they are worth a read of their own.
pub(super) fn wanted(spec: &TileSpec, tile: &TileJob) -> Option<Range<usize>> {
    let span = spec.span(&tile.part.filter(|_| spec.is_as_stored())?);
    let whole = spec.stored_row_bytes() * tile.rows <= tile.len;
    (whole && (span.len() as u64).saturating_add(READ_GAP) <= tile.len as u64).then_some(span)
}

/// Reads and delivers just what is wanted of a tile that needs no decoding. What goes wrong is
/// found again, and told, by who reads all of it.
fn read_part(
    spec: &TileSpec,
    source: &dyn ByteSource,
    tile: &TileJob,
    sink: &dyn PixelSink,
    buffer: &mut Vec<u8>,
) -> bool {
    let (Some(span), Some(part)) = (wanted(spec, tile), tile.part) else { return false };
    let Ok(data) = read(source, tile.offset + span.start as u64, span.len(), buffer) else {
        return false;
    };
    let pixels =
        Pixels { data, rows: part.height, row_bytes: spec.row_bytes(), x: part.x, y: part.y };
    sink.put(tile.id, pixels);
    true
}

/// How many of the first tiles follow each other closely enough for one read.
fn neighbours(tiles: &[TileJob]) -> usize {
    let start = tiles[0].offset;
    let mut end = start + tiles[0].len as u64;
    let mut run = 1;
    for tile in &tiles[1..] {
        let next = tile.offset + tile.len as u64;
        if tile.offset < end || tile.offset - end > READ_GAP || next - start > READ_BYTES {
            break;
        }
        end = next;
        run += 1;
    }
    run
}

/// Makes the input as long as tiles of this kind are likely to need, so that it does not grow with the
/// longest tile met so far. Without memory for that it is made as each tile needs it.
fn reserve_input(spec: &TileSpec, tiles: usize, input: &mut Vec<u8>) {
    let stored = spec.stored_row_bytes().saturating_mul(spec.height);
    // The longest that a codec makes of noise is LZW's.
    let tile = stored.saturating_add(stored / 2).saturating_add(1 << 10);
    let run = tiles.saturating_mul(tile.saturating_add(READ_GAP as usize));
    let bytes = run.min(READ_BYTES as usize).max(tile);
    if input.len() < bytes && bytes <= KEEP_BYTES && !spec.is_as_stored() {
        *input = Vec::new();
        *input = allocate(bytes, "a compressed tile").unwrap_or_default();
    }
}

fn read<'a>(
    source: &dyn ByteSource,
    offset: u64,
    len: usize,
    buffer: &'a mut Vec<u8>,
) -> Result<&'a [u8]> {
    if buffer.len() < len {
        *buffer = Vec::new();
        *buffer = allocate(len, "a compressed tile")?;
    }
    let slot = &mut buffer[..len];
    source.read_at(offset, slot)?;
    Ok(slot)
}

/// Whether what is unpacked has the size and the place of the pixels.
fn unpacks_in_place(spec: &TileSpec) -> bool {
    matches!(spec.sample, Sample::Whole { .. }) && !matches!(spec.codec, Codec::Jpeg2000(_))
}

/// Refuses a tile whose few bytes cannot hold what its size claims, before
/// anything of that size is allocated.
pub(in crate::engine) fn plausible(spec: &TileSpec, tile: &TileJob) -> Result<()> {
    let rows = match spec.codec {
        // A codestream is decoded whole.
        Codec::Jpeg2000(_) => spec.height,
        _ => tile.rows,
    };
    let needed = spec.stored_row_bytes() * rows;
    let most = match spec.codec {
        Codec::None | Codec::Gtiff => 1,
        Codec::PackBits => 128,
        Codec::Deflate => 1_100,
        // 12-bit codes for strings of up to 3838 bytes.
        Codec::Lzw => 4_096,
        // Blocks of 128 KiB from four bytes.
        Codec::Zstd => 43_691,
        // Packets with nothing in them stand for any number of samples; decoders have several times
        // as much memory for these.
        Codec::Jpeg2000(_) if needed <= BLANK_BYTES => 1 << 20,
        Codec::Jpeg2000(_) => 1 << 12,
    };
    if needed / most > tile.len {
        return Err(short(tile, tile.len.saturating_mul(most), needed));
    }
    Ok(())
}

fn short(tile: &TileJob, got: usize, needed: usize) -> Error {
    Error::corrupt(format!("{got} bytes where a tile needs {needed}"), tile.offset)
}

fn decode_error(error: CodecError, tile: &TileJob) -> Error {
    match error {
        CodecError::NoMemory => {
            Error::OutOfMemory { bytes: tile.len as u64, place: "a decompressor" }
        }
        error => Error::corrupt(error.to_string(), tile.offset),
    }
}

/// What is in `slot`, made the first time.
pub(super) fn made_once<T>(
    slot: &mut Option<T>,
    make: impl FnOnce() -> std::result::Result<T, CodecError>,
) -> std::result::Result<&mut T, CodecError> {
    match slot {
        Some(made) => Ok(made),
        None => Ok(slot.insert(make()?)),
    }
}

fn unpack(
    codecs: &mut Codecs,
    codec: Codec,
    bytes: &[u8],
    tile: &mut [u8],
) -> std::result::Result<usize, CodecError> {
    match codec {
        Codec::None => {
            let len = bytes.len().min(tile.len());
            tile[..len].copy_from_slice(&bytes[..len]);
            Ok(len)
        }
        Codec::PackBits => packbits::decode(bytes, tile),
        Codec::Lzw => codecs.lzw.get_or_insert_with(Lzw::new).decode(bytes, tile),
        Codec::Deflate => made_once(&mut codecs.deflate, Deflate::new)?.decode(bytes, tile),
        Codec::Zstd => made_once(&mut codecs.zstd, Zstd::new)?.decode(bytes, tile),
        Codec::Jpeg2000(_) | Codec::Gtiff => Err(CodecError::Unsupported),
    }
}

fn undo_predictor(spec: &TileSpec, data: &mut [u8], scratch: &mut Vec<u8>) -> Result<()> {
    let Sample::Whole { bytes, unit } = spec.sample else { return Ok(()) };
    let (bytes, row) = (usize::from(bytes), spec.stored_row_bytes());
    match spec.predictor {
        Predictor::None if spec.swap => predictor::swap_samples(data, usize::from(unit)),
        Predictor::None => {}
        Predictor::Horizontal => {
            predictor::undo_horizontal(data, row, spec.samples, bytes, spec.swap);
        }
        Predictor::FloatingPoint => {
            memory::grow(scratch, row.saturating_sub(scratch.len()), "a row of a tile")?;
            predictor::undo_floating_point(data, row, spec.samples, bytes, scratch);
        }
    }
    Ok(())
}

/// One byte for each bit; the bits beyond the row's width are padding.
fn expand_bits<'a>(
    packed: &[u8],
    spec: &TileSpec,
    rows: usize,
    on: u8,
    out: &'a mut Vec<u8>,
) -> Result<&'a [u8]> {
    let width = spec.width * spec.samples;
    out.clear();
    memory::grow(out, width * rows, "a tile of bits")?;
    for row in packed.chunks_exact(spec.stored_row_bytes()).take(rows) {
        let bits = row.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
        out.extend(bits.take(width).map(|bit| bit * on));
    }
    Ok(out)
}
