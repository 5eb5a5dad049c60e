//! One image that is being written: what its tiles are like, and what has become of each.

use std::collections::HashMap;
use std::sync::Arc;

use super::coverage::Coverage;
use super::plan::{Grid, Rect, Tile};
use crate::engine::{Part, PixelJob, TileSpec};
use crate::error::Result;
use crate::io::scratch::Slot;
use crate::process::memory;
use crate::tiff::Strile;

/// What is allocated, in messages.
const PLANE: &str = "a tile to be written";
const TILES: &str = "the tiles of a window";

/// What has become of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Place {
    /// Nothing was written to it.
    #[default]
    Absent,
    /// Some of it was written: see [`Canvas::open`].
    Open,
    /// Complete, and about to be encoded or being encoded.
    Busy,
    /// Encoded, and waiting in the scratch file for its turn.
    Waiting(Slot, u32),
    /// In the file.
    There(Strile),
    /// Complete, and nothing but one of [`Canvas::fills`]: whether it is left out is decided when the
    /// file is finished, since the fill value may change until then.
    Blank(u32),
    /// Left out of the file: it held the fill value only when the file was finished.
    LeftOut,
}

/// A tile in the making, one plane for each sample, so that bands may come one by one.
#[derive(Debug)]
pub struct OpenTile {
    /// The planes, in the order of samples.
    pub planes: Vec<Plane>,
    /// When it was last written to.
    pub touched: u64,
}

/// One sample of all pixels of a tile.
#[derive(Debug, Default)]
pub struct Plane {
    /// Where it is.
    pub data: PlaneData,
    /// What was written of it.
    pub coverage: Coverage,
}

/// Where a plane is.
#[derive(Debug, Default)]
pub enum PlaneData {
    /// Nowhere: all fill.
    #[default]
    None,
    /// In memory.
    Memory(Vec<u8>),
    /// In the scratch file.
    Spilled(Slot),
}

/// An image that is being written.
#[derive(Debug)]
pub struct Canvas {
    /// What its tiles are like.
    pub spec: Arc<TileSpec>,
    /// Where they are.
    pub grid: Grid,
    /// How hard to compress.
    pub level: i32,
    /// Leave out tiles that hold the fill value only.
    pub sparse: bool,
    /// Strips: the bottom one has only the rows that are there.
    pub strips: bool,
    /// One sample of what stands where nothing was written.
    pub fill: Vec<u8>,
    /// Tiles of a nodata value may be left out.
    pub leaves_out_nodata: bool,
    /// Nothing that was written is left out any more: bands differ in their nodata values, or GTiff
    /// 3.6 keeps the tag of a 64-bit one that was deleted, so that what is left out would read as that.
    pub writes_all: bool,
    /// The fill values of tiles that are [`Place::Blank`].
    pub fills: Vec<Vec<u8>>,
    /// What has become of each tile.
    pub places: Vec<Place>,
    /// The tiles that are open.
    pub open: HashMap<u64, OpenTile>,
}

impl Canvas {
    /// Nothing written yet; the fill is zero.
    pub fn new(
        spec: Arc<TileSpec>,
        grid: Grid,
        level: i32,
        sparse: bool,
        strips: bool,
    ) -> Result<Canvas> {
        let tiles = u64::from(grid.across()) * u64::from(grid.down()) * u64::from(grid.planes);
        let fill = vec![0; spec.sample.bytes()];
        let places = memory::repeated(Place::Absent, tiles as usize, "the places of tiles")?;
        let (fills, open) = (Vec::new(), HashMap::new());
        let (leaves_out_nodata, writes_all) = (true, false);
        Ok(Canvas {
            spec,
            grid,
            level,
            sparse,
            strips,
            fill,
            leaves_out_nodata,
            writes_all,
            fills,
            places,
            open,
        })
    }

    /// The place of a tile that holds nothing but today's fill value.
    pub fn blank(&mut self) -> Place {
        if self.fills.last() != Some(&self.fill) {
            self.fills.push(self.fill.clone());
        }
        Place::Blank(self.fills.len() as u32 - 1)
    }

    /// One sample of what a tile that is not stored holds.
    pub fn fill_at(&self, place: Place) -> &[u8] {
        match place {
            Place::Blank(fill) => &self.fills[fill as usize],
            _ => &self.fill,
        }
    }

    /// Bytes of one plane of a tile.
    pub fn plane_bytes(&self) -> usize {
        self.spec.width * self.spec.height * self.spec.sample.bytes()
    }

    /// A plane of fill.
    pub fn blank_plane(&self, buffer: Vec<u8>) -> Result<Vec<u8>> {
        self.plane_of(&self.fill, buffer)
    }

    /// A plane of one value.
    pub fn plane_of(&self, sample: &[u8], mut buffer: Vec<u8>) -> Result<Vec<u8>> {
        buffer.clear();
        memory::resize(&mut buffer, self.plane_bytes(), PLANE)?;
        put_fill(&mut buffer, sample);
        Ok(buffer)
    }

    /// As many planes of one value as a tile has.
    pub fn planes_of(&self, sample: &[u8]) -> Result<Vec<Vec<u8>>> {
        let planes = (0..self.spec.samples).map(|_| self.plane_of(sample, Vec::new()));
        memory::try_collect(planes, PLANE)
    }

    /// What the engine is asked to encode for a tile.
    pub fn job(&self, id: u64) -> PixelJob {
        let rect = self.grid.rect(self.grid.tile(id));
        let (width, height) = (rect.width as usize, rect.height as usize);
        let rows = if self.strips { height } else { self.spec.height };
        let partial = width < self.spec.width || height < rows;
        PixelJob { id, rows, inside: partial.then_some(Part { x: 0, y: 0, width, height }) }
    }

    /// Whether all pixels of an open tile have been written.
    pub fn is_complete(&self, id: u64) -> bool {
        let rect = self.grid.rect(self.grid.tile(id));
        let all = u64::from(rect.width) * u64::from(rect.height);
        self.open
            .get(&id)
            .is_some_and(|tile| tile.planes.iter().all(|plane| plane.coverage.area() == all))
    }

    /// The sample of a band inside the tiles of its plane.
    pub fn sample(&self, band: usize) -> usize {
        if self.grid.planes > 1 { 0 } else { band }
    }

    /// Where a part of the image lies in a plane of its tile: first byte, bytes of a row.
    pub fn offset(&self, rect: &Rect, part: &Rect) -> (usize, usize) {
        let unit = self.spec.sample.bytes();
        let row = self.spec.width * unit;
        ((part.y - rect.y) as usize * row + (part.x - rect.x) as usize * unit, row)
    }

    /// The tiles that `window` touches, of the given bands' planes.
    pub fn tiles(&self, window: &Rect, bands: &[usize]) -> Result<Vec<Tile>> {
        let mut planes: Vec<u32> = match self.grid.planes {
            1 => vec![0],
            _ => memory::collect(bands.iter().map(|&band| band as u32), TILES)?,
        };
        planes.sort_unstable();
        planes.dedup();
        memory::collect(self.grid.tiles(self.grid.cover(window), &planes), TILES)
    }
}

/// Repeats `sample` all over `buffer`.
pub fn put_fill(buffer: &mut [u8], sample: &[u8]) {
    if sample.iter().all(|&byte| byte == 0) {
        buffer.fill(0);
    } else {
        buffer.chunks_exact_mut(sample.len()).for_each(|to| to.copy_from_slice(sample));
    }
}

/// Whether `pixels` is nothing but `sample`, bit by bit.
pub fn is_fill(pixels: &[u8], sample: &[u8]) -> bool {
    let Some((first, rest)) = pixels.split_at_checked(sample.len()) else {
        return pixels.is_empty();
    };
    first == sample && rest == &pixels[..rest.len()]
}
