//! Copying a whole image: the caller fills one rectangle of whole tiles after the other while
//! the one before is being encoded; or nobody fills anything, where the tiles of the source can be
//! decoded by who encodes them.

use std::sync::Arc;

use super::canvas::Place;
use super::flight::{Pixels, Swath};
use super::originals::{Originals, are_cut_alike};
use super::plan::{Cover, Grid, Rect, Tile};
use super::reader::Reader;
use super::writer::Writer;
use crate::engine::allocate;
use crate::error::{Error, Result};

/// The rectangles still to come, and memory for them.
pub struct Swaths {
    image: usize,
    todo: std::vec::IntoIter<Piece>,
    total: u64,
    done: u64,
    interleaved: bool,
    /// The image that is copied, if its tiles can be taken one by one.
    originals: Option<Arc<Reader>>,
    /// What could not be taken from there.
    again: Vec<Piece>,
    filling: Option<(Piece, Vec<u8>)>,
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
    /// Nothing: it goes on by itself. So much of the image is on its way.
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
    /// Share of the image that is done when this one is.
    pub done: f64,
}

impl Swaths {
    /// Takes memory back.
    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        self.buffers.push(buffer);
    }

    fn share(&self) -> f64 {
        self.done as f64 / self.total.max(1) as f64
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
    fn tiles(self, grid: &Grid) -> impl Iterator<Item = Tile> {
        let planes: Vec<u32> = (self.first_plane..self.first_plane + self.planes).collect();
        grid.tiles(self.cover, &planes).collect::<Vec<_>>().into_iter()
    }
}

impl Writer {
    /// Begins to copy all of an image.
    pub fn copy_image(&mut self, image: usize, plan: CopyPlan) {
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
        let covers = cut(&grid, tile_bytes, like, most, plan.source_rows);
        let mut pieces = Vec::new();
        for first_plane in (0..grid.planes).step_by(planes_at_once.max(1) as usize) {
            pieces.extend(covers.iter().map(|&cover| Piece {
                cover,
                first_plane,
                planes: planes_at_once,
            }));
        }
        let total = pieces.iter().map(|p| p.cover.len() * u64::from(p.planes)).sum();
        self.swaths = Some(Swaths {
            image,
            todo: pieces.into_iter(),
            total,
            done: 0,
            interleaved: plan.bands_together && grid.planes == 1,
            originals,
            again: Vec::new(),
            filling: None,
            buffers: Vec::new(),
        });
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
            Next::Went => Ok(Some(Step::Went(self.swaths.as_ref().map_or(1.0, Swaths::share)))),
            Next::Done => {
                self.swaths = None;
                Ok(None)
            }
        }
    }

    fn next_piece(&mut self) -> Result<Next> {
        while let Some(swaths) = &mut self.swaths {
            if let Some(piece) = swaths.again.pop() {
                return Ok(Next::Fill(piece));
            }
            let Some(piece) = swaths.todo.next() else {
                // What comes back of these may be asked for again.
                match self.take_landed()? {
                    Some(landed) => self.unload(landed)?,
                    None => break,
                }
                continue;
            };
            swaths.done += piece.cover.len() * u64::from(piece.planes);
            let (image, grid) = (swaths.image, self.canvases[swaths.image].grid);
            let originals = swaths.originals.as_ref();
            let Some(originals) =
                originals.and_then(|from| Originals::of(from, piece.tiles(&grid)))
            else {
                return Ok(Next::Fill(piece));
            };
            self.send_off(image, piece, Pixels::Originals(originals, piece))?;
            return Ok(Next::Went);
        }
        Ok(Next::Done)
    }

    fn view(&mut self, piece: Piece) -> Result<SwathView<'_>> {
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
        let done = swaths.share();
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
        let ids: Vec<u64> = piece.tiles(&grid).map(|tile| grid.index(tile)).collect();
        for &id in &ids {
            canvas.places[id as usize] = Place::Busy;
        }
        self.launch(image, &ids, pixels)
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
fn cut(grid: &Grid, tile_bytes: usize, like: usize, most: usize, source_rows: u32) -> Vec<Cover> {
    let (across, down) = (grid.across(), grid.down());
    let row_bytes = (tile_bytes * across as usize).max(1);
    let mut covers = Vec::new();
    if row_bytes > most.max(like) {
        let columns = (like / tile_bytes.max(1)).clamp(1, across as usize) as u32;
        for top in 0..down {
            for left in (0..across).step_by(columns as usize) {
                let right = (left + columns).min(across);
                covers.push(Cover { left, right, top, bottom: top + 1 });
            }
        }
        return covers;
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
        covers.push(Cover { left: 0, right: across, top, bottom: (top + rows).min(down) });
    }
    covers
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
                let covers = cut(&grid, 65536, like, most, source_rows);
                assert_eq!(covers.iter().map(Cover::len).sum::<u64>(), 240);
                let mut before = (0, 0);
                for cover in &covers {
                    assert!(cover.len() == 1 || cover.len() as usize * 65536 <= most.max(like));
                    assert!((cover.top, cover.left) >= before);
                    before = (cover.top, cover.left);
                }
            }
        }
        assert_eq!(cut(&grid, 65536, 3_000_000, 9_000_000, 512)[0].bottom, 2);
    }
}
