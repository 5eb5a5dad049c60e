//! What the device did, counted.
#![forbid(unsafe_code)]

use crate::count::counts;

counts! {
    /// One set for each dataset.
    pub(super) struct Tally {
        /// Batches that went through the device.
        batches => "CUDA_BATCHES",
        /// Tiles that the device decoded.
        decoded => "CUDA_TILES_DECODED",
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
        /// Microseconds of reading into staging memory.
        read => "CUDA_US_READ",
        /// Microseconds of copies to the device.
        upload => "CUDA_US_UPLOAD",
        /// Microseconds of nvCOMP.
        codec => "CUDA_US_CODEC",
        /// Microseconds of our kernels.
        kernels => "CUDA_US_KERNELS",
        /// Microseconds of copies from the device.
        download => "CUDA_US_DOWNLOAD",
    }
}

impl Tally {
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
