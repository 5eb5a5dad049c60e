//! Windows, tiles and the arithmetic between them. Pure.

/// A rectangle of pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rect {
    /// Left column.
    pub x: u32,
    /// Top row.
    pub y: u32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl Rect {
    /// One past the right column.
    pub fn right(&self) -> u64 {
        u64::from(self.x) + u64::from(self.width)
    }

    /// One past the bottom row.
    pub fn bottom(&self) -> u64 {
        u64::from(self.y) + u64::from(self.height)
    }

    /// What both cover, if anything.
    pub fn intersect(&self, other: &Rect) -> Option<Rect> {
        let x = self.x.max(other.x);
        let y = self.y.max(other.y);
        let right = self.right().min(other.right());
        let bottom = self.bottom().min(other.bottom());
        if right <= u64::from(x) || bottom <= u64::from(y) {
            return None;
        }
        // Both fit: they are no larger than the sizes they came from.
        let width = (right - u64::from(x)) as u32;
        let height = (bottom - u64::from(y)) as u32;
        Some(Rect { x, y, width, height })
    }

    /// Whether all of `other` is inside.
    pub fn contains(&self, other: &Rect) -> bool {
        self.intersect(other) == Some(*other)
    }
}

/// How an image is cut into tiles. A strip is a tile as wide as the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Image width.
    pub width: u32,
    /// Image height.
    pub height: u32,
    /// Tile width.
    pub tile_width: u32,
    /// Tile height.
    pub tile_height: u32,
    /// Planes that have their own tiles: 1 in a contiguous image.
    pub planes: u32,
}

/// A tile's place in its image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Column of tiles.
    pub column: u32,
    /// Row of tiles.
    pub row: u32,
    /// Plane.
    pub plane: u32,
}

/// A block of tile columns and rows, ends excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cover {
    /// First column.
    pub left: u32,
    /// One past the last column.
    pub right: u32,
    /// First row.
    pub top: u32,
    /// One past the last row.
    pub bottom: u32,
}

impl Cover {
    /// Tiles in it, in one plane.
    pub fn len(&self) -> u64 {
        u64::from(self.right - self.left) * u64::from(self.bottom - self.top)
    }

    /// Whether it holds no tile.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Grid {
    /// Tiles side by side.
    pub fn across(&self) -> u32 {
        self.width.div_ceil(self.tile_width)
    }

    /// Tiles on top of each other.
    pub fn down(&self) -> u32 {
        self.height.div_ceil(self.tile_height)
    }

    /// The whole image.
    pub fn image(&self) -> Rect {
        Rect { x: 0, y: 0, width: self.width, height: self.height }
    }

    /// The tile's number, as in the TIFF arrays.
    pub fn index(&self, tile: Tile) -> u64 {
        let plane = u64::from(self.across()) * u64::from(self.down());
        u64::from(tile.plane) * plane
            + u64::from(tile.row) * u64::from(self.across())
            + u64::from(tile.column)
    }

    /// The tile of a number.
    pub fn tile(&self, index: u64) -> Tile {
        let across = u64::from(self.across());
        let plane = across * u64::from(self.down());
        let inside = index % plane;
        Tile {
            column: (inside % across) as u32,
            row: (inside / across) as u32,
            plane: (index / plane) as u32,
        }
    }

    /// The pixels of the image that the tile holds; padding is left out.
    pub fn rect(&self, tile: Tile) -> Rect {
        let x = tile.column * self.tile_width;
        let y = tile.row * self.tile_height;
        Rect {
            x,
            y,
            width: self.tile_width.min(self.width - x),
            height: self.tile_height.min(self.height - y),
        }
    }

    /// The tiles that a window inside the image touches.
    pub fn cover(&self, window: &Rect) -> Cover {
        Cover {
            left: window.x / self.tile_width,
            right: (window.right().div_ceil(u64::from(self.tile_width))) as u32,
            top: window.y / self.tile_height,
            bottom: (window.bottom().div_ceil(u64::from(self.tile_height))) as u32,
        }
    }

    /// How many tiles the window covers whole.
    pub fn whole_tiles(&self, window: &Rect) -> u64 {
        let whole = |start: u32, end: u64, step: u32, size: u32| {
            let step = u64::from(step);
            // The last tile is whole where the image ends.
            let last = if end >= u64::from(size) { end.div_ceil(step) } else { end / step };
            last.saturating_sub(u64::from(start).div_ceil(step))
        };
        whole(window.x, window.right(), self.tile_width, self.width)
            * whole(window.y, window.bottom(), self.tile_height, self.height)
    }

    /// The tiles of a cover in the order they are stored in: planes, rows, columns.
    pub fn tiles(self, cover: Cover, planes: &[u32]) -> impl Iterator<Item = Tile> + '_ {
        let (across, each) = (u64::from(cover.right - cover.left), cover.len());
        (0..each * planes.len() as u64).map(move |i| {
            let inside = i % each;
            Tile {
                column: cover.left + (inside % across) as u32,
                row: cover.top + (inside / across) as u32,
                plane: planes[(i / each) as usize],
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Grid =
        Grid { width: 1000, height: 700, tile_width: 256, tile_height: 256, planes: 2 };

    #[test]
    fn numbers_and_places_agree() {
        let cover = GRID.cover(&GRID.image());
        for (i, tile) in GRID.tiles(cover, &[0, 1]).enumerate() {
            assert_eq!(GRID.index(tile), i as u64);
            assert_eq!(GRID.tile(i as u64), tile);
        }
        assert_eq!(GRID.tiles(cover, &[0, 1]).count(), 24);
    }

    #[test]
    fn every_pixel_is_in_one_tile() {
        let mut area = 0u64;
        for tile in GRID.tiles(GRID.cover(&GRID.image()), &[0]) {
            let r = GRID.rect(tile);
            area += u64::from(r.width) * u64::from(r.height);
        }
        assert_eq!(area, 700_000);
    }

    #[test]
    fn a_window_touches_only_its_tiles() {
        let cover = GRID.cover(&Rect { x: 255, y: 256, width: 2, height: 256 });
        assert_eq!(cover, Cover { left: 0, right: 2, top: 1, bottom: 2 });
    }

    #[test]
    fn a_whole_tile_in_a_window_is_noticed() {
        let window = |x, y, width, height| Rect { x, y, width, height };
        assert_eq!(GRID.whole_tiles(&window(256, 256, 256, 256)), 1);
        assert_eq!(GRID.whole_tiles(&window(255, 256, 513, 512)), 4);
        assert_eq!(GRID.whole_tiles(&window(257, 256, 400, 256)), 0);
        assert_eq!(GRID.whole_tiles(&window(256, 257, 256, 300)), 0);
        assert_eq!(GRID.whole_tiles(&window(0, 0, 1000, 700)), 12);
        // The last column and row are cut off by the image.
        assert_eq!(GRID.whole_tiles(&window(768, 512, 232, 188)), 1);
        assert_eq!(GRID.whole_tiles(&window(769, 512, 231, 188)), 0);
    }

    #[test]
    fn rectangles_at_the_far_end_do_not_overflow() {
        let a = Rect { x: u32::MAX - 1, y: 0, width: u32::MAX, height: 1 };
        assert_eq!(a.intersect(&a), Some(a));
        assert_eq!(a.intersect(&Rect { x: 0, y: 0, width: 5, height: 5 }), None);
    }
}
