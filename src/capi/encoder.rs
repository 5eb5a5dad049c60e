//! The engine of an image whose codec only GDAL has.

use std::sync::Arc;

use crate::batch::canvas::Canvas;
use crate::batch::template::{GtiffTiles, Template, Wanted};
use crate::engine::Engine;
use crate::engine::gtiff::GtiffEngine;
use crate::engine::gtiff::encode::{GtiffEncoder, Shape};
use crate::error::{Error, Result};
use crate::gdal::log;
use crate::gdal::tile_file::Recipe;
use crate::options::create::{DISCARD_LSB, find, is_true};
use crate::options::tile_file;

/// A canvas for the template's first image, and the engine for its tiles. `why` no engine of ours has
/// the codec; `Error::Unsupported` if GTiff must write the file as a whole.
pub(super) fn encoder(
    template: &Template<'_>,
    wanted: &Wanted,
    kind: u32,
    for_gtiff: &[(String, String)],
    why: String,
) -> Result<(Canvas, Arc<dyn Engine>)> {
    let GtiffTiles { mut canvas, cut, compression, mut facts } =
        template.gtiff(wanted, why.clone())?;
    // As GTiff: it looks for tiles of nothing but nodata among samples of these sizes only.
    canvas.writes_all |= !matches!(facts.bits, 8 | 16 | 32 | 64);
    // GTiff discards no bits of the nodata value.
    let nodata = match find(for_gtiff, DISCARD_LSB) {
        Some(_) => template.nodata()?,
        None => None,
    };
    facts.nodata = nodata.is_some();
    let left = || Error::Unsupported(why.clone());
    // GTiff then takes subsampled chroma for pixels.
    let raw = log::config("CONVERT_YCBCR_TO_RGB").is_some_and(|word| !is_true(Some(&word)));
    if raw && cut.sampling.is_some() {
        return Err(left());
    }
    let options = tile_file::options(for_gtiff, &facts).ok_or_else(left)?;
    let size = |n: u32| n as usize;
    let shape = Shape {
        size: [size(canvas.grid.width), size(canvas.grid.height)],
        tile: [canvas.spec.width, canvas.spec.height],
        tiled: facts.tiled,
        planes: size(canvas.grid.planes),
        apart: tile_file::tells_planes_apart(for_gtiff),
    };
    let alpha = cut.excerpt.ends_with_alpha() && !facts.separate;
    let reader = GtiffEngine::new(cut, kind);
    let files = Arc::new(Recipe::new(kind, &options, alpha, nodata));
    let engine = GtiffEncoder::new(reader, files, shape, compression, &canvas.spec)?;
    // What it warned of while it was tried out was said when the hollow file was made.
    engine.notices();
    Ok((canvas, Arc::new(engine)))
}
