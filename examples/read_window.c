/* Reads a window of a raster and prints the minimum, maximum and mean of each band.
 *
 *     read_window [-l level] <raster> [x y width height]
 *
 * Without a window the whole level; level 0 is the image, n its n-th overview. Missing data
 * (nodata, NaN) is left out. Exit code: 0, 1 if something failed, 2 if it was called wrongly. */
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpugtiff.h>

static const char *const usage =
    "usage: read_window [-l level] <raster> [x y width height]\n"
    "prints the minimum, maximum and mean of each band\n";

/* Whether a call went well; if not, says why. */
static bool ok(gpugtiff_result result)
{
    if (result != GPUGTIFF_OK)
        fprintf(stderr, "read_window: %s (%s)\n", gpugtiff_error_message(), gpugtiff_result_name(result));
    return result == GPUGTIFF_OK;
}

static bool number(const char *text, int64_t *value)
{
    char *end = NULL;
    *value = strtoll(text, &end, 10);
    return end != text && *end == '\0';
}

/* One line about the samples of a band. */
static bool print_band(const gpugtiff_raster *raster, int32_t band, const double *samples, size_t count)
{
    gpugtiff_nodata nodata;
    if (!ok(gpugtiff_raster_nodata(raster, band, &nodata)))
        return false;
    double min = INFINITY, max = -INFINITY, sum = 0;
    size_t valid = 0;
    for (size_t i = 0; i < count; i++) {
        double sample = samples[i];
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

/* Reads all bands of the window as doubles, one band after the other. */
static bool print_window(const gpugtiff_raster *raster, int32_t level, int32_t bands,
                         const gpugtiff_window *window)
{
    /* An empty window is the library's to refuse. */
    size_t width = window->width > 0 ? (size_t)window->width : 1;
    size_t height = window->height > 0 ? (size_t)window->height : 1;
    if (height > SIZE_MAX / sizeof(double) / (size_t)bands / width) {
        fprintf(stderr, "read_window: the window does not fit into memory\n");
        return false;
    }
    size_t count = width * height;

    gpugtiff_selection selection = gpugtiff_selection_init();
    selection.level = level;
    selection.type = GPUGTIFF_TYPE_F64;
    gpugtiff_buffer buffer = gpugtiff_buffer_init();
    buffer.bytes = count * (size_t)bands * sizeof(double);
    buffer.data = malloc(buffer.bytes);
    if (buffer.data == NULL) {
        fprintf(stderr, "read_window: no memory for %zu bytes\n", buffer.bytes);
        return false;
    }
    bool fine = ok(gpugtiff_raster_read(raster, window, &selection, &buffer));
    const double *samples = buffer.data;
    for (int32_t band = 1; fine && band <= bands; band++)
        fine = print_band(raster, band, samples + (size_t)(band - 1) * count, count);
    free(buffer.data);
    return fine;
}

int main(int argc, char **argv)
{
    int64_t level = 0, numbers[4];
    if (argc > 2 && strcmp(argv[1], "-l") == 0) {
        if (!number(argv[2], &level) || level < INT32_MIN || level > INT32_MAX)
            return fputs(usage, stderr), 2;
        argc -= 2;
        argv += 2;
    }
    if (argc != 2 && argc != 6)
        return fputs(usage, stderr), 2;
    for (int i = 2; i < argc; i++)
        if (!number(argv[i], &numbers[i - 2]))
            return fputs(usage, stderr), 2;

    gpugtiff_raster *raster = NULL;
    gpugtiff_raster_facts facts = gpugtiff_raster_facts_init();
    bool fine = ok(gpugtiff_raster_open(argv[1], NULL, &raster)) &&
                ok(gpugtiff_raster_info(raster, (int32_t)level, &facts));
    if (fine) {
        gpugtiff_window window = {0, 0, facts.width, facts.height};
        if (argc == 6)
            window = (gpugtiff_window){numbers[0], numbers[1], numbers[2], numbers[3]};
        fine = print_window(raster, (int32_t)level, facts.bands, &window);
    }
    gpugtiff_raster_free(raster);
    return fine ? 0 : 1;
}
