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

typedef void (*Emit)(void *, const char *name, const char *value);

// What the shim may call. No function throws or lets a panic through.
struct Api
{
    const char *(*options_xml)();
    int (*gpu_looks_usable)();
    File *(*file_open)(const char *path, const char *const *options,
                       void *vsi_handle);
    File *(*file_beside)(const File *, const char *path);
    void (*file_free)(File *);
    int (*file_threads)(const File *);
    void (*file_describe)(const File *, void *, Emit);
    void (*file_count_gtiff)(const File *, int what);
    Image *(*image_open)(const File *, const ImageFacts *);
    void (*image_free)(Image *);
    int (*image_read)(const Image *, const Request *);
};
}  // namespace gpugtiff

extern "C" void gpugtiff_shim_register(const gpugtiff::Api *api);

#endif
