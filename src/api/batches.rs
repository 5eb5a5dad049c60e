//! A raster from top to bottom, in windows of whole tile rows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::handle::Table;
use super::held::Held;
use super::raster::{Level, Raster, out};
use super::request::{Buffer, Chosen, Place, Selection, Use, Window};
use super::result::{
    GPUGTIFF_DONE, GPUGTIFF_NULL_ARGUMENT, GPUGTIFF_OK, Outcome, fail, gpugtiff_result, guard,
    guard_result,
};

/// A walk down a raster.
pub struct Batches {
    raster: Arc<Raster>,
    chosen: Chosen,
    level: Level,
    /// Rows of a batch.
    rows: i64,
    current: Mutex<Option<Window>>,
}

static BATCHES: Table<Batches> = Table::new("walk of batches");

impl Batches {
    fn new(raster: Arc<Raster>, chosen: Chosen, batch_bytes: usize) -> Outcome<Batches> {
        let level = raster.level(chosen.level)?;
        let tile_rows = i64::from(level.tile[1].max(1));
        let sample = (chosen.kind.bytes * chosen.bands.len()) as i64;
        let bytes = tile_rows.saturating_mul(i64::from(level.size[0])).saturating_mul(sample);
        let batch = i64::try_from(batch_bytes).unwrap_or(i64::MAX);
        let rows = (batch / bytes.max(1)).max(1).saturating_mul(tile_rows);
        let rows = rows.min(level.size[1].into());
        Ok(Batches { raster, chosen, level, rows, current: Mutex::default() })
    }

    fn current(&self) -> MutexGuard<'_, Option<Window>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The window after this one; the last has the rows that are left.
    fn after(&self, window: Option<Window>) -> Option<Window> {
        let y = window.map_or(0, |window| window.y + window.height);
        let [width, height] = self.level.size.map(i64::from);
        (y < height).then(|| Window { x: 0, y, width, height: self.rows.min(height - y) })
    }
}

/// Begins a walk down the raster: windows as wide as the level, whole tile rows high, of about
/// `batch_mb` MiB of samples as they will be in memory; at least one row of tiles. 0: BATCH_MB as
/// the raster was opened with. The raster may be freed before, unless it was wrapped: then the
/// walk ends with it (GPUGTIFF_BAD_HANDLE). Thread-safe.
///
/// # Safety
/// `selection` must be NULL or what it says, `out_batches` a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpugtiff_batches_new(
    raster: *const Raster,
    selection: *const Selection,
    batch_mb: usize,
    out_batches: *mut *mut Batches,
) -> gpugtiff_result {
    guard(|| {
        let raster = Held::of(raster)?;
        out(out_batches, "out_batches")?;
        // SAFETY: the caller's promise.
        let chosen = unsafe { Chosen::new(selection, raster.bands, raster.kind) }?;
        let bytes = match batch_mb {
            0 => raster.shared.options.batch_bytes,
            mb => mb.saturating_mul(1 << 20),
        };
        let batches = Batches::new(raster.raster(), chosen, bytes)?;
        // SAFETY: the caller's place.
        unsafe { *out_batches = BATCHES.give_out(batches)? };
        Ok(())
    })
}

/// The largest of the windows: what a buffer for all of them must hold. Thread-safe.
///
/// # Safety
/// `out_window` must be a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpugtiff_batches_largest(
    batches: *const Batches,
    out_window: *mut Window,
) -> gpugtiff_result {
    guard(|| {
        let batches = BATCHES.get(batches)?;
        out(out_window, "out_window")?;
        // SAFETY: the caller's place.
        unsafe { *out_window = batches.after(None).unwrap_or_default() };
        Ok(())
    })
}

/// Goes to the next window; GPUGTIFF_DONE after the last, then and ever after. Thread-safe, but a
/// walk is one walk: threads that share it get different windows.
///
/// # Safety
/// `out_window` must be a place.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpugtiff_batches_next(
    batches: *mut Batches,
    out_window: *mut Window,
) -> gpugtiff_result {
    guard_result(|| {
        let batches = BATCHES.get(batches)?;
        out(out_window, "out_window")?;
        let mut current = batches.current();
        let Some(next) = batches.after(*current) else { return Ok(GPUGTIFF_DONE) };
        *current = Some(next);
        // SAFETY: the caller's place.
        unsafe { *out_window = next };
        Ok(GPUGTIFF_OK)
    })
}

/// Reads a window that gpugtiff_batches_next() came to, or any other of the level, as
/// gpugtiff_raster_read() does. Thread-safe as that is.
///
/// # Safety
/// Structs must be what they say, and the buffer's bytes the caller's to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpugtiff_batches_read(
    batches: *const Batches,
    window: *const Window,
    buffer: *const Buffer,
) -> gpugtiff_result {
    guard(|| {
        let batches = BATCHES.get(batches)?;
        let raster = Held::walk(&batches.raster)?;
        if window.is_null() {
            return fail(GPUGTIFF_NULL_ARGUMENT, "the window is NULL");
        }
        // SAFETY: the caller's promise; the place was checked.
        unsafe {
            let window = Window::inside(window, batches.level.size)?;
            let place = Place::new(buffer, &window, &batches.chosen, Use::Into)?;
            raster.read(&window, &batches.chosen, &place)
        }
    })
}

/// Frees a walk; NULL is fine. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn gpugtiff_batches_free(batches: *mut Batches) -> gpugtiff_result {
    guard(|| BATCHES.take_back(batches).map(drop))
}
