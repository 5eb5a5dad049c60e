//! The shared library calls itself libcuda.so.1, so that whoever asks the loader for that
//! name, or for a symlink of it, gets the one copy that is loaded already; and it stays
//! loaded, since its exit handler would otherwise be called in unmapped memory.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
