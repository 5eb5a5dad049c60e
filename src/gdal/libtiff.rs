//! The libtiff that GDAL uses, for datasets whose handle of it GTiff lends (`TIFF_HANDLE`).
//!
//! Refuses a libtiff that libgdal does not name among the libraries it needs: one that came with
//! another library would not understand the handles of a GDAL that has a libtiff of its own inside.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use gdal_sys::{GDALGetDriverByName, GDALGetMetadataItem};

/// A `TIFF *`.
pub(super) type Tiff = *mut c_void;

/// What is used of it.
pub(super) struct Library {
    /// TIFFReadFromUserBuffer(handle, tile, bytes, their length, pixels, their length); 0 on failure.
    pub read: unsafe extern "C" fn(Tiff, u32, *mut c_void, isize, *mut c_void, isize) -> c_int,
    /// TIFFTileSize(handle): bytes of pixels of a tile.
    pub tile_size: unsafe extern "C" fn(Tiff) -> isize,
    /// TIFFStripSize(handle): the same of a strip.
    pub strip_size: unsafe extern "C" fn(Tiff) -> isize,
}

/// The library, if GDAL's own is there to be called.
pub(super) fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    LIBRARY.get_or_init(load).as_ref()
}

fn load() -> Option<Library> {
    let gdal = Object::of(gdal_sys::GDALVersionInfo as *const c_void)?;
    let tiff =
        gdal.needed(|name| name.starts_with(b"libtiff") && !name.starts_with(b"libtiffxx"))?;
    // Version 4.5, since when this is there, has mended what TIFFReadFromUserBuffer() did to JPEG.
    tiff.symbol(c"TIFFOpenOptionsAlloc")?;
    if !is_gdals(&tiff) {
        return None;
    }
    let read = tiff.symbol(c"TIFFReadFromUserBuffer")?;
    let [tile_size, strip_size] = [tiff.symbol(c"TIFFTileSize")?, tiff.symbol(c"TIFFStripSize")?];
    // SAFETY: the functions have these types in tiffio.h, whose tmsize_t is signed and as wide as a
    // pointer.
    unsafe {
        Some(Library {
            read: std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(Tiff, u32, *mut c_void, isize, *mut c_void, isize) -> c_int,
            >(read),
            tile_size: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Tiff) -> isize>(
                tile_size,
            ),
            strip_size: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(Tiff) -> isize>(
                strip_size,
            ),
        })
    }
}

/// Whether GTiff says that it uses this version. One with a libtiff inside says INTERNAL; libgdal may
/// name a libtiff all the same.
fn is_gdals(tiff: &Object) -> bool {
    let Some(version) = tiff.symbol(c"TIFFGetVersion") else { return false };
    // SAFETY: the function has this type in tiffio.h, and returns a C string that lives for ever; GDAL's
    // string lives as long as its driver, which is not unregistered while a file of it is open.
    unsafe {
        let version =
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_char>(version);
        let driver = GDALGetDriverByName(c"GTiff".as_ptr());
        if driver.is_null() {
            return false;
        }
        let said = GDALGetMetadataItem(driver, c"LIBTIFF".as_ptr(), std::ptr::null());
        let version = CStr::from_ptr(version()).to_bytes();
        !said.is_null() && version.starts_with(CStr::from_ptr(said).to_bytes())
    }
}

/// A library of the process, which stays loaded.
struct Object(*mut c_void);

/// The beginning of ld.so's `struct link_map`.
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
    dynamic: *const Entry,
}

/// An entry of a dynamic section.
#[repr(C)]
struct Entry {
    tag: isize,
    value: usize,
}

const DT_NULL: isize = 0;
const DT_NEEDED: isize = 1;
const DT_STRTAB: isize = 5;

impl Object {
    /// The one that an address belongs to.
    fn of(address: *const c_void) -> Option<Object> {
        // SAFETY: zeroes are a valid Dl_info, which dladdr() fills; the name is ld.so's own.
        unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            let found = libc::dladdr(address, &mut info) != 0 && !info.dli_fname.is_null();
            found.then(|| Object::loaded(CStr::from_ptr(info.dli_fname)))?
        }
    }

    /// The one that ld.so knows by this name.
    fn loaded(name: &CStr) -> Option<Object> {
        // SAFETY: a C string; nothing is loaded. The handle is never given back.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        (!handle.is_null()).then_some(Object(handle))
    }

    fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: an open handle and a C string.
        let found = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }

    /// The first library that this one was linked with whose name is the wanted one.
    fn needed(&self, is_wanted: impl Fn(&[u8]) -> bool) -> Option<Object> {
        let mut map: *const LinkMap = std::ptr::null();
        // SAFETY: an open handle; ld.so stores a pointer to a record that lives as long as the library.
        let failed =
            unsafe { libc::dlinfo(self.0, libc::RTLD_DI_LINKMAP, (&raw mut map).cast::<c_void>()) };
        // SAFETY: as above; the dynamic section of a loaded library is in memory, and ends with DT_NULL.
        unsafe {
            let map = map.as_ref().filter(|map| failed == 0 && !map.dynamic.is_null())?;
            let entries =
                || (0..).map(|i| &*map.dynamic.add(i)).take_while(|entry| entry.tag != DT_NULL);
            let strings = entries().find(|entry| entry.tag == DT_STRTAB)?.value;
            // Most systems' ld.so makes an address of it.
            let strings = if strings < map.base { strings + map.base } else { strings };
            entries()
                .filter(|entry| entry.tag == DT_NEEDED)
                .map(|entry| CStr::from_ptr((strings + entry.value) as *const c_char))
                .find(|name| is_wanted(name.to_bytes()))
                .and_then(Object::loaded)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_the_one_that_gdal_names() {
        // SAFETY: no arguments.
        unsafe { gdal_sys::GDALAllRegister() };
        let gdal = Object::of(gdal_sys::GDALVersionInfo as *const c_void).unwrap();
        assert!(gdal.needed(|name| name.starts_with(b"libc.so")).is_some());
        assert!(gdal.needed(|name| name == b"libnobody.so.1").is_none());
        let tiff = gdal.needed(|name| name.starts_with(b"libtiff"));
        let is_new = tiff.is_some_and(|tiff| tiff.symbol(c"TIFFOpenOptionsAlloc").is_some());
        assert_eq!(load().is_some(), is_new);
    }
}
