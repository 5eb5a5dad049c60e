//! The GDAL that called us: reached by its symbols, never linked.

use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt;

use crate::dl::Object;

type VersionInfo = unsafe extern "C" fn(*const c_char) -> *const c_char;
type Debug = unsafe extern "C" fn(*const c_char, *const c_char, ...);

pub(crate) const VERSION_INFO: &CStr = c"GDALVersionInfo";

/// One GDAL of the process.
pub(crate) struct Gdal {
    pub(crate) object: Object,
    /// Major and minor.
    pub(crate) version: (u32, u32),
    debug: Option<Debug>,
}

impl Gdal {
    /// The GDAL that a caller is or links.
    pub(crate) fn used_by(caller: &Object) -> Option<Self> {
        let info = caller.function(VERSION_INFO)?;
        let object = Object::at(info)?;
        let debug = object.function(c"CPLDebug");
        // SAFETY: since GDAL 1 the two functions have these types, and nobody unloads the library
        // that has called us.
        let (info, debug) = unsafe {
            (
                std::mem::transmute::<*const c_void, VersionInfo>(info),
                debug.map(|debug| std::mem::transmute::<*const c_void, Debug>(debug)),
            )
        };
        // SAFETY: GDAL takes a C string and returns one, or NULL.
        let number = unsafe { info(c"VERSION_NUM".as_ptr()) };
        if number.is_null() {
            return None;
        }
        // SAFETY: not NULL; GDAL keeps the text until this thread's next call.
        let number: u32 = unsafe { CStr::from_ptr(number) }.to_str().ok()?.parse().ok()?;
        // Such as 3060200 for 3.6.2.
        let version = (number / 1_000_000, number / 10_000 % 100);
        Some(Self { object, version, debug })
    }

    /// Says something if CPL_DEBUG is on. Never an error: newer GDAL reports a plugin that raises
    /// one as broken.
    pub(crate) fn debug(&self, text: &str) {
        let (Some(debug), Ok(text)) = (self.debug, CString::new(text)) else { return };
        // SAFETY: the format takes one C string.
        unsafe { debug(c"GPUGTIFF".as_ptr(), c"%s".as_ptr(), text.as_ptr()) };
    }
}

impl fmt::Display for Gdal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.version;
        write!(f, "{} (GDAL {major}.{minor})", self.object.path().display())
    }
}
