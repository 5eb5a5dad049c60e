/* Reads a window of a raster into a GPU's memory and prints the minimum, maximum and mean of each
 * band, as read_window does.
 *
 *     read_device [-d device] [-l level] <raster> [x y width height]
 *
 * Without a window the whole level; level 0 is the image, n its n-th overview. Missing data
 * (nodata, NaN) is left out; of complex samples the real part counts. No header of CUDA is needed:
 * what is used of the driver is looked up in libcuda. A program would go on with the pixels on the
 * stream; this one brings them down. Exit code: 0, 1 if something failed, 2 if it was called
 * wrongly. */
#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpugtiff.h>

static const char *const usage =
    "usage: read_device [-d device] [-l level] <raster> [x y width height]\n"
    "reads into a GPU's memory, prints the minimum, maximum and mean of each band\n";

/* The driver's functions, as in cuda.h: a CUdevice is an int, a CUdeviceptr 64 bits, contexts and
 * streams are pointers, and every answer but 0 is an error. */
typedef struct {
    int (*init)(unsigned flags);
    int (*error_string)(int error, const char **text);
    int (*device_get)(int *device, int ordinal);
    int (*context_retain)(void **context, int device);
    int (*context_release)(int device);
    int (*context_set_current)(void *context);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_synchronize)(void *stream);
    int (*stream_destroy)(void *stream);
    int (*allocate)(uint64_t *memory, size_t bytes);
    int (*free)(uint64_t memory);
    int (*download)(void *target, uint64_t source, size_t bytes, void *stream);
} driver;

/* CU_STREAM_NON_BLOCKING: a stream that does not wait for the default one. */
enum { NON_BLOCKING = 1 };

/* A device in use: its primary context, which is where the library puts pixels, and a stream. */
typedef struct {
    driver cuda;
    int32_t number;
    int device;
    void *context;
    void *stream;
} gpu;

/* Samples of a window, one band after the other. */
typedef struct {
    gpugtiff_type type;
    size_t bytes; /* of one */
    size_t count; /* in a band */
    unsigned char *data;
} samples;

/* Whether a call went well; if not, says why. */
static bool ok(gpugtiff_result result)
{
    if (result != GPUGTIFF_OK)
        fprintf(stderr, "read_device: %s (%s)\n", gpugtiff_error_message(), gpugtiff_result_name(result));
    return result == GPUGTIFF_OK;
}

/* The same for a call of the driver. */
static bool done(const driver *cuda, const char *name, int error)
{
    const char *text = NULL;
    if (error != 0) {
        cuda->error_string(error, &text);
        fprintf(stderr, "read_device: %s: %s (%d)\n", name, text != NULL ? text : "unknown error", error);
    }
    return error == 0;
}

static bool number(const char *text, int64_t *value)
{
    char *end = NULL;
    *value = strtoll(text, &end, 10);
    return end != text && *end == '\0';
}

/* Finds the driver's functions. The library stays loaded: it has threads of its own. */
static bool load(driver *cuda)
{
    const struct {
        const char *name;
        void *function;
    } wanted[] = {
        {"cuInit", &cuda->init},
        {"cuGetErrorString", &cuda->error_string},
        {"cuDeviceGet", &cuda->device_get},
        {"cuDevicePrimaryCtxRetain", &cuda->context_retain},
        {"cuDevicePrimaryCtxRelease_v2", &cuda->context_release},
        {"cuCtxSetCurrent", &cuda->context_set_current},
        {"cuStreamCreate", &cuda->stream_create},
        {"cuStreamSynchronize", &cuda->stream_synchronize},
        {"cuStreamDestroy_v2", &cuda->stream_destroy},
        {"cuMemAlloc_v2", &cuda->allocate},
        {"cuMemFree_v2", &cuda->free},
        {"cuMemcpyDtoHAsync_v2", &cuda->download},
    };
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "read_device: no NVIDIA driver can be used: %s\n", dlerror());
        return false;
    }
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        void *symbol = dlsym(library, wanted[i].name);
        if (symbol == NULL) {
            fprintf(stderr, "read_device: the NVIDIA driver lacks %s\n", wanted[i].name);
            return false;
        }
        /* C has no cast from a pointer to a function. */
        memcpy(wanted[i].function, &symbol, sizeof(symbol));
    }
    return true;
}

/* Gives back what `begin` took, as far as it came. */
static void end(gpu *gpu)
{
    const driver *cuda = &gpu->cuda;
    if (gpu->stream != NULL)
        done(cuda, "cuStreamDestroy", cuda->stream_destroy(gpu->stream));
    if (gpu->context != NULL) {
        done(cuda, "cuCtxSetCurrent", cuda->context_set_current(NULL));
        done(cuda, "cuDevicePrimaryCtxRelease", cuda->context_release(gpu->device));
    }
}

/* Makes the device's primary context current, and a stream in it. */
static bool begin(gpu *gpu)
{
    const driver *cuda = &gpu->cuda;
    return load(&gpu->cuda) && done(cuda, "cuInit", cuda->init(0)) &&
           done(cuda, "cuDeviceGet", cuda->device_get(&gpu->device, gpu->number)) &&
           done(cuda, "cuDevicePrimaryCtxRetain", cuda->context_retain(&gpu->context, gpu->device)) &&
           done(cuda, "cuCtxSetCurrent", cuda->context_set_current(gpu->context)) &&
           done(cuda, "cuStreamCreate", cuda->stream_create(&gpu->stream, NON_BLOCKING));
}

/* Bytes of a sample; 0 if there is no C type to convert it with. */
static size_t sample_bytes(gpugtiff_type type)
{
    switch (type) {
    case GPUGTIFF_TYPE_U8:
    case GPUGTIFF_TYPE_I8:
        return 1;
    case GPUGTIFF_TYPE_U16:
    case GPUGTIFF_TYPE_I16:
        return 2;
    case GPUGTIFF_TYPE_U32:
    case GPUGTIFF_TYPE_I32:
    case GPUGTIFF_TYPE_F32:
    case GPUGTIFF_TYPE_CI16:
        return 4;
    case GPUGTIFF_TYPE_U64:
    case GPUGTIFF_TYPE_I64:
    case GPUGTIFF_TYPE_F64:
    case GPUGTIFF_TYPE_CI32:
    case GPUGTIFF_TYPE_CF32:
        return 8;
    case GPUGTIFF_TYPE_CF64:
        return 16;
    default:
        return 0;
    }
}

/* A sample as a double. The real part of a complex one comes first. */
static double value(gpugtiff_type type, const unsigned char *sample)
{
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
        float f32;
        double f64;
        unsigned char bytes[16];
    } any;
    memcpy(any.bytes, sample, sample_bytes(type));
    switch (type) {
    case GPUGTIFF_TYPE_U8:
        return any.u8;
    case GPUGTIFF_TYPE_I8:
        return any.i8;
    case GPUGTIFF_TYPE_U16:
        return any.u16;
    case GPUGTIFF_TYPE_I16:
    case GPUGTIFF_TYPE_CI16:
        return any.i16;
    case GPUGTIFF_TYPE_U32:
        return any.u32;
    case GPUGTIFF_TYPE_I32:
    case GPUGTIFF_TYPE_CI32:
        return any.i32;
    case GPUGTIFF_TYPE_U64:
        return (double)any.u64;
    case GPUGTIFF_TYPE_I64:
        return (double)any.i64;
    case GPUGTIFF_TYPE_F32:
    case GPUGTIFF_TYPE_CF32:
        return any.f32;
    default:
        return any.f64;
    }
}

/* One line about the samples of a band. */
static bool print_band(const gpugtiff_raster *raster, int32_t band, const samples *pixels)
{
    gpugtiff_nodata nodata;
    if (!ok(gpugtiff_raster_nodata(raster, band, &nodata)))
        return false;
    const unsigned char *first = pixels->data + (size_t)(band - 1) * pixels->count * pixels->bytes;
    double min = INFINITY, max = -INFINITY, sum = 0;
    size_t valid = 0;
    for (size_t i = 0; i < pixels->count; i++) {
        double sample = value(pixels->type, first + i * pixels->bytes);
        if (isnan(sample) || (nodata.is_set && sample == nodata.value))
            continue;
        min = sample < min ? sample : min;
        max = sample > max ? sample : max;
        sum += sample;
        valid++;
    }
    if (valid == 0)
        printf("band %" PRId32 ": no data\n", band);
    else
        printf("band %" PRId32 ": min %.17g max %.17g mean %.17g pixels %zu\n", band, min, max,
               sum / (double)valid, valid);
    return true;
}

/* Has the library put the window into device memory, in the raster's own type so that nothing
 * passes through the host, and brings it down. */
static bool read_window(const gpugtiff_raster *raster, const gpugtiff_window *window,
                        const gpugtiff_selection *selection, const gpu *gpu, unsigned char *data,
                        size_t bytes)
{
    const driver *cuda = &gpu->cuda;
    uint64_t memory = 0;
    if (!done(cuda, "cuMemAlloc", cuda->allocate(&memory, bytes)))
        return false;
    gpugtiff_buffer buffer = gpugtiff_buffer_init();
    buffer.data = (void *)(uintptr_t)memory;
    buffer.bytes = bytes;
    buffer.memory = GPUGTIFF_MEMORY_DEVICE;
    buffer.device = gpu->number;
    buffer.stream = gpu->stream;
    bool fine = ok(gpugtiff_raster_read(raster, window, selection, &buffer)) &&
                done(cuda, "cuMemcpyDtoHAsync", cuda->download(data, memory, bytes, gpu->stream));
    /* What was submitted uses the memory, whatever became of it. */
    fine = done(cuda, "cuStreamSynchronize", cuda->stream_synchronize(gpu->stream)) && fine;
    return done(cuda, "cuMemFree", cuda->free(memory)) && fine;
}

/* Reads all bands of the window and prints a line for each. */
static bool print_window(const gpugtiff_raster *raster, const gpugtiff_raster_facts *facts,
                         const gpugtiff_window *window, int32_t level, const gpu *gpu)
{
    /* An empty window is the library's to refuse. */
    size_t width = window->width > 0 ? (size_t)window->width : 1;
    size_t height = window->height > 0 ? (size_t)window->height : 1;
    samples pixels = {.type = facts->type, .bytes = sample_bytes(facts->type), .count = width * height};
    if (pixels.bytes == 0) {
        fprintf(stderr, "read_device: samples of type %" PRId32 " are not converted here\n", facts->type);
        return false;
    }
    if (height > SIZE_MAX / pixels.bytes / (size_t)facts->bands / width) {
        fprintf(stderr, "read_device: the window does not fit into memory\n");
        return false;
    }
    size_t bytes = pixels.count * pixels.bytes * (size_t)facts->bands;
    pixels.data = malloc(bytes);
    if (pixels.data == NULL) {
        fprintf(stderr, "read_device: no memory for %zu bytes\n", bytes);
        return false;
    }
    gpugtiff_selection selection = gpugtiff_selection_init();
    selection.level = level;
    bool fine = read_window(raster, window, &selection, gpu, pixels.data, bytes);
    for (int32_t band = 1; fine && band <= facts->bands; band++)
        fine = print_band(raster, band, &pixels);
    free(pixels.data);
    return fine;
}

int main(int argc, char **argv)
{
    int64_t level = 0, device = 0, numbers[4];
    for (; argc > 2 && argv[1][0] == '-'; argc -= 2, argv += 2) {
        int64_t *option = strcmp(argv[1], "-d") == 0 ? &device : strcmp(argv[1], "-l") == 0 ? &level : NULL;
        if (option == NULL || !number(argv[2], option) || *option < INT32_MIN || *option > INT32_MAX)
            return fputs(usage, stderr), 2;
    }
    if (argc != 2 && argc != 6)
        return fputs(usage, stderr), 2;
    for (int i = 2; i < argc; i++)
        if (!number(argv[i], &numbers[i - 2]))
            return fputs(usage, stderr), 2;

    gpugtiff_raster *raster = NULL;
    gpugtiff_raster_facts facts = gpugtiff_raster_facts_init();
    gpu gpu = {.number = (int32_t)device};
    bool fine = ok(gpugtiff_raster_open(argv[1], NULL, &raster)) &&
                ok(gpugtiff_raster_info(raster, (int32_t)level, &facts)) && begin(&gpu);
    if (fine) {
        gpugtiff_window window = {0, 0, facts.width, facts.height};
        if (argc == 6)
            window = (gpugtiff_window){numbers[0], numbers[1], numbers[2], numbers[3]};
        fine = print_window(raster, &facts, &window, (int32_t)level, &gpu);
    }
    gpugtiff_raster_free(raster);
    end(&gpu);
    return fine ? 0 : 1;
}
