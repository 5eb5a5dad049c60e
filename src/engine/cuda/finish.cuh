// Tiles of JPEG 2000, from what nvJPEG2000 leaves to what TIFF calls their pixels. Part of kernels.cu.
//
// In place, but for planes, which lie behind the tile: signed bytes that were decoded as unsigned ones,
// YCbCr (all 256 levels, BT.601, as the CPU converts it, to the bit), chroma with fewer samples; and
// columns that the codestream does not have are zero. A thread a pixel, one pixel after the other.

enum Finish : u32 { LIFTED = 1, YCBCR = 2, PLANES = 4 };

struct FinishShape {
    u32 width, height;         // stored size of a tile in pixels
    u32 samples, bytes;        // of a pixel; of a sample
};

INLINE u8 level(int sum) {
    const int v = sum >> 16;
    return (u8)(v < 0 ? 0 : v > 255 ? 255 : v);
}

INLINE void put_rgb(u64 to, int y, int cb, int cr) {
    const int luma = (y << 16) + (1 << 15);
    cb -= 128;
    cr -= 128;
    store(to, level(luma + 91881 * cr));
    store(to + 1, level(luma - 22554 * cb - 46802 * cr));
    store(to + 2, level(luma + 116130 * cb));
}

// Not through the read-only cache: the same launch writes there.
INLINE u8 byte_at(u64 from) {
    u32 v;
    asm volatile("ld.global.u8 %0, [%1];" : "=r"(v) : "l"(from));
    return (u8)v;
}

extern "C" __global__ void __launch_bounds__(256)
    finish(const DecodeTile* tiles, const int* status, const FinishShape shape) {
    if (status[blockIdx.x] != 0) return;
    const DecodeTile& tile = tiles[blockIdx.x];
    const u32 columns = (u32)tile.reserved[0], how = (u32)(tile.reserved[0] >> 32);
    const u32 pixels = tile.rows * shape.width, pixel = shape.samples * shape.bytes;
    const u32 step_x = how & PLANES ? how >> 8 & 255 : 1, step_y = how & PLANES ? how >> 16 & 255 : 1;
    ROLLED for (u32 i = blockIdx.y * blockDim.x + threadIdx.x; i < pixels; i += gridDim.y * blockDim.x) {
        const u32 x = i % shape.width, y = i / shape.width;
        const u64 to = tile.raw + (u64)i * pixel;
        if (x >= columns) {
            ROLLED for (u32 k = 0; k < pixel; k++) store(to + k, (u8)0);
        } else if (how & PLANES) {
            const u32 small = (shape.width + step_x - 1) / step_x;
            const u64 luma = tile.reserved[1], chroma = luma + (u64)shape.width * shape.height;
            const u64 plane = (u64)small * ((shape.height + step_y - 1) / step_y);
            const u64 at = (u64)(y / step_y) * small + x / step_x;
            put_rgb(to, byte_at(luma + i), byte_at(chroma + at), byte_at(chroma + plane + at));
        } else if (how & YCBCR) {
            put_rgb(to, byte_at(to), byte_at(to + 1), byte_at(to + 2));
        } else if (how & LIFTED) {
            ROLLED for (u32 k = 0; k < pixel; k++) store(to + k, (u8)(byte_at(to + k) ^ 0x80));
        }
    }
}
