/* A program as somebody compiled it with the header beside it. It calls every function of that
 * header once and runs with every later library of the same major version: tests/python/test_abi.py.
 *
 *   program <raster> <new file> */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpugtiff.h"

static void check(gpugtiff_result result, gpugtiff_result expected, const char *what)
{
    if (result != expected) {
        fprintf(stderr, "%s: %s: %s\n", what, gpugtiff_result_name(result), gpugtiff_error_message());
        exit(1);
    }
}
#define CALL(call) check((call), GPUGTIFF_OK, #call)
#define REFUSED(code, call) check((call), (code), #call)

static void count(const char *name, uint64_t value, void *user)
{
    if (strcmp(name, "TILES_DECODED") == 0)
        *(uint64_t *)user += value;
}

static void hear(gpugtiff_log_level level, const char *message, void *user)
{
    *(int *)user += level >= GPUGTIFF_LOG_ERROR && message != NULL;
}

static void ask(void)
{
    gpugtiff_device_facts facts = gpugtiff_device_facts_init();
    if (gpugtiff_version_number() < GPUGTIFF_VERSION_NUMBER ||
        gpugtiff_version_number() / 10000 != GPUGTIFF_VERSION_MAJOR)
        exit(2);
    printf("library %s, GDAL %s, CUDA %u, nvCOMP %u\n", gpugtiff_version(), gpugtiff_gdal_version(),
           gpugtiff_cuda_version(), gpugtiff_nvcomp_version());
    REFUSED(GPUGTIFF_NO_DEVICE, gpugtiff_device_info(gpugtiff_device_count(), &facts));
}

static void describe(gpugtiff_raster *raster)
{
    gpugtiff_nodata nodata;
    const char *wkt = NULL, *engine = NULL, *reason = NULL;
    void *dataset = NULL;
    gpugtiff_raster *again = NULL;
    CALL(gpugtiff_raster_nodata(raster, 1, &nodata));
    CALL(gpugtiff_raster_wkt(raster, &wkt));
    CALL(gpugtiff_raster_engine(raster, &engine, &reason));
    CALL(gpugtiff_raster_dataset(raster, &dataset));
    /* It has a raster already. */
    REFUSED(GPUGTIFF_STATE, gpugtiff_raster_wrap(dataset, &again));
    CALL(gpugtiff_raster_free(again));
    printf("engine %s, %zu bytes of WKT, nodata %s\n", engine, strlen(wkt),
           nodata.is_set ? "set" : "not set");
}

/* Both kinds of tensors hold what was read. */
static void tensors(const gpugtiff_raster *raster, const void *pixels, size_t bytes)
{
    DLManagedTensor *old = NULL;
    DLManagedTensorVersioned *tensor = NULL;
    CALL(gpugtiff_raster_read_tensor(raster, NULL, NULL, -1, &tensor));
    CALL(gpugtiff_raster_read_tensor_unversioned(raster, NULL, NULL, -1, &old));
    if (tensor->version.major != 1 || memcmp(tensor->dl_tensor.data, pixels, bytes) != 0 ||
        memcmp(old->dl_tensor.data, pixels, bytes) != 0)
        exit(3);
    tensor->deleter(tensor);
    old->deleter(old);
}

/* Copies the raster batch by batch. */
static void copy(const gpugtiff_raster *raster, gpugtiff_writer *writer, unsigned char *pixels,
                 size_t bytes)
{
    gpugtiff_batches *batches = NULL;
    gpugtiff_window window;
    gpugtiff_result result;
    gpugtiff_buffer buffer = gpugtiff_buffer_init();
    buffer.data = pixels;
    buffer.bytes = bytes;
    CALL(gpugtiff_batches_new(raster, NULL, 1, &batches));
    CALL(gpugtiff_batches_largest(batches, &window));
    while ((result = gpugtiff_batches_next(batches, &window)) == GPUGTIFF_OK) {
        CALL(gpugtiff_batches_read(batches, &window, &buffer));
        CALL(gpugtiff_writer_write(writer, &window, NULL, &buffer));
    }
    check(result, GPUGTIFF_DONE, "gpugtiff_batches_next");
    CALL(gpugtiff_batches_free(batches));
}

static void write_again(const gpugtiff_raster *raster, const gpugtiff_raster_facts *facts,
                        const char *path, unsigned char *pixels, size_t bytes)
{
    const char *const options[] = {"COMPRESS=DEFLATE", NULL};
    const char *engine = NULL, *reason = NULL;
    uint64_t tiles = 0;
    gpugtiff_writer *writer = NULL;
    gpugtiff_spec spec = gpugtiff_spec_init();
    spec.width = facts->width;
    spec.height = facts->height;
    spec.bands = facts->bands;
    spec.type = facts->type;
    spec.geotransform = facts->has_geotransform ? facts->geotransform : NULL;
    spec.options = options;
    CALL(gpugtiff_writer_create(path, &spec, &writer));
    CALL(gpugtiff_writer_abort(writer));
    CALL(gpugtiff_writer_free(writer));
    CALL(gpugtiff_writer_create(path, &spec, &writer));
    copy(raster, writer, pixels, bytes);
    CALL(gpugtiff_writer_finish(writer));
    CALL(gpugtiff_writer_engine(writer, &engine, &reason));
    CALL(gpugtiff_writer_counters(writer, count, &tiles));
    CALL(gpugtiff_writer_free(writer));
}

int main(int argc, char **argv)
{
    gpugtiff_raster *raster = NULL;
    gpugtiff_raster_facts facts = gpugtiff_raster_facts_init();
    gpugtiff_selection selection = gpugtiff_selection_init();
    gpugtiff_buffer buffer = gpugtiff_buffer_init();
    unsigned char *pixels;
    size_t bytes;
    uint64_t tiles = 0;
    int heard = 0;
    if (argc != 3)
        return 2;
    CALL(gpugtiff_log_set(hear, &heard));
    ask();
    REFUSED(GPUGTIFF_OPEN_FAILED, gpugtiff_raster_open("/nowhere", NULL, &raster));
    CALL(gpugtiff_raster_open(argv[1], NULL, &raster));
    CALL(gpugtiff_raster_info(raster, 0, &facts));
    if (facts.type != GPUGTIFF_TYPE_U8)
        return 2;
    bytes = (size_t)(facts.width * facts.height * facts.bands);
    pixels = malloc(bytes);
    selection.type = GPUGTIFF_TYPE_U8;
    buffer.data = pixels;
    buffer.bytes = bytes;
    CALL(gpugtiff_raster_read(raster, NULL, &selection, &buffer));
    describe(raster);
    tensors(raster, pixels, bytes);
    write_again(raster, &facts, argv[2], pixels, bytes);
    CALL(gpugtiff_raster_counters(raster, count, &tiles));
    CALL(gpugtiff_raster_free(raster));
    CALL(gpugtiff_log_set(NULL, NULL));
    free(pixels);
    return tiles > 0 ? 0 : 4;
}
