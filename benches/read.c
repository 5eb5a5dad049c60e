/* Reads a raster in one pattern through one driver and prints one line of JSON: the time
 * from open to the last pixel, a hash of the pixels (taken afterwards), and what the
 * process used. In C, as Python's cost per call would hide the differences.
 *
 *   read <driver> <NUM_THREADS or -> <pattern> <file> [count]
 *
 * Patterns: full, rows, windows (count of 512 × 512), pixels (count of single pixels).
 * All fill a buffer made and touched before the clock starts, band after band, as
 * ReadAsArray() would.
 */
#include "common.h"

enum { WINDOW = 512 };

static void read_window(GDALDatasetH ds, const Shape *s, int x, int y, int w, int h, char *to,
                        GSpacing line, GSpacing band)
{
    if (GDALDatasetRasterIOEx(ds, GF_Read, x, y, w, h, to, w, h, s->type, s->bands, NULL,
                              s->bytes, line, band, NULL) != CE_None)
        fail("reading");
}

static void read_pattern(GDALDatasetH ds, const Shape *s, const char *pattern, int count,
                         char *buffer)
{
    const GSpacing line = (GSpacing)s->width * s->bytes, band = line * s->height;
    uint64_t seed = 42;
    if (!strcmp(pattern, "full"))
        read_window(ds, s, 0, 0, s->width, s->height, buffer, line, band);
    else if (!strcmp(pattern, "rows"))
        for (int y = 0; y < s->height; y++)
            read_window(ds, s, 0, y, s->width, 1, buffer + y * line, line, band);
    else if (!strcmp(pattern, "windows"))
        for (int i = 0; i < count; i++)
        {
            const GSpacing row = WINDOW * s->bytes, plane = row * WINDOW;
            const int x = below(&seed, s->width - WINDOW + 1);
            const int y = below(&seed, s->height - WINDOW + 1);
            read_window(ds, s, x, y, WINDOW, WINDOW, buffer + i * plane * s->bands, row, plane);
        }
    else
    {
        GDALRasterBandH first = GDALGetRasterBand(ds, 1);
        for (int i = 0; i < count; i++)
        {
            const int x = below(&seed, s->width), y = below(&seed, s->height);
            if (GDALRasterIO(first, GF_Read, x, y, 1, 1, buffer + (size_t)i * s->bytes, 1, 1,
                             s->type, 0, 0) != CE_None)
                fail("reading");
        }
    }
}

static size_t pattern_bytes(const Shape *s, const char *pattern, int count)
{
    const size_t pixel = (size_t)s->bands * s->bytes;
    if (!strcmp(pattern, "full") || !strcmp(pattern, "rows"))
        return pixel * s->width * s->height;
    if (!strcmp(pattern, "windows"))
        return pixel * WINDOW * WINDOW * count;
    if (!strcmp(pattern, "pixels"))
        return (size_t)s->bytes * count;
    CPLError(CE_Failure, CPLE_AppDefined, "no such pattern: %s", pattern);
    fail("arguments");
    return 0;
}

/* The shape, from a first open by GTiff: the clock must see ours open the file anew. Over
 * /vsicurl/ that would warm the cache, so there it comes from the environment. */
static Shape shape_of_file(const char *file)
{
    Shape s;
    const char *given = getenv("READ_SHAPE"); /* width height bands type */
    int type;
    if (given && sscanf(given, "%d %d %d %d", &s.width, &s.height, &s.bands, &type) == 4)
    {
        s.type = (GDALDataType)type;
        s.bytes = GDALGetDataTypeSizeBytes(s.type);
        return s;
    }
    GDALDatasetH ds = open_raster("GTiff", "-", file);
    s = shape_of(ds);
    GDALClose(ds);
    return s;
}

int main(int argc, char **argv)
{
    if (argc < 5)
    {
        fprintf(stderr, "usage: read <driver> <NUM_THREADS or -> <pattern> <file> [count]\n");
        return 2;
    }
    const char *driver = argv[1], *threads = argv[2], *pattern = argv[3], *file = argv[4];
    const int count = argc > 5 ? atoi(argv[5]) : 1;
    GDALAllRegister();
    const Shape shape = shape_of_file(file);
    const size_t bytes = pattern_bytes(&shape, pattern, count);
    char *buffer = malloc(bytes);
    if (!buffer)
        fail("out of memory");
    memset(buffer, 0xA5, bytes);

    const long read_before = proc("/proc/self/io", "rchar");
    const double start = now();
    GDALDatasetH ds = open_raster(driver, threads, file);
    read_pattern(ds, &shape, pattern, count, buffer);
    const double seconds = now() - start;
    const long read_after = proc("/proc/self/io", "rchar");

    printf("{\"seconds\": %.6f, \"bytes\": %zu, \"hash\": \"%016llx\", \"file_bytes_read\": %ld, "
           "\"peak_kb\": %ld, \"counters\": ",
           seconds, bytes, (unsigned long long)hash((unsigned char *)buffer, bytes),
           read_after - read_before, proc("/proc/self/status", "VmHWM:"));
    print_items((const char *const *)GDALGetMetadata(ds, "GPUGTIFF"));
    printf("}\n");
    GDALClose(ds);
    return 0;
}
