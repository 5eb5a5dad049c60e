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
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cpl_conv.h"
#include "cpl_string.h"
#include "gdal.h"

enum { WINDOW = 512 };

static void fail(const char *what)
{
    fprintf(stderr, "read: %s: %s\n", what, CPLGetLastErrorMsg());
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* A number from a "key: value" file of /proc/self. */
static long proc(const char *file, const char *key)
{
    char line[256];
    long value = -1;
    FILE *f = fopen(file, "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, key, strlen(key)))
            value = strtol(line + strlen(key) + 1, NULL, 10);
    if (f)
        fclose(f);
    return value;
}

/* Four lanes of multiply and shift: every bit of the input counts. */
static uint64_t hash(const unsigned char *data, size_t size)
{
    uint64_t lane[4] = {1, 2, 3, 4};
    size_t i = 0;
    for (; i + 32 <= size; i += 32)
        for (int k = 0; k < 4; k++)
        {
            uint64_t word;
            memcpy(&word, data + i + 8 * k, 8);
            lane[k] = (lane[k] ^ word) * 0x9E3779B97F4A7C15u;
            lane[k] ^= lane[k] >> 29;
        }
    for (; i < size; i++)
        lane[i % 4] = (lane[i % 4] ^ data[i]) * 0x9E3779B97F4A7C15u;
    uint64_t sum = size;
    for (int k = 0; k < 4; k++)
        sum = (sum ^ lane[k]) * 0xD6E8FEB86659FD93u, sum ^= sum >> 32;
    return sum;
}

/* The same sequence on every machine. */
static int below(uint64_t *state, int bound)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int)((*state >> 33) % (uint64_t)(bound > 0 ? bound : 1));
}

typedef struct
{
    int width, height, bands, bytes;
    GDALDataType type;
    char *buffer;
} Raster;

static void read_window(GDALDatasetH ds, const Raster *r, int x, int y, int w, int h, char *to,
                        GSpacing line, GSpacing band)
{
    if (GDALDatasetRasterIOEx(ds, GF_Read, x, y, w, h, to, w, h, r->type, r->bands, NULL,
                              r->bytes, line, band, NULL) != CE_None)
        fail("reading");
}

static void read_pattern(GDALDatasetH ds, const Raster *r, const char *pattern, int count)
{
    const GSpacing line = (GSpacing)r->width * r->bytes, band = line * r->height;
    uint64_t seed = 42;
    if (!strcmp(pattern, "full"))
        read_window(ds, r, 0, 0, r->width, r->height, r->buffer, line, band);
    else if (!strcmp(pattern, "rows"))
        for (int y = 0; y < r->height; y++)
            read_window(ds, r, 0, y, r->width, 1, r->buffer + y * line, line, band);
    else if (!strcmp(pattern, "windows"))
        for (int i = 0; i < count; i++)
        {
            const GSpacing row = WINDOW * r->bytes, plane = row * WINDOW;
            const int x = below(&seed, r->width - WINDOW + 1);
            const int y = below(&seed, r->height - WINDOW + 1);
            read_window(ds, r, x, y, WINDOW, WINDOW, r->buffer + i * plane * r->bands, row, plane);
        }
    else
    {
        GDALRasterBandH first = GDALGetRasterBand(ds, 1);
        for (int i = 0; i < count; i++)
        {
            const int x = below(&seed, r->width), y = below(&seed, r->height);
            if (GDALRasterIO(first, GF_Read, x, y, 1, 1, r->buffer + (size_t)i * r->bytes, 1, 1,
                             r->type, 0, 0) != CE_None)
                fail("reading");
        }
    }
}

static size_t pattern_bytes(const Raster *r, const char *pattern, int count)
{
    const size_t pixel = (size_t)r->bands * r->bytes;
    if (!strcmp(pattern, "full") || !strcmp(pattern, "rows"))
        return pixel * r->width * r->height;
    if (!strcmp(pattern, "windows"))
        return pixel * WINDOW * WINDOW * count;
    if (!strcmp(pattern, "pixels"))
        return (size_t)r->bytes * count;
    CPLError(CE_Failure, CPLE_AppDefined, "no such pattern: %s", pattern);
    fail("arguments");
    return 0;
}

static GDALDatasetH open_raster(const char *driver, const char *threads, const char *file)
{
    const char *drivers[] = {driver, NULL};
    char **options = NULL;
    if (strcmp(threads, "-"))
        options = CSLSetNameValue(options, "NUM_THREADS", threads);
    GDALDatasetH ds = GDALOpenEx(file, GDAL_OF_RASTER | GDAL_OF_VERBOSE_ERROR, drivers,
                                 (const char *const *)options, NULL);
    CSLDestroy(options);
    if (!ds)
        fail("opening");
    return ds;
}

/* The shape, from a first open by GTiff: the clock must see ours open the file anew. Over
 * /vsicurl/ that would warm the cache, so there it comes from the environment. */
static Raster shape_of(const char *file)
{
    Raster r = {0};
    const char *given = getenv("READ_SHAPE"); /* width height bands type */
    int type;
    if (given && sscanf(given, "%d %d %d %d", &r.width, &r.height, &r.bands, &type) == 4)
        r.type = (GDALDataType)type;
    else
    {
        GDALDatasetH ds = open_raster("GTiff", "-", file);
        r.width = GDALGetRasterXSize(ds);
        r.height = GDALGetRasterYSize(ds);
        r.bands = GDALGetRasterCount(ds);
        r.type = GDALGetRasterDataType(GDALGetRasterBand(ds, 1));
        GDALClose(ds);
    }
    r.bytes = GDALGetDataTypeSizeBytes(r.type);
    return r;
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
    Raster r = shape_of(file);
    const size_t bytes = pattern_bytes(&r, pattern, count);
    r.buffer = malloc(bytes);
    if (!r.buffer)
        fail("out of memory");
    memset(r.buffer, 0xA5, bytes);

    const long read_before = proc("/proc/self/io", "rchar");
    const double start = now();
    GDALDatasetH ds = open_raster(driver, threads, file);
    read_pattern(ds, &r, pattern, count);
    const double seconds = now() - start;
    const long read_after = proc("/proc/self/io", "rchar");

    printf("{\"seconds\": %.6f, \"bytes\": %zu, \"hash\": \"%016llx\", \"file_bytes_read\": %ld, "
           "\"peak_kb\": %ld, \"counters\": {",
           seconds, bytes, (unsigned long long)hash((unsigned char *)r.buffer, bytes),
           read_after - read_before, proc("/proc/self/status", "VmHWM:"));
    char **items = GDALGetMetadata(ds, "GPUGTIFF");
    for (int i = 0; items && items[i]; i++)
    {
        char *key = NULL;
        const char *value = CPLParseNameValue(items[i], &key);
        char *quoted = CPLEscapeString(value ? value : "", -1, CPLES_BackslashQuotable);
        printf("%s\"%s\": \"%s\"", i ? ", " : "", key ? key : "", quoted);
        CPLFree(quoted);
        CPLFree(key);
    }
    printf("}}\n");
    GDALClose(ds);
    return 0;
}
