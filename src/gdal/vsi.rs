//! Files as GDAL reaches them.
//!
//! A plain file is read with `pread` on its descriptor, from any thread. Anything
//! else goes through one VSI handle under a lock, many ranges in one call; workers
//! that read on a caller's behalf get that caller's thread-local configuration,
//! since credentials live there. A forked child opens handles of its own: a
//! handle's position is shared with the parent. Of a remote file, ranges that lie
//! close to each other are one request.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gdal_sys::{
    CPLGetThreadLocalConfigOption, CPLGetThreadLocalConfigOptions, CPLSetThreadLocalConfigOption,
    CPLSetThreadLocalConfigOptions, CSLDestroy, VSIFOpenL, VSIFReadL, VSIFReadMultiRangeL,
    VSIFSeekL, VSIFTellL, VSIHasOptimizedReadMultiRange, VSILFILE,
};

use super::fetched::{Fetched, MOST};
use super::handle::{Handle, Lent, Plain, failed, plain};
use super::log::c_string;
use crate::error::{Cause, Error, Result};
use crate::io::ByteSource;
use crate::process::memory;

/// What lists of ranges are for, in messages.
const RANGES: &str = "ranges to be read";
use crate::process::PerProcess;

/// Bytes between two ranges of a remote file that cost less than one more request: in a COG
/// what lies between two tiles is a few bytes, or a tile of the mask, for which there is also a
/// share of the range. Much more than is asked for is never read.
const GAP: u64 = 64;
const GAP_SHARE: u64 = 4;

/// A file opened by its GDAL path.
pub struct VsiFile {
    path: CString,
    fetched: Fetched,
    plain: Option<PlainFile>,
    handle: PerProcess<Mutex<Option<Handle>>>,
}

/// How a plain file is open.
enum PlainFile {
    /// By a descriptor of our own.
    Own(Arc<Plain>),
    /// By GDAL.
    Lent(Lent),
}

impl PlainFile {
    /// A descriptor for the time of a read.
    fn lease(&self) -> Result<Arc<Plain>> {
        match self {
            PlainFile::Own(plain) => Ok(Arc::clone(plain)),
            PlainFile::Lent(lent) => lent.lease().map_err(|why| failed(0, 0, why.to_string())),
        }
    }
}

impl VsiFile {
    /// Opens the file now if that is cheap (a plain file), else when first read. One
    /// that GDAL has open as a plain file (`open`) is not opened again.
    ///
    /// # Safety
    /// `open` must be NULL or an open handle of this file.
    pub unsafe fn open(path: &str, open: *mut VSILFILE) -> Result<VsiFile> {
        let path = c_string(path);
        let mut file =
            VsiFile { path, fetched: Fetched::default(), plain: None, handle: PerProcess::new() };
        let elsewhere = file.path.to_bytes().starts_with(b"/vsi");
        if !elsewhere && !open.is_null() {
            // SAFETY: the caller's promise.
            file.plain = unsafe { Lent::new(open) }.map(PlainFile::Lent);
        }
        if file.plain.is_none() && (!elsewhere || file.path.to_bytes().starts_with(b"/vsimem/")) {
            let handle = file.open_handle()?;
            // SAFETY: just opened.
            file.plain = unsafe { plain(handle.0) }.map(|plain| PlainFile::Own(Arc::new(plain)));
            if file.plain.is_none() {
                *guard(file.handle.get_or_init(Mutex::default)) = Some(handle);
            }
        }
        Ok(file)
    }

    fn open_handle(&self) -> Result<Handle> {
        // Asked for its size, /vsigzip/ would leave a .properties file beside the user's.
        let zipped = self.path.to_string_lossy().contains("/vsigzip/");
        let tidy = zipped.then(|| Override::set(c"CPL_VSIL_GZIP_WRITE_PROPERTIES", c"NO"));
        // SAFETY: both are C strings.
        let handle = unsafe { VSIFOpenL(self.path.as_ptr(), c"rb".as_ptr()) };
        drop(tidy);
        if handle.is_null() {
            let source = Cause(format!("cannot open {}", self.path.to_string_lossy()));
            return Err(Error::Io { offset: 0, len: 0, source });
        }
        Ok(Handle(handle))
    }

    /// Runs `work` with this process's handle.
    fn with_handle<T>(&self, work: impl FnOnce(*mut VSILFILE) -> Result<T>) -> Result<T> {
        let mut slot = guard(self.handle.get_or_init(Mutex::default));
        let handle = match slot.as_mut() {
            Some(handle) => handle,
            None => slot.insert(self.open_handle()?),
        };
        work(handle.0)
    }
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What ascending ranges (start, end) cover, those close to each other as one.
fn runs(ranges: impl Iterator<Item = (u64, u64)>) -> Result<Vec<(u64, u64)>> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match runs.last_mut() {
            Some(run) if start.saturating_sub(run.1) <= GAP + (end - start) / GAP_SHARE => {
                run.1 = run.1.max(end);
            }
            _ => memory::push(&mut runs, (start, end), RANGES)?,
        }
    }
    Ok(runs)
}

impl VsiFile {
    fn len(&self) -> u64 {
        if let Some(plain) = &self.plain {
            return plain.lease().map_or(0, |plain| plain.len());
        }
        let size = self.with_handle(|handle| {
            // SAFETY: the handle is open and ours alone while the lock is held.
            unsafe {
                if VSIFSeekL(handle, 0, libc::SEEK_END) == 0 {
                    Ok(VSIFTellL(handle))
                } else {
                    Ok(0)
                }
            }
        });
        size.unwrap_or(0)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if let Some(plain) = &self.plain {
            return plain.lease()?.read_at(offset, buf);
        }
        self.with_handle(|handle| {
            // SAFETY: the handle is open and ours alone while the lock is held; the
            // buffer is valid for its length.
            let got = unsafe {
                if VSIFSeekL(handle, offset, libc::SEEK_SET) != 0 {
                    return Err(failed(offset, buf.len(), "cannot seek there"));
                }
                VSIFReadL(buf.as_mut_ptr().cast(), 1, buf.len(), handle)
            };
            if got == buf.len() {
                return Ok(());
            }
            Err(failed(offset, buf.len(), format!("got {got} bytes")))
        })
    }

    fn is_remote(&self) -> bool {
        // SAFETY: the path is a C string.
        unsafe { VSIHasOptimizedReadMultiRange(self.path.as_ptr()) != 0 }
    }

    /// Reads runs whole. A single one by a plain read: GDAL's network file systems cache and
    /// read ahead for these, not for many ranges at once.
    fn read_runs(&self, runs: &[(u64, u64)]) -> Result<Vec<Vec<u8>>> {
        let mut read = memory::room(runs.len(), RANGES)?;
        for (start, end) in runs {
            let bytes = end - start;
            let len = usize::try_from(bytes).unwrap_or(usize::MAX);
            read.push(memory::bytes(len, "a run of tiles")?);
        }
        let ranges = runs.iter().zip(&mut read).map(|((start, _), run)| (*start, &mut run[..]));
        let mut ranges = memory::collect(ranges, RANGES)?;
        self.read_many(&mut ranges)?;
        Ok(read)
    }

    fn read_ranges(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        if let Some(plain) = &self.plain {
            let plain = plain.lease()?;
            return ranges.iter_mut().try_for_each(|(offset, buf)| plain.read_at(*offset, buf));
        }
        // In file order: a compressed stream (/vsigzip/) can only go forward.
        ranges.sort_unstable_by_key(|(offset, _)| *offset);
        if self.is_remote() {
            return self.read_remote(ranges);
        }
        self.read_many(ranges)
    }

    /// Ascending ranges: what was fetched, and the rest in as few requests as it takes.
    fn read_remote(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        let mut rest: Vec<(u64, &mut [u8])> = memory::room(ranges.len(), RANGES)?;
        for (offset, buf) in ranges {
            if !self.fetched.take(*offset, buf) {
                rest.push((*offset, buf));
            }
        }
        let end = |offset: u64, buf: &[u8]| offset.saturating_add(buf.len() as u64);
        let runs = runs(rest.iter().map(|(offset, buf)| (*offset, end(*offset, buf))))?;
        if runs.len() == rest.len() {
            return self.read_many(&mut rest);
        }
        let read = self.read_runs(&runs)?;
        let mut runs = runs.iter().zip(&read).peekable();
        for (offset, buf) in rest {
            while runs.peek().is_some_and(|((_, end), _)| offset >= *end) {
                runs.next();
            }
            let Some(((start, _), run)) = runs.peek() else { break };
            let at = (offset - start) as usize;
            buf.copy_from_slice(&run[at..at + buf.len()]);
        }
        Ok(())
    }

    fn fetch(&self, ranges: &[(u64, u64)]) {
        let len = self.len();
        let ranges = ranges
            .iter()
            .map(|&(offset, bytes)| (offset, offset.saturating_add(bytes).min(len)))
            .filter(|&(start, end)| start < end);
        let Ok(mut ranges) = memory::collect(ranges, RANGES) else { return };
        ranges.sort_unstable();
        let Ok(runs) = runs(ranges.into_iter()) else { return };
        if runs.iter().map(|(start, end)| end - start).sum::<u64>() > MOST {
            return;
        }
        if let Ok(read) = self.read_runs(&runs) {
            runs.iter().zip(read).for_each(|((start, _), run)| self.fetched.put(*start, run));
        }
    }

    fn read_many(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        if ranges.len() < 2 {
            return ranges.iter_mut().try_for_each(|(offset, buf)| self.read_at(*offset, buf));
        }
        let data = ranges.iter_mut().map(|(_, buf)| buf.as_mut_ptr().cast());
        let mut data: Vec<*mut c_void> = memory::collect(data, RANGES)?;
        let offsets = memory::collect(ranges.iter().map(|(offset, _)| *offset), RANGES)?;
        let sizes = memory::collect(ranges.iter().map(|(_, buf)| buf.len()), RANGES)?;
        let count = c_int::try_from(ranges.len())
            .map_err(|_| failed(offsets[0], 0, "too many ranges at once"))?;
        self.with_handle(|handle| {
            // SAFETY: three arrays of `count` entries; each buffer is valid for its
            // size and no two overlap; the handle is ours alone.
            let result = unsafe {
                VSIFReadMultiRangeL(
                    count,
                    data.as_mut_ptr(),
                    offsets.as_ptr(),
                    sizes.as_ptr(),
                    handle,
                )
            };
            if result == 0 {
                return Ok(());
            }
            let bytes = sizes.iter().sum();
            Err(failed(offsets[0], bytes, format!("reading {count} ranges failed")))
        })
    }
}

/// A configuration option of this thread, as it was before when dropped.
pub(super) struct Override {
    name: &'static CStr,
    before: Option<CString>,
}

impl Override {
    pub(super) fn set(name: &'static CStr, value: &CStr) -> Override {
        // SAFETY: C strings; GDAL's answer is copied before anything can change it.
        unsafe {
            let before = CPLGetThreadLocalConfigOption(name.as_ptr(), std::ptr::null());
            let before = (!before.is_null()).then(|| CStr::from_ptr(before).to_owned());
            CPLSetThreadLocalConfigOption(name.as_ptr(), value.as_ptr());
            Override { name, before }
        }
    }
}

impl Drop for Override {
    fn drop(&mut self) {
        let before = self.before.as_ref().map_or(std::ptr::null(), |value| value.as_ptr());
        // SAFETY: C strings, or NULL for none.
        unsafe { CPLSetThreadLocalConfigOption(self.name.as_ptr(), before) };
    }
}

/// A copy of a thread's configuration options, freed when dropped.
pub(super) struct ConfigOptions(*mut *mut c_char);

// SAFETY: a list of strings that nobody changes.
unsafe impl Send for ConfigOptions {}
// SAFETY: as above.
unsafe impl Sync for ConfigOptions {}

impl Drop for ConfigOptions {
    fn drop(&mut self) {
        // SAFETY: a list that GDAL allocated for us.
        unsafe { CSLDestroy(self.0) };
    }
}

impl ConfigOptions {
    /// This thread's.
    pub(super) fn capture() -> ConfigOptions {
        // SAFETY: no arguments; the list is ours.
        ConfigOptions(unsafe { CPLGetThreadLocalConfigOptions() })
    }

    /// Makes them this thread's.
    pub(super) fn apply(&self) {
        // SAFETY: GDAL copies the list.
        unsafe { CPLSetThreadLocalConfigOptions(self.0.cast_const().cast()) };
    }
}

/// A file as a source of bytes, on behalf of its opener's thread or of another's.
pub struct VsiSource {
    file: Arc<VsiFile>,
    on_behalf: Option<ConfigOptions>,
}

impl VsiSource {
    /// A source of the file's bytes.
    pub fn new(file: VsiFile) -> VsiSource {
        VsiSource { file: Arc::new(file), on_behalf: None }
    }

    /// Runs `work` under the configuration it is done for; restores the thread's own.
    fn with_config<T>(&self, work: impl FnOnce(&VsiFile) -> T) -> T {
        let Some(config) = &self.on_behalf else { return work(&self.file) };
        let own = ConfigOptions::capture();
        config.apply();
        let result = work(&self.file);
        own.apply();
        result
    }
}

impl ByteSource for VsiSource {
    fn len(&self) -> u64 {
        self.with_config(VsiFile::len)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.with_config(|file| file.read_at(offset, buf))
    }

    fn read_ranges(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        self.with_config(|file| file.read_ranges(ranges))
    }

    fn concurrent(&self) -> bool {
        self.file.plain.is_some()
    }

    fn remote(&self) -> bool {
        self.file.is_remote()
    }

    fn fetch(&self, ranges: &[(u64, u64)]) {
        self.with_config(|file| file.fetch(ranges));
    }

    fn fetched(&self, offset: u64, buf: &mut [u8]) -> bool {
        self.file.fetched.copy(offset, buf)
    }

    fn advise(&self, ranges: &[(u64, u64)]) {
        if let Some(Ok(plain)) = self.file.plain.as_ref().map(PlainFile::lease) {
            plain.advise(ranges);
        }
    }

    fn rely_on_opener(&self) {
        if let Some(PlainFile::Lent(lent)) = &self.file.plain {
            lent.rely_on_gdal();
        }
    }

    fn descriptor(&self) -> Option<OwnedFd> {
        self.file.plain.as_ref()?.lease().ok()?.duplicate().ok()
    }

    fn for_worker(&self) -> Option<Arc<dyn ByteSource>> {
        if self.concurrent() {
            return None;
        }
        let on_behalf = Some(ConfigOptions::capture());
        Some(Arc::new(VsiSource { file: Arc::clone(&self.file), on_behalf }))
    }
}
