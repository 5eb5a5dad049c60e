//! Loaded libraries, as ld.so lists them, and who called us.
//!
//! dlopen(RTLD_NOLOAD) and dlsym() would tell the same, but the first dlopen() of a library makes
//! ld.so walk everything that it links: 0.7 ms for libgdal, as much as loading the driver costs.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::symbols::Dynamic;

/// A loaded library, or the program. Two are equal if they are one in memory.
pub(crate) struct Object {
    path: PathBuf,
    addresses: Range<usize>,
    dynamic: Dynamic,
}

impl PartialEq for Object {
    fn eq(&self, other: &Self) -> bool {
        self.addresses == other.addresses
    }
}

impl Object {
    /// The object that an address belongs to.
    pub(crate) fn at(address: *const c_void) -> Option<Self> {
        first(&mut |object| object.contains(address))
    }

    /// The object that ld.so takes for a DT_NEEDED entry: the first one loaded that has this name
    /// by DT_SONAME. None if ld.so would look for a file.
    pub(crate) fn named(name: &CStr) -> Option<Self> {
        first(&mut |object| object.dynamic.soname() == Some(name))
    }

    pub(crate) fn contains(&self, address: *const c_void) -> bool {
        self.addresses.contains(&(address as usize))
    }

    /// As ld.so knows it; empty for the program.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A function that the object defines or, else, that something that it links defines.
    pub(crate) fn function(&self, name: &CStr) -> Option<*const c_void> {
        self.dynamic.function(name).or_else(|| {
            let path = CString::new(self.path.as_os_str().as_bytes()).ok()?;
            let path = if path.is_empty() { std::ptr::null() } else { path.as_ptr() };
            // SAFETY: NULL stands for the program. The handle is never closed: the caller's
            // libraries stay loaded while functions of theirs may be called.
            let found = unsafe {
                let handle = libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD);
                if handle.is_null() { handle } else { libc::dlsym(handle, name.as_ptr()) }
            };
            (!found.is_null()).then_some(found.cast_const())
        })
    }
}

/// The first object, in the order in which they were loaded, that is the one.
fn first(is_it: &mut dyn FnMut(&Object) -> bool) -> Option<Object> {
    struct Search<'a> {
        is_it: &'a mut dyn FnMut(&Object) -> bool,
        found: Option<Object>,
    }
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: ld.so passes facts that hold during this call, and our own argument.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search<'_>>()) };
        // SAFETY: as above.
        let object = unsafe { object(info) };
        search.found = object.filter(|object| (search.is_it)(object));
        c_int::from(search.found.is_some())
    }
    let mut search = Search { is_it, found: None };
    // SAFETY: `search` outlives the call; ld.so holds its lock meanwhile, so that no library is
    // unloaded.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

/// None for what has no dynamic section.
///
/// # Safety
/// `info` must be of an object that is loaded.
unsafe fn object(info: &libc::dl_phdr_info) -> Option<Object> {
    // SAFETY: the program headers of a loaded object.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let base = info.dlpi_addr as usize;
    let place = |header: &libc::Elf64_Phdr| base.wrapping_add(header.p_vaddr as usize);
    let segments = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let start = segments().map(place).min()?;
    let end = segments().map(|header| place(header).wrapping_add(header.p_memsz as usize)).max()?;
    let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
    // SAFETY: PT_DYNAMIC of a loaded object is mapped and ends with DT_NULL.
    let dynamic = unsafe { Dynamic::new(base, place(dynamic)) };
    let path = match info.dlpi_name.is_null() {
        true => b"",
        // SAFETY: ld.so's name of an object is a C string.
        false => unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes(),
    };
    let path = PathBuf::from(OsStr::from_bytes(path));
    Some(Object { path, addresses: start..end, dynamic })
}

/// A library that we loaded.
pub(crate) struct Loaded(*mut c_void);

impl Loaded {
    /// Loads a file, as GDAL loads plugins.
    pub(crate) fn new(path: &Path) -> Result<Self, String> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: `name` is a C string. The constructors that run are those of our own driver,
        // whose libgdal is loaded already.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        if !handle.is_null() {
            return Ok(Self(handle));
        }
        // SAFETY: the text is valid until this thread's next dl call.
        let text: *const c_char = unsafe { libc::dlerror() };
        if text.is_null() {
            return Err("dlopen failed".into());
        }
        // SAFETY: not NULL.
        Err(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }

    /// A symbol of the library or of those that it links; NULL if there is none.
    pub(crate) fn symbol(&self, name: &CStr) -> *const c_void {
        // SAFETY: the handle is open and `name` is a C string.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }

    /// Leaves the library loaded until the process ends.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: the handle came from dlopen() and is closed once.
        unsafe { libc::dlclose(self.0) };
    }
}

unsafe extern "C" {
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

const GO_ON: c_int = 0; // _URC_NO_REASON
const STOP: c_int = 4; // _URC_NORMAL_STOP

/// This library.
pub(crate) fn own() -> Option<Object> {
    Object::at(own as *const c_void)
}

/// The object whose code called this library's exported function: the one of its return address.
/// The unwinder finds that on every architecture, and however the compiler inlines functions here.
pub(crate) fn caller(own: &Object) -> Option<Object> {
    struct Search<'a> {
        own: &'a Object,
        found: *const c_void,
    }
    extern "C" fn visit(context: *mut c_void, search: *mut c_void) -> c_int {
        // SAFETY: the unwinder passes a context that is valid during this call, and our argument.
        let (address, search) =
            unsafe { (_Unwind_GetIP(context), &mut *search.cast::<Search<'_>>()) };
        // A return address may be the first byte of the next function: the byte before it belongs
        // to the call.
        search.found = address.wrapping_sub(1) as *const c_void;
        if search.own.contains(search.found) { GO_ON } else { STOP }
    }
    let mut search = Search { own, found: std::ptr::null() };
    // SAFETY: `search` outlives the call.
    unsafe { _Unwind_Backtrace(visit, (&raw mut search).cast()) };
    Object::at(search.found).filter(|caller| caller != own)
}
