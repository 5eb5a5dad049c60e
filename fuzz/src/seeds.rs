//! Inputs to begin with: valid ones of every kind, from the tests' own writers and files.

use std::path::{Path, PathBuf};

use crate::tiles::{self, Random};
use gpugtiff::engine::{Codec, TileSpec};

/// The folder of the repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Files of a folder, those above 64 KiB left out.
fn files(folder: &Path) -> Vec<Vec<u8>> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let small = |path: &PathBuf| path.metadata().is_ok_and(|m| m.is_file() && m.len() < 65_536);
    paths.iter().filter(|path| small(path)).filter_map(|path| std::fs::read(path).ok()).collect()
}

/// Inputs that once failed.
pub fn regressions(target: &str) -> Vec<Vec<u8>> {
    files(&repository().join("fuzz/regressions").join(target))
}

/// Inputs to begin with, the regressions among them.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    let mut seeds = regressions(target);
    let mut random = Random::new(1);
    match target {
        "directory" => {
            seeds.extend(files(&repository().join("target/fuzz/seeds")));
            seeds.extend(small_tiffs());
        }
        "jpeg2000" => seeds.extend(files(&repository().join("tests/jpeg2000"))),
        "options" => seeds.extend(OPTIONS.map(|text| [&[0, 9, 0, 9, 0], text.as_bytes()].concat())),
        "capi" | "predictors" => seeds.extend((0..40).map(|_| noise(&mut random, 400))),
        "tile" => seeds.extend((0..300).map(|_| noise(&mut random, 1000))),
        _ => {
            let codec = match target {
                "lzw" => Codec::Lzw,
                "packbits" => Codec::PackBits,
                "deflate" => Codec::Deflate,
                _ => Codec::Zstd,
            };
            for (i, mode) in (0..40).map(|i| (i, (i % 2) as u8)) {
                let spec = TileSpec { width: 8 << (i % 5), height: 20, ..plain(codec) };
                let pixels = tiles::pixels(&spec, 20, &mut random);
                let bytes = if mode == 1 { pixels } else { tiles::store(&spec, &pixels) };
                let capacity = (spec.tile_bytes() as u16).to_le_bytes();
                seeds.push([&[mode], &capacity[..], &bytes].concat());
            }
        }
    }
    seeds
}

fn noise(random: &mut Random, most: usize) -> Vec<u8> {
    let len = 20 + random.below(most);
    let mask = random.pick(&[0xFF, 0x0F, 0x01, 0x00]);
    (0..len)
        .map(|i| if i < 12 { random.next() as u8 } else { random.next() as u8 & mask })
        .collect()
}

fn plain(codec: Codec) -> TileSpec {
    let kind = tiles::kinds().into_iter().find(|kind| kind.codec == codec);
    kind.expect("there are tiles of every codec")
}

/// Option lists, each a line of the list a line.
const OPTIONS: [&str; 8] = [
    "NUM_THREADS=ALL_CPUS\nENGINE=CPU\nBATCH_MB=16",
    "COMPRESS=ZSTD\nZSTD_LEVEL=3\nPREDICTOR=YES\nTILED=YES\nBLOCKXSIZE=64\nBLOCKYSIZE=64",
    "COMPRESS=DEFLATE\nLEVEL=12\nPREDICTOR=2\nBIGTIFF=IF_SAFER",
    "COMPRESS=JPEG\nJPEG_QUALITY=75\nPHOTOMETRIC=YCBCR\nINTERLEAVE=PIXEL",
    "COMPRESS=LERC_ZSTD\nLEVEL=22\nMAX_Z_ERROR=0",
    "COMPRESS=LZMA\nLEVEL=9\nSPARSE_OK=TRUE\nCOPY_TILES=NO",
    "TILED=NO\nBLOCKYSIZE=7\nDEVICE=AUTO\nDEVICE_MB=2048\nVERIFY=ALL\nGDS=AUTO",
    "STREAMABLE_OUTPUT=YES\nCOPY_SRC_OVERVIEWS=YES\nDISCARD_LSB=3\n@X=1",
];

/// TIFFs with one directory, of both byte orders and offset sizes, tiled and in strips, and the
/// structure of a COG before the first.
fn small_tiffs() -> Vec<Vec<u8>> {
    let mut made = Vec::new();
    for big in [false, true] {
        for little in [true, false] {
            for compression in [1, 5, 8, 32773, 50000, 34712] {
                for tiled in [true, false] {
                    made.push(tiff(big, little, compression, tiled));
                }
            }
        }
    }
    made
}

const STRUCTURE: &[u8] = b"GDAL_STRUCTURAL_METADATA_SIZE=000174 bytes\nLAYOUT=IFDS_BEFORE_DATA\n\
BLOCK_ORDER=ROW_MAJOR\nBLOCK_LEADER=SIZE_AS_UINT4\nBLOCK_TRAILER=LAST_4_BYTES_REPEATED\n\
KNOWN_INCOMPATIBLE_EDITION=NO\n MASK_INTERLEAVED_WITH_IMAGERY=YES\n";

fn tiff(big: bool, little: bool, compression: u64, tiled: bool) -> Vec<u8> {
    let put = |value: u64, width: usize| match little {
        true => value.to_le_bytes()[..width].to_vec(),
        false => value.to_be_bytes()[8 - width..].to_vec(),
    };
    let word = if big { 8 } else { 4 };
    let mut file = if little { b"II".to_vec() } else { b"MM".to_vec() };
    file.extend(put(if big { 43 } else { 42 }, 2));
    if big {
        file.extend([put(8, 2), put(0, 2)].concat());
    }
    let pointer = file.len();
    file.extend(put(0, word));
    file.extend(STRUCTURE);
    let (across, data) = (if tiled { 4 } else { 3 }, file.len() as u64);
    for tile in 0..across {
        file.extend(40u32.to_le_bytes());
        file.extend((0..40u8).map(|i| i.wrapping_mul(tile as u8 + 1)));
        let last = file[file.len() - 4..].to_vec();
        file.extend(last);
    }
    let places = file.len() as u64;
    (0..across).for_each(|tile| file.extend(put(data + 4 + tile * 48, word)));
    let counts = file.len() as u64;
    (0..across).for_each(|_| file.extend(put(40, word)));
    let wide = if big { 16 } else { 4 };
    let mut entries = vec![
        (256, 3, 1, 20),
        (257, 3, 1, 24),
        (258, 3, 1, 8),
        (259, 3, 1, compression),
        (262, 3, 1, 1),
        (277, 3, 1, 1),
        (284, 3, 1, 1),
        (317, 3, 1, 1),
    ];
    match tiled {
        true => entries.extend([
            (322, 3, 1, 16),
            (323, 3, 1, 16),
            (324, wide, across, places),
            (325, wide, across, counts),
        ]),
        false => entries.extend([
            (273, wide, across, places),
            (278, 3, 1, 8),
            (279, wide, across, counts),
        ]),
    }
    entries.sort();
    let at = file.len() as u64;
    file[pointer..pointer + word].copy_from_slice(&put(at, word));
    file.extend(put(entries.len() as u64, if big { 8 } else { 2 }));
    for (tag, kind, count, value) in entries {
        let width = if kind == 3 && count == 1 { 2 } else { word };
        let mut value = put(value, width);
        value.resize(word, 0);
        file.extend([put(tag, 2), put(kind, 2), put(count, word), value].concat());
    }
    file.extend(put(0, word));
    file
}
