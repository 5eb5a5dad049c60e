/* Reads random windows in several threads at once, and prints one line of JSON as read.c does.
 *
 *   threads <way> <one|each> <NUM_THREADS or -> <file> <threads> <windows a thread>
 *
 * Ways: api (include/gpugtiff.h), or a driver's name (its RasterIO). `one` raster for all threads
 * (GDAL's datasets are for one at a time: behind a lock), or one for `each`. The windows of a
 * thread are the same in every way, so that the hashes are equal.
 */
#include <pthread.h>

#include "common.h"
#include "gpugtiff.h"

enum { WINDOW = 512, MOST_THREADS = 64 };

typedef struct
{
    const char *way, *threads, *file;
    int each, windows;
    Shape shape;
    gpugtiff_raster *raster;
    GDALDatasetH dataset;
    pthread_mutex_t lock;
} Work;

typedef struct
{
    Work *work;
    uint64_t seed;
    char *buffer;
} Share;

static void fail_api(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, gpugtiff_error_message());
    exit(1);
}

static int is_api(const Work *work)
{
    return !strcmp(work->way, "api");
}

static gpugtiff_raster *open_api(const Work *work)
{
    char option[64];
    const char *options[] = {option, NULL};
    snprintf(option, sizeof option, "NUM_THREADS=%s", work->threads);
    gpugtiff_raster *raster = NULL;
    if (gpugtiff_raster_open(work->file, strcmp(work->threads, "-") ? options : NULL, &raster))
        fail_api("opening");
    return raster;
}

static void read_api(gpugtiff_raster *raster, int x, int y, char *to, size_t bytes)
{
    gpugtiff_window window = {x, y, WINDOW, WINDOW};
    gpugtiff_buffer buffer = gpugtiff_buffer_init();
    buffer.data = to;
    buffer.bytes = bytes;
    if (gpugtiff_raster_read(raster, &window, NULL, &buffer))
        fail_api("reading");
}

static void read_gdal(GDALDatasetH ds, const Shape *s, int x, int y, char *to)
{
    if (GDALDatasetRasterIOEx(ds, GF_Read, x, y, WINDOW, WINDOW, to, WINDOW, WINDOW, s->type,
                              s->bands, NULL, 0, 0, 0, NULL) != CE_None)
        fail("reading");
}

static void *read_share(void *argument)
{
    Share *share = argument;
    Work *work = share->work;
    const Shape *s = &work->shape;
    gpugtiff_raster *raster = work->raster;
    GDALDatasetH dataset = work->dataset;
    if (work->each && is_api(work))
        raster = open_api(work);
    else if (work->each)
        dataset = open_raster(work->way, work->threads, work->file);
    const size_t bytes = (size_t)WINDOW * WINDOW * s->bands * s->bytes;
    for (int i = 0; i < work->windows; i++)
    {
        const int x = below(&share->seed, s->width - WINDOW + 1);
        const int y = below(&share->seed, s->height - WINDOW + 1);
        char *to = share->buffer + i * bytes;
        if (is_api(work))
        {
            read_api(raster, x, y, to, bytes);
            continue;
        }
        if (!work->each)
            pthread_mutex_lock(&work->lock);
        read_gdal(dataset, s, x, y, to);
        if (!work->each)
            pthread_mutex_unlock(&work->lock);
    }
    if (work->each && is_api(work))
        gpugtiff_raster_free(raster);
    else if (work->each)
        GDALClose(dataset);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 7 || atoi(argv[5]) < 1 || atoi(argv[5]) > MOST_THREADS || atoi(argv[6]) < 1)
    {
        fprintf(stderr, "usage: threads <way> <one|each> <NUM_THREADS or -> <file> <threads> "
                        "<windows a thread>\n");
        return 2;
    }
    Work work = {.way = argv[1], .threads = argv[3], .file = argv[4],
                 .each = !strcmp(argv[2], "each"), .windows = atoi(argv[6])};
    const int count = atoi(argv[5]);
    pthread_mutex_init(&work.lock, NULL);
    GDALAllRegister();
    GDALDatasetH first = open_raster("GTiff", "-", work.file);
    work.shape = shape_of(first);
    GDALClose(first);
    const size_t part =
        (size_t)WINDOW * WINDOW * work.shape.bands * work.shape.bytes * work.windows;
    char *buffer = malloc(part * count);
    if (!buffer)
        fail("out of memory");
    memset(buffer, 0xA5, part * count);

    const double start = now();
    if (!work.each && is_api(&work))
        work.raster = open_api(&work);
    else if (!work.each)
        work.dataset = open_raster(work.way, work.threads, work.file);
    pthread_t threads[MOST_THREADS];
    Share shares[MOST_THREADS];
    for (int i = 0; i < count; i++)
    {
        shares[i] = (Share){&work, 42 + i, buffer + i * part};
        if (pthread_create(&threads[i], NULL, read_share, &shares[i]))
            fail("starting a thread");
    }
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    const double seconds = now() - start;

    gpugtiff_raster_free(work.raster);
    if (work.dataset)
        GDALClose(work.dataset);
    printf("{\"seconds\": %.6f, \"bytes\": %zu, \"hash\": \"%016llx\"}\n", seconds, part * count,
           (unsigned long long)hash((unsigned char *)buffer, part * count));
    return 0;
}
