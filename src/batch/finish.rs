//! The end of a file, or of a part of the writing: everything that is held goes out, then the
//! directories, and last of all the header that points to them.

use std::collections::HashMap;
use std::sync::Arc;

use super::canvas::Place;
use super::flight::{Cargo, Pixels};
use super::writer::{Mode, Run, Size, Writer};
use crate::engine::Packed;
use crate::error::{Error, Result};
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
            let mut ids: Vec<u64> = self.canvases[image].open.keys().copied().collect();
            ids.sort_unstable();
            let tile_bytes = self.canvases[image].spec.tile_bytes().max(1);
            for some in ids.chunks((self.batch_bytes(image) / tile_bytes).max(1)) {
                let mut tiles = HashMap::new();
                for &id in some {
                    tiles.insert(id, self.close_tile(image, id)?);
                }
                self.launch(image, some, Pixels::Collected(tiles))?;
            }
            self.land()?;
        }
        match mode {
            Mode::Closing => self.fill_up_to(self.canvases.len(), 0),
            _ => self.append_all_waiting(),
        }
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
            _ => self.encode_blank(image, id)?,
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

    fn encode_blank(&mut self, image: usize, id: u64) -> Result<Vec<u8>> {
        let mut batch = self.batch(image, &[id]);
        // Others that are cut elsewhere get the same bytes: all of it is fill.
        batch.tiles.iter_mut().for_each(|job| job.inside = None);
        let canvas = &self.canvases[image];
        let planes = vec![canvas.blank_plane(Vec::new()); canvas.spec.samples];
        let cargo = Cargo {
            pixels: Pixels::Collected(HashMap::from([(id, planes)])),
            spec: Arc::clone(&canvas.spec),
            grid: canvas.grid,
            fill: canvas.fill.clone(),
            sparse: false,
        };
        let mut packed = Packed::default();
        self.engine(image).encode(&batch, &cargo, &mut packed)?;
        let range = packed.tiles.first().cloned().unwrap_or_default();
        Ok(packed.bytes[range].to_vec())
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
                Place::LeftOut | Place::Absent => Ok(Strile::default()),
                _ => Err(Error::Device("internal error: a tile is not in the file".into())),
            };
            let striles: Result<Vec<Strile>> = canvas.places.iter().map(strile).collect();
            directory.set_striles(striles?);
        }
        let at = self.end.next_multiple_of(8);
        let laid = lay_out(&directories, at, self.size == Size::Big);
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
