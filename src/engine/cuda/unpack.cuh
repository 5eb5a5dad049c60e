// Unpacking of codecs that nvCOMP has not: LZW and PackBits. Part of kernels.cu.
//
// A block has a tile. Both kinds of stream look serial, as nothing says where a code or a run belongs
// before all in front of it are known, and both are not: what a piece of the stream means is worked out
// for every way it could be entered, or in a closed form, and the pieces are joined by scans. Nothing
// that was put out is read again, so that no thread waits for another one's bytes: they come out of
// shared memory. A tile is `room` bytes at most; a stream that has more is cut there. Streams begin at
// multiples of 16; the rest of their last word is read.

// What nvCOMP says of such tiles.
enum : int { SUCCESS = 0, CANNOT_DECOMPRESS = 12 };

// Streams, their sizes, where tiles go, the most of each; sizes that came out, statuses.
struct Packed {
    const u64* inputs;
    const u64* input_bytes;
    const u64* outputs;
    const u64* room;
    u64* sizes;
    int* status;

    INLINE void report(int state, u64 size) const {
        if (threadIdx.x != 0) return;
        status[blockIdx.x] = state;
        sizes[blockIdx.x] = size;
    }
};

enum : u32 {
    THREADS = 256,
    TEAM = 8,   // lanes that write one string or run together
};

struct BlockSums {
    u32 before, total;
};

// Sums over the block: of what earlier threads have, and of all. `sum_of` is not used by others
// until the next barrier.
INLINE BlockSums block_sums(u32 mine, u32* sum_of) {
    const u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    u32 sum = mine;
    ROLLED for (u32 distance = 1; distance < WARP; distance *= 2) {
        const u32 other = __shfl_up_sync(ALL, sum, distance);
        if (lane >= distance) sum += other;
    }
    if (lane == WARP - 1) sum_of[warp] = sum;
    __syncthreads();
    u32 before = sum - mine, total = 0;
    UNROLLED for (u32 w = 0; w < THREADS / WARP; w++) {
        if (w < warp) before += sum_of[w];
        total += sum_of[w];
    }
    return {before, total};
}

// ---- LZW ----------------------------------------------------------------------------------------

// Why a segment ends: by a Clear, by the end of the stream, by a code that cannot be.
enum Stop : u32 { AGAIN, DONE, BAD };

// What lies between two Clears. The k-th code has a closed-form place and width, and a code 258 + j
// stands for the string of code j and the first byte of the one after that. So a string is known by
// the ancestors of its code: its last byte is the first one of some code's, what comes before it is
// the string of its parent j.
struct Segment {
    enum : u32 {
        CLEAR = 256,
        END = 257,
        FIRST = 258,
        // Codes that a thread has. Odd: threads that have neighbours meet on no bank.
        EACH = 15,
        // Codes that there may be. Those of 12 bits are used up after 3839.
        CODES = THREADS * EACH,
        // Longer strings are written by a team.
        SHORT = 16,
    };

    u16 code[CODES];
    u16 up[CODES];   // the ancestor TEAM generations before
    // While ancestors are sought: which one, below the number of generations to it. Then: where the
    // string goes, from the segment's start, below its first byte.
    u32 word[CODES + 1];
    u32 sum_of[THREADS / WARP];
    u32 stop;        // the first that is no code of it, above why

    INLINE u32 parent(u32 k) const { return code[k] - FIRST; }
    INLINE u32 offset(u32 k) const { return word[k] & 0xffffff; }
    INLINE u8 first(u32 k) const { return (u8)(word[k] >> 24); }

    static INLINE u32 over(u32 k, u32 most) { return k > most ? k - most : 0; }
    // Widths grow one code early.
    static INLINE u32 bits_before(u32 k) {
        return 9 * k + over(k, 254) + over(k, 766) + over(k, 1790);
    }
    static INLINE u32 width(u32 k) { return 9 + (k >= 254) + (k >= 766) + (k >= 1790); }

    // The code of some bits that begins at bit `at`.
    static INLINE u32 code_at(u64 from, u32 at, u32 bits) {
        const u64 word = from + at / 32 * 4;
        const u32 shift = at % 32, high = __byte_perm(load<u32>(word), 0, 0x0123);
        const u32 low = shift + bits > 32 ? __byte_perm(load<u32>(word + 4), 0, 0x0123) : 0;
        return __funnelshift_l(low, high, shift) >> (32 - bits);
    }

    // Reads the codes from bit `at` on, up to bit `end`; why they stop, and after how many.
    INLINE Stop read(u64 from, u32 at, u32 end, u32& count) {
        if (threadIdx.x == 0) stop = CODES * 4 + BAD;
        __syncthreads();
        ROLLED for (u32 k = threadIdx.x; k < CODES; k += THREADS) {
            const u32 begin = at + bits_before(k), bits = width(k);
            const u32 c = begin + bits <= end ? code_at(from, begin, bits) : END;
            if (c >= CLEAR && c - FIRST >= k) {
                atomicMin(&stop, k * 4 + (c == CLEAR ? AGAIN : c == END ? DONE : BAD));
                break;
            }
            code[k] = (u16)c;
        }
        __syncthreads();
        count = stop / 4;
        return (Stop)(stop % 4);
    }

    // Finds from which literal each code descends, and in which generation: every round looks back
    // twice as far. All have read before anybody writes.
    INLINE void find_roots(u32 count) {
        u32 mine[EACH], open = 0;
        UNROLLED for (u32 i = 0; i < EACH; i++) {
            const u32 k = i * THREADS + threadIdx.x;
            if (k >= count) break;
            const bool literal = code[k] < CLEAR;
            mine[i] = literal ? k : 1 << 16 | parent(k);
            word[k] = mine[i];
            open |= (u32)!literal << i;
        }
        __syncthreads();
        ROLLED for (u32 reach = 2;; reach *= 2) {
            UNROLLED for (u32 i = 0; i < EACH; i++) {
                if (i * THREADS >= count) break;
                if (open >> i & 1) {
                    const u32 there = word[mine[i] & 0xffff];
                    if (there >> 16 == 0) open ^= 1 << i;
                    mine[i] = (mine[i] & 0xffff0000) + there;
                }
            }
            if (!__syncthreads_or(open != 0)) return;
            UNROLLED for (u32 i = 0; i < EACH; i++) {
                if (i * THREADS >= count) break;
                if (open >> i & 1) {
                    const u32 k = i * THREADS + threadIdx.x;
                    word[k] = mine[i];
                    if (reach == TEAM) up[k] = (u16)mine[i];
                }
            }
            __syncthreads();
        }
    }

    // Puts the strings behind each other; bytes in all.
    INLINE u32 find_places(u32 count) {
        const u32 begin = min_of(count, threadIdx.x * EACH), end = min_of(count, begin + EACH);
        u32 mine = 0;
        ROLLED for (u32 k = begin; k < end; k++) mine += (word[k] >> 16) + 1;
        const BlockSums sums = block_sums(mine, sum_of);
        u32 at = sums.before;
        ROLLED for (u32 k = begin; k < end; k++) {
            const u32 root = word[k];
            word[k] = (u32)code[root & 0xffff] << 24 | at;
            at += (root >> 16) + 1;
        }
        if (threadIdx.x == 0) word[count] = sums.total;
        __syncthreads();
        return sums.total;
    }

    // Writes the strings, as far as there is room.
    INLINE void write(u32 count, u64 out, u32 room) const {
        const u32 lane = threadIdx.x % WARP;
        ROLLED for (u32 start = threadIdx.x - lane; start < count; start += THREADS) {
            const u32 k = start + lane;
            const u32 at = k < count ? offset(k) : room, end = k < count ? offset(k + 1) : room;
            const bool is_long = end - at > SHORT;
            if (at < room && !is_long) write_alone(k, end - at - 1, out + at, room - at);
            write_together(__ballot_sync(ALL, at < room && is_long), start, out, room);
        }
    }

    // Writes the string of a code backwards, its last byte first.
    INLINE void write_alone(u32 k, u32 last, u64 out, u32 room) const {
        store(out, first(k));
        ROLLED for (; last > 0; last--) {
            k = parent(k);
            if (last < room) store(out + last, first(k + 1));
        }
    }

    // Writes the strings of some of 32 codes, each team one in turn. Its members begin with the last
    // bytes, and from there each goes back by the size of the team.
    INLINE void write_together(u32 which, u32 start, u64 out, u32 room) const {
        const u32 member = threadIdx.x % TEAM, team = threadIdx.x % WARP / TEAM;
        ROLLED while (which) {
            u32 mine = which;
            UNROLLED for (u32 i = 0; i < WARP / TEAM; i++) {
                if (i < team) mine &= mine - 1;
                which &= which - 1;
            }
            if (mine == 0) continue;
            u32 k = start + __ffs(mine) - 1;
            const u32 at = offset(k);
            u32 last = offset(k + 1) - at - 1 - member;
            ROLLED for (u32 i = 0; i < member; i++) k = parent(k);
            ROLLED for (;;) {
                const u8 v = first(last == 0 ? k : parent(k) + 1);
                if (last < room - at) store(out + at + last, v);
                if (last < TEAM) break;
                last -= TEAM;
                k = up[k];
            }
        }
    }
};

// TIFF's LZW, most significant bit first. Ends where the CPU's decoder ends and calls corrupt what that
// does, and besides what is legal and nobody writes: segments that go on after the last code of 12
// bits, and so many Clears that a large tile would hold up the device.
extern "C" __global__ void __launch_bounds__(THREADS) lzw(const Packed packed) {
    __shared__ Segment segment;
    const u32 i = blockIdx.x, room = (u32)packed.room[i];
    const u64 from = packed.inputs[i], out = packed.outputs[i], bits = packed.input_bytes[i] * 8;
    const u32 start = bits < 9 ? Segment::END : Segment::code_at(from, 0, 9);
    if (start == Segment::END) return packed.report(SUCCESS, 0);
    if (start != Segment::CLEAR) return packed.report(CANNOT_DECOMPRESS, 0);
    u64 at = 9;
    u32 made = 0;
    ROLLED for (u32 turns = 64 + room / 256; turns > 0; turns--) {
        u32 count, more = 0;
        const u64 word = at / 32, end = min_of(bits - word * 32, (u64)1 << 31);
        const Stop stop = segment.read(from + word * 4, at % 32, (u32)end, count);
        if (count > 0) {
            segment.find_roots(count);
            more = segment.find_places(count);
        }
        const bool full = more >= room - made;
        if (stop == BAD && !full) break;
        segment.write(count, out + made, room - made);
        made += more;
        if (full || stop == DONE) return packed.report(SUCCESS, full ? room : made);
        at += Segment::bits_before(count) + Segment::width(count);
        __syncthreads();
    }
    packed.report(CANNOT_DECOMPRESS, made);
}

// ---- PackBits -----------------------------------------------------------------------------------

// A window of the stream that begins with the head of a run. Each byte is taken for a head, and it is
// found where it would lead to beyond its piece, and from there beyond its span of pieces. Then one
// thread follows the heads from span to span, a warp from piece to piece, and all of them from head to
// head.
struct Runs {
    enum : u32 {
        PIECE = 16,              // bytes that a thread has
        SPAN = TEAM * PIECE,
        SPANS = WARP,
        BYTES = SPANS * SPAN,
        NONE = 0xffff,
        COUNT = 1 << 19,         // a run is counted as one of these and its bytes, which are fewer
    };

    u8 byte[BYTES];
    u8 beyond_piece[BYTES];      // how far beyond its piece, its span, a head leads
    u8 beyond_span[BYTES];
    u16 span_entry[SPANS];       // the first head in each; NONE where a run skips it
    u16 piece_entry[THREADS];
    u32 run[BYTES / 2];          // where a run goes, from the window's start, above its head
    u32 sum_of[THREADS / WARP];
    u32 next;                    // the first head behind the window
    u32 cut;                     // what is made before a stretch that the stream does not have all of

    INLINE u32 behind(u32 i) const {
        const u32 head = byte[i];
        return i + (head < 128 ? head + 2 : head > 128 ? 2 : 1);
    }

    // Bytes that a run makes, of a stream of which `size` are left here.
    INLINE u32 length(u32 i, u32 size) const {
        const u32 head = byte[i];
        if (head == 128 || i + 1 >= size) return 0;
        return head < 128 ? min_of(head + 1, size - i - 1) : 257 - head;
    }
    INLINE bool is_cut(u32 i, u32 size) const {
        return byte[i] < 128 && byte[i] + 1 > size - i - 1;
    }

    // Reads the window. Of the stream `size` bytes are left here; beyond them nothing is looked at.
    INLINE void read(u64 from, u32 size) {
        ROLLED for (u32 i = threadIdx.x; i < min_of(size, BYTES); i += THREADS)
            byte[i] = load<u8>(from + i);
        if (threadIdx.x == 0) cut = ALL;
        __syncthreads();
    }

    INLINE void find_heads(u32 size) {
        const u32 thread = threadIdx.x, piece = thread * PIECE;
        // Warps that have something.
        if (thread / WARP * WARP * PIECE < size) {
            ROLLED for (u32 i = min_of(piece + PIECE, size); i-- > piece;)
                beyond_piece[i] = lead(behind(i), piece + PIECE, size, beyond_piece);
            __syncwarp();
            // A span is a team's, its last piece first.
            const u32 span = thread / TEAM * SPAN;
            ROLLED for (u32 end = span + SPAN; end > span; end -= PIECE) {
                ROLLED for (u32 i = end - PIECE + thread % TEAM; i < min_of(end, size); i += TEAM)
                    beyond_span[i] = lead(end + beyond_piece[i], span + SPAN, size, beyond_span);
                __syncwarp();
            }
        }
        __syncthreads();
        if (thread < WARP) {
            if (thread == 0) {
                u32 at = 0;
                ROLLED for (u32 n = 0; n * SPAN < min_of(size, BYTES); n++)
                    span_entry[n] = (u16)enter(at, (n + 1) * SPAN, size, beyond_span);
                next = at;
            }
            __syncwarp();
            const u32 first = thread * TEAM, span = first * PIECE;
            u32 at = span < size ? span_entry[thread] : NONE;
            ROLLED for (u32 n = first; n < first + TEAM; n++)
                piece_entry[n] = (u16)enter(at, (n + 1) * PIECE, size, beyond_piece);
        }
        __syncthreads();
    }

    // How far beyond `end` one gets from `to`, if that is known where `to` lies before it.
    static INLINE u8 lead(u32 to, u32 end, u32 size, const u8* beyond) {
        return to >= end ? (u8)(to - end) : to < size ? beyond[to] : 0;
    }

    // Goes beyond `end`; where it began, if that was before.
    static INLINE u32 enter(u32& at, u32 end, u32 size, const u8* beyond) {
        if (at >= min_of(end, size)) return NONE;
        const u32 entry = at;
        at = end + beyond[at];
        return entry;
    }

    // Lists the runs; how many, above the bytes that they make.
    INLINE u32 list(u32 size) {
        const u32 end = min_of((threadIdx.x + 1) * PIECE, size), entry = piece_entry[threadIdx.x];
        u32 mine = 0;
        ROLLED for (u32 i = entry; i < end; i = behind(i)) {
            const u32 n = length(i, size);
            mine += n == 0 ? 0 : COUNT + n;
        }
        const BlockSums sums = block_sums(mine, sum_of);
        u32 at = sums.before;
        ROLLED for (u32 i = entry; i < end; i = behind(i)) {
            const u32 n = length(i, size);
            if (n == 0) continue;
            run[at / COUNT] = at % COUNT * BYTES + i;
            if (is_cut(i, size)) cut = at % COUNT;
            at += COUNT + n;
        }
        __syncthreads();
        return sums.total;
    }

    // Writes them, as far as there is room, a team each.
    INLINE void write(u32 total, u64 from, u64 out, u32 room) const {
        const u32 count = total / COUNT;
        ROLLED for (u32 n = threadIdx.x / TEAM; n < count; n += THREADS / TEAM) {
            const u32 i = run[n] % BYTES, at = run[n] / BYTES;
            const u32 end = min_of(room, n + 1 < count ? run[n + 1] / BYTES : total % COUNT);
            const u32 step = byte[i] < 128;
            ROLLED for (u32 to = at + threadIdx.x % TEAM; to < end; to += TEAM)
                store(out + to, load<u8>(from + i + 1 + (to - at) * step));
        }
    }
};

// TIFF's PackBits. Any stream is one; how much it made is all there is to say.
extern "C" __global__ void __launch_bounds__(THREADS) packbits(const Packed packed) {
    __shared__ Runs runs;
    const u32 i = blockIdx.x, room = (u32)packed.room[i];
    const u64 from = packed.inputs[i], out = packed.outputs[i], size = packed.input_bytes[i];
    u32 made = 0;
    u64 at = 0;
    ROLLED while (at < size && made < room) {
        const u32 left = (u32)min_of(size - at, (u64)2 * Runs::BYTES);
        runs.read(from + at, left);
        runs.find_heads(left);
        const u32 total = runs.list(left);
        runs.write(total, from + at, out + made, room - made);
        const u32 more = total % Runs::COUNT;
        const bool full = more >= room - made;
        made = full ? room : made + (runs.cut == ALL ? more : runs.cut);
        at += runs.next;
        __syncthreads();
    }
    packed.report(SUCCESS, made);
}
