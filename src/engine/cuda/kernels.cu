// What the device does to tiles besides packing and unpacking: predictors, byte order, layout,
// checksums, and putting packed tiles together; unpack.cuh has the codecs, stow.cuh what is around them. Compiled by
// tools/kernels.py to kernels.ptx.
//
// `undo` and `apply` give each row of a tile to one warp, which has a pad of shared memory of its
// own and never talks to other warps. A row goes through the pad in chunks: read with aligned
// 16-byte loads, worked on in place, written with aligned stores. What does not fit at once
// carries sums on from chunk to chunk. Pixels of 32 samples and more need no pad: there a lane
// keeps the sums of a sample in registers, and its neighbours have the neighbouring samples.
//
// Only the device's addresses, sizes and strides are known here: no files, no codecs. No block
// waits for another. A row has fewer than 2^31 samples and bytes. Every access is naturally
// aligned wherever the tables point to; nothing outside of what they describe is read, but for
// the rest of the last 16 bytes of `DecodeTile::raw` and of `gather`'s data.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
struct alignas(16) u128 {
    u64 low, high;
};

#define INLINE __device__ __forceinline__
// The driver compiles the PTX when it is first used; with loops unrolled as NVRTC likes, there
// would be three times as much of it.
#define ROLLED _Pragma("unroll 1")
#define UNROLLED _Pragma("unroll")

// ---- Tables, shared with the host ---------------------------------------------------------------

// What all tiles of a batch have in common.
struct Shape {
    u32 width, height;         // stored size of a tile in pixels
    u32 samples;               // of a pixel, interleaved
    u32 bytes, unit;           // of a sample; of what is swapped as one number
    u32 predictor;             // 1, 2 or 3
    u32 swap;                  // the file's byte order is not this machine's
    u32 bit;                   // samples of one bit: the byte that stands for a set one, else 0
    u64 row;                   // bytes of a stored row
    i64 pixel, line, sample;   // strides of the pixels outside; line 0: compact and interleaved
    u32 shared;                // bytes of the pad that each warp has
    u32 check;                 // compare Adler-32 when decoding
    u32 reserved[2];
};

struct DecodeTile {
    u64 raw, out;              // unpacked rows, 16-aligned; where pixel (x, y) goes
    u32 rows;                  // that must be there
    u32 x, y, w, h;            // the part that is wanted
    u32 adler;                 // expected
    u64 reserved[3];
};

struct EncodeTile {
    u64 from, to;              // pixel (0, 0); where the rows go, one after the other
    u32 rows;                  // to store
    u32 w, h;                  // pixels that are there, the rest is fill
    u32 reserved0;
    u64 fill[2];               // one sample of it
    u64 reserved[2];
};

struct Report {
    int status;
    u32 adler;
    u64 size;
};

struct PlaceTile {
    u64 from, to;              // rows of interleaved samples, one after the other; the first sample's place
    u32 w, h;                  // pixels
    u64 reserved;
};

struct PlaceShape {
    u32 samples, bytes;        // of a pixel at `from`, of a sample
    u32 bands, compare;        // that are wanted; look, and change nothing
    long long pixel, line, band;  // bytes from one to the next at `to`
};

static_assert(sizeof(Shape) == 80 && sizeof(DecodeTile) == 64, "known to the host");
static_assert(sizeof(EncodeTile) == 64 && sizeof(Report) == 16, "known to the host");
static_assert(sizeof(PlaceTile) == 32 && sizeof(PlaceShape) == 40, "known to the host");

// ---- Global memory ------------------------------------------------------------------------------

enum : u32 { WARP = 32, ALL = 0xffffffffu };

INLINE u32 min_of(u32 a, u32 b) { return a < b ? a : b; }
INLINE u64 min_of(u64 a, u64 b) { return a < b ? a : b; }

// Nothing that is read through these is written by the same launch.
template <class T> INLINE T load(u64 from) { return __ldg((const T*)from); }
template <> INLINE u128 load<u128>(u64 from) {
    const ulonglong2 v = __ldg((const ulonglong2*)from);
    return u128{v.x, v.y};
}

// Addresses come out of tables, so that the compiler could not know they are global ones.
INLINE void store(u64 to, u8 v) { asm volatile("st.global.u8 [%0], %1;" ::"l"(to), "r"((u32)v)); }
INLINE void store(u64 to, u16 v) { asm volatile("st.global.u16 [%0], %1;" ::"l"(to), "h"(v)); }
INLINE void store(u64 to, u32 v) { asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(v)); }
INLINE void store(u64 to, u64 v) { asm volatile("st.global.u64 [%0], %1;" ::"l"(to), "l"(v)); }
INLINE void store(u64 to, u128 v) {
    asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(v.low), "l"(v.high));
}

// The same for any alignment.
template <class T> INLINE T fetch(u64 from) {
    if (from % sizeof(T) == 0) return load<T>(from);
    u64 v = 0;
    ROLLED for (u32 i = 0; i < sizeof(T); i++) v |= (u64)load<u8>(from + i) << (8 * i);
    return (T)v;
}
template <> INLINE u128 fetch<u128>(u64 from) {
    return u128{fetch<u64>(from), fetch<u64>(from + 8)};
}

template <class T> INLINE bool same(T a, T b) { return a == b; }
template <> INLINE bool same<u128>(u128 a, u128 b) { return a.low == b.low && a.high == b.high; }

template <class T> INLINE void put(u64 to, T v) {
    if (to % sizeof(T) == 0) return store(to, v);
    ROLLED for (u32 i = 0; i < sizeof(T); i++) store(to + i, (u8)((u64)v >> (8 * i)));
}
template <> INLINE void put<u128>(u64 to, u128 v) {
    if (to % 16 == 0) return store(to, v);
    put(to, v.low);
    put(to + 8, v.high);
}

// ---- Numbers ------------------------------------------------------------------------------------

// Byte order: how the bytes of a word are permuted, and whether the words of a pair change places.
struct Order {
    u32 select;
    bool cross;

    INLINE Order(u32 unit, bool swap)
        : select(!swap || unit == 1 ? 0x3210 : unit == 2 ? 0x2301 : 0x0123),
          cross(swap && unit == 8) {}

    INLINE u8 of(u8 v) const { return v; }
    INLINE u16 of(u16 v) const { return (u16)__byte_perm(v, 0, select); }
    INLINE u32 of(u32 v) const { return __byte_perm(v, 0, select); }
    INLINE u64 of(u64 v) const {
        const u64 low = of((u32)v), high = of((u32)(v >> 32));
        return cross ? high | low << 32 : low | high << 32;
    }
    INLINE u128 of(u128 v) const { return u128{of(v.low), of(v.high)}; }
};

template <class T> struct SumOf {
    typedef u32 Type;
};
template <> struct SumOf<u64> {
    typedef u64 Type;
};

// Predictor 2 adds whole samples. Small ones are summed in 32 bits: what overflows is not stored.
template <class T> struct Wholes {
    typedef typename SumOf<T>::Type Sum;
    static INLINE Sum add(Sum a, Sum b) { return a + b; }
};

// Predictor 3 adds the bytes of a sample each for itself: no carry may get from one to the next.
template <class T> struct Bytes {
    typedef typename SumOf<T>::Type Sum;
    static INLINE Sum add(Sum a, Sum b) {
        const Sum top = (Sum)0x8080808080808080ull;
        return ((a & ~top) + (b & ~top)) ^ ((a ^ b) & top);
    }
    // Each plane of bytes goes on from the end of the one before it, that of the next higher
    // byte: from the sums of the planes to what each begins with.
    static INLINE Sum starts(Sum totals) {
        Sum v = totals >> 8;
        v = add(v, v >> 8);
        if (sizeof(T) > 2) v = add(v, v >> 16);
        if constexpr (sizeof(T) > 4) v = add(v, v >> 32);
        return v;
    }
};

// ---- Rows in a pad ------------------------------------------------------------------------------

INLINE u32 lane() { return threadIdx.x; }

extern __shared__ u128 pads[];

INLINE u8* pad_of(const Shape& shape) {
    return (u8*)(pads + threadIdx.y * (shape.shared / 16));
}

// Bytes that fit in `size` bytes of a pad, whatever their address is modulo 16.
INLINE u32 room(u32 size) { return size / 16 * 16 - 16; }

// Elements of a chunk where `count` are to be done and at most so many fit. Chunks that are not the
// last one end where vectors do.
INLINE u32 chunk(u32 count, u32 most) {
    if (count <= most) return count;
    return most > WARP ? most / WARP * WARP : most;
}

// Interleaved samples, one after the other.
template <class T> struct Samples {
    typedef T Sample;
    u8* pad;
    u32 at;

    INLINE T get(u32 i) const { return *(const T*)(pad + at + i * (u32)sizeof(T)); }
    INLINE void put(u32 i, T v) const { *(T*)(pad + at + i * (u32)sizeof(T)) = v; }
};

// Samples whose bytes are in planes, the highest first.
template <class T> struct Planes {
    typedef T Sample;
    u8* pad;
    u32 at, plane;   // the first byte of the highest ones; from there to the next plane

    INLINE T get(u32 i) const {
        typename SumOf<T>::Type v = 0;
        UNROLLED for (u32 p = 0; p < sizeof(T); p++) v = v << 8 | pad[at + i + p * plane];
        return (T)v;
    }
    INLINE void put(u32 i, T v) const {
        UNROLLED for (u32 p = 0; p < sizeof(T); p++)
            pad[at + i + p * plane] = (u8)(v >> (8 * (sizeof(T) - 1 - p)));
    }
};

// Samples of one bit, the highest of a byte first.
struct Bits {
    typedef u8 Sample;
    const u8* pad;
    u32 at, skip;
    u8 on;

    INLINE u8 get(u32 i) const {
        i += skip;
        return pad[at + i / 8] >> (7 - i % 8) & 1 ? on : 0;
    }
};

// The other way: bytes of bits from `count` samples.
struct PackedBits {
    typedef u8 Sample;
    Samples<u8> row;
    u32 count;

    INLINE u8 get(u32 i) const {
        u32 v = 0;
        ROLLED for (u32 b = 8 * i; b < 8 * i + 8; b++) v = v << 1 | (b < count && row.get(b) != 0);
        return (u8)v;
    }
};

// Differences to the pixel before; `row` begins with the pixel before the first.
template <class T> struct Differences {
    typedef T Sample;
    Samples<T> row;
    u32 samples;
    Order order;

    INLINE T get(u32 i) const { return order.of((T)(row.get(i + samples) - row.get(i))); }
};

// The same for one byte of each sample.
struct ByteDifferences {
    typedef u8 Sample;
    Samples<u8> row;   // its first byte is that byte of the first sample
    u32 samples, bytes;

    INLINE u8 get(u32 i) const {
        return (u8)(row.get((i + samples) * bytes) - row.get(i * bytes));
    }
};

// Reads bytes into a pad, to where it is the same modulo 16 as their address. Whole vectors are
// read, also where they begin before or end after what is wanted.
INLINE void stage(u8* pad, u32 at, u64 from, u32 count, Order order) {
    const u32 phase = from % 16, end = phase + count;
    ROLLED for (u32 k = 16 * lane(); k < end; k += 16 * WARP)
        *(u128*)(pad + at - phase + k) = order.of(load<u128>(from - phase + k));
}

// The same with samples, nothing else being read, for an aligned address.
template <class T> INLINE void stage_exactly(Samples<T> row, u64 from, u32 count, Order order) {
    constexpr u32 N = sizeof(T), PER = 16 / N;
    const u32 head = min_of(count, (u32)(-from % 16 / N)), vectors = (count - head) / PER;
    ROLLED for (u32 k = lane(); k < vectors; k += WARP) {
        const u32 i = head + k * PER;
        *(u128*)(row.pad + row.at + i * N) = order.of(load<u128>(from + (u64)i * N));
    }
    const u32 tail = head + vectors * PER + lane();
    if (lane() < head) row.put(lane(), order.of(load<T>(from + lane() * N)));
    if (tail < count) row.put(tail, order.of(load<T>(from + (u64)tail * N)));
}

// Consecutive samples in memory, each `step` after the last one in the row. Small ones come and
// go in words: more at once would let lanes meet on the pad's banks.
template <class Row>
INLINE void gather_run(const Row& row, u32 first, u32 step, u32 count, u64 to) {
    typedef typename Row::Sample T;
    constexpr u32 N = sizeof(T), PER = N < 4 ? 4 / N : 1;
    const bool words = PER > 1 && to % N == 0;
    const u32 head = words ? min_of(count, (u32)(-to % 4 / N)) : count;
    const u32 whole = (count - head) / PER;
    ROLLED for (u32 k = lane(); k < head; k += WARP)
        put(to + (u64)k * N, (T)row.get(first + k * step));
    if constexpr (PER > 1) {
        ROLLED for (u32 k = lane(); k < whole; k += WARP) {
            const u32 i = head + k * PER;
            u32 v = 0;
            UNROLLED for (u32 j = 0; j < PER; j++)
                v |= (u32)row.get(first + (i + j) * step) << (8 * N * j);
            store(to + (u64)i * N, v);
        }
        const u32 tail = head + whole * PER + lane();
        if (tail < count) store(to + (u64)tail * N, row.get(first + tail * step));
    }
}

template <class T>
INLINE void scatter_run(Samples<T> row, u32 first, u32 step, u32 count, u64 from, Order order) {
    constexpr u32 N = sizeof(T), PER = N < 4 ? 4 / N : 1;
    const bool words = PER > 1 && from % N == 0;
    const u32 head = words ? min_of(count, (u32)(-from % 4 / N)) : count;
    const u32 whole = (count - head) / PER;
    ROLLED for (u32 k = lane(); k < head; k += WARP)
        row.put(first + k * step, order.of(fetch<T>(from + (u64)k * N)));
    if constexpr (PER > 1) {
        ROLLED for (u32 k = lane(); k < whole; k += WARP) {
            const u32 i = head + k * PER, v = load<u32>(from + (u64)i * N);
            UNROLLED for (u32 j = 0; j < PER; j++)
                row.put(first + (i + j) * step, order.of((T)(v >> (8 * N * j))));
        }
        const u32 tail = head + whole * PER + lane();
        if (tail < count) row.put(first + tail * step, order.of(load<T>(from + (u64)tail * N)));
    }
}

// Bytes of a pad as they are: in vectors where both sides are in step, else in words that are
// shifted together from two.
INLINE void write_bytes(const u8* pad, u32 at, u32 count, u64 to) {
    const bool vectors = (u32)to % 16 == at % 16;
    const u32 unit = vectors ? 16 : 4;
    const u32 head = min_of(count, (u32)-to % unit), whole = (count - head) / unit;
    if (vectors) {
        ROLLED for (u32 k = lane(); k < whole; k += WARP) {
            const u32 i = head + 16 * k;
            store(to + i, *(const u128*)(pad + at + i));
        }
    } else {
        const u32 phase = (at + head) % 4;
        ROLLED for (u32 k = lane(); k < whole; k += WARP) {
            const u32 i = head + 4 * k;
            const u8* const word = pad + at + i - phase;
            // In phase there is no second word to read: it may not be ours.
            const u32 next = phase == 0 ? 0 : 4;
            const u32 v = __funnelshift_r(*(const u32*)word, *(const u32*)(word + next), 8 * phase);
            store(to + i, v);
        }
    }
    const u32 tail = head + whole * unit + lane();
    if (lane() < head) store(to + lane(), pad[at + lane()]);
    if (tail < count) store(to + tail, pad[at + tail]);
}

template <class Row> INLINE void write_run(const Row& row, u32 first, u32 count, u64 to) {
    gather_run(row, first, 1, count, to);
}
template <class T> INLINE void write_run(const Samples<T>& row, u32 first, u32 count, u64 to) {
    write_bytes(row.pad, row.at + first * (u32)sizeof(T), count * (u32)sizeof(T), to);
}

// ---- Pixels outside -----------------------------------------------------------------------------

// A row of pixels as the caller has them. Positions count samples from the first pixel on.
struct Pixels {
    u64 at;
    i64 pixel, sample;
    u32 samples;

    // Row `y` of `w` pixels; `bytes` is what a sample takes here.
    INLINE Pixels(const Shape& shape, u64 tile, u32 y, u32 w, u32 bytes) : samples(shape.samples) {
        const bool compact = shape.line == 0;
        pixel = compact ? (i64)samples * bytes : shape.pixel;
        sample = compact ? bytes : shape.sample;
        at = tile + y * (compact ? pixel * w : shape.line);
    }

    INLINE u64 of(u32 x, u32 s) const { return at + x * pixel + s * sample; }
    INLINE bool interleaved(u32 bytes) const {
        return pixel == (i64)samples * bytes && (samples == 1 || sample == bytes);
    }
    // Planes of which a chunk holds enough to make a run.
    INLINE bool planar(u32 bytes) const { return pixel == bytes && samples < WARP; }
    // The first pixel whose sample `s` is not before a position.
    INLINE u32 first(u32 position, u32 s) const { return (position + samples - 1 - s) / samples; }
};

// The samples from a position on, one a lane and turn.
struct Walk {
    u32 x, s, pixels, rest;

    INLINE Walk(u32 position, u32 samples)
        : x((position + lane()) / samples), s((position + lane()) % samples),
          pixels(WARP / samples), rest(WARP % samples) {}
    INLINE void next(u32 samples) {
        x += pixels;
        s += rest;
        if (s >= samples) {
            s -= samples;
            x++;
        }
    }
};

// Writes `count` samples of a row, those from `skip` on, to the pixels from a position on.
template <class Row>
INLINE void deliver(const Row& row, u32 skip, u32 position, u32 count, const Pixels& out) {
    typedef typename Row::Sample T;
    constexpr u32 N = sizeof(T);
    if (out.interleaved(N)) {
        write_run(row, skip, count, out.at + (u64)position * N);
    } else if (out.planar(N)) {
        ROLLED for (u32 s = 0; s < out.samples; s++) {
            const u32 x = out.first(position, s), end = out.first(position + count, s);
            const u32 i = skip + x * out.samples + s - position;
            gather_run(row, i, out.samples, end - x, out.of(x, s));
        }
    } else {
        Walk walk(position, out.samples);
        ROLLED for (u32 k = lane(); k < count; k += WARP, walk.next(out.samples))
            put(out.of(walk.x, walk.s), (T)row.get(skip + k));
    }
}

// Pixels to be stored: `there` of them, the rest of the row is fill.
template <class T> struct Source {
    Pixels pixels;
    u32 there;
    T fill;

    INLINE T get(u32 x, u32 s) const { return x < there ? fetch<T>(pixels.of(x, s)) : fill; }

    // Reads `count` samples from a position on into a pad, the first one at `at` (16-aligned) or up
    // to 15 bytes after that.
    INLINE Samples<T> collect(u8* pad, u32 at, u32 position, u32 count, Order order) const {
        constexpr u32 N = sizeof(T);
        const u32 samples = pixels.samples, end = there * samples;
        const u32 read = position < end ? min_of(count, end - position) : 0;
        const u64 from = pixels.at + (u64)position * N;
        Samples<T> row{pad, at};
        if (pixels.interleaved(N) && from % N == 0) {
            row.at += from % 16;
            stage_exactly(row, from, read, order);
        } else if (pixels.planar(N)) {
            ROLLED for (u32 s = 0; s < samples; s++) {
                const u32 x = pixels.first(position, s), last = pixels.first(position + read, s);
                const u32 i = x * samples + s - position;
                scatter_run(row, i, samples, last - x, pixels.of(x, s), order);
            }
        } else {
            Walk walk(position, samples);
            ROLLED for (u32 k = lane(); k < read; k += WARP, walk.next(samples))
                row.put(k, order.of(fetch<T>(pixels.of(walk.x, walk.s))));
        }
        ROLLED for (u32 k = read + lane(); k < count; k += WARP) row.put(k, order.of(fill));
        return row;
    }
};

// ---- Sums along a row ---------------------------------------------------------------------------

// The lanes of a warp in groups of one lane a sample; each group has a run of pixels. Neighbouring
// lanes are on neighbouring samples, and only the sums of the groups have to be exchanged.
struct Groups {
    u32 samples, count, group, sample;

    INLINE explicit Groups(u32 samples)
        : samples(samples), count(WARP / samples), group(lane() / samples),
          sample(lane() % samples) {}
};

// The run of a lane in a chunk, with the sums of its sample before it and in the whole chunk.
template <class Add> struct Run {
    typedef typename Add::Sum Sum;
    u32 begin, end, step;
    Sum before, total;

    template <class Row> INLINE Run(const Groups& groups, const Row& row, u32 pixels) {
        // An odd distance keeps most groups on different banks of the pad.
        const u32 length = (pixels + groups.count - 1) / groups.count | 1;
        const bool busy = groups.group < groups.count;
        const u32 first = busy ? min_of(groups.group * length, pixels) : pixels;
        const u32 last = min_of(first + length, pixels);
        step = groups.samples;
        begin = first * step + groups.sample;
        end = last * step + groups.sample;
        Sum sum = 0;
        ROLLED for (u32 i = begin; i < end; i += step) sum = Add::add(sum, row.get(i));
        ROLLED for (u32 distance = step; distance < WARP; distance *= 2) {
            const Sum other = __shfl_up_sync(ALL, sum, distance);
            if (lane() >= distance) sum = Add::add(sum, other);
        }
        before = __shfl_up_sync(ALL, sum, step);
        if (groups.group == 0) before = 0;
        total = __shfl_sync(ALL, sum, (groups.count - 1) * step + groups.sample);
    }

    // Replaces the samples of the run by their sums.
    template <class Row> INLINE void accumulate(const Row& row, Sum carry) const {
        Sum sum = Add::add(carry, before);
        ROLLED for (u32 i = begin; i < end; i += step) {
            sum = Add::add(sum, row.get(i));
            row.put(i, (typename Row::Sample)sum);
        }
    }
};

// ---- Ways to undo -------------------------------------------------------------------------------

// One row: raw bytes, of which the pixels from `x` to `end` are wanted.
struct Undone {
    const Shape& shape;
    u8* pad;
    u64 from;
    u32 x, end;
    Pixels out;

    // Hands on what is wanted of a chunk that begins with sample `first` of the row.
    template <class Row> INLINE void deliver_chunk(const Row& row, u32 first, u32 count) const {
        const u32 begin = x * shape.samples, wanted = first > begin ? first : begin;
        const u32 last = min_of(first + count, end * shape.samples);
        if (wanted < last) deliver(row, wanted - first, wanted - begin, last - wanted, out);
    }
};

// Whole samples, with predictor 2 or without; then the chunks need not be whole pixels.
template <class T> struct Sums {
    enum : u32 { BYTES = sizeof(T) };
    static INLINE void undo(const Undone& r) {
        const bool sums = r.shape.predictor == 2;
        const Order order(sums ? BYTES : r.shape.unit, r.shape.swap);
        const u32 samples = r.shape.samples, step = sums ? samples : 1;
        const u32 begin = sums ? 0 : r.x * samples, end = r.end * samples;
        const u32 most = chunk((end - begin) / step, room(r.shape.shared) / BYTES / step) * step;
        const Groups groups(samples);
        typename Wholes<T>::Sum carry = 0;
        ROLLED for (u32 i = begin; i < end; i += most) {
            const u32 n = min_of(most, end - i);
            const u64 from = r.from + (u64)i * BYTES;
            const Samples<T> row{r.pad, (u32)(from % 16)};
            stage(r.pad, row.at, from, n * BYTES, order);
            __syncwarp();
            if constexpr (BYTES <= 8) {
                if (sums) {
                    const Run<Wholes<T>> run(groups, row, n / samples);
                    run.accumulate(row, carry);
                    carry += run.total;
                    __syncwarp();
                }
            }
            r.deliver_chunk(row, i, n);
            __syncwarp();
        }
    }
};

// Samples of one bit.
struct Expansion {
    enum : u32 { BYTES = 1 };
    static INLINE void undo(const Undone& r) {
        const u32 begin = r.x * r.shape.samples, end = r.end * r.shape.samples;
        const u32 most = chunk(end - begin, room(r.shape.shared) * 8 - 8);
        ROLLED for (u32 i = begin; i < end; i += most) {
            const u32 n = min_of(most, end - i), skip = i % 8;
            const u64 from = r.from + i / 8;
            const Bits row{r.pad, (u32)(from % 16), skip, (u8)r.shape.bit};
            stage(r.pad, row.at, from, (skip + n + 7) / 8, Order(1, false));
            __syncwarp();
            r.deliver_chunk(row, i, n);
            __syncwarp();
        }
    }
};

// Predictor 3: sums of planes of bytes, which come together to samples. What a plane begins with
// is the sum of all before it, so that a row which does not fit into the pad is read twice.
template <class T> struct PlaneSums {
    enum : u32 { BYTES = sizeof(T) };
    typedef Bytes<T> Add;

    // A row that fits is one piece; of another one, each plane has its part of the pad, as long as
    // the planes are apart modulo 16, and 32 bytes more than what is read of it.
    static INLINE u32 part(const Shape& shape) {
        const u32 most = shape.shared / BYTES, plane = shape.width * shape.samples;
        return most - (most - plane) % 16;
    }

    static INLINE Planes<T> stage_planes(const Undone& r, u32 x, u32 count, bool once) {
        const u32 samples = r.shape.samples, plane = r.shape.width * samples;
        const u64 from = r.from + (u64)x * samples;
        const Planes<T> row{r.pad, (u32)(from % 16), once ? plane : part(r.shape)};
        const u32 pieces = once ? 1 : BYTES, bytes = once ? plane * BYTES : count * samples;
        ROLLED for (u32 p = 0; p < pieces; p++) {
            stage(r.pad, row.at + p * row.plane, from + (u64)p * plane, bytes, Order(1, false));
        }
        return row;
    }

    static INLINE void undo(const Undone& r) {
        const u32 samples = r.shape.samples, width = r.shape.width, shared = r.shape.shared;
        const bool once = width * samples * BYTES <= room(shared);
        const u32 most = once ? width : chunk(width, (part(r.shape) - 32) / samples);
        const Groups groups(samples);
        typename Add::Sum carry = 0;
        ROLLED for (u32 pass = once ? 1 : 0; pass < 2; pass++) {
            const u32 end = once || pass == 0 ? width : r.end;
            ROLLED for (u32 x = 0; x < end; x += most) {
                const u32 n = min_of(most, end - x);
                const Planes<T> row = stage_planes(r, x, n, once);
                __syncwarp();
                const Run<Add> run(groups, row, n);
                if (once) carry = Add::starts(run.total);
                if (pass == 1) {
                    run.accumulate(row, carry);
                    __syncwarp();
                    r.deliver_chunk(row, x * samples, n * samples);
                }
                carry = Add::add(carry, run.total);
                __syncwarp();
            }
            if (pass == 0) carry = Add::starts(carry);
        }
    }
};

// Predictor 2 with 32 samples and more.
template <class T> struct WideSums {
    enum : u32 { BYTES = sizeof(T) };
    static INLINE void undo(const Undone& r) {
        const Order order(BYTES, r.shape.swap);
        const u32 samples = r.shape.samples;
        ROLLED for (u32 s = lane(); s < samples; s += WARP) {
            typename Wholes<T>::Sum sum = 0;
            ROLLED for (u32 x = 0; x < r.end; x++) {
                sum += order.of(load<T>(r.from + ((u64)x * samples + s) * BYTES));
                if (x >= r.x) put(r.out.of(x - r.x, s), (T)sum);
            }
        }
    }
};

// Predictor 3 with 32 samples and more.
template <class T> struct WidePlaneSums {
    enum : u32 { BYTES = sizeof(T) };
    typedef Bytes<T> Add;
    typedef typename Add::Sum Sum;

    static INLINE Sum bytes_of(u64 from, u64 plane) {
        Sum v = 0;
        UNROLLED for (u32 p = 0; p < BYTES; p++) v = v << 8 | load<u8>(from + p * plane);
        return v;
    }

    static INLINE void undo(const Undone& r) {
        const u32 samples = r.shape.samples;
        const u64 plane = (u64)r.shape.width * samples;
        ROLLED for (u32 s = lane(); s < samples; s += WARP) {
            const u64 from = r.from + s;
            Sum sum = 0;
            ROLLED for (u32 x = 0; x < r.shape.width; x++)
                sum = Add::add(sum, bytes_of(from + (u64)x * samples, plane));
            sum = Add::starts(sum);
            ROLLED for (u32 x = 0; x < r.end; x++) {
                sum = Add::add(sum, bytes_of(from + (u64)x * samples, plane));
                if (x >= r.x) put(r.out.of(x - r.x, s), (T)sum);
            }
        }
    }
};

// ---- Ways to apply ------------------------------------------------------------------------------

// One row: pixels, and where the stored bytes go.
template <class T> struct Applied {
    const Shape& shape;
    u8* pad;
    Source<T> from;
    u64 to;
};

// Any predictor, and bits. With predictors 2 and 3 each chunk is preceded by the last pixel of the
// one before, and the first one by what makes its differences right: zeros, or, the planes of bytes
// being one sequence, the last pixel of the row with each byte in the place of the next lower one.
// Without, the chunks need not be whole pixels.
template <class T> struct Chunks {
    typedef T Sample;
    enum : u32 { N = sizeof(T) };

    static INLINE void apply(const Applied<T>& r) {
        const u32 predictor = N == 16 || r.shape.bit ? 1 : r.shape.predictor;
        const u32 samples = r.shape.samples, width = r.shape.width, count = width * samples;
        const u32 step = predictor == 1 ? 1 : samples, pixel = predictor == 1 ? 0 : samples * N;
        const u32 lead = (pixel + 15) / 16 * 16, fit = (room(r.shape.shared) - lead) / N;
        const u32 most = chunk(count / step, fit / step) * step;
        const Order order(r.shape.unit, predictor == 1 && r.shape.swap);
        T before{};
        if constexpr (N == 2 || N == 4 || N == 8) {
            if (predictor == 3 && lane() < samples)
                before = (T)(r.from.get(width - 1, lane()) >> 8);
        }
        ROLLED for (u32 i = 0; i < count; i += most) {
            const u32 n = min_of(most, count - i);
            Samples<T> row = r.from.collect(r.pad, lead, i, n, order);
            row.at -= pixel;
            if (predictor != 1 && lane() < samples) row.put(lane(), before);
            __syncwarp();
            write(r, predictor, row, i, n);
            if (predictor != 1 && lane() < samples) before = row.get(n + lane());
            __syncwarp();
        }
    }

    static INLINE void write(const Applied<T>& r, u32 predictor, Samples<T> row, u32 i, u32 n) {
        const u32 samples = r.shape.samples;
        if constexpr (N == 1) {
            if (r.shape.bit) return write_run(PackedBits{row, n}, 0, (n + 7) / 8, r.to + i / 8);
        }
        if constexpr (N == 2 || N == 4 || N == 8) {
            if (predictor == 3) {
                const u64 plane = (u64)r.shape.width * samples;
                ROLLED for (u32 p = 0; p < N; p++) {
                    const Samples<u8> bytes{row.pad, row.at + N - 1 - p};
                    write_run(ByteDifferences{bytes, samples, N}, 0, n, r.to + p * plane + i);
                }
                return;
            }
        }
        const u64 to = r.to + (u64)i * N;
        if constexpr (N <= 8) {
            const Order order(N, r.shape.swap);
            if (predictor == 2) return write_run(Differences<T>{row, samples, order}, 0, n, to);
        }
        write_run(row, 0, n, to);
    }
};

// Predictors 2 and 3 with 32 samples and more.
template <class T, bool PLANES> struct WideDifference {
    typedef T Sample;
    static INLINE void apply(const Applied<T>& r) {
        constexpr u32 N = sizeof(T);
        const Order order(N, r.shape.swap);
        const u32 samples = r.shape.samples, width = r.shape.width;
        const u64 plane = (u64)width * samples;
        ROLLED for (u32 s = lane(); s < samples; s += WARP) {
            T before = PLANES ? (T)(r.from.get(width - 1, s) >> 8) : 0;
            ROLLED for (u32 x = 0; x < width; x++) {
                const T now = r.from.get(x, s);
                const u64 i = (u64)x * samples + s;
                if constexpr (PLANES) {
                    UNROLLED for (u32 p = 0; p < N; p++) {
                        const u32 shift = 8 * (N - 1 - p);
                        store(r.to + p * plane + i, (u8)((now >> shift) - (before >> shift)));
                    }
                } else {
                    put(r.to + i * N, order.of((T)(now - before)));
                }
                before = now;
            }
        }
    }
};

// ---- Kernels: predictors, byte order, layout ----------------------------------------------------

// Warps that a block may have.
enum : u32 { MOST_WARPS = 32 };

// Rows are shared out over the warps of all blocks that have this tile.
INLINE u32 first_row() { return blockIdx.y * blockDim.y + threadIdx.y; }
INLINE u32 row_step() { return gridDim.y * blockDim.y; }

// Reads an entry of a table for the whole block, word by word.
template <class Tile> INLINE void read_entry(Tile* to, const Tile* from) {
    static_assert(sizeof(Tile) == 16 * sizeof(u32), "a word a lane");
    if (lane() < 16) ((u32*)to)[lane()] = load<u32>((u64)from + lane() * sizeof(u32));
}

template <class Way> INLINE void undo_rows(const Shape& shape, const DecodeTile& tile) {
    u8* const pad = pad_of(shape);
    ROLLED for (u32 y = first_row(); y < tile.h; y += row_step()) {
        const u64 from = tile.raw + (u64)(tile.y + y) * shape.row;
        const Pixels out(shape, tile.out, y, tile.w, Way::BYTES);
        Way::undo(Undone{shape, pad, from, tile.x, tile.x + tile.w, out});
    }
}

extern "C" __global__ void __launch_bounds__(MOST_WARPS * WARP)
    undo(const DecodeTile* tiles, const int* status, const u64* actual, const u32* adler,
         Report* reports, const Shape shape) {
    __shared__ DecodeTile tile;
    __shared__ bool good;
    if (threadIdx.y == 0) {
        const u32 i = blockIdx.x;
        read_entry(&tile, tiles + i);
        __syncwarp();
        if (lane() == 0) {
            const u64 needed = tile.rows * shape.row;
            const int state = status ? status[i] : 0;
            const u64 size = actual ? actual[i] : needed;
            const u32 sum = adler ? adler[i] : 0;
            const bool same = !shape.check || sum == tile.adler;
            good = !status || (state == 0 && size >= needed && same);
            if (reports && blockIdx.y == 0) reports[i] = Report{state, sum, size};
        }
    }
    __syncthreads();
    if (!good) return;
    if (shape.bit) return undo_rows<Expansion>(shape, tile);
    const u32 predictor = shape.predictor, wide = shape.samples >= WARP ? 0x1000 : 0;
    switch (predictor == 1 ? shape.bytes : wide | predictor << 8 | shape.bytes) {
    case 1: case 0x201: return undo_rows<Sums<u8>>(shape, tile);
    case 2: case 0x202: return undo_rows<Sums<u16>>(shape, tile);
    case 4: case 0x204: return undo_rows<Sums<u32>>(shape, tile);
    case 8: case 0x208: return undo_rows<Sums<u64>>(shape, tile);
    case 16: return undo_rows<Sums<u128>>(shape, tile);
    case 0x302: return undo_rows<PlaneSums<u16>>(shape, tile);
    case 0x304: return undo_rows<PlaneSums<u32>>(shape, tile);
    case 0x308: return undo_rows<PlaneSums<u64>>(shape, tile);
    case 0x1201: return undo_rows<WideSums<u8>>(shape, tile);
    case 0x1202: return undo_rows<WideSums<u16>>(shape, tile);
    case 0x1204: return undo_rows<WideSums<u32>>(shape, tile);
    case 0x1208: return undo_rows<WideSums<u64>>(shape, tile);
    case 0x1302: return undo_rows<WidePlaneSums<u16>>(shape, tile);
    case 0x1304: return undo_rows<WidePlaneSums<u32>>(shape, tile);
    case 0x1308: return undo_rows<WidePlaneSums<u64>>(shape, tile);
    }
}

template <class Way> INLINE void apply_rows(const Shape& shape, const EncodeTile& tile) {
    typedef typename Way::Sample T;
    u8* const pad = pad_of(shape);
    T fill;
    if constexpr (sizeof(T) == 16) fill = T{tile.fill[0], tile.fill[1]};
    else fill = (T)tile.fill[0];
    ROLLED for (u32 y = first_row(); y < tile.rows; y += row_step()) {
        const Pixels pixels(shape, tile.from, y, tile.w, sizeof(T));
        const Source<T> from{pixels, y < tile.h ? tile.w : 0, fill};
        Way::apply(Applied<T>{shape, pad, from, tile.to + y * shape.row});
    }
}

extern "C" __global__ void __launch_bounds__(MOST_WARPS * WARP)
    apply(const EncodeTile* tiles, const Shape shape) {
    __shared__ EncodeTile tile;
    if (threadIdx.y == 0) read_entry(&tile, tiles + blockIdx.x);
    __syncthreads();
    const bool chunks = shape.predictor == 1 || shape.samples < WARP;
    switch (shape.bit ? 1 : chunks ? shape.bytes : shape.predictor << 8 | shape.bytes) {
    case 1: return apply_rows<Chunks<u8>>(shape, tile);
    case 2: return apply_rows<Chunks<u16>>(shape, tile);
    case 4: return apply_rows<Chunks<u32>>(shape, tile);
    case 8: return apply_rows<Chunks<u64>>(shape, tile);
    case 16: return apply_rows<Chunks<u128>>(shape, tile);
    case 0x201: return apply_rows<WideDifference<u8, false>>(shape, tile);
    case 0x202: return apply_rows<WideDifference<u16, false>>(shape, tile);
    case 0x204: return apply_rows<WideDifference<u32, false>>(shape, tile);
    case 0x208: return apply_rows<WideDifference<u64, false>>(shape, tile);
    case 0x302: return apply_rows<WideDifference<u16, true>>(shape, tile);
    case 0x304: return apply_rows<WideDifference<u32, true>>(shape, tile);
    case 0x308: return apply_rows<WideDifference<u64, true>>(shape, tile);
    }
}

// ---- Kernels: checksums and packed tiles --------------------------------------------------------

// Four products of bytes, added to a sum.
INLINE u32 dot(u32 a, u32 b, u32 sum) {
    asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(sum));
    return sum;
}

// Adler-32 is 1 + the sum of all bytes, and above it the sum of all bytes weighted by how many are
// left from each on, plus their number. Weights are kept modulo 65521; the sums of a thread have 64
// bits and are reduced once, at the end.
extern "C" __global__ void __launch_bounds__(256)
    adler32(const u64* data, const u64* sizes, const u64* limits, u32* out) {
    constexpr u32 BASE = 65521, THREADS = 256, TURN = 16 * THREADS;
    __shared__ u32 plain_of[THREADS / WARP], weighted_of[THREADS / WARP];
    const u32 i = blockIdx.x, thread = threadIdx.x;
    const u64 from = data[i], size = min_of(sizes[i], limits[i]), vectors = size / 16;
    u64 plain = 0, weighted = 0, excess = 0;
    u32 left = (u32)(size % BASE) + BASE - 16 * thread;
    if (left >= BASE) left -= BASE;
#pragma unroll 4
    for (u64 k = thread; k < vectors; k += THREADS) {
        const uint4 v = load<uint4>(from + 16 * k);
        u32 sum = dot(v.x, 0x01010101, dot(v.y, 0x01010101, 0));
        sum = dot(v.z, 0x01010101, dot(v.w, 0x01010101, sum));
        // What the weight of the first byte is too much for the others.
        u32 less = dot(v.x, 0x03020100, dot(v.y, 0x07060504, 0));
        less = dot(v.z, 0x0b0a0908, dot(v.w, 0x0f0e0d0c, less));
        plain += sum;
        weighted += (u64)left * sum;
        excess += less;
        left = left >= TURN ? left - TURN : left + (BASE - TURN);
    }
    const u32 rest = size % 16;
    if (thread < rest) {
        const u32 byte = load<u8>(from + 16 * vectors + thread);
        plain += byte;
        weighted += byte * (rest - thread);
    }
    u32 a = plain % BASE, b = (weighted % BASE + BASE - excess % BASE) % BASE;
    ROLLED for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
        a += __shfl_xor_sync(ALL, a, distance);
        b += __shfl_xor_sync(ALL, b, distance);
    }
    if (thread % WARP == 0) {
        plain_of[thread / WARP] = a;
        weighted_of[thread / WARP] = b;
    }
    __syncthreads();
    if (thread != 0) return;
    a = 1;
    b = size % BASE;
    UNROLLED for (u32 warp = 0; warp < THREADS / WARP; warp++) {
        a += plain_of[warp];
        b += weighted_of[warp];
    }
    out[i] = b % BASE << 16 | a % BASE;
}

// The sum over the lanes up to this one.
INLINE u64 warp_sums(u64 v) {
    ROLLED for (u32 distance = 1; distance < WARP; distance *= 2) {
        const u64 other = __shfl_up_sync(ALL, v, distance);
        if (threadIdx.x % WARP >= distance) v += other;
    }
    return v;
}

// Where packed tiles go when they follow each other; one block.
extern "C" __global__ void __launch_bounds__(1024)
    measure(const u64* sizes, const int* status, const u32* adler, u64* offsets, Report* reports,
            u32 n, u64 limit, u32 extra) {
    constexpr u32 THREADS = 1024;
    __shared__ u64 sum_of[THREADS / WARP];
    const u32 thread = threadIdx.x, lane = thread % WARP, warp = thread / WARP;
    u64 before = 0;
    ROLLED for (u32 start = 0; start < n; start += THREADS) {
        const u32 i = start + thread;
        u64 mine = 0;
        if (i < n) {
            const int state = status ? status[i] : 0;
            const u64 size = sizes[i];
            if (state == 0 && size <= limit) mine = size + extra;
            if (reports) reports[i] = Report{state, adler ? adler[i] : 0, size};
        }
        const u64 sum = warp_sums(mine);
        if (lane == WARP - 1) sum_of[warp] = sum;
        __syncthreads();
        // Every warp adds up the sums of all.
        const u64 sums = warp_sums(sum_of[lane]);
        const u64 others = __shfl_sync(ALL, sums, warp - 1);
        const u64 total = __shfl_sync(ALL, sums, WARP - 1);
        if (i < n) offsets[i] = before + (warp == 0 ? 0 : others) + sum - mine;
        before += total;
        __syncthreads();
    }
    if (thread == 0) offsets[n] = before;
}

// Copies packed tiles to where `measure` put them, a zlib header and the checksum around them
// where there are checksums. What is written is aligned; what is read is shifted together from two
// words, of which a lane reads one and has the other from its neighbour.
extern "C" __global__ void __launch_bounds__(256)
    gather(const u64* data, const u64* offsets, const u32* adler, u8* out, u32 header) {
    constexpr u32 THREADS = 256;
    const u32 i = blockIdx.x, thread = threadIdx.x, lane = thread % WARP;
    const u64 begin = offsets[i], end = offsets[i + 1];
    if (begin == end) return;
    u64 to = (u64)out + begin, size = end - begin;
    const bool ends = blockIdx.y == 0;
    if (adler) {
        if (ends && thread < 2) store(to + thread, (u8)(header >> (8 * thread)));
        to += 2;
        size -= 6;
        if (ends && thread < 4) store(to + size + thread, (u8)(adler[i] >> (24 - 8 * thread)));
    }
    const u64 from = data[i], head = min_of(size, -to % 8), words = (size - head) / 8;
    const u32 phase = (from + head) % 8, shift = 8 * phase;
    const u64 source = from + head - phase, target = to + head;
    const u64 start = (u64)blockIdx.y * THREADS + thread - lane, step = gridDim.y * THREADS;
    ROLLED for (u64 k = start; k < words; k += step) {
        const u64 word = k + lane;
        u64 v = word < words ? load<u64>(source + 8 * word) : 0;
        u64 next = __shfl_down_sync(ALL, v, 1);
        if (word < words) {
            if (phase != 0) {
                if (lane == WARP - 1 || word == words - 1) next = load<u64>(source + 8 * word + 8);
                v = v >> shift | next << (64 - shift);
            }
            store(target + 8 * word, v);
        }
    }
    const u64 tail = head + words * 8 + thread;
    if (ends && thread < head) store(to + thread, load<u8>(from + thread));
    if (ends && tail < size) store(to + tail, load<u8>(from + tail));
}

// Whether a thread found a sample that is not there yet; with `compare` unset it is there now.
template <class T>
INLINE bool place_samples(const PlaceTile& tile, const u32* which, const PlaceShape& shape) {
    const long long pixel = shape.pixel < 0 ? -shape.pixel : shape.pixel;
    const long long band = shape.band < 0 ? -shape.band : shape.band;
    // What lies closer together at the target is written by neighbours.
    const bool bands_first = band < pixel;
    const u32 count = tile.w * shape.bands;
    bool differs = false;
    ROLLED for (u32 y = blockIdx.y; y < tile.h; y += gridDim.y) {
        const u64 from = tile.from + (u64)y * tile.w * shape.samples * sizeof(T);
        const u64 to = tile.to + y * shape.line;
        ROLLED for (u32 k = threadIdx.x; k < count; k += blockDim.x) {
            const u32 x = bands_first ? k / shape.bands : k % tile.w;
            const u32 b = bands_first ? k % shape.bands : k / tile.w;
            const u64 at = to + x * shape.pixel + b * shape.band;
            const T v = load<T>(from + ((u64)x * shape.samples + which[b]) * sizeof(T));
            if (shape.compare)
                differs |= !same(fetch<T>(at), v);
            else
                put(at, v);
        }
    }
    return differs;
}

// Puts chosen bands of tiles where a caller wants them, or compares what is there.
extern "C" __global__ void __launch_bounds__(256)
    place(const PlaceTile* tiles, const u32* which, u32* differs, const PlaceShape shape) {
    const PlaceTile tile = tiles[blockIdx.x];
    bool found = false;
    switch (shape.bytes) {
    case 1: found = place_samples<u8>(tile, which, shape); break;
    case 2: found = place_samples<u16>(tile, which, shape); break;
    case 4: found = place_samples<u32>(tile, which, shape); break;
    case 8: found = place_samples<u64>(tile, which, shape); break;
    case 16: found = place_samples<u128>(tile, which, shape); break;
    }
    if (!shape.compare) return;
    found = __syncthreads_or(found);
    if (threadIdx.x == 0) differs[blockIdx.x * gridDim.y + blockIdx.y] = found;
}

#include "unpack.cuh"
#include "stow.cuh"
#include "finish.cuh"
