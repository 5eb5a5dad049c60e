/* What the measuring programs share: the clock, the process's figures, a hash of pixels, random
 * places, the driver's counters. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cpl_conv.h"
#include "cpl_string.h"
#include "gdal.h"

static inline void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, CPLGetLastErrorMsg());
    exit(1);
}

static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* A number from a "key: value" file of /proc/self. */
static inline long proc(const char *file, const char *key)
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
static inline uint64_t hash(const unsigned char *data, size_t size)
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
static inline int below(uint64_t *state, int bound)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int)((*state >> 33) % (uint64_t)(bound > 0 ? bound : 1));
}

typedef struct
{
    int width, height, bands, bytes;
    GDALDataType type;
} Shape;

static inline Shape shape_of(GDALDatasetH ds)
{
    Shape s;
    s.width = GDALGetRasterXSize(ds);
    s.height = GDALGetRasterYSize(ds);
    s.bands = GDALGetRasterCount(ds);
    s.type = GDALGetRasterDataType(GDALGetRasterBand(ds, 1));
    s.bytes = GDALGetDataTypeSizeBytes(s.type);
    return s;
}

static inline GDALDatasetH open_raster(const char *driver, const char *threads, const char *file)
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

/* NAME=VALUE items as a JSON object. */
static inline void print_items(const char *const *items)
{
    putchar('{');
    for (int i = 0; items && items[i]; i++)
    {
        char *key = NULL;
        const char *value = CPLParseNameValue(items[i], &key);
        char *quoted = CPLEscapeString(value ? value : "", -1, CPLES_BackslashQuotable);
        printf("%s\"%s\": \"%s\"", i ? ", " : "", key ? key : "", quoted);
        CPLFree(quoted);
        CPLFree(key);
    }
    putchar('}');
}
