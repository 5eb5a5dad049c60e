/* Every function of gpugtiff.h that is said to be thread-safe, called by many threads at once: readers of one
 * raster, readers with rasters of their own, walkers of one walk, one who asks, one who fails, one who changes
 * the log. The pixels are known:
 *
 *     threads <rounds> <file>...     all of the same size, 3 bands of bytes, the value of pixel() each */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpugtiff.h"

enum { BANDS = 3, SHARING = 4, APART = 3, WALKING = 2, THREADS = SHARING + APART + WALKING + 3 };

static int rounds, file_count;
static char **files;
static gpugtiff_raster *shared;
static gpugtiff_batches *walk;
static atomic_int working = SHARING + APART + WALKING, heard, wrong;

static unsigned char pixel(int64_t x, int64_t y, int band) {
    return (unsigned char)(3 * x + 7 * y + 11 * band + x * y / 16);
}

static void complain(const char *what) {
    fprintf(stderr, "%s: %s\n", what, gpugtiff_error_message());
    atomic_fetch_add(&wrong, 1);
}

#define MUST(call) \
    do { \
        if ((call) < 0) complain(#call); \
    } while (0)

static int64_t below(unsigned *seed, int64_t end) { return rand_r(seed) % end; }

static gpugtiff_raster_facts facts_of(gpugtiff_raster *raster, int32_t level) {
    gpugtiff_raster_facts facts = gpugtiff_raster_facts_init();
    MUST(gpugtiff_raster_info(raster, level, &facts));
    return facts;
}

static gpugtiff_buffer buffer_of(unsigned char *data, const gpugtiff_window *window) {
    gpugtiff_buffer buffer = gpugtiff_buffer_init();
    buffer.data = data;
    buffer.bytes = (size_t)(BANDS * window->width * window->height);
    return buffer;
}

static void compare(const unsigned char *data, const gpugtiff_window *window) {
    for (int band = 0; band < BANDS; band++)
        for (int64_t y = window->y; y < window->y + window->height; y++)
            for (int64_t x = window->x; x < window->x + window->width; x++)
                if (*data++ != pixel(x, y, band)) {
                    complain("a pixel is wrong");
                    return;
                }
}

static void read_somewhere(gpugtiff_raster *raster, unsigned *seed) {
    gpugtiff_raster_facts facts = facts_of(raster, 0);
    gpugtiff_window window = {below(seed, facts.width), below(seed, facts.height), 0, 0};
    window.width = 1 + below(seed, facts.width - window.x);
    window.height = 1 + below(seed, facts.height - window.y);
    unsigned char *data = malloc((size_t)(BANDS * window.width * window.height));
    gpugtiff_buffer buffer = buffer_of(data, &window);
    MUST(gpugtiff_raster_read(raster, &window, NULL, &buffer));
    compare(data, &window);
    DLManagedTensor *tensor;
    MUST(gpugtiff_raster_read_tensor_unversioned(raster, &window, NULL, -1, &tensor));
    compare(tensor->dl_tensor.data, &window);
    tensor->deleter(tensor);
    free(data);
}

static void *share(void *number) {
    unsigned seed = (unsigned)(size_t)number;
    for (int i = 0; i < rounds; i++) read_somewhere(shared, &seed);
    atomic_fetch_sub(&working, 1);
    return NULL;
}

static void *stay_apart(void *number) {
    unsigned seed = (unsigned)(size_t)number;
    for (int i = 0; i < rounds; i++) {
        gpugtiff_raster *raster;
        MUST(gpugtiff_raster_open(files[below(&seed, file_count)], NULL, &raster));
        read_somewhere(raster, &seed);
        MUST(gpugtiff_raster_free(raster));
    }
    atomic_fetch_sub(&working, 1);
    return NULL;
}

static void *walk_along(void *number) {
    (void)number;
    gpugtiff_window window;
    MUST(gpugtiff_batches_largest(walk, &window));
    unsigned char *data = malloc((size_t)(BANDS * window.width * window.height));
    while (gpugtiff_batches_next(walk, &window) == GPUGTIFF_OK) {
        gpugtiff_buffer buffer = buffer_of(data, &window);
        MUST(gpugtiff_batches_read(walk, &window, &buffer));
        compare(data, &window);
    }
    free(data);
    atomic_fetch_sub(&working, 1);
    return NULL;
}

static void count(const char *name, uint64_t value, void *user) {
    *(uint64_t *)user += value + strlen(name);
}

/* Asks everything that can be asked, while the others work. */
static void *ask(void *number) {
    (void)number;
    const char *name, *reason, *wkt;
    while (atomic_load(&working) > 0) {
        gpugtiff_raster_facts facts = facts_of(shared, 0);
        for (int32_t level = 1; level < facts.levels; level++)
            if (facts_of(shared, level).width >= facts.width) complain("levels");
        gpugtiff_nodata nodata;
        MUST(gpugtiff_raster_nodata(shared, 2, &nodata));
        MUST(gpugtiff_raster_wkt(shared, &wkt));
        if (nodata.is_set != 1 || nodata.value != 255 || !strstr(wkt, "WGS")) complain("nodata or WKT");
        MUST(gpugtiff_raster_engine(shared, &name, &reason));
        if (strcmp(name, "CPU") != 0 && strcmp(name, "CUDA") != 0) complain(name);
        uint64_t sum = 0;
        MUST(gpugtiff_raster_counters(shared, count, &sum));
        void *dataset = NULL;
        MUST(gpugtiff_raster_dataset(shared, &dataset));
        if (sum == 0 || !dataset) complain("counters or dataset");
        int32_t devices = gpugtiff_device_count();
        gpugtiff_device_facts device = gpugtiff_device_facts_init();
        if (gpugtiff_device_info(devices, &device) != GPUGTIFF_NO_DEVICE) complain("devices");
        if (devices > 0) MUST(gpugtiff_device_info(0, &device));
        if ((gpugtiff_cuda_version() == 0) != (devices == 0)) complain("CUDA's version");
        if ((gpugtiff_nvcomp_version() == 0) != (devices == 0)) complain("nvCOMP's version");
        if (gpugtiff_version_number() != GPUGTIFF_VERSION_NUMBER || !*gpugtiff_version()) complain("version");
        if (strcmp(gpugtiff_result_name(GPUGTIFF_STATE), "GPUGTIFF_STATE") != 0) complain("names");
        if (!*gpugtiff_gdal_version()) complain("GDAL's version");
    }
    return NULL;
}

/* Until the others are done, and the log has heard something. */
static int go_on(void) { return atomic_load(&working) > 0 || atomic_load(&heard) == 0; }

/* Has failures, whose messages are this thread's, and uses handles that others never had or have no more. */
static void *fail(void *number) {
    (void)number;
    gpugtiff_raster *raster = NULL;
    gpugtiff_window window = {-1, 0, 1, 1};
    unsigned char byte;
    gpugtiff_buffer buffer = buffer_of(&byte, &window);
    const char *nonsense[] = {"ENGINE=NONSENSE", NULL};
    while (go_on()) {
        if (gpugtiff_raster_open("/nowhere/none.tif", NULL, &raster) != GPUGTIFF_OPEN_FAILED) complain("open");
        if (!strstr(gpugtiff_error_message(), "/nowhere/none.tif")) complain("message");
        if (gpugtiff_raster_open(files[0], nonsense, &raster) != GPUGTIFF_BAD_ARGUMENT) complain("option");
        if (!strstr(gpugtiff_error_message(), "NONSENSE")) complain("message");
        if (gpugtiff_raster_read(shared, &window, NULL, &buffer) != GPUGTIFF_OUT_OF_IMAGE) complain("window");
        if (!strstr(gpugtiff_error_message(), "window")) complain("message");
        if (gpugtiff_batches_free((gpugtiff_batches *)shared) != GPUGTIFF_BAD_HANDLE) complain("handle");
    }
    return NULL;
}

static void hear(gpugtiff_log_level level, const char *message, void *user) {
    if (level < GPUGTIFF_LOG_ERROR || level > GPUGTIFF_LOG_DEBUG || !*message || user != files) complain("log");
    atomic_fetch_add(&heard, 1);
}

static void *change_the_log(void *number) {
    (void)number;
    while (go_on()) {
        MUST(gpugtiff_log_set(hear, files));
        for (int before = atomic_load(&heard); atomic_load(&heard) == before && go_on();) usleep(100);
        MUST(gpugtiff_log_set(NULL, NULL));
    }
    return NULL;
}

static void keep(const char *name, uint64_t value, void *user) {
    if (strcmp(name, "CUDA_TILES_DECODED") == 0) *(uint64_t *)user = value;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    rounds = atoi(argv[1]);
    files = argv + 2;
    file_count = argc - 2;
    MUST(gpugtiff_raster_open(files[0], NULL, &shared));
    MUST(gpugtiff_batches_new(shared, NULL, 1, &walk));
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        void *(*work)(void *) = i < SHARING                     ? share
                                : i < SHARING + APART           ? stay_apart
                                : i < SHARING + APART + WALKING ? walk_along
                                : i == THREADS - 3              ? ask
                                : i == THREADS - 2              ? fail
                                                                : change_the_log;
        if (pthread_create(&threads[i], NULL, work, (void *)(i + 1)) != 0) return 2;
    }
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    uint64_t decoded = 0;
    MUST(gpugtiff_raster_counters(shared, keep, &decoded));
    MUST(gpugtiff_batches_free(walk));
    MUST(gpugtiff_raster_free(shared));
    printf("%d messages, %d wrong, %llu tiles by CUDA\n", atomic_load(&heard), atomic_load(&wrong), (unsigned long long)decoded);
    return atomic_load(&wrong) > 0;
}
