//! `gdal_GPUGTiff.so`: the file that GDAL loads, which loads the driver.
//!
//! A process may hold several copies of GDAL: the system's, and one inside the wheel of rasterio,
//! fiona or pyogrio. Each of them scans `GDAL_DRIVER_PATH`. The driver links one of them by its
//! DT_NEEDED, so loading it into another one would map a second libgdal. This library links none:
//! it asks the GDAL that called it for its version, and loads the driver only if the driver's
//! libgdal is the very library that called.
//!
//! Invariant: nothing here raises a GDAL error, and nothing is mapped before both checks passed.

mod dl;
mod elf;
mod gdal;
mod symbols;

use std::ffi::{CStr, CString, c_void};
use std::fs::File;
use std::path::{Path, PathBuf};

use dl::{Loaded, Object};
use gdal::Gdal;

type Register = unsafe extern "C" fn();

const REGISTER: &CStr = c"GDALRegister_GPUGTiff";

/// Called by GDAL when it loads the plugin. Registers the driver, or says by CPLDebug() why not.
#[unsafe(no_mangle)]
pub extern "C" fn GDALRegister_GPUGTiff() {
    // Nothing below is meant to panic; GDAL could not handle it.
    let _ = std::panic::catch_unwind(|| {
        let Some(own) = dl::own() else { return };
        // A caller that uses no GDAL has no driver list to register with, and no CPLDebug().
        let Some(gdal) = dl::caller(&own).and_then(|caller| Gdal::used_by(&caller)) else { return };
        match load_driver(&gdal, own.path()) {
            // SAFETY: `REGISTER` of our library takes no argument and returns nothing.
            Ok(register) => unsafe { register() },
            Err(reason) => gdal.debug(&format!("{reason}; the driver GPUGTiff is not registered")),
        }
    });
}

/// The driver's register function, if the driver belongs to this GDAL.
fn load_driver(gdal: &Gdal, own: &Path) -> Result<Register, String> {
    let path = find_driver(gdal, own)?;
    let driver = path.display();
    let needed = needed_gdal(&path)
        .map_err(|error| format!("{driver}: {error}"))?
        .ok_or_else(|| format!("{driver} links no libgdal"))?;
    if Object::named(&needed).as_ref() != Some(&gdal.object) {
        return Err(format!("{driver} links {}, which is not {gdal}", needed.to_string_lossy()));
    }
    let library = Loaded::new(&path)?;
    if !gdal.object.contains(library.symbol(gdal::VERSION_INFO)) {
        return Err(format!("{driver} found another libgdal than {gdal}"));
    }
    let register = library.symbol(REGISTER);
    if register.is_null() {
        return Err(format!("{driver} has no {}", REGISTER.to_string_lossy()));
    }
    library.keep();
    // SAFETY: the symbol is a function of that type, in a library that is never unloaded.
    Ok(unsafe { std::mem::transmute::<*const c_void, Register>(register) })
}

/// The driver for the GDAL's minor version, beside this library or beside what that is a link to.
fn find_driver(gdal: &Gdal, own: &Path) -> Result<PathBuf, String> {
    let (major, minor) = gdal.version;
    let name = format!("libgpugtiff-gdal{major}.{minor}.so");
    let places = [Some(own.to_path_buf()), own.canonicalize().ok()];
    let mut paths = places.iter().flatten().map(|place| place.with_file_name(&name));
    paths
        .find(|path| path.exists())
        .ok_or_else(|| format!("{gdal}: there is no {name} beside {}", own.display()))
}

/// The name by which a library links libgdal.
fn needed_gdal(library: &Path) -> std::io::Result<Option<CString>> {
    let needed = elf::needed(&File::open(library)?)?;
    Ok(needed.into_iter().find(|name| name.to_bytes().starts_with(b"libgdal")))
}
