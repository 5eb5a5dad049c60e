// LZW with one thread a tile, as it is usually done: what `lzw` is measured against. Streams must be
// right.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct Packed {
    const u64* inputs;
    const u64* input_bytes;
    const u64* outputs;
    const u64* room;
    u64* sizes;
    int* status;
};

extern "C" __global__ void __launch_bounds__(1) serial_lzw(const Packed packed) {
    // Where the string of each code before was put, as the CPU's decoder has it.
    __shared__ u32 at_of[4096 - 258 + 1];
    const u32 i = blockIdx.x, room = (u32)packed.room[i];
    const u8* from = (const u8*)packed.inputs[i];
    u8* out = (u8*)packed.outputs[i];
    u64 bits = 0;
    u32 held = 0, made = 0, k = 0;
#pragma unroll 1
    while (made < room) {
        const u32 width = k < 254 ? 9 : k < 766 ? 10 : k < 1790 ? 11 : 12;
#pragma unroll 1
        for (; held < width; held += 8) bits = bits << 8 | *from++;
        held -= width;
        const u32 code = (u32)(bits >> held) & ((1 << width) - 1);
        if (code == 257) break;
        if (code == 256) {
            k = 0;
            continue;
        }
        at_of[k] = made;
        if (code < 256) {
            out[made++] = (u8)code;
        } else {
            const u32 j = code - 258;
            u32 source = at_of[j];
            u32 end = made + at_of[j + 1] - source + 1;
            if (end > room) end = room;
#pragma unroll 1
            while (made < end) out[made++] = out[source++];
        }
        k++;
    }
    packed.sizes[i] = made;
    packed.status[i] = 0;
}
