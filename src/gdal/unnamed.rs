//! A plain file that gets its name when it is finished: a process that ends before leaves nothing.
//!
//! It has no name at all (`O_TMPFILE`), or, where the file system has no such files or /proc is not
//! there to give it a name by, a temporary one in the target's directory. What has the target's name
//! until then stays as it is until a finished file takes its place.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::handle::Plain;
use crate::io::unnamed::{open_temporary, open_unnamed, with_temporary_name};

/// As `fopen` has it; the umask applies.
const MODE: u32 = 0o666;
const STICKY: u32 = 0o1000;

/// The file, until it has its name.
pub(super) struct Unnamed {
    target: PathBuf,
    directory: PathBuf,
    /// Its name for the time being, if it must have one.
    temporary: Option<PathBuf>,
    /// Closed to learn of errors before the file gets its name.
    file: Mutex<Option<File>>,
    published: AtomicBool,
}

impl Unnamed {
    /// A new file, and a descriptor of it; `None` where it has to be made under its own name: not on
    /// a disk, in a directory that takes no new files, in the place of something that cannot be
    /// replaced.
    pub(super) fn create(path: &str) -> Option<(Unnamed, Plain)> {
        if path.starts_with("/vsi") || path.ends_with('/') {
            return None;
        }
        let target = PathBuf::from(path);
        target.file_name()?;
        let directory = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        if !can_be_replaced(&target, &directory) {
            return None;
        }
        let unnamed = open_unnamed(&directory, MODE).ok().filter(has_link_in_proc);
        let (file, temporary) = match unnamed {
            Some(file) => (file, None),
            None => {
                let (file, temporary) = open_temporary(&directory, MODE).ok()?;
                (file, Some(temporary))
            }
        };
        let descriptor = file.try_clone();
        let published = AtomicBool::new(false);
        let file = Mutex::new(Some(file));
        let unnamed = Unnamed { target, directory, temporary, file, published };
        Some((unnamed, Plain::of(descriptor.ok()?)))
    }

    pub(super) fn is_published(&self) -> bool {
        self.published.load(Ordering::Acquire)
    }

    /// What could not be written until now is an error here (file systems over a network).
    pub(super) fn close(&self) -> io::Result<()> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(descriptor) = file.map(File::into_raw_fd) else { return Ok(()) };
        // SAFETY: the descriptor was the file's alone.
        match unsafe { libc::close(descriptor) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Gives the file its name.
    pub(super) fn publish(&self, plain: &Plain) -> io::Result<()> {
        match &self.temporary {
            Some(temporary) => fs::rename(temporary, &self.target)?,
            None => self.link(plain)?,
        }
        self.published.store(true, Ordering::Release);
        Ok(())
    }

    fn link(&self, plain: &Plain) -> io::Result<()> {
        match link(plain, &self.target) {
            // A link replaces nothing, a renamed file does, and at no time is there neither.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let make = |path: &Path| link(plain, path);
                let ((), temporary) = with_temporary_name(&self.directory, make)?;
                fs::rename(&temporary, &self.target).inspect_err(|_| {
                    let _ = fs::remove_file(&temporary);
                })
            }
            other => other,
        }
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.as_ref().filter(|_| !self.is_published()) {
            // Nothing more can be done about it.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// The file's name in /proc.
fn in_proc(descriptor: i32) -> String {
    format!("/proc/self/fd/{descriptor}")
}

/// Whether /proc is there to link the file by. The other way (`AT_EMPTY_PATH`) needs a capability.
fn has_link_in_proc(file: &File) -> bool {
    let named = fs::metadata(in_proc(file.as_raw_fd()));
    let same = |named: fs::Metadata| {
        file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (named.dev(), named.ino()))
    };
    named.is_ok_and(same)
}

fn link(plain: &Plain, to: &Path) -> io::Result<()> {
    let from = c_path(OsStr::new(&in_proc(plain.descriptor())))?;
    let to = c_path(to.as_os_str())?;
    let here = libc::AT_FDCWD;
    // SAFETY: C strings.
    let linked =
        unsafe { libc::linkat(here, from.as_ptr(), here, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) };
    if linked == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn c_path(path: &OsStr) -> io::Result<CString> {
    CString::new(path.as_bytes()).map_err(io::Error::from)
}

/// Whether a finished file may take the place of what is there now. Asked before the work rather than
/// after it: what cannot be replaced is written into, as GTiff does, or refused at once.
fn can_be_replaced(target: &Path, directory: &Path) -> bool {
    let found = match fs::symlink_metadata(target) {
        Ok(found) => found,
        // The name may be too long, or the directory closed.
        Err(error) => return error.kind() == io::ErrorKind::NotFound,
    };
    let kind = found.file_type();
    let Ok(around) = fs::metadata(directory) else { return false };
    // SAFETY: always succeeds.
    let user = unsafe { libc::geteuid() };
    let sticky = around.permissions().mode() & STICKY != 0;
    let is_mine = user == 0 || user == found.uid() || user == around.uid();
    (kind.is_file() || kind.is_symlink()) && (!sticky || is_mine) && !is_fixed(target)
}

/// Whether it is a mount point (a file that a container was given), or may not be changed at all.
fn is_fixed(target: &Path) -> bool {
    let Ok(path) = c_path(target.as_os_str()) else { return true };
    let fixed = libc::STATX_ATTR_MOUNT_ROOT | libc::STATX_ATTR_IMMUTABLE | libc::STATX_ATTR_APPEND;
    // SAFETY: a C string; `statx` is plain data that the call fills.
    let found = unsafe {
        let mut found: libc::statx = std::mem::zeroed();
        let (flags, mask) = (libc::AT_SYMLINK_NOFOLLOW, libc::STATX_BASIC_STATS);
        let asked = libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, mask, &mut found);
        (asked == 0).then_some(found)
    };
    found.is_some_and(|found| found.stx_attributes & fixed as u64 != 0)
}
