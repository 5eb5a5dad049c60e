//! The main header of a codestream, bare or in JP2 boxes: sizes, components, resolutions.
//!
//! Refuses to know samples. Invariant: what is not a whole, sound header is none at all.

/// A component of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Component {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) precision: u8,
    pub(super) is_signed: bool,
    step: (u32, u32),
}

/// What the main header says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Header {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) tile_width: u32,
    pub(super) tile_height: u32,
    pub(super) tiles_x: u32,
    pub(super) tiles_y: u32,
    pub(super) components: Vec<Component>,
    /// Wavelet decompositions and the whole.
    pub(super) resolutions: u32,
    /// -1 not supported, 0 unknown, 1 sRGB, 2 grey, 3 sYCC.
    pub(super) color_space: i32,
    pub(super) is_jp2: bool,
    area: Area,
}

/// Corners of the image and of its first tile on the reference grid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Area {
    x0: u32,
    y0: u32,
    x1: u32,
    y1: u32,
    tile_x0: u32,
    tile_y0: u32,
}

fn be16(bytes: &[u8], at: usize) -> Option<u32> {
    let found = bytes.get(at..at.checked_add(2)?)?;
    Some(u32::from(u16::from_be_bytes(found.try_into().ok()?)))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

const SOC: &[u8] = &[0xff, 0x4f];
const SIZ: u32 = 0xff51;
const COD: u32 = 0xff52;
const SOT: u32 = 0xff90;

/// The header of a stream, or nothing where it has none.
pub(super) fn header(bytes: &[u8]) -> Option<Header> {
    if bytes.starts_with(SOC) {
        return main_header(bytes);
    }
    let mut color_space = 0;
    boxes(bytes, &mut color_space).map(|mut header| {
        header.color_space = color_space;
        header.is_jp2 = true;
        header
    })
}

/// Looks through JP2 boxes for the colour space and the codestream.
fn boxes(bytes: &[u8], color_space: &mut i32) -> Option<Header> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let kind = rest.get(4..8)?;
        let (head, length) = match be32(rest, 0)? {
            0 => (8, rest.len()),
            1 => (
                16,
                usize::try_from((u64::from(be32(rest, 8)?) << 32) + u64::from(be32(rest, 12)?))
                    .ok()?,
            ),
            length => (8, length as usize),
        };
        let content = rest.get(head..length)?;
        match kind {
            b"jp2h" => {
                // A header without a codestream of its own.
                boxes(content, color_space);
            }
            b"colr" if content.first() == Some(&1) => {
                *color_space = match be32(content, 3)? {
                    16 => 1,
                    17 => 2,
                    18 => 3,
                    _ => -1,
                };
            }
            b"jp2c" => return main_header(content),
            _ => (),
        }
        rest = &rest[length..];
    }
    None
}

/// From SOC to the first tile part.
fn main_header(bytes: &[u8]) -> Option<Header> {
    if !bytes.starts_with(SOC) || be16(bytes, 2)? != SIZ {
        return None;
    }
    let mut header = size(bytes.get(4..)?)?;
    let mut at = 2;
    loop {
        let marker = be16(bytes, at)?;
        if marker == SOT {
            break;
        }
        let length = be16(bytes, at + 2)? as usize;
        if marker < 0xff01 || length < 2 {
            return None;
        }
        if marker == COD {
            header.resolutions = u32::from(*bytes.get(at + 9)?) + 1;
        }
        at += 2 + length;
    }
    (header.resolutions > 0 && header.resolutions <= 33).then_some(header)
}

/// The segment of SIZ, from its length on.
fn size(bytes: &[u8]) -> Option<Header> {
    let word = |index: usize| be32(bytes, 4 + index * 4);
    let (x1, y1, x0, y0) = (word(0)?, word(1)?, word(2)?, word(3)?);
    let (tile_width, tile_height, tile_x0, tile_y0) = (word(4)?, word(5)?, word(6)?, word(7)?);
    let count = be16(bytes, 36)? as usize;
    let is_sound = x0 < x1 && y0 < y1 && tile_width > 0 && tile_height > 0;
    // The first tile holds the image's corner.
    let holds = |origin: u32, step: u32, corner: u32| origin <= corner && corner - origin < step;
    let is_tiled = holds(tile_x0, tile_width, x0) && holds(tile_y0, tile_height, y0);
    if !is_sound || !is_tiled || count == 0 || count > 16384 {
        return None;
    }
    let mut components = Vec::new();
    for one in bytes.get(38..38 + 3 * count)?.chunks_exact(3) {
        let (depth, dx, dy) = (one[0], u32::from(one[1]), u32::from(one[2]));
        if dx == 0 || dy == 0 || depth & 0x7f > 37 {
            return None;
        }
        components.push(Component {
            width: x1.div_ceil(dx) - x0.div_ceil(dx),
            height: y1.div_ceil(dy) - y0.div_ceil(dy),
            precision: (depth & 0x7f) + 1,
            is_signed: depth & 0x80 != 0,
            step: (dx, dy),
        });
    }
    Some(Header {
        width: x1 - x0,
        height: y1 - y0,
        tile_width,
        tile_height,
        tiles_x: (x1 - tile_x0).div_ceil(tile_width),
        tiles_y: (y1 - tile_y0).div_ceil(tile_height),
        components,
        resolutions: 0,
        color_space: 0,
        is_jp2: false,
        area: Area { x0, y0, x1, y1, tile_x0, tile_y0 },
    })
}

impl Header {
    /// Width and height of a component of a tile.
    pub(super) fn tile(&self, component: u32, tile: u32) -> Option<(u32, u32)> {
        if u64::from(tile) >= u64::from(self.tiles_x) * u64::from(self.tiles_y) {
            return None;
        }
        let (dx, dy) = self.components.get(component as usize)?.step;
        let Area { x0, y0, x1, y1, tile_x0, tile_y0 } = self.area;
        let span = |index: u32, origin: u32, step: u32, low: u32, high: u32, by: u32| {
            let start = u64::from(origin) + u64::from(index) * u64::from(step);
            let (from, to) = (start.max(low.into()), (start + u64::from(step)).min(high.into()));
            (to.div_ceil(by.into()) - from.div_ceil(by.into())) as u32
        };
        let width = span(tile % self.tiles_x, tile_x0, self.tile_width, x0, x1, dx);
        let height = span(tile / self.tiles_x, tile_y0, self.tile_height, y0, y1, dy);
        Some((width, height))
    }

    /// Whether the library takes such images: up to 4 components of up to 16 bits, of one size
    /// but for colour differences at half the width, or half of both.
    pub(super) fn is_supported(&self) -> bool {
        let steps: Vec<_> = self.components.iter().map(|one| one.step).collect();
        let is_even = steps.iter().all(|step| *step == (1, 1));
        let is_chroma = matches!(steps[..], [(1, 1), (2, 2), (2, 2)] | [(1, 1), (2, 1), (2, 1)]);
        let is_shallow = self.components.iter().all(|one| one.precision <= 16);
        steps.len() <= 4 && is_shallow && (is_even || is_chroma)
    }

    /// How many samples there are in all.
    pub(super) fn samples(&self) -> u64 {
        let sizes = self.components.iter().map(|one| u64::from(one.width) * u64::from(one.height));
        sizes.fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::header;
    use crate::random::Random;

    /// SOC, SIZ and COD of a 100 by 70 image with tiles of 64 by 64 and a halved second component.
    fn stream() -> Vec<u8> {
        let mut bytes = vec![0xff, 0x4f, 0xff, 0x51, 0, 44, 0, 0];
        for word in [100u32, 70, 0, 0, 64, 64, 0, 0] {
            bytes.extend(word.to_be_bytes());
        }
        bytes.extend([0, 2, 7, 1, 1, 0x8b, 2, 2]);
        bytes.extend([0xff, 0x52, 0, 12, 0, 0, 0, 1, 0, 5, 4, 4, 0, 1]);
        bytes.extend([0xff, 0x90]);
        bytes
    }

    #[test]
    fn sizes_of_tiles_and_components() {
        let found = header(&stream()).unwrap();
        assert_eq!((found.width, found.height, found.tiles_x, found.tiles_y), (100, 70, 2, 2));
        assert_eq!(found.resolutions, 6);
        let one = found.components[1];
        assert_eq!((one.width, one.height, one.precision, one.is_signed), (50, 35, 12, true));
        assert_eq!(found.tile(0, 3), Some((36, 6)));
        assert_eq!(found.tile(1, 3), Some((18, 3)));
        assert_eq!(found.tile(0, 4), None);
    }

    #[test]
    fn damaged_headers_are_none_or_consistent() {
        let mut random = Random::new(1);
        for _ in 0..20_000 {
            let mut bytes = stream();
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next() as u8;
            }
            let Some(found) = header(&bytes) else { continue };
            let last = u64::from(found.tiles_x) * u64::from(found.tiles_y) - 1;
            for tile in [0, last.min(u64::from(u32::MAX)) as u32] {
                let (width, height) = found.tile(0, tile).unwrap();
                assert!(width <= found.width && height <= found.height, "{found:?}");
            }
        }
    }

    #[test]
    fn no_prefix_of_a_header_is_one() {
        let whole = stream();
        for length in 0..whole.len() {
            assert_eq!(header(&whole[..length]), None, "{length}");
        }
    }
}
