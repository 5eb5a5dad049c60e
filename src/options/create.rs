//! What is asked of a file that is to be written, and what GTiff is told of it.

use super::{Scope, TABLE, names};
use crate::batch::writer::Size;
use crate::error::{Error, Result};
use crate::gdal::log;

/// Codecs that the engines encode.
const CODECS: [&str; 5] = ["NONE", "LZW", "DEFLATE", "ZSTD", "PACKBITS"];

/// Low bits of each sample that GTiff rounds away before it encodes a tile.
pub const DISCARD_LSB: &str = "DISCARD_LSB";

/// GTiff's default levels.
const ZLEVEL: i32 = 6;
const ZSTD_LEVEL: i32 = 9;

/// What GDAL tells about a file that is to be written.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// NAME, VALUE, in the user's order.
    pub list: &'a [(String, String)],
    /// Samples are floating-point numbers.
    pub floats: bool,
    /// In GTiff's place: its defaults, and its judgement of values.
    pub as_gtiff: bool,
    /// The target can only be written from front to back.
    pub stream: bool,
    /// GTiff's list of creation options.
    pub gtiff_xml: &'a str,
    /// Columns of the raster.
    pub width: u64,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepared {
    /// What GTiff is told.
    pub for_gtiff: Vec<(String, String)>,
    /// Why GTiff shall write the file itself, if it shall.
    pub left_to_gtiff: Option<String>,
}

/// What the writer itself needs to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreateOptions {
    /// Level for Deflate and for ZSTD.
    pub levels: (i32, i32),
    /// The user asked for one, and the codec has it.
    pub level_given: bool,
    /// SPARSE_OK.
    pub sparse: bool,
    /// BIGTIFF; `None`: IF_SAFER.
    pub size: Option<Size>,
    /// COPY_TILES, unless pixels are changed on the way.
    pub copy_tiles: bool,
}

/// The value of an option.
pub fn find<'a>(list: &'a [(String, String)], name: &str) -> Option<&'a str> {
    list.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// As CPLTestBool() has it; nothing is no.
pub fn is_true(value: Option<&str>) -> bool {
    let no = |value: &str| {
        ["NO", "FALSE", "OFF", "0"].iter().any(|word| word.eq_ignore_ascii_case(value))
    };
    value.is_some_and(|value| !no(value))
}

impl CreateOptions {
    /// Parses what was prepared; `for_gtiff` has GTiff's names only.
    pub fn parse(for_gtiff: &[(String, String)], list: &[(String, String)]) -> CreateOptions {
        // A level that GTiff does not know it warns of, and takes its default.
        let level = |name: &str, most: i32, default: i32| {
            let given = find(for_gtiff, name).and_then(|value| value.trim().parse().ok());
            given.filter(|level| (1..=most).contains(level)).unwrap_or(default)
        };
        let size = match find(for_gtiff, "BIGTIFF") {
            None => Some(Size::AsNeeded),
            Some(word) if word.eq_ignore_ascii_case("IF_NEEDED") => Some(Size::AsNeeded),
            Some(word) if word.eq_ignore_ascii_case("IF_SAFER") => None,
            word if is_true(word) => Some(Size::Big),
            _ => Some(Size::Classic),
        };
        let codec = find(for_gtiff, "COMPRESS").unwrap_or("NONE").to_ascii_uppercase();
        CreateOptions {
            levels: (level("ZLEVEL", 12, ZLEVEL), level("ZSTD_LEVEL", 22, ZSTD_LEVEL)),
            level_given: level_option(&codec).is_some_and(|(n, _)| find(for_gtiff, n).is_some()),
            sparse: is_true(find(for_gtiff, "SPARSE_OK")),
            size,
            copy_tiles: find(for_gtiff, DISCARD_LSB).is_none()
                && !find(list, "COPY_TILES").is_some_and(|v| v.eq_ignore_ascii_case("NO")),
        }
    }
}

/// Checks what the user wrote and words it for GTiff.
pub fn prepare(asked: &Asked<'_>) -> Result<Prepared> {
    for spec in TABLE {
        if let Some(value) = find(asked.list, spec.name) {
            spec.check(spec.name, value)?;
        }
    }
    let ours = |name: &str| names(Scope::Create).any(|n| n.eq_ignore_ascii_case(name));
    // As GTiff: of an option that is given twice the first counts.
    let mut for_gtiff: Vec<(String, String)> = Vec::new();
    for (name, value) in asked.list.iter().filter(|(name, _)| !ours(name)) {
        if find(&for_gtiff, name).is_none() {
            for_gtiff.push((name.clone(), value.clone()));
        }
    }
    let left_to_gtiff = reason(asked);
    let mut set = |name: &str, value: &str| {
        for_gtiff.retain(|(key, _)| !key.eq_ignore_ascii_case(name));
        for_gtiff.push((name.to_string(), value.to_string()));
    };
    let stream = asked.stream || is_true(find(asked.list, "STREAMABLE_OUTPUT"));
    let append = is_true(find(asked.list, "APPEND_SUBDATASET"));
    if !asked.as_gtiff && !stream {
        if find(asked.list, "COMPRESS").is_none() {
            set("COMPRESS", "DEFLATE");
        }
        let tiled = find(asked.list, "TILED");
        let tiles_by_default = tiled.is_none() && !append && !describes_strips(asked);
        if tiles_by_default {
            set("TILED", "YES");
        }
        if tiles_by_default || is_true(tiled) {
            check_blocks(asked.list)?;
        }
    }
    if let Some(value) = find(asked.list, "PREDICTOR") {
        set("PREDICTOR", &predictor(value, asked)?);
    }
    let default = if asked.as_gtiff || stream { "NONE" } else { "DEFLATE" };
    let codec = find(asked.list, "COMPRESS").unwrap_or(default).to_ascii_uppercase();
    if !CODECS.contains(&codec.as_str()) {
        check_codec(&codec, asked)?;
    }
    if let Some(level) = find(asked.list, "LEVEL") {
        match level_option(&codec) {
            Some((name, most)) if level.trim().parse().is_ok_and(|n: i32| n <= most) => {
                set(name, level)
            }
            Some((_, most)) => {
                return Err(bad("LEVEL", level, &format!("a whole number from 1 to {most}")));
            }
            None => log::warning(&format!("LEVEL={level} has no effect with COMPRESS={codec}")),
        }
    }
    Ok(Prepared { for_gtiff, left_to_gtiff })
}

/// A block size as GTiff reads it; `None` for what it takes no number from.
fn block_size(list: &[(String, String)], name: &str) -> Option<i64> {
    find(list, name).and_then(|value| value.trim().parse().ok())
}

/// Whether the block size is that of strips: a height, and a width that is missing or the raster's.
/// Programs that copy a striped file's layout say so without TILED.
fn describes_strips(asked: &Asked<'_>) -> bool {
    let width = block_size(asked.list, "BLOCKXSIZE");
    find(asked.list, "BLOCKYSIZE").is_some()
        && match find(asked.list, "BLOCKXSIZE") {
            None => true,
            Some(_) => width.is_some_and(|width| u64::try_from(width) == Ok(asked.width)),
        }
}

/// Refuses a size that no tile can have (TIFF 6.0, section 15). 0 is GTiff's word for its default.
fn check_blocks(list: &[(String, String)]) -> Result<()> {
    for name in ["BLOCKXSIZE", "BLOCKYSIZE"] {
        if let Some(size) = block_size(list, name).filter(|size| *size < 0 || size % 16 != 0) {
            let expected = "a multiple of 16 for tiles (TILED=NO: strips, of any BLOCKYSIZE)";
            return Err(bad(name, &size.to_string(), expected));
        }
    }
    Ok(())
}

/// GTiff's option for what LEVEL says of a codec, and the highest: as GDAL's COG driver has it.
fn level_option(codec: &str) -> Option<(&'static str, i32)> {
    match codec {
        "DEFLATE" | "LERC_DEFLATE" => Some(("ZLEVEL", 12)),
        "ZSTD" | "LERC_ZSTD" => Some(("ZSTD_LEVEL", 22)),
        "LZMA" => Some(("LZMA_PRESET", 9)),
        _ => None,
    }
}

/// Rows of a hollow file that show how high GTiff makes its blocks: one block row where the
/// options say how high that is. libtiff's strips are about 8 KiB, and it is shown twice that.
pub fn hollow_rows(for_gtiff: &[(String, String)], size: (u64, u64), sample_bytes: u64) -> u64 {
    let (width, height) = size;
    let given = find(for_gtiff, "BLOCKYSIZE").and_then(|value| value.trim().parse().ok());
    let rows = match given {
        Some(rows) => rows,
        None if is_true(find(for_gtiff, "TILED")) => 256,
        None => {
            let bits = find(for_gtiff, "NBITS").and_then(|bits| bits.trim().parse().ok());
            let bits = bits.filter(|&bits| bits > 0).unwrap_or(8 * sample_bytes);
            let strip = 8 * 8192 / width.saturating_mul(bits).max(1) + 1;
            // Of JPEG they have a multiple of 16 rows.
            let jpeg = find(for_gtiff, "COMPRESS").is_some_and(|c| c.eq_ignore_ascii_case("JPEG"));
            2 * if jpeg { strip.next_multiple_of(16) } else { strip }
        }
    };
    rows.clamp(1, height.max(1))
}

/// Why GTiff must write the file, as far as options tell.
fn reason(asked: &Asked<'_>) -> Option<String> {
    let yes = |name: &&&str| is_true(find(asked.list, name));
    if let Some(name) =
        ["COPY_SRC_OVERVIEWS", "APPEND_SUBDATASET", "STREAMABLE_OUTPUT"].iter().find(yes)
    {
        return Some(format!("{name}=YES"));
    }
    // GTiff keeps the nodata value as it is, and tells it in the files of this profile only.
    let profile = find(asked.list, "PROFILE").unwrap_or("GDALGeoTIFF");
    if find(asked.list, DISCARD_LSB).is_some() && !profile.eq_ignore_ascii_case("GDALGeoTIFF") {
        return Some(format!("DISCARD_LSB with PROFILE={profile}"));
    }
    // GDAL's own notes between drivers; one says only that INTERLEAVE is not the user's.
    let private = asked.list.iter().find(|(name, _)| {
        name.starts_with('@') && !name.eq_ignore_ascii_case("@INTERLEAVE_ADDED_AUTOMATICALLY")
    });
    if let Some((name, _)) = private {
        return Some(format!("the option {name}"));
    }
    asked.stream.then(|| "a target that can only be written from front to back".into())
}

fn predictor(value: &str, asked: &Asked<'_>) -> Result<String> {
    let word = value.trim().to_ascii_uppercase();
    Ok(match word.as_str() {
        "NO" => "1",
        "STANDARD" => "2",
        "FLOATING_POINT" => "3",
        "YES" if asked.floats => "3",
        "YES" => "2",
        "1" | "2" | "3" => &word,
        _ if asked.as_gtiff => value,
        _ => {
            let expected = "1, 2, 3, NO, YES, STANDARD or FLOATING_POINT";
            return Err(bad("PREDICTOR", value, expected));
        }
    }
    .to_string())
}

/// A codec that nobody has: GTiff would write the file uncompressed.
fn check_codec(codec: &str, asked: &Asked<'_>) -> Result<()> {
    let known = asked.gtiff_xml.to_ascii_uppercase();
    if asked.as_gtiff || known.contains(&format!("<VALUE>{codec}</VALUE>")) {
        return Ok(());
    }
    Err(bad("COMPRESS", codec, "a codec that this GDAL's GTiff lists (gdalinfo --format GTiff)"))
}

fn bad(name: &str, value: &str, expected: &str) -> Error {
    Error::BadOption { name: name.into(), value: value.into(), expected: expected.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const XML: &str = "<Option name='COMPRESS'><Value>NONE</Value><Value>JPEG</Value></Option>";

    fn list(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect()
    }

    fn ask(pairs: &[(&str, &str)], as_gtiff: bool, floats: bool) -> Result<Prepared> {
        let list = list(pairs);
        prepare(&Asked { list: &list, floats, as_gtiff, stream: false, gtiff_xml: XML, width: 400 })
    }

    #[test]
    fn defaults_are_ours_or_gtiffs() {
        let ours = ask(&[], false, false).unwrap();
        assert_eq!(ours.for_gtiff, list(&[("COMPRESS", "DEFLATE"), ("TILED", "YES")]));
        assert_eq!(ask(&[], true, false).unwrap().for_gtiff, []);
    }

    #[test]
    fn block_sizes_say_whether_tiles_or_strips() {
        for (options, tiled) in [
            (&[("BLOCKYSIZE", "2")][..], None),
            (&[("BLOCKXSIZE", "400"), ("BLOCKYSIZE", "2")], None),
            (&[("blockxsize", "400"), ("blockysize", "256")], None),
            (&[("BLOCKXSIZE", "128"), ("BLOCKYSIZE", "64")], Some("YES")),
            (&[("BLOCKXSIZE", "512"), ("BLOCKYSIZE", "512")], Some("YES")),
            (&[("BLOCKXSIZE", "128")], Some("YES")),
            (&[("TILED", "NO"), ("BLOCKXSIZE", "128"), ("BLOCKYSIZE", "3")], Some("NO")),
            (&[("TILED", "YES"), ("BLOCKXSIZE", "400"), ("BLOCKYSIZE", "16")], Some("YES")),
            (&[("TILED", "YES"), ("BLOCKXSIZE", "0")], Some("YES")),
        ] {
            let prepared = ask(options, false, false).unwrap();
            assert_eq!(find(&prepared.for_gtiff, "TILED"), tiled, "{options:?}");
        }
        for options in [
            &[("TILED", "YES"), ("BLOCKYSIZE", "2")][..],
            &[("TILED", "YES"), ("BLOCKXSIZE", "100")],
            &[("BLOCKXSIZE", "100"), ("BLOCKYSIZE", "64")],
            &[("BLOCKXSIZE", "-16")],
        ] {
            let text = ask(options, false, false).unwrap_err().to_string();
            assert!(text.contains("expected a multiple of 16"), "{text}");
            // In GTiff's place its own judgement counts.
            assert!(ask(options, true, false).is_ok(), "{options:?}");
        }
    }

    #[test]
    fn the_first_of_an_option_given_twice_counts() {
        let twice = [("COMPRESS", "LZW"), ("TILED", "NO"), ("compress", "ZSTD"), ("Tiled", "YES")];
        let prepared = ask(&twice, false, false).unwrap();
        assert_eq!(prepared.for_gtiff, list(&twice[..2]));
    }

    #[test]
    fn words_become_numbers() {
        for (word, floats, number) in [
            ("NO", false, "1"),
            ("yes", false, "2"),
            ("YES", true, "3"),
            ("STANDARD", true, "2"),
            ("FLOATING_POINT", true, "3"),
            ("2", true, "2"),
        ] {
            let prepared = ask(&[("PREDICTOR", word)], false, floats).unwrap();
            assert_eq!(find(&prepared.for_gtiff, "PREDICTOR"), Some(number));
        }
        assert!(ask(&[("PREDICTOR", "4")], false, false).is_err());
    }

    #[test]
    fn what_the_engines_lack_is_left_to_gtiff() {
        for (name, value) in [
            ("COPY_SRC_OVERVIEWS", "YES"),
            ("APPEND_SUBDATASET", "TRUE"),
            ("STREAMABLE_OUTPUT", "ON"),
            ("@OVERVIEW_DATASET", "x"),
        ] {
            let prepared = ask(&[(name, value)], false, false).unwrap();
            assert!(prepared.left_to_gtiff.is_some(), "{name}");
        }
        for (name, value) in [
            ("COMPRESS", "JPEG"),
            ("COPY_SRC_OVERVIEWS", "NO"),
            ("DISCARD_LSB", "2"),
            ("@INTERLEAVE_ADDED_AUTOMATICALLY", "YES"),
        ] {
            let prepared = ask(&[(name, value)], false, false).unwrap();
            assert_eq!(prepared.left_to_gtiff, None, "{name}");
        }
        let bits = ask(&[("DISCARD_LSB", "2"), ("PROFILE", "BASELINE")], false, false).unwrap();
        assert!(bits.left_to_gtiff.is_some());
        assert!(ask(&[("COMPRESS", "FOO")], false, false).is_err());
        assert!(ask(&[("COMPRESS", "FOO")], true, false).is_ok());
    }

    #[test]
    fn level_goes_to_the_codec() {
        let zstd = ask(&[("COMPRESS", "ZSTD"), ("LEVEL", "19")], false, false).unwrap();
        let options = CreateOptions::parse(&zstd.for_gtiff, &[]);
        assert_eq!((options.levels, options.level_given), ((6, 19), true));
        assert!(ask(&[("LEVEL", "19")], false, false).is_err());
        let none = CreateOptions::parse(&[], &[]);
        assert_eq!((none.levels, none.level_given, none.copy_tiles), ((6, 9), false, true));
    }

    #[test]
    fn a_level_of_another_codec_is_none() {
        for (codec, level, given) in [
            ("DEFLATE", "ZLEVEL", true),
            ("DEFLATE", "ZSTD_LEVEL", false),
            ("zstd", "ZSTD_LEVEL", true),
            ("ZSTD", "ZLEVEL", false),
            ("LZW", "ZLEVEL", false),
            ("LZW", "LEVEL", false),
        ] {
            let prepared = ask(&[("COMPRESS", codec), (level, "7")], false, false).unwrap();
            let options = CreateOptions::parse(&prepared.for_gtiff, &[]);
            assert_eq!(options.level_given, given, "{codec} {level}");
        }
    }

    #[test]
    fn bigtiff_words() {
        let size = |word: &str| CreateOptions::parse(&list(&[("BIGTIFF", word)]), &[]).size;
        assert_eq!(size("yes"), Some(Size::Big));
        assert_eq!(size("NO"), Some(Size::Classic));
        assert_eq!(size("if_needed"), Some(Size::AsNeeded));
        assert_eq!(size("IF_SAFER"), None);
    }
}
