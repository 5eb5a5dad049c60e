//! Copying a whole image: the caller fills one rectangle of whole tiles after the other while
//! the one before is being encoded; or nobody fills anything, where the tiles of the source can be
//! decoded by who encodes them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::canvas::Place;
use super::flight::{Flight, Pixels, Swath};
use super::originals::{Originals, are_cut_alike};
use super::plan::{Cover, Grid, Rect, Tile};
use super::reader::Reader;
use super::writer::Writer;
use crate::engine::allocate;
use crate::error::{Error, Result};
use crate::process::memory;

/// What lists of tiles are for, in messages.
const TILES: &str = "the tiles of an image";

/// How long the caller waits before it tells of progress.
const SLICE: Duration = Duration::from_millis(100);
/// A tile that is being encoded for so long counts half.
const TILE_SECONDS: f64 = 10.0;

/// The rectangles still to come, and memory for them.
pub struct Swaths {
    image: usize,
    todo: std::vec::IntoIter<Piece>,
    total: u64,
    /// Tiles of batches that have landed.
    done: u64,
    /// Tiles whose encoding has begun, and since when there are so many.
    begun: (u64, Instant),
    /// The largest share that was told.
    told: f64,
    interleaved: bool,
    /// The image that is copied, if its tiles can be taken one by one.
    originals: Option<Arc<Reader>>,
    /// What could not be taken from there.
    again: Vec<Piece>,
    filling: Option<(Piece, Vec<u8>)>,
    /// Tiles to be encoded as soon as a batch before has landed.
    waiting: Option<(Vec<u64>, Pixels)>,
    buffers: Vec<Vec<u8>>,
}

/// Tiles that are copied together.
#[derive(Debug, Clone, Copy)]
pub struct Piece {
    cover: Cover,
    first_plane: u32,
    planes: u32,
}

/// How an image is copied.
#[derive(Clone)]
pub struct CopyPlan {
    /// Rows of the source that it likes to give at once.
    pub source_rows: u32,
    /// The source has its bands interleaved: it gives all at once more cheaply.
    pub bands_together: bool,
    /// The source, where our engine decodes it.
    pub source: Option<Arc<Reader>>,
}

/// What is next.
pub enum Step<'a> {
    /// The caller shall fill this.
    Fill(SwathView<'a>),
    /// Nothing: it goes on by itself, or is waited for. So much of the image is done.
    Went(f64),
}

/// What the caller shall fill.
pub struct SwathView<'a> {
    /// Which pixels.
    pub rect: Rect,
    /// The first band, from 0.
    pub first_band: usize,
    /// How many bands.
    pub bands: usize,
    /// Where the first sample goes.
    pub data: &'a mut [u8],
    /// Bytes from a pixel to the next.
    pub pixel: usize,
    /// Bytes from a line to the next.
    pub line: usize,
    /// Bytes from a band to the next.
    pub band: usize,
    /// Share of the image that is done.
    pub done: f64,
}

impl Swaths {
    /// Takes memory back.
    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        self.buffers.push(buffer);
    }
}

/// What there is to do for a copy.
enum Next {
    /// The caller shall fill this one.
    Fill(Piece),
    /// One went off without the caller.
    Went,
    Done,
}

impl Piece {
    fn tiles(self, grid: &Grid) -> Result<Vec<Tile>> {
        let planes = self.first_plane..self.first_plane + self.planes;
        let planes = memory::collect(planes, TILES)?;
        memory::collect(grid.tiles(self.cover, &planes), TILES)
    }
}

impl Writer {
    /// Begins to copy all of an image.
    pub fn copy_image(&mut self, image: usize, plan: CopyPlan) -> Result<()> {
        self.attempt(|writer| writer.copy_image_now(image, plan))
    }

    fn copy_image_now(&mut self, image: usize, plan: CopyPlan) -> Result<()> {
        let canvas = &self.canvases[image];
        let grid = canvas.grid;
        let originals = plan.source.filter(|source| {
            self.engine(image).decodes_singly() && are_cut_alike(source.image(), canvas)
        });
        let singly = originals.as_ref().is_some_and(|source| source.decodes_singly());
        let planes_at_once = if plan.bands_together && !singly { grid.planes } else { 1 };
        let tile_bytes = canvas.spec.tile_bytes() * planes_at_once as usize;
        // Two rectangles, the encoded tiles of one, and what the workers hold.
        let most = self.limits.batch_bytes / 3;
        // Half as much where there are two in the air.
        let like = self.batch_bytes(image) / if singly { 2 } else { 1 };
        let covers = cut(&grid, tile_bytes, like, most, plan.source_rows)?;
        let mut pieces = Vec::new();
        for first_plane in (0..grid.planes).step_by(planes_at_once.max(1) as usize) {
            let piece = |&cover| Piece { cover, first_plane, planes: planes_at_once };
            memory::extend(&mut pieces, covers.iter().map(piece), TILES)?;
        }
        let total = pieces.iter().map(|p| p.cover.len() * u64::from(p.planes)).sum();
        self.swaths = Some(Swaths {
            image,
            todo: pieces.into_iter(),
            total,
            done: 0,
            begun: (0, Instant::now()),
            told: 0.0,
            interleaved: plan.bands_together && grid.planes == 1,
            originals,
            again: Vec::new(),
            filling: None,
            waiting: None,
            buffers: Vec::new(),
        });
        Ok(())
    }

    /// A piece that was taken from the originals is to be filled by the caller.
    pub(super) fn ask_for(&mut self, piece: Piece) {
        if let Some(swaths) = &mut self.swaths {
            swaths.again.push(piece);
            // Where one is damaged others may be, and each would be tried twice.
            swaths.originals = None;
        }
    }

    /// What is next; `None` when all is done.
    pub fn next_swath(&mut self) -> Result<Option<Step<'_>>> {
        match self.attempt(Writer::next_piece)? {
            Next::Fill(piece) => self.view(piece).map(|view| Some(Step::Fill(view))),
            Next::Went => Ok(Some(Step::Went(self.share()))),
            Next::Done => {
                self.swaths = None;
                Ok(None)
            }
        }
    }

    fn next_piece(&mut self) -> Result<Next> {
        if !self.send_waiting(SLICE)? {
            return Ok(Next::Went);
        }
        while let Some(swaths) = &mut self.swaths {
            if let Some(piece) = swaths.again.pop() {
                return Ok(Next::Fill(piece));
            }
            let Some(piece) = swaths.todo.next() else {
                // What comes back of these may be asked for again.
                match self.flights.front() {
                    Some(flight) if !flight.lands_within(SLICE) => return Ok(Next::Went),
                    Some(_) => self.unload_first()?,
                    None => break,
                }
                continue;
            };
            let (image, grid) = (swaths.image, self.canvases[swaths.image].grid);
            let tiles = match swaths.originals {
                Some(_) => piece.tiles(&grid)?,
                None => Vec::new(),
            };
            let originals = swaths.originals.as_ref();
            let Some(originals) = originals.and_then(|from| Originals::of(from, tiles.into_iter()))
            else {
                return Ok(Next::Fill(piece));
            };
            self.send_off(image, piece, Pixels::Originals(originals, piece))?;
            return Ok(Next::Went);
        }
        Ok(Next::Done)
    }

    /// Sends off what waits for a batch before it; false if that does not land within `patience`.
    /// With one thread nothing else is done meanwhile.
    fn send_waiting(&mut self, patience: Duration) -> Result<bool> {
        let waiting = self.swaths.as_mut().and_then(|swaths| swaths.waiting.take());
        let image = self.swaths.as_ref().map_or(0, |swaths| swaths.image);
        let most = match &waiting {
            _ if self.limits.threads == 1 => 1,
            Some((_, pixels)) => pixels.abreast(&**self.engine(image)),
            None => return Ok(true),
        };
        while self.flights.len() >= most {
            if !self.flights[0].lands_within(patience) {
                if let Some(swaths) = &mut self.swaths {
                    swaths.waiting = waiting;
                }
                return Ok(false);
            }
            if self.flights.len() == most {
                break;
            }
            self.unload_first()?;
        }
        if let (Some((ids, pixels)), Some(swaths)) = (waiting, &self.swaths) {
            let image = swaths.image;
            self.launch(image, &ids, pixels)?;
        }
        Ok(true)
    }

    fn unload_first(&mut self) -> Result<()> {
        self.take_landed()?.map_or(Ok(()), |landed| self.unload(landed))
    }

    /// So many tiles of the image that is copied are encoded.
    pub(super) fn count_swath(&mut self, tiles: usize) {
        if let Some(swaths) = &mut self.swaths {
            swaths.done += tiles as u64;
        }
    }

    /// The share of the image that is done; it never falls. How far a tile is nobody knows: the longer
    /// it takes the more of it counts, so that the share moves, and never all of it.
    fn share(&mut self) -> f64 {
        let begun: usize = self.flights.iter().map(Flight::fetched).sum();
        let running: usize = self.flights.iter().map(Flight::running).sum();
        let Some(swaths) = &mut self.swaths else { return 1.0 };
        let begun = swaths.done + begun as u64;
        if swaths.begun.0 != begun {
            swaths.begun = (begun, Instant::now());
        }
        let since = swaths.begun.1.elapsed().as_secs_f64();
        let undone = running as f64 * TILE_SECONDS / (TILE_SECONDS + since);
        let share = (begun as f64 - undone) / swaths.total.max(1) as f64;
        swaths.told = swaths.told.max(share.min(1.0));
        swaths.told
    }

    fn view(&mut self, piece: Piece) -> Result<SwathView<'_>> {
        let done = self.share();
        let Some(swaths) = &mut self.swaths else {
            return Err(Error::Device("internal error: no rows to fill".into()));
        };
        let canvas = &self.canvases[swaths.image];
        let rect = pixels(&canvas.grid, &piece.cover);
        let unit = canvas.spec.sample.bytes();
        let bands = piece.planes as usize * canvas.spec.samples;
        let pixel = if swaths.interleaved { bands * unit } else { unit };
        let line = rect.width as usize * pixel;
        let plane = line * rect.height as usize;
        let bytes = rect.width as usize * rect.height as usize * unit * bands;
        let mut data = swaths.buffers.pop().unwrap_or_default();
        if data.len() < bytes {
            drop(data);
            data = allocate(bytes, "rows of pixels")?;
        }
        let (_, data) = swaths.filling.insert((piece, data));
        Ok(SwathView {
            rect,
            first_band: piece.first_plane as usize,
            bands,
            data: &mut data[..bytes],
            pixel,
            line,
            band: if swaths.interleaved { unit } else { plane },
            done,
        })
    }

    /// The rectangle was filled: encodes it.
    pub fn take_swath(&mut self) -> Result<()> {
        self.attempt(Writer::take_swath_now)
    }

    fn take_swath_now(&mut self) -> Result<()> {
        let Some(swaths) = &mut self.swaths else { return Ok(()) };
        let (image, interleaved) = (swaths.image, swaths.interleaved);
        let Some((piece, data)) = swaths.filling.take() else {
            return Err(Error::Device("internal error: no rows to take".into()));
        };
        let rect = pixels(&self.canvases[image].grid, &piece.cover);
        let swath = Swath { data, rect, first_plane: piece.first_plane, interleaved };
        self.send_off(image, piece, Pixels::Swath(swath))
    }

    fn send_off(&mut self, image: usize, piece: Piece, pixels: Pixels) -> Result<()> {
        let canvas = &mut self.canvases[image];
        let grid = canvas.grid;
        let tiles = piece.tiles(&grid)?;
        let ids = memory::collect(tiles.iter().map(|&tile| grid.index(tile)), TILES)?;
        for &id in &ids {
            canvas.places[id as usize] = Place::Busy;
        }
        if let Some(swaths) = &mut self.swaths {
            swaths.waiting = Some((ids, pixels));
        }
        self.send_waiting(Duration::ZERO).map(drop)
    }
}

/// The pixels of whole tiles.
fn pixels(grid: &Grid, cover: &Cover) -> Rect {
    let (x, y) = (cover.left * grid.tile_width, cover.top * grid.tile_height);
    let end = |tiles: u32, tile: u32, all: u32| {
        (u64::from(tiles) * u64::from(tile)).min(u64::from(all)) as u32
    };
    Rect {
        x,
        y,
        width: end(cover.right, grid.tile_width, grid.width) - x,
        height: end(cover.bottom, grid.tile_height, grid.height) - y,
    }
}

/// Cuts an image into rectangles of about `like` bytes and never more than `most`, unless one
/// tile is: whole rows of tiles if they fit, and then as many as make whole rows of the source.
fn cut(
    grid: &Grid,
    tile_bytes: usize,
    like: usize,
    most: usize,
    source_rows: u32,
) -> Result<Vec<Cover>> {
    let (across, down) = (grid.across(), grid.down());
    let row_bytes = (tile_bytes * across as usize).max(1);
    let mut covers = Vec::new();
    if row_bytes > most.max(like) {
        let columns = (like / tile_bytes.max(1)).clamp(1, across as usize) as u32;
        for top in 0..down {
            for left in (0..across).step_by(columns as usize) {
                let right = (left + columns).min(across);
                memory::push(&mut covers, Cover { left, right, top, bottom: top + 1 }, TILES)?;
            }
        }
        return Ok(covers);
    }
    let mut rows = (like / row_bytes).clamp(1, down as usize) as u32;
    let unit = source_rows.div_ceil(grid.tile_height).max(1);
    let rounded = rows.next_multiple_of(unit);
    if rounded as usize * row_bytes <= most {
        rows = rounded;
    } else if rows > unit {
        rows -= rows % unit;
    }
    for top in (0..down).step_by(rows as usize) {
        let cover = Cover { left: 0, right: across, top, bottom: (top + rows).min(down) };
        memory::push(&mut covers, cover, TILES)?;
    }
    Ok(covers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_image_once_and_keep_to_the_budget() {
        let grid = Grid { width: 5000, height: 3000, tile_width: 256, tile_height: 256, planes: 1 };
        for (like, most) in [(1, 1), (70_000, 500_000), (3_000_000, 9_000_000), (1 << 40, 1 << 41)]
        {
            for source_rows in [1, 300, 512, 3000] {
                let covers = cut(&grid, 65536, like, most, source_rows).unwrap();
                assert_eq!(covers.iter().map(Cover::len).sum::<u64>(), 240);
                let mut before = (0, 0);
                for cover in &covers {
                    assert!(cover.len() == 1 || cover.len() as usize * 65536 <= most.max(like));
                    assert!((cover.top, cover.left) >= before);
                    before = (cover.top, cover.left);
                }
            }
        }
        assert_eq!(cut(&grid, 65536, 3_000_000, 9_000_000, 512).unwrap()[0].bottom, 2);
    }
}
