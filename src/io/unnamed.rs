//! Files without a name: the system removes them when the last descriptor is closed, however the
//! process ends.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Opens a new file without a name in `directory`, to read and write. An error where the file
/// system has no such files (`O_TMPFILE`), too. The process's umask applies to `mode`.
pub fn open_unnamed(directory: &Path, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(mode).custom_flags(libc::O_TMPFILE).open(directory)
}

/// Makes something under a temporary name in `directory` that nothing has yet. `make` is called with
/// another name as long as it answers `AlreadyExists`.
pub fn with_temporary_name<T>(
    directory: &Path,
    mut make: impl FnMut(&Path) -> io::Result<T>,
) -> io::Result<(T, PathBuf)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!(".gpugtiff-{}-{number}.tmp", std::process::id()));
        match make(&path) {
            Ok(made) => return Ok((made, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Opens a new file under a temporary name in `directory`, to read and write.
pub fn open_temporary(directory: &Path, mode: u32) -> io::Result<(File, PathBuf)> {
    with_temporary_name(directory, |path| {
        OpenOptions::new().read(true).write(true).create_new(true).mode(mode).open(path)
    })
}
