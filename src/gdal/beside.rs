//! Files that GDAL makes beside a copy (its mask), or the copy itself where GTiff writes it, without a
//! name until the copy is finished.
//!
//! GDAL knows files by names only. These are below a prefix of their own, and each is an
//! `Unnamed` file in the directory that it belongs in: a VSI file system of as many folders as there
//! are copies under way.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use gdal_sys::{
    VSIAllocFilesystemPluginCallbacksStruct, VSIFilesystemPluginCallbacksStruct,
    VSIFreeFilesystemPluginCallbacksStruct, VSIInstallPluginHandler, VSIStatBufL,
};

use super::handle::Plain;
use super::unnamed::Unnamed;
use crate::error::{Cause, Error, Result};
use crate::io::ByteSource;
use crate::process::PerProcess;

const PREFIX: &CStr = c"/vsigpugtiff_copy/";

/// The copies of this process: one that was forked has none of its parent's.
static COPIES: PerProcess<Mutex<Copies>> = PerProcess::new();

#[derive(Default)]
struct Copies {
    /// Where the files of each belong.
    folders: BTreeMap<u64, PathBuf>,
    /// The files, by their names without the prefix.
    files: BTreeMap<String, Arc<Entry>>,
}

struct Entry {
    path: PathBuf,
    unnamed: Unnamed,
    plain: Plain,
}

/// A file of VSI's.
struct Open {
    entry: Arc<Entry>,
    at: u64,
    ended: bool,
}

fn copies() -> MutexGuard<'static, Copies> {
    COPIES.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Such a file, to be read: VSI reads a plugin's files one range at a time.
pub fn reread(path: &str) -> Option<impl ByteSource + use<>> {
    let name = path.strip_prefix(PREFIX.to_str().ok()?)?;
    copies().files.get(name).cloned().map(Written)
}

struct Written(Arc<Entry>);

impl ByteSource for Written {
    fn len(&self) -> u64 {
        self.0.plain.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.plain.read_at(offset, buf)
    }
}

/// Whether a file of this name can be made without its name.
pub fn can_begin(path: &str) -> bool {
    Unnamed::create(path).is_some()
}

/// The files beside one copy, removed when dropped.
pub struct Beside {
    folder: u64,
}

impl Beside {
    /// For the copy that will be `target`.
    pub fn new(target: &Path) -> Beside {
        static INSTALLED: Once = Once::new();
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        INSTALLED.call_once(install);
        let folder = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = target.parent().map(PathBuf::from).unwrap_or_default();
        copies().folders.insert(folder, directory);
        Beside { folder }
    }

    /// The name of a file beside the target, for GDAL.
    pub fn name(&self, file: &str) -> String {
        format!("{}{}/{file}", PREFIX.to_string_lossy(), self.folder)
    }

    /// Gives the files their names, in the place of those that have them; `last` is the last one.
    pub fn publish(&self, last: Option<&str>) -> Result<()> {
        let mut entries = self.entries();
        let is_last = |entry: &Arc<Entry>| entry.path.file_name() == last.map(OsStr::new);
        entries.sort_by_key(is_last);
        for entry in entries {
            let published =
                entry.unnamed.close().and_then(|()| entry.unnamed.publish(&entry.plain));
            published.map_err(|error| {
                Error::File(Cause(format!(
                    "cannot give {} its name: {error}",
                    entry.path.display()
                )))
            })?;
        }
        Ok(())
    }

    /// Removes those that have got their names.
    pub fn remove(&self) {
        for entry in self.entries().iter().filter(|entry| entry.unnamed.is_published()) {
            // Nothing more can be done about it.
            let _ = std::fs::remove_file(&entry.path);
        }
    }

    fn entries(&self) -> Vec<Arc<Entry>> {
        let inside = format!("{}/", self.folder);
        let copies = copies();
        let ours = copies.files.iter().filter(|(name, _)| name.starts_with(&inside));
        ours.map(|(_, entry)| Arc::clone(entry)).collect()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let inside = format!("{}/", self.folder);
        let mut copies = copies();
        copies.files.retain(|name, _| !name.starts_with(&inside));
        copies.folders.remove(&self.folder);
    }
}

fn install() {
    // SAFETY: the struct is GDAL's, all zero, and copied by the handler.
    unsafe {
        let callbacks = VSIAllocFilesystemPluginCallbacksStruct();
        if callbacks.is_null() {
            return;
        }
        let table: &mut VSIFilesystemPluginCallbacksStruct = &mut *callbacks;
        table.open = Some(open);
        table.stat = Some(stat);
        table.unlink = Some(unlink);
        table.read = Some(read);
        table.write = Some(write);
        table.seek = Some(seek);
        table.tell = Some(tell);
        table.eof = Some(eof);
        table.flush = Some(flush);
        table.truncate = Some(truncate);
        table.close = Some(close);
        VSIInstallPluginHandler(PREFIX.as_ptr(), callbacks);
        VSIFreeFilesystemPluginCallbacksStruct(callbacks);
    }
}

/// # Safety
/// `name` must be a C string.
unsafe fn text(name: *const c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().trim_start_matches('/').to_string()
}

fn create(name: &str) -> Option<Arc<Entry>> {
    let (folder, file) = name.split_once('/')?;
    let path = copies().folders.get(&folder.parse().ok()?)?.join(file);
    let (unnamed, plain) = Unnamed::create(path.to_str()?)?;
    let entry = Arc::new(Entry { path, unnamed, plain });
    copies().files.insert(name.to_string(), Arc::clone(&entry));
    Some(entry)
}

unsafe extern "C" fn open(
    _: *mut c_void,
    name: *const c_char,
    access: *const c_char,
) -> *mut c_void {
    // SAFETY: GDAL's strings.
    let (name, access) = unsafe { (text(name), text(access)) };
    let found = match access.starts_with('w') {
        true => create(&name),
        false => copies().files.get(&name).cloned(),
    };
    let open = found.map(|entry| Box::new(Open { entry, at: 0, ended: false }));
    open.map_or(std::ptr::null_mut(), |open| Box::into_raw(open).cast())
}

unsafe extern "C" fn stat(
    _: *mut c_void,
    name: *const c_char,
    to: *mut VSIStatBufL,
    _: c_int,
) -> c_int {
    // SAFETY: GDAL's string, and its struct, which is a `stat64`.
    unsafe {
        let Some(entry) = copies().files.get(&text(name)).cloned() else { return -1 };
        libc::fstat64(entry.plain.descriptor(), to.cast())
    }
}

unsafe extern "C" fn unlink(_: *mut c_void, name: *const c_char) -> c_int {
    // SAFETY: GDAL's string.
    let removed = copies().files.remove(&unsafe { text(name) });
    if removed.is_some() { 0 } else { -1 }
}

/// # Safety
/// `file` must come from `open`, and be used by one thread at a time.
unsafe fn opened<'a>(file: *mut c_void) -> &'a mut Open {
    // SAFETY: the caller's promise.
    unsafe { &mut *file.cast::<Open>() }
}

unsafe extern "C" fn read(file: *mut c_void, to: *mut c_void, size: usize, count: usize) -> usize {
    if size == 0 || count == 0 {
        return 0;
    }
    // SAFETY: a file of `open`; GDAL vouches for the buffer.
    let (open, to) =
        unsafe { (opened(file), std::slice::from_raw_parts_mut(to.cast::<u8>(), size * count)) };
    let there = open.entry.plain.len().saturating_sub(open.at).min(to.len() as u64) as usize;
    let done = if open.entry.plain.read_at(open.at, &mut to[..there]).is_ok() { there } else { 0 };
    open.at += done as u64;
    open.ended = done < to.len();
    done / size
}

unsafe extern "C" fn write(
    file: *mut c_void,
    from: *const c_void,
    size: usize,
    count: usize,
) -> usize {
    if size == 0 || count == 0 {
        return 0;
    }
    // SAFETY: a file of `open`; GDAL vouches for the buffer.
    let (open, from) =
        unsafe { (opened(file), std::slice::from_raw_parts(from.cast::<u8>(), size * count)) };
    if open.entry.plain.write_at(open.at, &[from]).is_err() {
        return 0;
    }
    open.at += from.len() as u64;
    count
}

unsafe extern "C" fn seek(file: *mut c_void, offset: u64, whence: c_int) -> c_int {
    // SAFETY: a file of `open`.
    let open = unsafe { opened(file) };
    open.at = match whence {
        libc::SEEK_SET => offset,
        libc::SEEK_CUR => open.at.wrapping_add(offset),
        _ => open.entry.plain.len().wrapping_add(offset),
    };
    open.ended = false;
    0
}

unsafe extern "C" fn tell(file: *mut c_void) -> u64 {
    // SAFETY: a file of `open`.
    unsafe { opened(file) }.at
}

unsafe extern "C" fn eof(file: *mut c_void) -> c_int {
    // SAFETY: a file of `open`.
    c_int::from(unsafe { opened(file) }.ended)
}

unsafe extern "C" fn flush(_: *mut c_void) -> c_int {
    0
}

unsafe extern "C" fn truncate(file: *mut c_void, len: u64) -> c_int {
    // SAFETY: a file of `open`.
    let cut: io::Result<()> = unsafe { opened(file) }.entry.plain.truncate(len);
    if cut.is_ok() { 0 } else { -1 }
}

unsafe extern "C" fn close(file: *mut c_void) -> c_int {
    // SAFETY: made by `open`, closed once. Errors come when the file gets its name.
    drop(unsafe { Box::from_raw(file.cast::<Open>()) });
    0
}
