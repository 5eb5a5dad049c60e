//! Types of samples: C's numbers, which stay, and GDAL's.

use super::result::{GPUGTIFF_BAD_ARGUMENT, GPUGTIFF_UNSUPPORTED, Outcome, fail};
use crate::gdal::dataset::sample_bytes;

/// The type of samples: one of GPUGTIFF_TYPE_….
#[allow(non_camel_case_types)]
pub type gpugtiff_type = i32;

/// The raster's own type.
pub const GPUGTIFF_TYPE_OWN: gpugtiff_type = 0;
/// uint8_t
pub const GPUGTIFF_TYPE_U8: gpugtiff_type = 1;
/// int8_t. GDAL knows it since 3.7; before, such files are shown as uint8_t.
pub const GPUGTIFF_TYPE_I8: gpugtiff_type = 2;
/// uint16_t
pub const GPUGTIFF_TYPE_U16: gpugtiff_type = 3;
/// int16_t
pub const GPUGTIFF_TYPE_I16: gpugtiff_type = 4;
/// uint32_t
pub const GPUGTIFF_TYPE_U32: gpugtiff_type = 5;
/// int32_t
pub const GPUGTIFF_TYPE_I32: gpugtiff_type = 6;
/// uint64_t
pub const GPUGTIFF_TYPE_U64: gpugtiff_type = 7;
/// int64_t
pub const GPUGTIFF_TYPE_I64: gpugtiff_type = 8;
/// float
pub const GPUGTIFF_TYPE_F32: gpugtiff_type = 9;
/// double
pub const GPUGTIFF_TYPE_F64: gpugtiff_type = 10;
/// Complex, two int16_t.
pub const GPUGTIFF_TYPE_CI16: gpugtiff_type = 11;
/// Complex, two int32_t.
pub const GPUGTIFF_TYPE_CI32: gpugtiff_type = 12;
/// Complex, two floats.
pub const GPUGTIFF_TYPE_CF32: gpugtiff_type = 13;
/// Complex, two doubles.
pub const GPUGTIFF_TYPE_CF64: gpugtiff_type = 14;
/// Half a float. GDAL knows it since 3.11; before, such files are shown as float.
pub const GPUGTIFF_TYPE_F16: gpugtiff_type = 15;
/// Complex, two halves. Since GDAL 3.11.
pub const GPUGTIFF_TYPE_CF16: gpugtiff_type = 16;

/// GDAL's numbers (gdal.h), at the place of ours.
const GDAL: [u32; 17] = [0, 1, 14, 2, 3, 4, 5, 12, 13, 6, 7, 8, 9, 10, 11, 15, 16];

/// A type that this GDAL has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    /// GDAL's number.
    pub(super) gdal: u32,
    /// Bytes of a sample.
    pub(super) bytes: usize,
}

impl Kind {
    /// Of GDAL's number.
    pub(super) fn of_gdal(gdal: u32) -> Outcome<Kind> {
        match sample_bytes(gdal) {
            0 => fail(GPUGTIFF_UNSUPPORTED, format!("this GDAL has no type number {gdal}")),
            bytes => Ok(Kind { gdal, bytes }),
        }
    }

    /// Of C's number; `own` for none.
    pub(super) fn of(kind: gpugtiff_type, own: Kind) -> Outcome<Kind> {
        if kind == GPUGTIFF_TYPE_OWN {
            return Ok(own);
        }
        match usize::try_from(kind).ok().and_then(|i| GDAL.get(i)) {
            Some(&gdal) => Kind::of_gdal(gdal),
            None => fail(
                GPUGTIFF_BAD_ARGUMENT,
                format!("the type is {kind}: expected one of GPUGTIFF_TYPE_…, 0 to 16"),
            ),
        }
    }

    /// Floating-point numbers, complex ones too.
    pub(super) fn is_float(self) -> bool {
        matches!(
            self.number(),
            GPUGTIFF_TYPE_F16
                | GPUGTIFF_TYPE_F32
                | GPUGTIFF_TYPE_F64
                | GPUGTIFF_TYPE_CF16
                | GPUGTIFF_TYPE_CF32
                | GPUGTIFF_TYPE_CF64
        )
    }

    /// C's number.
    pub(super) fn number(self) -> gpugtiff_type {
        let place = GDAL.iter().position(|&gdal| gdal == self.gdal);
        place.and_then(|place| i32::try_from(place).ok()).unwrap_or(GPUGTIFF_TYPE_OWN)
    }
}
