//! Compiles the C++ shim against the GDAL that gdal-sys links, and names the shared library.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=src/shim");
    println!("cargo:rerun-if-env-changed=GDAL_CFLAGS");
    let flags = std::env::var("GDAL_CFLAGS").unwrap_or_else(|_| gdal_cflags());
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").warnings(true).extra_warnings(true);
    build.flag("-Woverloaded-virtual").flag("-fvisibility=hidden");
    for flag in flags.split_whitespace() {
        // GDAL's own headers are not ours to warn about.
        match flag.strip_prefix("-I") {
            Some(dir) => build.flag("-isystem").flag(dir),
            None => build.flag(flag),
        };
    }
    let rooms = [
        "driver",
        "claim",
        "dataset",
        "pixels",
        "computed",
        "excerpt",
        "tile_file",
        "band",
        "create",
        "copy",
        "hollow",
        "overlay",
        "output",
        "output_band",
        "api",
    ];
    build.files(rooms.map(|room| format!("src/shim/{room}.cpp")));
    build.compile("gpugtiff_shim");

    // What programs that link us ask for. It grows with the major version: within one, programs
    // built with an older header run against every later library.
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").expect("cargo sets it");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libgpugtiff.so.{major}");
}

fn gdal_cflags() -> String {
    let tools: [(&str, &[&str]); 2] =
        [("gdal-config", &["--cflags"]), ("pkg-config", &["--cflags", "gdal"])];
    for (tool, arguments) in tools {
        if let Ok(output) = Command::new(tool).args(arguments).output()
            && output.status.success()
        {
            return String::from_utf8_lossy(&output.stdout).into_owned();
        }
    }
    panic!("GDAL's headers were not found: install libgdal-dev, or set GDAL_CFLAGS");
}
