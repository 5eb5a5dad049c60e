//! Which pixels of a tile's plane have been written: enough to know when all have.
//!
//! Exact as long as the pieces are few; a plane that is written in very many pieces is not
//! followed any more and counts as never complete, which costs time but no pixel.

use super::plan::Rect;

/// Pieces that are followed.
const MOST_PIECES: usize = 128;

/// Disjoint pieces and their area.
#[derive(Debug, Clone, Default)]
pub struct Coverage {
    pieces: Vec<Rect>,
    area: u64,
    lost: bool,
}

impl Coverage {
    /// Of a plane that was complete before: it is not followed.
    pub fn lost() -> Coverage {
        Coverage { lost: true, ..Coverage::default() }
    }

    /// Pixels written.
    pub fn area(&self) -> u64 {
        if self.lost { 0 } else { self.area }
    }

    /// Adds a piece.
    pub fn add(&mut self, rect: Rect) {
        if self.lost {
            return;
        }
        // Rows one after the other, the way most pixels come.
        if let Some(last) = self.pieces.last_mut()
            && (last.x, last.width) == (rect.x, rect.width)
            && last.bottom() == u64::from(rect.y)
            && self.pieces.len() == 1
        {
            self.pieces[0].height += rect.height;
            self.area += area(&rect);
            return;
        }
        let mut new = vec![rect];
        for piece in &self.pieces {
            new = new.into_iter().flat_map(|part| without(part, piece)).collect();
        }
        for part in new {
            self.area += area(&part);
            self.insert(part);
        }
        if self.pieces.len() > MOST_PIECES {
            *self = Coverage::lost();
        }
    }

    /// Keeps a piece, joined with one that it makes a rectangle with.
    fn insert(&mut self, mut part: Rect) {
        while let Some(i) = self.pieces.iter().position(|piece| joined(piece, &part).is_some()) {
            let piece = self.pieces.swap_remove(i);
            part = joined(&piece, &part).unwrap_or(part);
        }
        self.pieces.push(part);
    }
}

fn area(rect: &Rect) -> u64 {
    u64::from(rect.width) * u64::from(rect.height)
}

/// Both as one rectangle, if they are one.
fn joined(a: &Rect, b: &Rect) -> Option<Rect> {
    let (first, second) = if (a.y, a.x) <= (b.y, b.x) { (a, b) } else { (b, a) };
    let below =
        (first.x, first.width) == (second.x, second.width) && first.bottom() == u64::from(second.y);
    let beside = (first.y, first.height) == (second.y, second.height)
        && first.right() == u64::from(second.x);
    match (below, beside) {
        (true, _) => Some(Rect { height: first.height + second.height, ..*first }),
        (_, true) => Some(Rect { width: first.width + second.width, ..*first }),
        _ => None,
    }
}

/// What of `part` is outside `hole`: at most four pieces.
fn without(part: Rect, hole: &Rect) -> Vec<Rect> {
    let Some(common) = part.intersect(hole) else { return vec![part] };
    let end = |y: u64, from: u32| (y - u64::from(from)) as u32;
    let above = Rect { height: common.y - part.y, ..part };
    let below = Rect {
        y: common.y + common.height,
        height: end(part.bottom(), common.y) - common.height,
        ..part
    };
    let middle = Rect { y: common.y, height: common.height, ..part };
    let left = Rect { width: common.x - part.x, ..middle };
    let right = Rect {
        x: common.x + common.width,
        width: end(part.right(), common.x) - common.width,
        ..middle
    };
    [above, left, right, below].into_iter().filter(|r| r.width > 0 && r.height > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rect(x: u32, y: u32, width: u32, height: u32) -> Rect {
        Rect { x, y, width, height }
    }

    #[test]
    fn rows_add_up() {
        let mut coverage = Coverage::default();
        (0..100).for_each(|y| coverage.add(rect(5, y, 10, 1)));
        assert_eq!((coverage.area(), coverage.pieces.len()), (1000, 1));
    }

    #[test]
    fn random_pieces_are_counted_once() {
        let first = 0x5eed_0009_u64;
        println!("seed {first:#x}");
        let mut seed = first;
        let mut random = |n: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed % n) as u32
        };
        for case in 0..300 {
            let mut coverage = Coverage::default();
            let mut map = [[false; 24]; 24];
            for _ in 0..40 {
                let (x, y) = (random(24), random(24));
                let part = rect(x, y, 1 + random(24 - u64::from(x)), 1 + random(24 - u64::from(y)));
                coverage.add(part);
                for row in &mut map[y as usize..(y + part.height) as usize] {
                    row[x as usize..(x + part.width) as usize].fill(true);
                }
                let written = map.iter().flatten().filter(|set| **set).count() as u64;
                assert!(coverage.lost || coverage.area() == written, "case {case}");
            }
        }
    }

    #[test]
    fn many_pieces_are_given_up() {
        let mut coverage = Coverage::default();
        (0..200).for_each(|i| coverage.add(rect(2 * i, 2 * i, 1, 1)));
        assert_eq!(coverage.area(), 0);
        coverage.add(rect(0, 0, 1000, 1000));
        assert_eq!(coverage.area(), 0);
    }
}
