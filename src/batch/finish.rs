//! The end of a file, or of a part of the writing: everything that is held goes out, then the
//! directories, and last of all the header that points to them.

use std::collections::HashMap;
use std::sync::Arc;

use super::canvas::Place;
use super::collect::collected;
use super::flight::{Cargo, Pixels};
use super::writer::{Mode, Run, Size, Writer};
use crate::engine::Packed;
use crate::error::{Error, Result};
use crate::process::memory;
use crate::tiff::directory::{Directory, MOST_CLASSIC, RESERVED, Strile, lay_out};

impl Writer {
    /// Makes what was written readable for others: all pixels, `directories` and the header
    /// are in the file. The next write takes the header away again.
    pub fn flush(&mut self, directories: Vec<Directory>) -> Result<()> {
        self.attempt(|writer| {
            writer.write_out(Mode::Flushing)?;
            writer.seal(directories)
        })
    }

    /// Finishes the file: what nobody wrote is filled in or left out.
    pub fn finish(&mut self, directories: Vec<Directory>) -> Result<()> {
        self.attempt(|writer| {
            writer.write_out(Mode::Closing)?;
            writer.seal(directories)
        })
    }

    /// Puts all pixels into the file.
    fn write_out(&mut self, mode: Mode) -> Result<()> {
        self.settle()?;
        self.mode = mode;
        let result = self.write_out_open(mode);
        self.mode = Mode::Streaming;
        result
    }

    fn write_out_open(&mut self, mode: Mode) -> Result<()> {
        for image in 0..self.canvases.len() {
            let ids = self.canvases[image].open.keys().copied();
            let mut ids: Vec<u64> = memory::collect(ids, "the tiles of an image")?;
            ids.sort_unstable();
            let tile_bytes = self.canvases[image].spec.tile_bytes().max(1);
            for some in ids.chunks((self.batch_bytes(image) / tile_bytes).max(1)) {
                let mut tiles = memory::room(some.len(), "the tiles of a batch")?;
                let mut left = memory::room(some.len(), "the tiles of a batch")?;
                for &id in some {
                    let planes = self.close_tile(image, id)?;
                    if let Some(planes) = self.leave_out_fill(image, id, planes)? {
                        tiles.push((id, planes));
                        left.push(id);
                    }
                }
                if !left.is_empty() {
                    self.launch(image, &left, Pixels::Collected(collected(tiles.into_iter())?))?;
                }
            }
            self.land()?;
        }
        match mode {
            Mode::Closing => self.fill_up_to(self.canvases.len(), 0)?,
            _ => self.append_all_waiting()?,
        }
        (0..self.canvases.len()).try_for_each(|image| self.decide_blanks(image, mode))
    }

    /// Leaves out the tiles that hold today's fill value, and writes those that hold a former one,
    /// or that are in the file already.
    fn decide_blanks(&mut self, image: usize, mode: Mode) -> Result<()> {
        if self.canvases[image].fills.is_empty() {
            return Ok(());
        }
        // The last one that was encoded: its value, its rows, its bytes.
        let mut last: Option<(u32, usize, Vec<u8>)> = None;
        // Until then the fill value may change.
        let for_good = mode == Mode::Closing;
        for id in 0..self.canvases[image].places.len() as u64 {
            let canvas = &self.canvases[image];
            let Place::Blank(fill) = canvas.places[id as usize] else { continue };
            let sample = &canvas.fills[fill as usize];
            let in_file = self.homes.contains_key(&(image, id));
            if *sample == canvas.fill && !canvas.writes_all && !in_file {
                if for_good {
                    self.canvases[image].places[id as usize] = Place::LeftOut;
                }
                continue;
            }
            let rows = canvas.job(id).rows;
            let known = last.take().filter(|(of, its, _)| (*of, *its) == (fill, rows));
            let bytes = match known {
                Some((.., bytes)) => bytes,
                None => self.encode_blank(image, id, &sample.clone())?,
            };
            let mut run = Run::default();
            self.place(image, id, &bytes, &mut run)?;
            self.write_run(&mut run)?;
            last = Some((fill, rows, bytes));
        }
        if for_good {
            self.canvases[image].fills.clear();
        }
        Ok(())
    }

    fn append_all_waiting(&mut self) -> Result<()> {
        for image in 0..self.canvases.len() {
            for id in 0..self.canvases[image].places.len() {
                if let Place::Waiting(slot, len) = self.canvases[image].places[id] {
                    self.unseal()?;
                    self.canvases[image].places[id] = self.append_waiting(slot, len)?;
                }
            }
        }
        self.advance(&mut Run::default())
    }

    /// While closing: what comes before this tile and was not written will never be.
    pub(super) fn fill_up_to(&mut self, image: usize, id: u64) -> Result<()> {
        loop {
            self.advance(&mut Run::default())?;
            let (at, tile) = self.turn;
            let absent = self.canvases.get(at).and_then(|c| c.places.get(tile as usize));
            if (at, tile) >= (image, id) || absent != Some(&Place::Absent) {
                return Ok(());
            }
            self.fill_in(at, tile)?;
        }
    }

    /// A tile that nobody wrote: left out, or fill.
    pub(super) fn fill_in(&mut self, image: usize, id: u64) -> Result<()> {
        let canvas = &mut self.canvases[image];
        if canvas.sparse {
            canvas.places[id as usize] = Place::LeftOut;
            return Ok(());
        }
        self.unseal()?;
        let rows = self.canvases[image].job(id).rows;
        let bytes = match self.blank.take() {
            Some((at, its, bytes)) if (at, its) == (image, rows) => bytes,
            _ => self.encode_blank(image, id, &self.canvases[image].fill.clone())?,
        };
        let strile = Strile { offset: self.end, len: bytes.len() as u32 };
        // Zeros behind the end of the file are there without being written.
        self.courier.wait()?;
        if strile.offset < self.sink.len() || bytes.iter().any(|&byte| byte != 0) {
            self.sink.write_at(strile.offset, &[&bytes])?;
        }
        self.grow(bytes.len())?;
        self.canvases[image].places[id as usize] = Place::There(strile);
        self.blank = Some((image, rows, bytes));
        Ok(())
    }

    /// An encoded tile of one value.
    fn encode_blank(&mut self, image: usize, id: u64, sample: &[u8]) -> Result<Vec<u8>> {
        let mut batch = self.batch(image, &[id])?;
        // Others that are cut elsewhere get the same bytes: all of it is fill.
        batch.tiles.iter_mut().for_each(|job| job.inside = None);
        let canvas = &self.canvases[image];
        let planes = canvas.planes_of(sample)?;
        let cargo = Cargo {
            pixels: Pixels::Collected(HashMap::from([(id, planes)])),
            spec: Arc::clone(&canvas.spec),
            grid: canvas.grid,
            fill: sample.to_vec(),
            sparse: false,
            watch: Arc::default(),
        };
        let mut packed = Packed::default();
        memory::caught(|| self.engine(image).encode(&batch, &cargo, &mut packed))?;
        let range = packed.tiles.first().cloned().unwrap_or_default();
        memory::copied(&packed.bytes[range], "an encoded tile")
    }

    /// Takes the header away before anything that it leads to changes.
    pub(super) fn unseal(&mut self) -> Result<()> {
        if !self.sealed {
            return Ok(());
        }
        self.courier.wait()?;
        self.sink.write_at(0, &[&[0; RESERVED as usize]])?;
        self.sink.flush()?;
        self.sealed = false;
        Ok(())
    }

    /// Writes the directories behind the tiles, and then the header.
    fn seal(&mut self, mut directories: Vec<Directory>) -> Result<()> {
        self.courier.wait()?;
        for (directory, canvas) in directories.iter_mut().zip(&self.canvases) {
            directory.set_height(canvas.grid.height);
            let strile = |place: &Place| match place {
                Place::There(strile) => Ok(*strile),
                Place::LeftOut | Place::Blank(_) | Place::Absent => Ok(Strile::default()),
                _ => Err(Error::Device("internal error: a tile is not in the file".into())),
            };
            let striles = canvas.places.iter().map(strile);
            directory.set_striles(memory::try_collect(striles, "the places of tiles")?);
        }
        let at = self.end.next_multiple_of(8);
        let laid = lay_out(&directories, at, self.size == Size::Big)?;
        if self.sealed && self.laid.as_ref() == Some(&laid) {
            return Ok(());
        }
        let end = at + laid.bytes.len() as u64;
        if self.size == Size::Classic && end > MOST_CLASSIC {
            return Err(Error::TooLarge);
        }
        self.unseal()?;
        let gap = [0; 8];
        self.sink.write_at(self.end, &[&gap[..(at - self.end) as usize], &laid.bytes])?;
        if self.sink.len() > end {
            self.sink.truncate(end)?;
        }
        // Nothing leads to the directories before they are there.
        self.sink.flush()?;
        self.sink.write_at(0, &[&laid.header])?;
        self.sink.flush()?;
        self.sealed = true;
        self.laid = Some(laid);
        Ok(())
    }
}
