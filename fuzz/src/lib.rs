//! Fuzz targets: one function for each part of the library that reads bytes of strangers.
//!
//! A target takes any bytes, and panics where the library breaks a promise. The same functions run
//! in two drivers: `main.rs` mutates seeds at random with a stable compiler (`make test-fuzz`), and
//! `libfuzzer/` is guided by coverage and watched by AddressSanitizer (`make fuzz`).

mod capi;
mod codecs;
mod directory;
mod input;
mod jpeg2000;
mod options;
mod predictors;
pub mod seeds;
mod tile;

#[allow(dead_code)]
#[path = "../../tests/engine/naive.rs"]
mod naive;
#[allow(dead_code)]
#[path = "../../tests/engine/tiles.rs"]
mod tiles;

/// A fuzz target.
pub struct Target {
    /// The name that drivers and folders know it by.
    pub name: &'static str,
    /// Runs one input; panics where a promise is broken.
    pub run: fn(&[u8]),
}

/// Every target.
pub const TARGETS: [Target; 10] = [
    Target { name: "directory", run: directory::run },
    Target { name: "lzw", run: codecs::lzw },
    Target { name: "packbits", run: codecs::packbits },
    Target { name: "deflate", run: codecs::deflate },
    Target { name: "zstd", run: codecs::zstd },
    Target { name: "predictors", run: predictors::run },
    Target { name: "tile", run: tile::run },
    Target { name: "jpeg2000", run: jpeg2000::run },
    Target { name: "options", run: options::run },
    Target { name: "capi", run: capi::run },
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_that_once_failed_do_not_fail() {
        for target in &TARGETS {
            seeds::regressions(target.name).iter().for_each(|input| (target.run)(input));
        }
    }
}
