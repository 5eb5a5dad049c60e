//! The shared library as its users see it: cudarc finds it by name, and nvCOMP's name leads
//! to the same state.

use std::ffi::CString;
use std::path::PathBuf;

use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

use crate::case::isolated;
use crate::kernels::INCREMENT;

/// A directory with the names of the driver and of nvCOMP, made by the script for it.
fn directory(name: &str) -> PathBuf {
    let executable = std::env::current_exe().unwrap();
    let library = executable.with_file_name("libemulated_cuda.so");
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/link.sh");
    let status = std::process::Command::new(script).arg(library).arg(&place).status().unwrap();
    assert!(status.success());
    place
}

#[test]
fn a_program_on_cudarc() {
    let names = directory("names-for-a-program");
    let settings = [("LD_LIBRARY_PATH", names.to_str().unwrap())];
    let finished = isolated("cudarc::a_program_on_cudarc", &settings, || {
        let context = CudaContext::new(0).unwrap();
        assert_eq!(context.name().unwrap(), "Emulated GPU");
        let stream = context.new_stream().unwrap();
        let module = context.load_module(Ptx::from_src(INCREMENT)).unwrap();
        let function = module.load_function("increment").unwrap();
        let mut memory = stream.clone_htod(&[10u32, 20, 30]).unwrap();
        let (count, stride) = (3u32, 4u32);
        let mut launch = stream.launch_builder(&function);
        launch.arg(&mut memory).arg(&count).arg(&stride);
        // SAFETY: the kernel's parameters in its order.
        unsafe { launch.launch(LaunchConfig::for_num_elems(3)) }.unwrap();
        assert_eq!(stream.clone_dtoh(&memory).unwrap(), [11, 21, 31]);
    });
    assert_eq!(finished.report.number("kernels.increment.launches"), 1);
    assert!(finished.report.items("faults").is_empty());
    assert!(finished.report.items("errors").is_empty());
    assert!(finished.report.items("leaks.allocations").is_empty());
}

#[test]
fn all_names_are_one_library() {
    let names = directory("names-of-one-library");
    let settings = [("LD_LIBRARY_PATH", names.to_str().unwrap())];
    let finished = isolated("cudarc::all_names_are_one_library", &settings, || {
        let context = CudaContext::new(0).unwrap();
        let name = CString::new("libnvcomp.so.6").unwrap();
        // SAFETY: loads a library whose start-up code does nothing.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null());
        // SAFETY: a C string; the function takes a pointer to two words.
        unsafe {
            let symbol = libc::dlsym(library, c"nvcompGetProperties".as_ptr());
            assert!(!symbol.is_null());
            type Function = extern "C" fn(*mut [u32; 2]) -> u32;
            let function = std::mem::transmute::<*mut libc::c_void, Function>(symbol);
            let mut properties = [0; 2];
            assert_eq!(function(&raw mut properties), 0);
            assert_eq!(properties, [6000, 12090]);
        }
        drop(context);
    });
    assert_eq!(finished.report.number("calls.nvcompGetProperties"), 1);
    assert_eq!(finished.report.number("calls.cuInit"), 1);
    assert_eq!(finished.report.number("leaks.primary_contexts"), 0);
}
