/* Writes a raster through one driver's CreateCopy() and prints one line of JSON: the time
 * from there until the file is closed, its size, a hash of its pixels as GTiff reads them
 * back (afterwards), and what the process used.
 *
 *   write <driver> <NUM_THREADS or -> mem|file <source> <target> [NAME=VALUE…]
 *   write <driver> <NUM_THREADS or -> hash <source>
 *
 * mem: the source is in a MEM dataset before the clock starts. file: the same driver reads
 * it, with as many threads. hash: nothing but the hash of the source's pixels.
 */
#include <malloc.h>
#include <sys/stat.h>

#include "common.h"

enum { SWATH_BYTES = 64 << 20, SWATH_ROWS = 256 };

/* A mosaic is read by the one driver that can. */
static GDALDatasetH open_source(const char *driver, const char *threads, const char *file)
{
    if (EQUAL(CPLGetExtension(file), "vrt"))
        return open_raster("VRT", "-", file);
    return open_raster(driver, threads, file);
}

/* A copy of the file's pixels, band after band. What the copying leaves on the heap goes back
 * to the system: a driver that fills the block cache would find its pages made. */
static GDALDatasetH in_memory(const char *file)
{
    GDALDatasetH from = open_source("GTiff", "ALL_CPUS", file);
    const Shape s = shape_of(from);
    GDALDatasetH to = GDALCreate(GDALGetDriverByName("MEM"), "", s.width, s.height, s.bands,
                                 s.type, NULL);
    if (!to || GDALDatasetCopyWholeRaster(from, to, NULL, NULL, NULL) != CE_None)
        fail("filling the memory");
    GDALClose(from);
    malloc_trim(0);
    return to;
}

/* Of all pixels, read in swaths of whole rows of blocks. */
static uint64_t hash_of(GDALDatasetH ds)
{
    const Shape s = shape_of(ds);
    const GSpacing line = (GSpacing)s.width * s.bytes;
    int rows = (int)(SWATH_BYTES / (line * s.bands)) / SWATH_ROWS * SWATH_ROWS;
    if (rows < SWATH_ROWS)
        rows = SWATH_ROWS;
    unsigned char *swath = malloc((size_t)line * s.bands * rows);
    if (!swath)
        fail("out of memory");
    uint64_t sums[2] = {0, 0};
    for (int y = 0; y < s.height; y += rows)
    {
        const int count = y + rows < s.height ? rows : s.height - y;
        if (GDALDatasetRasterIOEx(ds, GF_Read, 0, y, s.width, count, swath, s.width, count, s.type,
                                  s.bands, NULL, s.bytes, line, line * count, NULL) != CE_None)
            fail("reading back");
        sums[1] = hash(swath, (size_t)line * s.bands * count);
        sums[0] = hash((unsigned char *)sums, sizeof sums);
    }
    free(swath);
    return sums[0];
}

static int hash_only(const char *driver, const char *threads, const char *source)
{
    GDALDatasetH ds = open_source(driver, threads, source);
    printf("{\"hash\": \"%016llx\"}\n", (unsigned long long)hash_of(ds));
    GDALClose(ds);
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 4 ? argv[3] : "";
    const int writes = argc > 5 && (!strcmp(mode, "mem") || !strcmp(mode, "file"));
    if (!writes && strcmp(mode, "hash"))
    {
        fprintf(stderr, "usage: write <driver> <NUM_THREADS or -> mem|file <source> <target> "
                        "[NAME=VALUE...]\n"
                        "       write <driver> <NUM_THREADS or -> hash <source>\n");
        return 2;
    }
    const char *driver = argv[1], *threads = argv[2], *source = argv[4], *target = argv[5];
    GDALAllRegister();
    if (!writes)
        return hash_only(driver, threads, source);
    GDALDriverH to = GDALGetDriverByName(driver);
    if (!to)
        fail("no such driver");
    char **options = CSLDuplicate(argv + 6);
    if (strcmp(threads, "-"))
        options = CSLSetNameValue(options, "NUM_THREADS", threads);
    GDALDatasetH from =
        strcmp(mode, "mem") ? open_source(driver, threads, source) : in_memory(source);
    const Shape s = shape_of(from);

    const double start = now();
    GDALDatasetH ds = GDALCreateCopy(to, target, from, FALSE, options, NULL, NULL);
    if (!ds)
        fail("writing");
    char **counters = CSLDuplicate(GDALGetMetadata(ds, "GPUGTIFF"));
    CPLErrorReset();
    GDALClose(ds);
    const double seconds = now() - start;
    const long peak = proc("/proc/self/status", "VmHWM:");
    if (CPLGetLastErrorType() >= CE_Failure)
        fail("closing");

    struct stat file;
    if (stat(target, &file) != 0)
        fail("no file");
    printf("{\"seconds\": %.6f, \"bytes\": %zu, \"file_bytes\": %lld, \"peak_kb\": %ld, "
           "\"counters\": ",
           seconds, (size_t)s.width * s.height * s.bands * s.bytes, (long long)file.st_size, peak);
    print_items((const char *const *)counters);
    printf(", \"source_counters\": ");
    print_items((const char *const *)GDALGetMetadata(from, "GPUGTIFF"));
    GDALClose(from);
    ds = open_raster("GTiff", "ALL_CPUS", target);
    printf(", \"hash\": \"%016llx\"}\n", (unsigned long long)hash_of(ds));
    GDALClose(ds);
    CSLDestroy(counters);
    CSLDestroy(options);
    return 0;
}
