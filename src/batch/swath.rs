//! Copying a whole image: the caller fills one rectangle of whole tiles after the other while
//! the one before is being encoded.

use super::canvas::Place;
use super::flight::{Pixels, Swath};
use super::plan::{Cover, Grid, Rect};
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
    filling: Option<(Piece, Vec<u8>)>,
    buffers: Vec<Vec<u8>>,
}

/// Tiles that are copied together.
#[derive(Debug, Clone, Copy)]
struct Piece {
    cover: Cover,
    first_plane: u32,
    planes: u32,
}

/// How an image is copied.
#[derive(Debug, Clone, Copy)]
pub struct CopyPlan {
    /// Rows of the source that it likes to give at once.
    pub source_rows: u32,
    /// The source has its bands interleaved: it gives all at once more cheaply.
    pub bands_together: bool,
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
}

impl Writer {
    /// Begins to copy all of an image.
    pub fn copy_image(&mut self, image: usize, plan: CopyPlan) {
        let canvas = &self.canvases[image];
        let grid = canvas.grid;
        let planes_at_once = if plan.bands_together { grid.planes } else { 1 };
        let tile_bytes = canvas.spec.tile_bytes() * planes_at_once as usize;
        // Two rectangles, the encoded tiles of one, and what the workers hold.
        let most = self.limits.batch_bytes / 3;
        let like = self.batch_bytes(image);
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
            filling: None,
            buffers: Vec::new(),
        });
    }

    /// The next rectangle to be filled; `None` when all are done.
    pub fn next_swath(&mut self) -> Result<Option<SwathView<'_>>> {
        let Some(piece) = self.swaths.as_mut().and_then(|swaths| swaths.todo.next()) else {
            self.attempt(Writer::land)?;
            self.swaths = None;
            return Ok(None);
        };
        let Some(swaths) = &mut self.swaths else { return Ok(None) };
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
        swaths.done += piece.cover.len() * u64::from(piece.planes);
        let done = swaths.done as f64 / swaths.total.max(1) as f64;
        let (_, data) = swaths.filling.insert((piece, data));
        Ok(Some(SwathView {
            rect,
            first_band: piece.first_plane as usize,
            bands,
            data: &mut data[..bytes],
            pixel,
            line,
            band: if swaths.interleaved { unit } else { plane },
            done,
        }))
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
        let grid = self.canvases[image].grid;
        let planes: Vec<u32> = (piece.first_plane..piece.first_plane + piece.planes).collect();
        let ids: Vec<u64> = grid.tiles(piece.cover, &planes).map(|tile| grid.index(tile)).collect();
        for &id in &ids {
            self.canvases[image].places[id as usize] = Place::Busy;
        }
        let rect = pixels(&grid, &piece.cover);
        let swath = Swath { data, rect, first_plane: piece.first_plane, interleaved };
        self.launch(image, &ids, Pixels::Swath(swath))
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
