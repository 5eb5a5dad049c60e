//! What was done, counted. Shown to users in the metadata domain GPUGTIFF.

use crate::count::counts;

counts! {
    /// One set for each dataset, its overviews and masks included.
    pub struct Counters {
        /// Batches handed to the engine.
        batches => "BATCHES",
        /// Tiles that a request needed decoded.
        tiles_touched => "TILES_TOUCHED",
        /// Tiles that the engine decoded for a request.
        tiles_decoded => "TILES_DECODED",
        /// Of them, those of codecs that only GDAL has.
        tiles_by_gtiff_codec => "TILES_BY_GTIFF_CODEC",
        /// Tiles decoded in front of the caller.
        tiles_ahead => "TILES_AHEAD",
        /// Tiles decoded in front of the caller that it then asked for.
        tiles_from_ahead => "TILES_FROM_AHEAD",
        /// Tiles that the file leaves out.
        tiles_sparse => "TILES_SPARSE",
        /// Tiles that the engine failed on and GTiff was asked for.
        tiles_gtiff => "TILES_GTIFF",
        /// Requests passed whole to GTiff.
        requests_gtiff => "REQUESTS_GTIFF",
        /// Single blocks passed to GTiff.
        blocks_gtiff => "BLOCKS_GTIFF",
        /// Bytes that the tiles of batches have in the file; of uncompressed ones fewer may be read.
        bytes_read => "BYTES_READ",
        /// Pixel bytes decoded.
        bytes_decoded => "BYTES_DECODED",
        /// Tiles that the engine encoded.
        tiles_encoded => "TILES_ENCODED",
        /// Of them, those that were decoded by who encoded them, out of the source's own tiles.
        tiles_recoded => "TILES_RECODED",
        /// Tiles copied from the source as they were.
        tiles_copied => "TILES_COPIED",
        /// Bytes of tiles written.
        bytes_written => "BYTES_WRITTEN",
        /// Bytes that went to the scratch file.
        bytes_spilled => "BYTES_SPILLED",
        /// Files that GTiff wrote.
        written_by_gtiff => "WRITTEN_BY_GTIFF",
    }
}
