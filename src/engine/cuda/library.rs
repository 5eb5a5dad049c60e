//! Shared libraries that may not be there, opened by ourselves: a missing one, or a missing
//! symbol, is an answer and not a panic.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

/// A library that was found. Never closed: what runs on a device outlives any owner here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Library(*mut c_void);

// SAFETY: a handle that may be used from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// How often this process has loaded a library: as long as it stays, none came.
pub(super) fn loads() -> u64 {
    unsafe extern "C" fn note(
        info: *mut libc::dl_phdr_info,
        _: usize,
        loads: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's struct, and the number below.
        unsafe { *loads.cast() = (*info).dlpi_adds };
        1
    }
    let mut loads = 0_u64;
    // SAFETY: as declared; it stops at the first library.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut loads).cast()) };
    loads
}

impl Library {
    /// Opens by path, or by name along the loader's path. `name` must not be a relative path:
    /// the working directory is nobody's library directory.
    pub(super) fn open(name: &Path) -> Option<Library> {
        let plain = name.components().count() == 1 && !name.as_os_str().is_empty();
        if !plain && !name.is_absolute() {
            return None;
        }
        let name = CString::new(name.as_os_str().as_encoded_bytes()).ok()?;
        // SAFETY: a C string. Constructors of the library run: it is one the user installed.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        (!handle.is_null()).then_some(Library(handle))
    }

    /// A library that somebody has loaded, by its soname.
    pub(super) fn loaded(name: &CStr) -> Option<Library> {
        let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD;
        // SAFETY: a C string; nothing is loaded.
        let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
        (!handle.is_null()).then_some(Library(handle))
    }

    /// Whether the symbol is there; `name` ends in NUL.
    pub(super) fn has(self, name: &CString) -> bool {
        !self.find(name.as_ptr()).is_null()
    }

    fn find(self, name: *const c_char) -> *mut c_void {
        // SAFETY: an open library and a C string.
        unsafe { libc::dlsym(self.0, name) }
    }

    /// A function of the library.
    ///
    /// # Safety
    /// `F` must be the function pointer type of that symbol.
    pub(super) unsafe fn function<F: Copy>(self, name: &str) -> Option<F> {
        assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
        let name = CString::new(name).ok()?;
        let address = self.find(name.as_ptr());
        // SAFETY: a pointer that is not NULL, of the caller's type.
        (!address.is_null()).then(|| unsafe { std::mem::transmute_copy(&address) })
    }
}

/// Where users have libraries of NVIDIA's, in order: along the loader's path, then as packages of conda
/// or, in these `directories` of site-packages, of pip. Never in the working directory.
pub(super) fn places(names: &[&str], directories: &[&str]) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
    let home = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    if let Some(conda) = home("CONDA_PREFIX") {
        places.extend(names.iter().map(|name| conda.join("lib").join(name)));
    }
    let mut roots: Vec<PathBuf> =
        ["CONDA_PREFIX", "VIRTUAL_ENV"].into_iter().filter_map(home).collect();
    roots.extend(home("HOME").map(|home| home.join(".local")));
    for site in roots.iter().flat_map(|root| site_packages(root)) {
        for directory in directories {
            places.extend(names.iter().map(|name| site.join(directory).join(name)));
        }
    }
    places
}

/// `lib/python3.*/site-packages` below a prefix, the newest Python first.
fn site_packages(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(root.join("lib")) else { return Vec::new() };
    let mut pythons: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let minor = entry.file_name().to_str()?.strip_prefix("python3.")?.parse().ok()?;
            Some((minor, entry.path().join("site-packages")))
        })
        .collect();
    pythons.sort();
    pythons.into_iter().rev().map(|(_, path)| path).collect()
}
