//! Modules and their kernels.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use crate::api::device::shared_opt_in;
use crate::door::{self, Place, put};
use crate::driver::{Driver, Function, LoadedModule};
use crate::settings::Settings;
use crate::status::{Answer, Code};

/// The newest PTX a driver of that version takes: 12.2 takes 8.2, 13.0 takes 9.0.
fn newest_ptx(driver: u32) -> (u32, u32) {
    let (major, minor) = (driver / 1000, driver % 1000 / 10);
    (major.saturating_sub(4), minor)
}

/// The argument of a directive, `.version 8.0` say, in the head of a PTX text.
fn directive<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim)
}

fn version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = directive(text, ".version")?.split_once('.')?;
    let minor = minor.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.trim().parse().ok()?, minor.parse().ok()?))
}

/// The capability a `.target sm_…` asks for, and whether it must be exactly that one.
fn target(text: &str) -> Option<(u32, bool)> {
    let name = directive(text, ".target")?.strip_prefix("sm_")?;
    let digits = name.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((digits.parse().ok()?, name[digits.len()..].starts_with(['a', 'f'])))
}

/// What the driver's compiler says to a PTX text.
fn compile(settings: &Settings, text: &str) -> Answer<ptx::Module> {
    let newest = newest_ptx(settings.driver);
    let Some(version) = version(text) else {
        return Err(Code::INVALID_PTX.because("no .version"));
    };
    if version > newest {
        let text = format!("PTX {version:?}, the driver takes {newest:?}");
        return Err(Code::UNSUPPORTED_PTX_VERSION.because(text));
    }
    let Some((wanted, exact)) = target(text) else {
        return Err(Code::INVALID_PTX.because("no .target"));
    };
    let have = settings.capability.0 * 10 + settings.capability.1;
    if wanted > have || (exact && wanted != have) {
        let text = format!("PTX for {wanted}, the device is {have}");
        return Err(Code::NO_BINARY_FOR_GPU.because(text));
    }
    ptx::Module::parse(text).map_err(|error| {
        let text = format!("line {}: {}", error.line, error.message);
        Code::INVALID_PTX.because(text)
    })
}

/// # Safety
/// The image is a PTX text that ends in NUL, or begins with the magic number of a binary.
unsafe fn load(
    driver: &mut Driver,
    context: u64,
    place: Place<'_, u64>,
    image: *const c_void,
) -> Answer {
    if image.is_null() {
        return Err(Code::INVALID_VALUE.because("no image"));
    }
    // SAFETY: the caller's promise: at least a NUL is there.
    let image = unsafe { CStr::from_ptr(image.cast()) };
    if image.to_bytes().starts_with(b"\x7fELF") || image.to_bytes().starts_with(b"\x50\xed") {
        return Err(Code::NO_BINARY_FOR_GPU.because("a binary of a real device"));
    }
    let Ok(text) = image.to_str() else {
        return Err(Code::INVALID_IMAGE.because("neither PTX nor a binary"));
    };
    let module = Arc::new(compile(&driver.settings, text)?);
    let handle = driver.handle();
    driver.modules.insert(handle, LoadedModule { context, module });
    put(place, handle)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: Place<'_, u64>, image: *const c_void) -> u32 {
    door::context("cuModuleLoadData", |driver, context| {
        // SAFETY: the contract of the call.
        unsafe { load(driver, context, module, image) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    module: Place<'_, u64>,
    image: *const c_void,
    count: c_uint,
    options: *const c_uint,
    values: *const *mut c_void,
) -> u32 {
    door::context("cuModuleLoadDataEx", |driver, context| {
        if count > 0 && (options.is_null() || values.is_null()) {
            return Err(Code::INVALID_VALUE.because("options without values"));
        }
        // The log buffers stay as they are but for an empty first line.
        for index in 0..count as usize {
            // SAFETY: both arrays have `count` elements.
            let (option, value) = unsafe { (*options.add(index), *values.add(index)) };
            if matches!(option, 3 | 5) && !value.is_null() {
                // SAFETY: a log buffer has at least one byte.
                unsafe { value.cast::<u8>().write(0) };
            }
        }
        // SAFETY: the contract of the call.
        unsafe { load(driver, context, module, image) }
    })
}

fn module(driver: &Driver, context: u64, handle: u64) -> Answer<&LoadedModule> {
    match driver.modules.get(&handle) {
        Some(found) if found.context == context => Ok(found),
        Some(_) => Err(Code::INVALID_HANDLE.because("a module of another context")),
        None => Err(Code::INVALID_HANDLE.because("no such module")),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(handle: u64) -> u32 {
    door::context("cuModuleUnload", |driver, context| {
        module(driver, context, handle)?;
        driver.modules.remove(&handle);
        driver.functions.retain(|_, function| function.module != handle);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: Place<'_, u64>,
    handle: u64,
    name: *const c_char,
) -> u32 {
    door::context("cuModuleGetFunction", |driver, context| {
        let found = module(driver, context, handle)?;
        if name.is_null() {
            return Err(Code::INVALID_VALUE.because("no name"));
        }
        // SAFETY: a C string, says the contract.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        if found.module.entry(&name).is_none() {
            return Err(Code::NOT_FOUND.because(format!("no kernel {name}")));
        }
        let made = driver.handle();
        let known = Function { module: handle, context, entry: name, dynamic_shared_limit: 0 };
        driver.functions.insert(made, known);
        put(function, made)
    })
}

/// The kernel, which must be of the context, with its module.
pub(crate) fn function(
    driver: &Driver,
    context: u64,
    handle: u64,
) -> Answer<(&Function, Arc<ptx::Module>)> {
    let Some(found) = driver.functions.get(&handle) else {
        return Err(Code::INVALID_HANDLE.because("no such function"));
    };
    let module = module(driver, context, found.module)?;
    Ok((found, Arc::clone(&module.module)))
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetAttribute(handle: u64, attribute: c_int, value: c_int) -> u32 {
    door::context("cuFuncSetAttribute", |driver, context| {
        let (found, module) = function(driver, context, handle)?;
        let fixed = module.entry(&found.entry).map_or(0, |entry| entry.static_shared);
        let most = shared_opt_in(driver.settings.capability);
        match attribute {
            8 if value >= 0 && value as u32 + fixed <= most => {
                let found = driver.functions.get_mut(&handle).expect("looked up above");
                found.dynamic_shared_limit = value as u32;
                Ok(())
            }
            9 => Ok(()),
            _ => Err(Code::INVALID_VALUE.because(format!("attribute {attribute} = {value}"))),
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncGetAttribute(
    value: Place<'_, c_int>,
    attribute: c_int,
    handle: u64,
) -> u32 {
    door::context("cuFuncGetAttribute", |driver, context| {
        let (found, module) = function(driver, context, handle)?;
        let entry = module.entry(&found.entry).expect("looked up when it was got");
        let answer = match attribute {
            0 => entry.max_threads.unwrap_or(1024).min(1024),
            1 => entry.static_shared,
            2 | 3 | 7 => 0,
            4 => 32,
            5 | 6 => driver.settings.capability.0 * 10 + driver.settings.capability.1,
            8 => found.dynamic_shared_limit.max((48 << 10) - entry.static_shared.min(48 << 10)),
            _ => return Err(Code::INVALID_VALUE.because(format!("attribute {attribute}"))),
        };
        put(value, answer as c_int)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetCacheConfig(handle: u64, _config: c_int) -> u32 {
    door::context("cuFuncSetCacheConfig", |driver, context| {
        function(driver, context, handle).map(|_| ())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: Place<'_, c_int>,
    handle: u64,
    block_size: c_int,
    dynamic_shared: usize,
) -> u32 {
    door::context("cuOccupancyMaxActiveBlocksPerMultiprocessor", |driver, context| {
        let (found, module) = function(driver, context, handle)?;
        let entry = module.entry(&found.entry).expect("looked up when it was got");
        if !(1..=1024).contains(&block_size) {
            return Err(Code::INVALID_VALUE.because(format!("blocks of {block_size} threads")));
        }
        let by_threads = 1536 / (block_size as u32).next_multiple_of(32);
        let shared = u64::from(entry.static_shared) + dynamic_shared as u64;
        let most = u64::from(shared_opt_in(driver.settings.capability));
        let by_shared = most.checked_div(shared).unwrap_or(16);
        put(blocks, u64::from(by_threads.min(16)).min(by_shared) as c_int)
    })
}

#[cfg(test)]
mod tests {
    use super::{newest_ptx, target, version};

    #[test]
    fn heads_of_ptx_texts() {
        assert_eq!(newest_ptx(12000), (8, 0));
        assert_eq!(newest_ptx(12020), (8, 2));
        assert_eq!(newest_ptx(13000), (9, 0));
        let text = "//\n// Generated\n//\n\n.version 8.0\n.target sm_70\n.address_size 64\n";
        assert_eq!(version(text), Some((8, 0)));
        assert_eq!(target(text), Some((70, false)));
        assert_eq!(target(".target sm_90a, debug"), Some((90, true)));
        assert_eq!(version("no ptx"), None);
    }
}
