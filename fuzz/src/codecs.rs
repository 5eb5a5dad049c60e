//! Decoders on any stream, and encoders on any bytes.
//!
//! A decoder writes nothing outside its output, and what it makes depends on the stream alone: it is
//! run twice, into memory that holds something else. Where another implementation decodes the same
//! stream, the bytes are equal. What an encoder makes fits its bound and decodes to its input.

use std::io::Read;

use gpugtiff::engine::Codec;
use gpugtiff::engine::cpu::codec::CodecError;
use gpugtiff::engine::cpu::deflate::{self, Deflate};
use gpugtiff::engine::cpu::lzw::{self, Lzw};
use gpugtiff::engine::cpu::packbits;
use gpugtiff::engine::cpu::zstd::{self, Zstd};

use crate::input::Input;
use crate::naive;

/// Bytes of memory on either side of an output that must stay as they are.
const GUARD: usize = 64;
/// The largest output.
const MOST: usize = 20_000;

type Decode<'a> = &'a mut dyn FnMut(&[u8], &mut [u8]) -> Result<usize, CodecError>;

/// What a decoder makes of a stream.
fn decoded(stream: &[u8], capacity: usize, decode: Decode<'_>) -> Result<Vec<u8>, CodecError> {
    // An allocation of exactly that size: AddressSanitizer sees what is written beyond.
    let mut exact = vec![0x5A; capacity].into_boxed_slice();
    let first = decode(stream, &mut exact);
    let mut guarded = vec![0xA5; capacity + 2 * GUARD];
    let second = decode(stream, &mut guarded[GUARD..GUARD + capacity]);
    let untouched = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0xA5);
    assert!(untouched(&guarded[..GUARD]), "written before the output");
    assert!(untouched(&guarded[GUARD + capacity..]), "written behind the output");
    assert_eq!(first.is_ok(), second.is_ok(), "{first:?} and then {second:?}");
    let (first, second) = (first?, second?);
    assert_eq!(first, second, "another length from the same stream");
    assert!(first <= capacity, "{first} bytes in {capacity}");
    assert!(exact[..first] == guarded[GUARD..GUARD + first], "other bytes from the same stream");
    Ok(exact[..first].to_vec())
}

/// Encodes `data` into exactly `bound` bytes.
fn encoded(
    bound: usize,
    encode: &mut dyn FnMut(&mut [u8]) -> Result<usize, CodecError>,
) -> Vec<u8> {
    let mut exact = vec![0; bound].into_boxed_slice();
    let made = encode(&mut exact).expect("there is room for the bound");
    exact[..made].to_vec()
}

/// Both ways of a target: an input begins with whether it is a stream or data, and a capacity.
fn either(data: &[u8]) -> (bool, usize, &[u8]) {
    let mut input = Input::new(data);
    let is_stream = input.u8() != 1;
    let capacity = input.below(MOST);
    (is_stream, capacity, input.rest())
}

pub(crate) fn lzw(data: &[u8]) {
    let (is_stream, capacity, bytes) = either(data);
    let mut decoder = Lzw::new();
    let mut decode = |src: &[u8], dst: &mut [u8]| decoder.decode(src, dst);
    if is_stream {
        let Ok(ours) = decoded(bytes, capacity, &mut decode) else { return };
        let naive = naive::unpack(Codec::Lzw, bytes, capacity);
        assert!(naive.as_ref() == Some(&ours), "the naive decoder: {:?}", naive.map(|n| n.len()));
        let mut weezl = weezl::decode::Decoder::with_tiff_size_switch(weezl::BitOrder::Msb, 8);
        if let Ok(theirs) = weezl.decode(bytes) {
            assert!(theirs.len() >= ours.len() && theirs[..ours.len()] == ours, "weezl");
        }
        return;
    }
    let mut encoder = lzw::Encoder::new();
    let stream = encoded(lzw::bound(bytes.len()), &mut |dst| encoder.encode(bytes, dst));
    assert!(decoded(&stream, bytes.len(), &mut decode).as_deref() == Ok(bytes), "ours");
    let mut weezl = weezl::decode::Decoder::with_tiff_size_switch(weezl::BitOrder::Msb, 8);
    assert!(weezl.decode(&stream).is_ok_and(|theirs| theirs == bytes), "weezl");
}

pub(crate) fn packbits(data: &[u8]) {
    let (is_stream, capacity, bytes) = either(data);
    let mut decode = packbits::decode;
    if is_stream {
        let ours = decoded(bytes, capacity, &mut decode).expect("any stream decodes");
        let naive = naive::unpack(Codec::PackBits, bytes, capacity).expect("any stream decodes");
        // A stretch that ends the tile may be cut off with it: the naive decoder drops it whole.
        assert!(naive.len() <= ours.len() && ours[..naive.len()] == naive, "the naive decoder");
        return;
    }
    let row = capacity % 300 + 1;
    let bytes = &bytes[..bytes.len() / row * row];
    let bound = packbits::bound(row, bytes.len() / row);
    let stream = encoded(bound, &mut |dst| packbits::encode(bytes, row, dst));
    assert!(decoded(&stream, bytes.len(), &mut decode).as_deref() == Ok(bytes), "ours");
}

pub(crate) fn deflate(data: &[u8]) {
    let (is_stream, capacity, bytes) = either(data);
    // Takes turns between its two libraries.
    let mut decoder = Deflate::new().expect("memory");
    let mut decode = |src: &[u8], dst: &mut [u8]| decoder.decode(src, dst);
    if is_stream {
        let ours = decoded(bytes, capacity, &mut decode);
        // libdeflate takes length symbols 286 and 287, which do not exist, for 285; flate2 refuses
        // them. libtiff decodes by libdeflate too.
        if let (Ok(ours), Some(theirs)) = (ours, naive::unpack(Codec::Deflate, bytes, capacity)) {
            assert!(theirs == ours, "flate2: {} bytes, ours {}", theirs.len(), ours.len());
        }
        return;
    }
    let level = 1 + capacity as i32 % 12;
    let mut encoder = deflate::Encoder::default();
    let bound = deflate::bound(bytes.len());
    let stream = encoded(bound, &mut |dst| encoder.encode(level, bytes, dst));
    assert!(decoded(&stream, bytes.len(), &mut decode).as_deref() == Ok(bytes), "ours");
    let theirs = naive::unpack(Codec::Deflate, &stream, bytes.len());
    assert!(theirs.as_deref() == Some(bytes), "flate2");
}

pub(crate) fn zstd(data: &[u8]) {
    let (is_stream, capacity, bytes) = either(data);
    let mut decoder = Zstd::new().expect("memory");
    let mut decode = |src: &[u8], dst: &mut [u8]| decoder.decode(src, dst);
    if is_stream {
        let ours = decoded(bytes, capacity, &mut decode);
        // By its streaming interface, which is what libtiff uses.
        if let (Ok(ours), Some(theirs)) = (ours, naive::unpack(Codec::Zstd, bytes, capacity)) {
            assert!(theirs == ours, "ZSTD as a stream: {} bytes of {}", theirs.len(), ours.len());
        }
        return;
    }
    let level = 1 + capacity as i32 % 6;
    let mut encoder = zstd::Encoder::default();
    let bound = zstd::bound(bytes.len());
    let stream = encoded(bound, &mut |dst| encoder.encode(level, bytes, dst));
    assert!(decoded(&stream, bytes.len(), &mut decode).as_deref() == Ok(bytes), "ours");
    let mut theirs = Vec::new();
    let mut reader = ruzstd::decoding::StreamingDecoder::new(&stream[..]).expect("a frame");
    reader.read_to_end(&mut theirs).expect("a whole frame");
    assert!(theirs == bytes, "ruzstd");
}
