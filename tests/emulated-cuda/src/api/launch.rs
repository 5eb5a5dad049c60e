//! Kernel launches: the checks a driver makes before it queues one.

use std::ffi::{c_uint, c_void};

use crate::api::module::function;
use crate::door;
use crate::driver::Driver;
use crate::status::{Answer, Code, Refusal};
use crate::task::{KernelTask, Task};

/// Shared memory of a block without opting in.
const SHARED: u32 = 48 << 10;

/// Where a launch's arguments are.
struct Arguments {
    /// One pointer a parameter.
    each: *const *const c_void,
    /// Or a list of tags and values: one buffer.
    packed: *const *const c_void,
}

impl Arguments {
    /// The parameter buffer as the kernel wants it.
    ///
    /// # Safety
    /// The arrays must be as cuLaunchKernel documents them.
    unsafe fn collect(&self, entry: &ptx::Entry) -> Answer<Vec<u8>> {
        let mut buffer = vec![0; entry.param_bytes() as usize];
        match (self.each.is_null(), self.packed.is_null()) {
            (false, false) => return Err(invalid("both kernelParams and extra")),
            // SAFETY: the caller's promise.
            (true, false) => unsafe { self.unpack(&mut buffer)? },
            (true, true) if entry.params.is_empty() => (),
            (true, true) => return Err(invalid("a kernel with parameters, none given")),
            (false, true) => {
                for (index, param) in entry.params.iter().enumerate() {
                    // SAFETY: one pointer a parameter, each to that many bytes.
                    let value = unsafe { *self.each.add(index) };
                    if value.is_null() {
                        return Err(invalid(format!("parameter {index} is null")));
                    }
                    let (start, size) = (param.offset as usize, param.size as usize);
                    // SAFETY: as above.
                    let value = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), size) };
                    buffer[start..start + size].copy_from_slice(value);
                }
            }
        }
        Ok(buffer)
    }

    /// # Safety
    /// `packed` must be a list of tags and values that ends with tag 0.
    unsafe fn unpack(&self, buffer: &mut [u8]) -> Answer {
        let (mut start, mut size) = (std::ptr::null::<u8>(), None);
        let mut index = 0;
        loop {
            // SAFETY: the list goes on until tag 0.
            let tag = unsafe { *self.packed.add(index) } as usize;
            if tag == 0 {
                break;
            }
            // SAFETY: every other tag has a value.
            let value = unsafe { *self.packed.add(index + 1) };
            match tag {
                1 => start = value.cast(),
                // SAFETY: the size is given by a pointer to it.
                2 => size = Some(unsafe { *value.cast::<usize>() }),
                _ => return Err(invalid(format!("tag {tag} in extra"))),
            }
            index += 2;
        }
        if start.is_null() || size != Some(buffer.len()) {
            let want = buffer.len();
            return Err(invalid(format!("a parameter buffer of {size:?} bytes, not {want}")));
        }
        // SAFETY: the caller's buffer is as long as it says.
        buffer.copy_from_slice(unsafe { std::slice::from_raw_parts(start, buffer.len()) });
        Ok(())
    }
}

fn invalid(message: impl Into<String>) -> Refusal {
    Code::INVALID_VALUE.because(message)
}

/// The limits of every device since 7.0.
fn check_shape(grid: [u32; 3], block: [u32; 3]) -> Answer {
    if grid.contains(&0) || block.contains(&0) {
        return Err(invalid(format!("an empty launch: grid {grid:?}, block {block:?}")));
    }
    if grid[0] > i32::MAX as u32 || grid[1] > 65535 || grid[2] > 65535 {
        return Err(invalid(format!("a grid of {grid:?}")));
    }
    let threads: u64 = block.iter().map(|extent| u64::from(*extent)).product();
    if block[0] > 1024 || block[1] > 1024 || block[2] > 64 || threads > 1024 {
        return Err(invalid(format!("a block of {block:?}")));
    }
    Ok(())
}

/// # Safety
/// The arguments must be as cuLaunchKernel documents them.
unsafe fn launch(
    driver: &mut Driver,
    context: u64,
    handle: u64,
    (grid, block): ([u32; 3], [u32; 3]),
    dynamic_shared: u32,
    stream: u64,
    arguments: &Arguments,
) -> Answer {
    let stream = driver.stream(context, stream)?;
    let (found, module) = function(driver, context, handle)?;
    let entry = module.entry(&found.entry).expect("looked up when it was got");
    check_shape(grid, block)?;
    if entry.max_threads.is_some_and(|most| block.iter().product::<u32>() > most) {
        return Err(Code::LAUNCH_OUT_OF_RESOURCES.because(format!("a block of {block:?}")));
    }
    let shared = entry.static_shared.saturating_add(dynamic_shared);
    if shared > SHARED && dynamic_shared > found.dynamic_shared_limit {
        let text = format!("{shared} bytes of shared memory without opting in");
        return Err(invalid(text));
    }
    // SAFETY: the caller's promise.
    let params = unsafe { arguments.collect(entry)? };
    let name = found.entry.clone();
    let task = KernelTask { module, entry: name, grid, block, dynamic_shared, params };
    driver.submit(stream, Task::Kernel(Box::new(task)), None);
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: u64,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: u64,
    params: *const *const c_void,
    extra: *const *const c_void,
) -> u32 {
    door::context("cuLaunchKernel", |driver, context| {
        let shape = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let arguments = Arguments { each: params, packed: extra };
        // SAFETY: the contract of the call.
        unsafe { launch(driver, context, function, shape, shared, stream, &arguments) }
    })
}
