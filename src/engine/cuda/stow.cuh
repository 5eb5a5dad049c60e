// Tiles that were read to the device as the file has them, on their way to those who unpack them. Part
// of kernels.cu.
//
// Each goes to a slot of its own, without what is around its stream, and what the host looks at before
// it sends a tile up (frames.rs) is looked at here: zlib headers, the chain of blocks of a ZSTD frame. A
// tile that does not pass is never shown to nvCOMP, which gets a stream of nothing in its stead. All
// blocks of a tile copy, and one thread of the first one judges meanwhile. Of a tile's source the rest
// of its first and last 8 bytes is read.

struct StowTile {
    u64 from, to;      // as the file has it; the slot, 16-aligned
    u32 bytes, room;   // of both; a slot's is a multiple of 16: the stream, then zeros
    u32 content;       // what a ZSTD frame must hold
    u32 reserved;
};

struct Verdict {
    u32 adler;         // that the file states
    u32 refused;
};

enum Framing : u32 { BARE, ZLIB, ZSTD };

struct Stow {
    const StowTile* tiles;
    u64* inputs;       // where streams are, and
    u64* input_bytes;  // how long: to be filled
    DecodeTile* decode;
    Verdict* verdicts;
    u64 nothing, nothing_bytes;
    u32 framing, reserved;
};

static_assert(sizeof(StowTile) == 32 && sizeof(Verdict) == 8 && sizeof(Stow) == 64, "known to the host");

struct ZstdFrame {
    enum : u32 {
        MAGIC = 0xfd2fb528,
        PLAIN = 6,            // bytes of a header without content size,
        PATCHED = 9,          // and of the one that takes its place
        LARGEST = 128 << 10,  // block
    };

    // Neither one segment nor a content size: the frame does not tell how much it holds.
    static INLINE bool is_sizeless(u32 descriptor) { return descriptor >> 5 == 0; }

    // Follows the blocks to the end of the tile. So many blocks that a chain of them would hold up the
    // device are refused, too.
    static INLINE bool is_whole(u64 from, u32 bytes, u32 content) {
        if (bytes < PLAIN || fetch<u32>(from) != MAGIC) return false;
        const u32 descriptor = load<u8>(from + 4);
        const bool single = descriptor & 0x20, checksum = descriptor & 4;
        if (descriptor & 0x0b) return false;   // a reserved bit, or a dictionary
        const u32 flag = descriptor >> 6, size = flag == 0 ? single : 1 << flag;
        u64 at = single ? 5 : 6, stated = size == 2 ? 256 : 0;
        if (at + size > bytes) return false;
        ROLLED for (u32 k = 0; k < size; k++) stated += (u64)load<u8>(from + at + k) << (8 * k);
        if (size == 0 ? checksum : stated != content) return false;
        at += size;
        u64 most = 0;
        ROLLED for (u32 left = 64 + content / 1024; left > 0; left--) {
            if (at + 3 > bytes) return false;
            const u32 low = load<u8>(from + at), middle = load<u8>(from + at + 1);
            const u32 header = low | middle << 8 | (u32)load<u8>(from + at + 2) << 16;
            const u32 kind = header >> 1 & 3, block = header >> 3;
            if (block > LARGEST || kind == 3) return false;
            at += 3 + (kind == 1 ? 1 : block);
            most += kind == 2 ? LARGEST : block;
            if (header & 1) return at + (checksum ? 4 : 0) == bytes && most >= content;
        }
        return false;
    }
};

// Method 8, no dictionary, check bits right, and something between header and checksum.
INLINE bool is_zlib(u64 from, u32 bytes) {
    if (bytes <= 6) return false;
    const u32 method = load<u8>(from), flags = load<u8>(from + 1);
    return (method & 15) == 8 && !(flags & 0x20) && (method << 8 | flags) % 31 == 0;
}

INLINE void judge(const Stow& stow, const StowTile& tile, u64 size) {
    const u32 i = blockIdx.x;
    Verdict verdict{0, 0};
    if (stow.framing == ZLIB) {
        verdict.refused = !is_zlib(tile.from, tile.bytes);
        const u64 trailer = tile.from + tile.bytes - 4;
        if (!verdict.refused) verdict.adler = __byte_perm(fetch<u32>(trailer), 0, 0x0123);
        stow.decode[i].adler = verdict.adler;
    } else if (stow.framing == ZSTD) {
        verdict.refused = !ZstdFrame::is_whole(tile.from, tile.bytes, tile.content);
    }
    stow.inputs[i] = verdict.refused ? stow.nothing : tile.to;
    stow.input_bytes[i] = verdict.refused ? stow.nothing_bytes : size;
    stow.verdicts[i] = verdict;
}

extern "C" __global__ void __launch_bounds__(THREADS) stow(const Stow stow) {
    const StowTile tile = stow.tiles[blockIdx.x];
    const u32 thread = threadIdx.x, lane = thread % WARP;
    const bool sizeless = stow.framing == ZSTD && tile.bytes >= ZstdFrame::PLAIN &&
                          ZstdFrame::is_sizeless(load<u8>(tile.from + 4));
    // The stream is [first, end), and goes to so many bytes behind the start of the slot.
    const u32 around = stow.framing == ZLIB ? 2 : sizeless ? ZstdFrame::PLAIN : 0;
    const u32 lead = sizeless ? ZstdFrame::PATCHED : 0;
    const u64 first = tile.from + around;
    const u64 end = tile.from + tile.bytes - (stow.framing == ZLIB ? min_of(tile.bytes, 4u) : 0);
    const u64 size = end > first ? end - first : 0;
    if (blockIdx.y == 0 && thread == 0) judge(stow, tile, lead + size);
    // Words of the slot are shifted together from two, of which a lane reads one and has the other from
    // its neighbour. A header that grew begins before its source.
    const u64 source = first - lead;
    const u32 phase = source % 8, shift = 8 * phase;
    const u64 start = (u64)blockIdx.y * THREADS + thread - lane, step = gridDim.y * THREADS;
    ROLLED for (u64 k = start; k < tile.room / 8; k += step) {
        const u64 word = k + lane, at = source + 8 * word, aligned = at - phase;
        const bool inside = aligned < end && aligned + 8 > tile.from;
        u64 v = inside ? load<u64>(aligned) : 0;
        u64 next = __shfl_down_sync(ALL, v, 1);
        if (lane == WARP - 1) next = aligned + 8 < end ? load<u64>(aligned + 8) : 0;
        if (phase != 0) v = v >> shift | next << (64 - shift);
        if (at + 8 > end) v = at >= end ? 0 : v & ~0ull >> (8 * (at + 8 - end));
        if (sizeless && word == 0)
            v = ZstdFrame::MAGIC | (u64)(0xa0 | tile.content << 8) << 32;
        if (sizeless && word == 1) v = (v & ~0xffull) | tile.content >> 24;
        if (word < tile.room / 8) store(tile.to + 8 * word, v);
    }
}
