//! Tiles that the engine failed on: GTiff is asked for them after each batch, so that a file that
//! GTiff gives up early costs no more than the batch.

use std::sync::atomic::Ordering;

use super::delivery::Delivery;
use super::handles::Image;
use crate::engine::TileError;
use crate::error::Error;

/// From so many tiles on that only GTiff decodes, which are also most of an image's, GTiff reads all
/// of it: asked for one tile after the other it takes several times as long.
const MOST_REDONE: u64 = 1024;

/// How a request goes on after tiles have failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// GTiff had them all.
    Delivered,
    /// GTiff failed too; the error was raised.
    Failed,
    /// The image is GTiff's to read.
    Left,
}

impl Image {
    /// Asks GTiff for tiles that failed, the first of them first.
    pub(super) fn redo_all(&self, delivery: &Delivery<'_>, tiles: &mut [TileError]) -> Outcome {
        tiles.sort_by_key(|tile| tile.id);
        // Only now it turned out: offsets that libtiff mends.
        let odd = tiles.iter().find(|tile| matches!(tile.error, Error::Unsupported(_)));
        if let Some(tile) = odd.filter(|_| !self.is_ours_alone()) {
            self.leave(&tile.error);
            return Outcome::Left;
        }
        for tile in tiles {
            if !self.redo(delivery, tile) {
                return Outcome::Failed;
            }
            let redone = self.redone.fetch_add(1, Ordering::Relaxed) + 1;
            if redone >= MOST_REDONE && redone >= self.shared.counters.tiles_decoded.get() {
                self.leave(&tile.error);
                return Outcome::Left;
            }
        }
        Outcome::Delivered
    }
}
