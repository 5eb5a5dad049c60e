//! What GTiff is told of the small files by which it encodes the tiles of a file.
//!
//! What a tile is like comes from the directory of the file to be written, which GTiff made and which
//! may differ from what the user asked for. How hard a codec tries stands in no directory, and comes
//! from the user's options.

use super::create::{DISCARD_LSB, find};

/// User's options that a codec looks at and that no directory tells.
const KEPT: [&str; 11] = [
    "COMPRESS",
    "PREDICTOR",
    "ZLEVEL",
    "ZSTD_LEVEL",
    "LZMA_PRESET",
    "JPEG_QUALITY",
    "JPEGTABLESMODE",
    "WEBP_LEVEL",
    "WEBP_LOSSLESS",
    "MAX_Z_ERROR",
    DISCARD_LSB,
];

/// What the directory says of tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// PhotometricInterpretation.
    pub photometric: u16,
    /// The first value of ExtraSamples.
    pub extra: Option<u16>,
    /// BitsPerSample.
    pub bits: u16,
    /// Bytes of GDAL's sample.
    pub sample_bytes: u8,
    /// Bytes of 8 bits are signed.
    pub signed_bytes: bool,
    /// Each band has tiles of its own.
    pub separate: bool,
    /// Tiles rather than strips.
    pub tiled: bool,
    /// Columns and rows of a tile or strip.
    pub block: [u32; 2],
    /// Byte order.
    pub big_endian: bool,
    /// The files are to have a nodata value.
    pub nodata: bool,
}

/// Whether a tile's bytes depend on which plane it is of: JPEG stores that, and bits may be discarded
/// by the band. Files of such tiles have all planes.
pub fn tells_planes_apart(for_gtiff: &[(String, String)]) -> bool {
    find(for_gtiff, "COMPRESS").is_some_and(|codec| codec.eq_ignore_ascii_case("JPEG"))
        || find(for_gtiff, DISCARD_LSB).is_some_and(|bits| bits.contains(','))
}

/// The creation options; `None` where GTiff has no word for a tile like that.
pub fn options(for_gtiff: &[(String, String)], facts: &Facts) -> Option<Vec<(String, String)>> {
    let codec = |name: &str| KEPT.iter().any(|kept| kept.eq_ignore_ascii_case(name));
    let is_jxl = |name: &str| name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("JXL_"));
    let mut options: Vec<(String, String)> =
        for_gtiff.iter().filter(|(name, _)| codec(name) || is_jxl(name)).cloned().collect();
    // GTiff's Create() takes 0 for 6, its CreateCopy() does not: the nearest that both mean.
    for (name, value) in &mut options {
        if name.eq_ignore_ascii_case("LZMA_PRESET") && value == "0" {
            *value = "1".into();
        }
    }
    let together = facts.separate && tells_planes_apart(for_gtiff);
    let mut set = |name: &str, value: &str| options.push((name.into(), value.into()));
    set("NUM_THREADS", "1");
    set("INTERLEAVE", if together { "BAND" } else { "PIXEL" });
    // All tiles that are written are there, whatever they hold, and no others.
    set("SPARSE_OK", "TRUE");
    set("@WRITE_EMPTY_TILES_SYNCHRONOUSLY", "TRUE");
    // libtiff makes the same tables when the first tile is encoded.
    set("WRITE_JPEGTABLE_TAG", "NO");
    set("BIGTIFF", "NO");
    set("PROFILE", if facts.nodata { "GDALGeoTIFF" } else { "BASELINE" });
    set("ENDIANNESS", if facts.big_endian { "BIG" } else { "LITTLE" });
    if facts.tiled {
        set("TILED", "YES");
        set("BLOCKXSIZE", &facts.block[0].to_string());
    }
    set("BLOCKYSIZE", &facts.block[1].to_string());
    if facts.bits != u16::from(facts.sample_bytes) * 8 {
        set("NBITS", &facts.bits.to_string());
    }
    if facts.signed_bytes {
        set("PIXELTYPE", "SIGNEDBYTE");
    }
    set("PHOTOMETRIC", photometric(facts)?);
    if let Some(extra) = facts.extra.filter(|_| !facts.separate) {
        set(
            "ALPHA",
            ["UNSPECIFIED", "PREMULTIPLIED", "NON-PREMULTIPLIED"].get(usize::from(extra))?,
        );
    }
    Some(options)
}

/// The word for what a tile's samples are. One plane of several is a grey image, and so are numbers
/// of colours: their table is not the tile's.
fn photometric(facts: &Facts) -> Option<&'static str> {
    Some(match facts.photometric {
        0 => "MINISWHITE",
        _ if facts.separate => "MINISBLACK",
        1 | 3 => "MINISBLACK",
        2 => "RGB",
        6 => "YCBCR",
        // What GTiff would show in other colours than were written.
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts = Facts {
        photometric: 2,
        extra: Some(2),
        bits: 8,
        sample_bytes: 1,
        signed_bytes: false,
        separate: false,
        tiled: true,
        block: [256, 128],
        big_endian: false,
        nodata: false,
    };

    fn asked(facts: &Facts, name: &str) -> Option<String> {
        let list = [("COMPRESS", "LERC"), ("TFW", "YES"), ("SPARSE_OK", "NO"), ("jxl_effort", "3")]
            .map(|(name, value)| (name.to_string(), value.to_string()));
        let options = options(&list, facts).unwrap();
        options.into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    #[test]
    fn the_directory_has_the_last_word_and_codecs_keep_their_options() {
        let get = |name| asked(&FACTS, name);
        assert_eq!(get("COMPRESS").as_deref(), Some("LERC"));
        assert_eq!(get("jxl_effort").as_deref(), Some("3"));
        assert_eq!(get("SPARSE_OK").as_deref(), Some("TRUE"));
        assert_eq!(get("ALPHA").as_deref(), Some("NON-PREMULTIPLIED"));
        assert_eq!((get("TFW"), get("NBITS"), get("PIXELTYPE")), (None, None, None));
        assert_eq!(asked(&Facts { bits: 12, sample_bytes: 2, ..FACTS }, "NBITS").unwrap(), "12");
    }

    #[test]
    fn bits_of_each_band_need_all_planes() {
        let facts = Facts { separate: true, nodata: true, ..FACTS };
        for (bits, interleave) in [("2", "PIXEL"), ("1,2,3", "BAND")] {
            let list = [(DISCARD_LSB.to_string(), bits.to_string())];
            let options = options(&list, &facts).unwrap();
            assert_eq!(find(&options, "INTERLEAVE"), Some(interleave));
            assert_eq!(find(&options, DISCARD_LSB), Some(bits));
            assert_eq!(find(&options, "PROFILE"), Some("GDALGeoTIFF"));
        }
    }

    #[test]
    fn planes_are_grey_and_strips_as_wide_as_the_image() {
        let facts = Facts { separate: true, tiled: false, ..FACTS };
        assert_eq!(asked(&facts, "PHOTOMETRIC").unwrap(), "MINISBLACK");
        assert_eq!((asked(&facts, "ALPHA"), asked(&facts, "BLOCKXSIZE")), (None, None));
        assert!(options(&[], &Facts { photometric: 5, ..FACTS }).is_none());
        assert!(options(&[], &Facts { extra: Some(3), ..FACTS }).is_none());
    }
}
