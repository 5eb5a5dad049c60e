//! What the device did, counted.
#![forbid(unsafe_code)]

use crate::count::{Count, counts};
use crate::engine::Codec;

counts! {
    /// One set for each dataset.
    pub(super) struct Tally {
        /// Batches that went through the device.
        batches => "CUDA_BATCHES",
        /// Tiles that the device decoded.
        decoded => "CUDA_TILES_DECODED",
        /// The same by codec, and what of it the CPU was left with.
        decoded_none => "CUDA_TILES_DECODED_NONE",
        decoded_lzw => "CUDA_TILES_DECODED_LZW",
        decoded_deflate => "CUDA_TILES_DECODED_DEFLATE",
        decoded_packbits => "CUDA_TILES_DECODED_PACKBITS",
        decoded_zstd => "CUDA_TILES_DECODED_ZSTD",
        decoded_jpeg2000 => "CUDA_TILES_DECODED_JPEG2000",
        cpu_none => "CUDA_TILES_ON_CPU_NONE",
        cpu_lzw => "CUDA_TILES_ON_CPU_LZW",
        cpu_deflate => "CUDA_TILES_ON_CPU_DEFLATE",
        cpu_packbits => "CUDA_TILES_ON_CPU_PACKBITS",
        cpu_zstd => "CUDA_TILES_ON_CPU_ZSTD",
        cpu_jpeg2000 => "CUDA_TILES_ON_CPU_JPEG2000",
        /// Tiles that the device encoded.
        encoded => "CUDA_TILES_ENCODED",
        /// Tiles that were sent to the device, or could not be, and were done again on the CPU.
        redone => "CUDA_TILES_REDONE",
        /// Tiles that never went to the device: of other kinds, too large, not to be read.
        left => "CUDA_TILES_LEFT_TO_CPU",
        /// How often the CPU stepped in because the device was busy with other datasets.
        busy => "CUDA_TILES_BUSY",
        /// Tiles compared with the CPU's.
        verified => "CUDA_TILES_VERIFIED",
        /// Batches that differed.
        mismatches => "CUDA_MISMATCHES",
        /// Batches that the device failed on.
        faults => "CUDA_FAULTS",
        /// Bytes to the device.
        up => "CUDA_BYTES_UP",
        /// Bytes from the device.
        down => "CUDA_BYTES_DOWN",
        /// Device memory of the largest run.
        peak => "CUDA_PEAK_BYTES",
        /// Reads past the host.
        gds_reads => "CUDA_GDS_READS",
        /// Tiles that shared a read with others.
        gds_merged => "CUDA_GDS_TILES_MERGED",
        /// Bytes that were read past the host.
        gds_bytes => "CUDA_GDS_BYTES",
        /// Batches that were to be read so, and were not.
        gds_fallbacks => "CUDA_GDS_FALLBACKS",
        /// Microseconds of reading into staging memory.
        read => "CUDA_US_READ",
        /// Microseconds of copies to the device.
        upload => "CUDA_US_UPLOAD",
        /// Microseconds of nvCOMP, and of our kernels for what it has no codec for.
        codec => "CUDA_US_CODEC",
        /// Microseconds of our other kernels.
        kernels => "CUDA_US_KERNELS",
        /// Microseconds of copies from the device.
        download => "CUDA_US_DOWNLOAD",
    }
}

impl Tally {
    /// Tiles of a codec that were decoded on the device, and on the CPU.
    fn by_codec(&self, codec: Codec) -> Option<[&Count; 2]> {
        Some(match codec {
            Codec::None => [&self.decoded_none, &self.cpu_none],
            Codec::Lzw => [&self.decoded_lzw, &self.cpu_lzw],
            Codec::Deflate => [&self.decoded_deflate, &self.cpu_deflate],
            Codec::PackBits => [&self.decoded_packbits, &self.cpu_packbits],
            Codec::Zstd => [&self.decoded_zstd, &self.cpu_zstd],
            Codec::Jpeg2000(_) => [&self.decoded_jpeg2000, &self.cpu_jpeg2000],
            // These have an engine of their own.
            Codec::Gtiff => return None,
        })
    }

    fn count(&self, codec: Codec, place: usize, tiles: usize) {
        if let Some(counts) = self.by_codec(codec) {
            counts[place].add(tiles as u64);
        }
    }

    /// The device decoded tiles.
    pub(super) fn decoded_on_device(&self, codec: Codec, tiles: usize) {
        self.decoded.add(tiles as u64);
        self.count(codec, 0, tiles);
    }

    /// Tiles to be decoded never went to the device.
    pub(super) fn left_to_cpu(&self, codec: Codec, tiles: usize) {
        self.left.add(tiles as u64);
        self.count(codec, 1, tiles);
    }

    /// Tiles that the device was to decode were done again on the CPU.
    pub(super) fn decoded_again(&self, codec: Codec, tiles: usize) {
        self.redone.add(tiles as u64);
        self.count(codec, 1, tiles);
    }

    /// A batch was submitted.
    pub(super) fn batch(&self, up: usize, down: usize) {
        self.batches.add(1);
        self.up.add(up as u64);
        self.down.add(down as u64);
    }

    /// Milliseconds of a batch, as events tell.
    pub(super) fn times(&self, [upload, codec, kernels, download]: [f32; 4]) {
        let micros = |ms: f32| (f64::from(ms) * 1000.0) as u64;
        self.upload.add(micros(upload));
        self.codec.add(micros(codec));
        self.kernels.add(micros(kernels));
        self.download.add(micros(download));
    }
}
