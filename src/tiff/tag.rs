//! The numbers of tags and field types that this crate reads.
//!
//! Knows nothing of what a tag's value means. TIFF 6.0 section 2 and appendix A, and the
//! BigTIFF types 16 to 18.

/// NewSubfileType: bit 2 is set for a mask.
pub const NEW_SUBFILE_TYPE: u16 = 254;
/// ImageWidth.
pub const IMAGE_WIDTH: u16 = 256;
/// ImageLength, the number of rows.
pub const IMAGE_LENGTH: u16 = 257;
/// BitsPerSample, one value for each sample.
pub const BITS_PER_SAMPLE: u16 = 258;
/// Compression.
pub const COMPRESSION: u16 = 259;
/// PhotometricInterpretation.
pub const PHOTOMETRIC: u16 = 262;
/// FillOrder, the order of bits in a byte.
pub const FILL_ORDER: u16 = 266;
/// Orientation.
pub const ORIENTATION: u16 = 274;
/// StripOffsets.
pub const STRIP_OFFSETS: u16 = 273;
/// SamplesPerPixel.
pub const SAMPLES_PER_PIXEL: u16 = 277;
/// RowsPerStrip.
pub const ROWS_PER_STRIP: u16 = 278;
/// StripByteCounts.
pub const STRIP_BYTE_COUNTS: u16 = 279;
/// PlanarConfiguration.
pub const PLANAR_CONFIGURATION: u16 = 284;
/// T4Options, of CCITT's Group 3.
pub const T4_OPTIONS: u16 = 292;
/// T6Options, of CCITT's Group 4.
pub const T6_OPTIONS: u16 = 293;
/// Predictor.
pub const PREDICTOR: u16 = 317;
/// InkSet, of CMYK.
pub const INK_SET: u16 = 332;
/// ExtraSamples.
pub const EXTRA_SAMPLES: u16 = 338;
/// JPEGTables, which all tiles share.
pub const JPEG_TABLES: u16 = 347;
/// YCbCrCoefficients.
pub const YCBCR_COEFFICIENTS: u16 = 529;
/// YCbCrSubSampling.
pub const YCBCR_SUBSAMPLING: u16 = 530;
/// ReferenceBlackWhite.
pub const REFERENCE_BLACK_WHITE: u16 = 532;
/// TileWidth.
pub const TILE_WIDTH: u16 = 322;
/// TileLength.
pub const TILE_LENGTH: u16 = 323;
/// TileOffsets.
pub const TILE_OFFSETS: u16 = 324;
/// TileByteCounts.
pub const TILE_BYTE_COUNTS: u16 = 325;
/// SampleFormat, one value for each sample.
pub const SAMPLE_FORMAT: u16 = 339;
/// DataType, SGI's predecessor of SampleFormat.
pub const DATA_TYPE: u16 = 32996;
/// GDAL_NODATA, a number as text.
pub const GDAL_NODATA: u16 = 42113;
/// LercParameters.
pub const LERC_PARAMETERS: u16 = 50674;
/// ImageDepth, SGI's volumes.
pub const IMAGE_DEPTH: u16 = 32997;
/// TileDepth, SGI's volumes.
pub const TILE_DEPTH: u16 = 32998;

/// The tags that describe storage: their values are loaded with the directory.
pub const LAYOUT: [u16; 15] = [
    IMAGE_WIDTH,
    IMAGE_LENGTH,
    BITS_PER_SAMPLE,
    COMPRESSION,
    PHOTOMETRIC,
    FILL_ORDER,
    SAMPLES_PER_PIXEL,
    ROWS_PER_STRIP,
    PLANAR_CONFIGURATION,
    PREDICTOR,
    TILE_WIDTH,
    TILE_LENGTH,
    SAMPLE_FORMAT,
    IMAGE_DEPTH,
    TILE_DEPTH,
];

/// Whether a Compression is JPEG 2000: as registered, and as Aperio's scanners write it.
pub fn is_jpeg2000(compression: u16) -> bool {
    matches!(compression, 34712 | APERIO_YCBCR | 33005)
}

/// The Compression of Aperio's whose samples are YCbCr, whatever Photometric says.
pub const APERIO_YCBCR: u16 = 33003;

/// The types of fields.
pub mod kind {
    /// 8-bit unsigned.
    pub const BYTE: u16 = 1;
    /// 8-bit characters, the last one zero.
    pub const ASCII: u16 = 2;
    /// 16-bit unsigned.
    pub const SHORT: u16 = 3;
    /// 32-bit unsigned.
    pub const LONG: u16 = 4;
    /// Two LONGs.
    pub const RATIONAL: u16 = 5;
    /// 8-bit signed.
    pub const SBYTE: u16 = 6;
    /// Bytes of any meaning.
    pub const UNDEFINED: u16 = 7;
    /// 16-bit signed.
    pub const SSHORT: u16 = 8;
    /// 32-bit signed.
    pub const SLONG: u16 = 9;
    /// Two SLONGs.
    pub const SRATIONAL: u16 = 10;
    /// 32-bit IEEE.
    pub const FLOAT: u16 = 11;
    /// 64-bit IEEE.
    pub const DOUBLE: u16 = 12;
    /// 32-bit offset of a directory.
    pub const IFD: u16 = 13;
    /// 64-bit unsigned.
    pub const LONG8: u16 = 16;
    /// 64-bit signed.
    pub const SLONG8: u16 = 17;
    /// 64-bit offset of a directory.
    pub const IFD8: u16 = 18;

    /// Bytes of one value, or `None` for a type that nobody knows.
    pub fn size(kind: u16) -> Option<u64> {
        match kind {
            BYTE | ASCII | SBYTE | UNDEFINED => Some(1),
            SHORT | SSHORT => Some(2),
            LONG | SLONG | FLOAT | IFD => Some(4),
            RATIONAL | SRATIONAL | DOUBLE | LONG8 | SLONG8 | IFD8 => Some(8),
            _ => None,
        }
    }

    /// Whether values are whole numbers, and if so whether they are signed.
    pub fn integer(kind: u16) -> Option<bool> {
        match kind {
            BYTE | SHORT | LONG | LONG8 => Some(false),
            SBYTE | SSHORT | SLONG | SLONG8 => Some(true),
            _ => None,
        }
    }
}
