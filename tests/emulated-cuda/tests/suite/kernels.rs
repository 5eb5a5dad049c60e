//! Modules and launches: what is refused, what runs, and how a kernel's faults come out.

use std::ffi::{CString, c_void};

use emulated_cuda::api::context::{cuCtxSetCurrent, cuCtxSynchronize, cuDevicePrimaryCtxRetain};
use emulated_cuda::api::launch::cuLaunchKernel;
use emulated_cuda::api::memory::cuMemFree_v2;
use emulated_cuda::api::module::{
    cuFuncGetAttribute, cuFuncSetAttribute, cuModuleGetFunction, cuModuleLoadData, cuModuleUnload,
};

use crate::case::{allocate, ask, download, isolated, ok, start, upload};

/// Adds one to each of `count` words, `stride` bytes apart.
pub(crate) const INCREMENT: &str = "
.version 8.0
.target sm_70
.address_size 64

.visible .entry increment(
	.param .u64 increment_param_0,
	.param .u32 increment_param_1,
	.param .u32 increment_param_2
)
{
	.reg .pred %p<2>;
	.reg .b32 %r<10>;
	.reg .b64 %rd<6>;

	ld.param.u64 %rd1, [increment_param_0];
	ld.param.u32 %r2, [increment_param_1];
	ld.param.u32 %r8, [increment_param_2];
	mov.u32 %r3, %ctaid.x;
	mov.u32 %r4, %ntid.x;
	mov.u32 %r5, %tid.x;
	mad.lo.s32 %r1, %r3, %r4, %r5;
	setp.ge.u32 %p1, %r1, %r2;
	@%p1 bra $L__BB0_2;

	cvta.to.global.u64 %rd2, %rd1;
	mul.wide.u32 %rd3, %r1, %r8;
	add.s64 %rd4, %rd2, %rd3;
	ld.global.u32 %r6, [%rd4];
	add.s32 %r7, %r6, 1;
	st.global.u32 [%rd4], %r7;

$L__BB0_2:
	ret;
}

.visible .entry forever()
{
$L__BB1_1:
	bra $L__BB1_1;
}
";

fn load(text: &str) -> Result<u64, u32> {
    let text = CString::new(text).unwrap();
    // SAFETY: a text that ends in NUL.
    ask(|place| unsafe { cuModuleLoadData(place, text.as_ptr().cast()) })
}

fn function(module: u64, name: &str) -> Result<u64, u32> {
    let name = CString::new(name).unwrap();
    // SAFETY: a C string.
    ask(|place| unsafe { cuModuleGetFunction(place, module, name.as_ptr()) })
}

/// Launches with that shape and shared memory, with the arguments of `increment`.
fn launch(
    function: u64,
    (grid, block): ([u32; 3], [u32; 3]),
    shared: u32,
    (pointer, count, stride): (u64, u32, u32),
) -> u32 {
    let arguments: [*const c_void; 3] =
        [(&raw const pointer).cast(), (&raw const count).cast(), (&raw const stride).cast()];
    let [x, y, z] = grid;
    let [u, v, w] = block;
    let none = std::ptr::null();
    // SAFETY: a pointer for each parameter of the kernel, or more.
    unsafe { cuLaunchKernel(function, x, y, z, u, v, w, shared, 0, arguments.as_ptr(), none) }
}

/// A plain launch of one thread a word.
fn increment(function: u64, pointer: u64, count: u32, stride: u32) -> u32 {
    let shape = ([count.div_ceil(64), 1, 1], [64, 1, 1]);
    launch(function, shape, 0, (pointer, count, stride))
}

fn words(count: u32) -> Vec<u8> {
    (0..count).flat_map(u32::to_le_bytes).collect()
}

#[test]
fn a_kernel_runs_when_waited_for() {
    for schedule in ["converged", "adversarial"] {
        let name = "kernels::a_kernel_runs_when_waited_for";
        let finished = isolated(name, &[("SCHEDULE", schedule), ("RACES", "1")], || {
            start(0);
            let increment_function = function(load(INCREMENT).unwrap(), "increment").unwrap();
            let memory = upload(&words(1000));
            ok(increment(increment_function, memory, 1000, 4));
            let expected: Vec<u8> = (1..1001u32).flat_map(u32::to_le_bytes).collect();
            assert_eq!(download(memory, 4000), Ok(expected));
        });
        if finished.ran {
            let launch = &finished.report.items("launches")[0];
            assert_eq!(launch.text("kernel"), "increment");
            assert_eq!(launch.number("threads"), 1024);
            assert_eq!(launch.number("bytes_stored"), 4000);
            // 1000 words in order; a split warp touches a sector more than once.
            let sectors = launch.number("sectors_stored");
            assert!(sectors == 125 || (schedule == "adversarial" && sectors > 125), "{sectors}");
            assert_eq!(finished.report.number("kernels.increment.launches"), 1);
        }
    }
}

/// The code that a launch ends with.
fn fault(name: &str, settings: &[(&str, &str)], code: u32, text: &str, body: impl Fn(u64)) {
    let finished = isolated(name, settings, || {
        start(0);
        let function = function(load(INCREMENT).unwrap(), "increment").unwrap();
        body(function);
        assert_eq!(cuCtxSynchronize(), code);
        assert_eq!(cuCtxSynchronize(), code);
    });
    let fault = &finished.report.items("faults")[0];
    assert_eq!(fault.number("code"), u64::from(code));
    assert!(fault.text("message").contains(text), "{fault:?}");
}

#[test]
fn a_write_after_the_end_is_700() {
    fault("kernels::a_write_after_the_end_is_700", &[], 700, "increment", |function| {
        let memory = upload(&words(1000));
        ok(increment(function, memory, 1001, 4));
    });
}

#[test]
fn a_wrong_stride_is_700() {
    fault("kernels::a_wrong_stride_is_700", &[], 700, "increment", |function| {
        let memory = upload(&words(1000));
        ok(increment(function, memory, 1000, 8));
    });
}

#[test]
fn freed_memory_is_700() {
    fault("kernels::freed_memory_is_700", &[], 700, "increment", |function| {
        let memory = upload(&words(100));
        ok(cuMemFree_v2(memory));
        ok(increment(function, memory, 100, 4));
    });
}

#[test]
fn a_host_pointer_is_700() {
    fault("kernels::a_host_pointer_is_700", &[], 700, "increment", |function| {
        let memory = words(100);
        ok(increment(function, memory.as_ptr() as u64, 100, 4));
    });
}

#[test]
fn a_misaligned_access_is_716() {
    fault("kernels::a_misaligned_access_is_716", &[], 716, "increment", |function| {
        let memory = upload(&words(100));
        ok(increment(function, memory + 2, 10, 4));
    });
}

#[test]
fn an_endless_kernel_is_702() {
    let name = "kernels::an_endless_kernel_is_702";
    isolated(name, &[("BUDGET", "100000")], || {
        start(0);
        let forever = function(load(INCREMENT).unwrap(), "forever").unwrap();
        ok(launch(forever, ([1, 1, 1], [1, 1, 1]), 0, (0, 0, 0)));
        assert_eq!(cuCtxSynchronize(), 702);
    });
}

#[test]
fn launches_are_checked() {
    isolated("kernels::launches_are_checked", &[("DEVICES", "2")], || {
        start(0);
        let module = load(INCREMENT).unwrap();
        let function = function(module, "increment").unwrap();
        let memory = upload(&words(10));
        let try_shape = |grid, block| launch(function, (grid, block), 0, (memory, 10, 4));
        for (grid, block) in [
            ([0, 1, 1], [1, 1, 1]),
            ([1, 1, 1], [0, 1, 1]),
            ([1, 65536, 1], [1, 1, 1]),
            ([1, 1, 65536], [1, 1, 1]),
            ([1 << 31, 1, 1], [1, 1, 1]),
            ([1, 1, 1], [1025, 1, 1]),
            ([1, 1, 1], [1, 1, 65]),
            ([1, 1, 1], [64, 32, 1]),
        ] {
            assert_eq!(try_shape(grid, block), 1, "{grid:?} {block:?}");
        }
        ok(try_shape([1, 1, 1], [32, 32, 1]));
        // Shared memory: 48 KiB without opting in, 99 KiB with it.
        let try_shared = |bytes| launch(function, ([1; 3], [1; 3]), bytes, (memory, 10, 4));
        ok(try_shared(48 << 10));
        assert_eq!(try_shared((48 << 10) + 1), 1);
        ok(cuFuncSetAttribute(function, 8, 64 << 10));
        assert_eq!(ask(|place| cuFuncGetAttribute(place, 8, function)), Ok(64 << 10));
        ok(try_shared(64 << 10));
        assert_eq!(try_shared((64 << 10) + 1), 1);
        assert_eq!(cuFuncSetAttribute(function, 8, 100 << 10), 1);
        ok(cuCtxSynchronize());
        let other = ask(|place| cuDevicePrimaryCtxRetain(place, 1)).unwrap();
        let first = ask(|place| emulated_cuda::api::context::cuCtxGetCurrent(place)).unwrap();
        ok(cuCtxSetCurrent(other));
        assert_eq!(try_shape([1, 1, 1], [1, 1, 1]), 400);
        ok(cuCtxSetCurrent(first));
        ok(cuModuleUnload(module));
        assert_eq!(try_shape([1, 1, 1], [1, 1, 1]), 400);
        assert_eq!(cuModuleUnload(module), 400);
    });
}

#[test]
fn parameters_are_checked() {
    isolated("kernels::parameters_are_checked", &[], || {
        start(0);
        let function = function(load(INCREMENT).unwrap(), "increment").unwrap();
        let memory = upload(&words(10));
        let call = |params: *const *const c_void, extra: *const *const c_void| {
            // SAFETY: the arrays below are as long as the kernel or their end tag says.
            unsafe { cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, 0, params, extra) }
        };
        let none = std::ptr::null();
        assert_eq!(call(none, none), 1);
        let nulls = [std::ptr::null::<c_void>(); 3];
        assert_eq!(call(nulls.as_ptr(), none), 1);
        let mut buffer = memory.to_le_bytes().to_vec();
        buffer.extend(10u32.to_le_bytes());
        buffer.extend(4u32.to_le_bytes());
        for (size, code) in [(12usize, 1), (20, 1), (16, 0)] {
            let extra: [*const c_void; 5] = [
                std::ptr::without_provenance(1),
                buffer.as_ptr().cast(),
                std::ptr::without_provenance(2),
                (&raw const size).cast(),
                std::ptr::null(),
            ];
            assert_eq!(call(none, extra.as_ptr()), code);
        }
        // The buffer was copied when the launch was submitted.
        buffer.fill(0);
        let expected: Vec<u8> = (1..11u32).flat_map(u32::to_le_bytes).collect();
        assert_eq!(download(memory, 40), Ok(expected));
    });
}

/// The text with another head.
fn with_head(version: &str, target: &str) -> String {
    INCREMENT
        .replace(".version 8.0", &format!(".version {version}"))
        .replace(".target sm_70", &format!(".target {target}"))
}

#[test]
fn modules_are_refused_by_version_target_and_syntax() {
    let name = "kernels::modules_are_refused_by_version_target_and_syntax";
    for (driver, newest, newer) in
        [("12000", "8.0", "8.1"), ("12020", "8.2", "8.3"), ("13000", "9.0", "9.1")]
    {
        isolated(name, &[("DRIVER", driver)], || {
            start(0);
            assert!(load(&with_head(newest, "sm_70")).is_ok());
            assert_eq!(load(&with_head(newer, "sm_70")), Err(222));
            assert_eq!(load(&with_head("8.0", "sm_90")), Err(209));
            assert!(load(&with_head("8.0", "sm_86")).is_ok());
            assert_eq!(load(&with_head("8.0", "sm_86").replace("add.s32", "add.s3")), Err(218));
            assert_eq!(load("no ptx at all"), Err(218));
            assert_eq!(load("\x7fELF and so on"), Err(209));
            let module = load(INCREMENT).unwrap();
            assert_eq!(function(module, "decrement"), Err(500));
            assert_eq!(function(12345, "increment"), Err(400));
            allocate(1);
        });
    }
}
