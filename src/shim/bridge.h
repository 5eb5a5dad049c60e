// The shapes that cross between the shim and Rust. src/capi/bridge.rs says the
// same in Rust; both are plain data.
#ifndef GPUGTIFF_BRIDGE_H
#define GPUGTIFF_BRIDGE_H

#include <cstddef>
#include <cstdint>

namespace gpugtiff
{
struct File;
struct Image;
struct Output;
struct Unfinished;

struct Block
{
    void *handle;
    void *data;
};

struct Redo
{
    int x, y, width, height;
    const int *bands;
    int band_count;
    void *data;
    char *message;
    size_t message_size;
};

// What Rust may ask during a request, on the calling thread only.
struct Callbacks
{
    void *context;
    int (*find)(void *, int band, int column, int row, Block *);
    int (*make)(void *, int band, int column, int row, Block *);
    void (*release)(void *, const Block *, int keep);
    void (*fill)(void *, int band, void *sample);
    int (*redo)(void *, const Redo *);
    int (*progress)(void *, double);
};

struct Request
{
    int x, y, width, height;
    const int *bands;
    int band_count;
    int kind;
    void *data;
    int64_t pixel_space, line_space, band_space;
    int whole_block;
    // The caller works on one window while it asks for the next.
    int pipelined;
    int64_t cache_max;
    Callbacks callbacks;
};

struct ImageFacts
{
    uint64_t ifd_offset;
    int width, height, bands;
    int kind, sample_bytes;
    int block_width, block_height;
    int bit;
    uint64_t first_tile;
    int converted;
};

// A byte of a file in place of another.
struct Patch
{
    uint64_t offset;
    uint8_t byte;
};

// What is asked of a file to be written.
struct Creation
{
    const char *path;
    const char *const *options;
    const char *gtiff_xml;
    int width, height, sample_bytes;
    int floats;
    int as_gtiff;
    int stream;
    int *hollow_rows;
};

struct Target
{
    const char *path;
    const char *hollow;
    const char *const *options;
    const char *const *gtiff_options;
    int height;
    int kind, sample_bytes;
    int unnamed;
};

// Pixels to be filled in while an image is copied.
struct Swath
{
    int x, y, width, height;
    int first_band, band_count;
    void *data;
    int64_t pixel_space, line_space, band_space;
    double done;
};

typedef void (*Emit)(void *, const char *name, const char *value);
typedef int (*Progress)(void *, double done);

// What the shim may call. No function throws or lets a panic through.
struct Api
{
    const char *(*options_xml)(int creating);
    int (*gpu_looks_usable)();
    File *(*file_open)(const char *path, const char *const *options,
                       void *vsi_handle, int claimed);
    File *(*file_beside)(const File *, const char *path);
    void (*file_free)(File *);
    const Patch *(*file_overlay)(File *, const char *directory,
                                 size_t *count);
    int (*file_is_overlaid)(const File *, uint64_t ifd_offset);
    void (*file_refuse)(const File *, uint64_t ifd_offset, const char *what);
    int (*file_threads)(const File *);
    int (*file_is_foreign)(const File *);
    // GDAL has the file open that it was opened by, until it is freed.
    void (*file_rely_on_gdal)(const File *);
    void (*file_describe)(const File *, void *, Emit);
    void (*file_count_gtiff)(const File *, int what);
    Image *(*image_open)(const File *, const ImageFacts *);
    void (*image_free)(Image *);
    int (*image_read)(const Image *, const Request *);
    // Whether GTiff is to serve what is not asked for pixel by pixel.
    int (*image_leaves_resampling)(const Image *);
    int (*creation_prepare)(const Creation *, void *, Emit);
    Output *(*output_create)(const File *, const Target *, int *left_to_gtiff);
    int (*output_add_mask)(Output *, const char *hollow, int bit);
    // NULL: bands differ in what stands for missing data, and no tile is left out.
    void (*output_set_fill)(Output *, const void *sample);
    int (*output_write)(Output *, int image, const Request *);
    int (*output_read)(Output *, int image, int band, int column, int row,
                       void *data);
    int64_t (*output_written)(Output *, int image, int band,
                              const int *window);
    void (*output_copy)(Output *, int image, int source_rows,
                        int bands_together, const Image *source);
    int (*output_swath)(Output *, Swath *);
    int (*output_take)(Output *);
    int (*output_copy_tiles)(Output *, const Image *, int one_fill, void *,
                             Progress);
    int (*output_settle)(Output *, const char *hollow);
    int (*output_flush)(Output *, const char *hollow);
    const char *(*output_beside)(const Output *);
    int (*output_finish)(Output *, const char *hollow);
    int (*output_finish_copy)(Output *, const char *hollow, void *,
                              int (*beside)(void *));
    void (*output_free)(Output *, int remove);
    // -1: it cannot be read.
    int64_t (*written_count)(const char *path);
    // whole: 0 tiles may be left out, 1 no image's, 2 nor any overview's or mask's.
    int (*written_check)(const char *path, const char *shown, int64_t skip,
                         int whole);
    // NULL: the file must have its name at once.
    Unfinished *(*unfinished_begin)(const char *path, int64_t least_bytes);
    const char *(*unfinished_name)(const Unfinished *);
    int (*unfinished_publish)(Unfinished *);
    void (*unfinished_free)(Unfinished *);
};
}  // namespace gpugtiff

// What the C API asks of the shim. A dataset is a GDALDatasetH.
extern "C"
{
    void gpugtiff_shim_register(const gpugtiff::Api *api);
    // Our GDALDriverH, registered if its name is free; NULL without GTiff.
    void *gpugtiff_shim_driver(const gpugtiff::Api *api);
    // Opens with our driver; NULL after an error was raised.
    void *gpugtiff_shim_open(const char *path, const char *const *options);
    // Whose a dataset is: 0 somebody else's, 1 one that we opened, 2 a level or
    // mask of such, 3 one that we are creating.
    int gpugtiff_shim_kind(void *dataset);
    // For a dataset of ours. The file is there as long as the dataset.
    const gpugtiff::File *gpugtiff_shim_file(void *dataset);
    // The image, or NULL if GTiff reads it. It goes with the next read.
    const gpugtiff::Image *gpugtiff_shim_image(void *dataset);
    // Closes a dataset of ours; 0 if GDAL says that all went well.
    int gpugtiff_shim_close(void *dataset);
    // Closes a dataset of ours that was being created and removes its files.
    void gpugtiff_shim_discard(void *dataset);
}

#endif
