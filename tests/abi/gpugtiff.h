/*
 * The C API of GPUGTiff: GeoTIFF read and written in batches of whole tile rows, on all CPU cores
 * or an NVIDIA GPU.
 *
 * Made by cbindgen from src/api: change that, and run `make header`.
 *
 * Every function that can fail returns a gpugtiff_result; what it hands out comes last, in
 * out_ parameters, and is freed by the function that ends in _free. Handles are looked up, never
 * followed: one that was freed is refused. Structs that may grow begin with their size: make them
 * with their _init function, which is the header's, so that a program runs with every later
 * library of the same major version.
 *
 * No header of GDAL or CUDA is needed: a GDALDatasetH and a CUstream are void pointers here.
 */


#ifndef GPUGTIFF_H
#define GPUGTIFF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/** The version of this header; gpugtiff_version_number() is the library's. */
#define GPUGTIFF_VERSION_MAJOR 0
#define GPUGTIFF_VERSION_MINOR 1
#define GPUGTIFF_VERSION_PATCH 0
#define GPUGTIFF_VERSION_NUMBER                                                     \
    (GPUGTIFF_VERSION_MAJOR * 10000 + GPUGTIFF_VERSION_MINOR * 100 + GPUGTIFF_VERSION_PATCH)

/*
 * DLPack (https://github.com/dmlc/dlpack), the structs of version 1. A program that has
 * dlpack/dlpack.h includes it before this header; one that wants the names only defines
 * GPUGTIFF_NO_DLPACK.
 */
#if defined(DLPACK_DLPACK_H_) || defined(GPUGTIFF_NO_DLPACK)
/* A dlpack.h from before 1.0 has but one of them, and a name may be given twice. */
typedef struct DLManagedTensor DLManagedTensor;
typedef struct DLManagedTensorVersioned DLManagedTensorVersioned;
#else
#ifdef __cplusplus
extern "C" {
#endif
/** Of the structs: the same within a major version. */
typedef struct {
    uint32_t major;
    uint32_t minor;
} DLPackVersion;
/** Where memory is. There are more of these than are used here. */
#ifdef __cplusplus
typedef enum : int32_t {
#else
typedef enum {
#endif
    kDLCPU = 1,
    kDLCUDA = 2,
    kDLCUDAHost = 3,
    kDLCUDAManaged = 13
} DLDeviceType;
/** A device. */
typedef struct {
    DLDeviceType device_type;
    int32_t device_id;
} DLDevice;
/** Kinds of numbers. */
typedef enum { kDLInt = 0U, kDLUInt = 1U, kDLFloat = 2U, kDLComplex = 5U } DLDataTypeCode;
/** The type of a sample. */
typedef struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} DLDataType;
/** Memory with a shape. Strides are in samples. */
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} DLTensor;
/** A tensor with its deleter, before DLPack 1.0. */
typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;
/** A tensor with its deleter, since DLPack 1.0. */
typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;
#ifdef __cplusplus
}
#endif
#endif


/**
 * A walk down a raster.
 */
typedef struct gpugtiff_batches gpugtiff_batches;

/**
 * A raster that is open for reading.
 */
typedef struct gpugtiff_raster gpugtiff_raster;

/**
 * A file that is being written.
 */
typedef struct gpugtiff_writer gpugtiff_writer;

/**
 * How a call ended: #GPUGTIFF_OK, #GPUGTIFF_DONE, or a negative number that says why it failed.
 * After a failure gpugtiff_error_message() has a sentence, and neither out-parameters nor
 * pixels were written, unless the function says otherwise.
 */
typedef int32_t gpugtiff_result;

/**
 * The type of samples: one of GPUGTIFF_TYPE_....
 */
typedef int32_t gpugtiff_type;

/**
 * What stands for missing data in a band.
 */
typedef struct {
    /**
     * 1 if there is such a value, else 0 and the others mean nothing.
     */
    int32_t is_set;
    /**
     * The band's type. The value is exact in `i64` for GPUGTIFF_TYPE_I64, in `u64` for
     * GPUGTIFF_TYPE_U64, and in `value` for all others.
     */
    gpugtiff_type type;
    /**
     * As a double.
     */
    double value;
    /**
     * As a signed number, cut off at its range.
     */
    int64_t i64;
    /**
     * As an unsigned number, cut off at its range.
     */
    uint64_t u64;
} gpugtiff_nodata;

/**
 * Facts of a raster, for one level of it. Make one with gpugtiff_raster_facts_init().
 */
typedef struct {
    /**
     * sizeof(gpugtiff_raster_facts)
     */
    size_t size;
    /**
     * Columns of the level.
     */
    int64_t width;
    /**
     * Rows of the level.
     */
    int64_t height;
    /**
     * Bands.
     */
    int32_t bands;
    /**
     * Type of the samples.
     */
    gpugtiff_type type;
    /**
     * Columns of a tile; of a strip those of the image. Windows of whole tiles are read
     * fastest.
     */
    int32_t tile_width;
    /**
     * Rows of a tile or strip.
     */
    int32_t tile_height;
    /**
     * Levels: 1 for the image and 1 for each overview.
     */
    int32_t levels;
    /**
     * 1 if `geotransform` is set.
     */
    int32_t has_geotransform;
    /**
     * GDAL's six numbers, for the pixels of this level.
     */
    double geotransform[6];
    /**
     * Of the first band.
     */
    gpugtiff_nodata nodata;
} gpugtiff_raster_facts;

/**
 * A rectangle of pixels, counted from the top left corner of its level.
 */
typedef struct {
    /**
     * Left column, from 0.
     */
    int64_t x;
    /**
     * Top row, from 0.
     */
    int64_t y;
    /**
     * Columns.
     */
    int64_t width;
    /**
     * Rows.
     */
    int64_t height;
} gpugtiff_window;

/**
 * Which samples. Where NULL is passed instead: all bands of level 0 in their own type. Make
 * one with gpugtiff_selection_init().
 */
typedef struct {
    /**
     * sizeof(gpugtiff_selection)
     */
    size_t size;
    /**
     * Numbers of bands, from 1, in the order they are wanted in; NULL for all.
     */
    const int32_t *bands;
    /**
     * How many there are at `bands`; 0 with NULL.
     */
    size_t band_count;
    /**
     * 0: the image itself; n: its n-th overview. Writers have level 0 only.
     */
    int32_t level;
    /**
     * Type of the samples in memory; GPUGTIFF_TYPE_OWN for the raster's. Values are converted
     * as GDAL converts them: rounded, and clamped to the range of the type.
     */
    gpugtiff_type type;
} gpugtiff_selection;

/**
 * Whose memory: one of GPUGTIFF_MEMORY_....
 */
typedef int32_t gpugtiff_memory;

/**
 * Where pixels go, or come from. Make one with gpugtiff_buffer_init().
 *
 * Sample (band i, row y, column x) of a window is at data + offset + i * band_stride + y *
 * line_stride + x * pixel_stride. Strides may be negative, and in any order. All samples must lie
 * inside `bytes` and, where pixels are read into the buffer, apart from each other: the larger of
 * two strides passes over all that the smaller one reaches.
 */
typedef struct {
    /**
     * sizeof(gpugtiff_buffer)
     */
    size_t size;
    /**
     * The memory.
     */
    void *data;
    /**
     * How many bytes there are at `data`. No byte outside is touched.
     */
    size_t bytes;
    /**
     * Bytes from `data` to the first sample of the first band.
     */
    size_t offset;
    /**
     * Bytes from a pixel to the next; 0: samples without a gap.
     */
    int64_t pixel_stride;
    /**
     * Bytes from a line to the next; 0: lines without a gap.
     */
    int64_t line_stride;
    /**
     * Bytes from a band to the next; 0: one band after the other.
     */
    int64_t band_stride;
    /**
     * GPUGTIFF_MEMORY_HOST or GPUGTIFF_MEMORY_DEVICE.
     */
    gpugtiff_memory memory;
    /**
     * For device memory: the device's number. Else ignored.
     */
    int32_t device;
    /**
     * For device memory: the CUstream that the pixels are ordered on; NULL, CU_STREAM_LEGACY and
     * CU_STREAM_PER_THREAD are the default streams. What was submitted to it before comes first,
     * and what is submitted after the call finds the pixels there; the host and other streams wait
     * for this one. Memory and stream must be of the device's primary context, which the CUDA runtime
     * uses too. Else ignored.
     */
    void *stream;
} gpugtiff_buffer;

/**
 * What a file shall be like. Make one with gpugtiff_spec_init().
 */
typedef struct {
    /**
     * sizeof(gpugtiff_spec)
     */
    size_t size;
    /**
     * Columns.
     */
    int64_t width;
    /**
     * Rows.
     */
    int64_t height;
    /**
     * Bands.
     */
    int32_t bands;
    /**
     * Type of the samples; GPUGTIFF_TYPE_OWN is none.
     */
    gpugtiff_type type;
    /**
     * GDAL's six numbers, or NULL.
     */
    const double *geotransform;
    /**
     * The coordinate system: WKT, or NULL.
     */
    const char *wkt;
    /**
     * What stands for missing data in all bands, or NULL.
     */
    const double *nodata;
    /**
     * The same for GPUGTIFF_TYPE_I64, exactly. At most one of the three is set.
     */
    const int64_t *nodata_i64;
    /**
     * The same for GPUGTIFF_TYPE_U64, exactly.
     */
    const uint64_t *nodata_u64;
    /**
     * Creation options of the driver as NAME=VALUE, the last one NULL; or NULL.
     */
    const char *const *options;
} gpugtiff_spec;

/**
 * A GPU. Make one with gpugtiff_device_facts_init().
 */
typedef struct {
    /**
     * sizeof(gpugtiff_device_facts)
     */
    size_t size;
    /**
     * Its name, cut off if need be, with a NUL at the end.
     */
    char name[256];
    /**
     * Compute capability, before the point.
     */
    int32_t compute_major;
    /**
     * Compute capability, after the point.
     */
    int32_t compute_minor;
    /**
     * Multiprocessors.
     */
    int32_t multiprocessors;
    /**
     * 1 if it is new enough for this library.
     */
    int32_t is_usable;
} gpugtiff_device_facts;

/**
 * Is told a counter; the name is valid during the call. It must return: no exception, no longjmp.
 */
typedef void (*gpugtiff_counter_callback)(const char *name, uint64_t value, void *user);

/**
 * How much a message matters: one of GPUGTIFF_LOG_....
 */
typedef int32_t gpugtiff_log_level;

/**
 * Is told a message; the text is valid during the call. It must not call this API, which is in the
 * middle of something, and must return: no exception, no longjmp.
 */
typedef void (*gpugtiff_log_callback)(gpugtiff_log_level level, const char *message, void *user);

/**
 * All went well.
 */
#define GPUGTIFF_OK 0

/**
 * There is nothing more to come. Not a failure: no message is left.
 */
#define GPUGTIFF_DONE 1

/**
 * A pointer that must point to something is NULL.
 */
#define GPUGTIFF_NULL_ARGUMENT (-1)

/**
 * The handle was freed, or is of another kind.
 */
#define GPUGTIFF_BAD_HANDLE (-2)

/**
 * An argument means nothing: an option, the size of a struct, a type, a band, a level.
 */
#define GPUGTIFF_BAD_ARGUMENT (-3)

/**
 * The window is empty or leaves the image.
 */
#define GPUGTIFF_OUT_OF_IMAGE (-4)

/**
 * Strides that put pixels outside the given bytes or on top of each other, or that overflow.
 */
#define GPUGTIFF_BAD_STRIDE (-5)

/**
 * Host memory where device memory was said, or the reverse.
 */
#define GPUGTIFF_WRONG_MEMORY (-6)

/**
 * Pointer, stream and device do not belong together.
 */
#define GPUGTIFF_WRONG_DEVICE (-7)

/**
 * There is no such GPU, or none that can be used.
 */
#define GPUGTIFF_NO_DEVICE (-8)

/**
 * The dataset was not opened by this driver, or by another copy of this library.
 */
#define GPUGTIFF_FOREIGN_DATASET (-9)

/**
 * The file does not exist, cannot be opened, or is no TIFF.
 */
#define GPUGTIFF_OPEN_FAILED (-10)

/**
 * The file is damaged.
 */
#define GPUGTIFF_CORRUPT (-11)

/**
 * Reading or writing failed.
 */
#define GPUGTIFF_IO (-12)

/**
 * An allocation was refused.
 */
#define GPUGTIFF_OUT_OF_MEMORY (-13)

/**
 * Valid, but not done by this library or by this GDAL.
 */
#define GPUGTIFF_UNSUPPORTED (-14)

/**
 * The caller asked to stop.
 */
#define GPUGTIFF_INTERRUPTED (-15)

/**
 * The GPU failed.
 */
#define GPUGTIFF_DEVICE_FAILED (-16)

/**
 * Not now: the writer is finished already, or there is no batch yet.
 */
#define GPUGTIFF_STATE (-17)

/**
 * A fault of this library. Please report it.
 */
#define GPUGTIFF_PANIC (-18)

/**
 * The raster's own type.
 */
#define GPUGTIFF_TYPE_OWN 0

/**
 * uint8_t
 */
#define GPUGTIFF_TYPE_U8 1

/**
 * int8_t. GDAL knows it since 3.7; before, such files are shown as uint8_t.
 */
#define GPUGTIFF_TYPE_I8 2

/**
 * uint16_t
 */
#define GPUGTIFF_TYPE_U16 3

/**
 * int16_t
 */
#define GPUGTIFF_TYPE_I16 4

/**
 * uint32_t
 */
#define GPUGTIFF_TYPE_U32 5

/**
 * int32_t
 */
#define GPUGTIFF_TYPE_I32 6

/**
 * uint64_t
 */
#define GPUGTIFF_TYPE_U64 7

/**
 * int64_t
 */
#define GPUGTIFF_TYPE_I64 8

/**
 * float
 */
#define GPUGTIFF_TYPE_F32 9

/**
 * double
 */
#define GPUGTIFF_TYPE_F64 10

/**
 * Complex, two int16_t.
 */
#define GPUGTIFF_TYPE_CI16 11

/**
 * Complex, two int32_t.
 */
#define GPUGTIFF_TYPE_CI32 12

/**
 * Complex, two floats.
 */
#define GPUGTIFF_TYPE_CF32 13

/**
 * Complex, two doubles.
 */
#define GPUGTIFF_TYPE_CF64 14

/**
 * Half a float. GDAL knows it since 3.11; before, such files are shown as float.
 */
#define GPUGTIFF_TYPE_F16 15

/**
 * Complex, two halves. Since GDAL 3.11.
 */
#define GPUGTIFF_TYPE_CF16 16

/**
 * The program's own memory.
 */
#define GPUGTIFF_MEMORY_HOST 0

/**
 * Memory of a GPU.
 */
#define GPUGTIFF_MEMORY_DEVICE 1

/**
 * A call fails. The function's result says so too.
 */
#define GPUGTIFF_LOG_ERROR 1

/**
 * The user should know.
 */
#define GPUGTIFF_LOG_WARNING 2

/**
 * For those who look for something.
 */
#define GPUGTIFF_LOG_DEBUG 3

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The last failure of this thread, as a sentence; empty if there was none. It stays as it is
 * when later calls succeed. The text is valid until this thread's next failure. Thread-safe:
 * each thread has its own.
 */
const char *gpugtiff_error_message(void);

/**
 * The name of a result, such as "GPUGTIFF_CORRUPT". Never NULL; the text is static.
 * Thread-safe.
 */
const char *gpugtiff_result_name(gpugtiff_result result);

/**
 * Opens a TIFF file for reading: any path that GDAL knows (/vsicurl/..., /vsizip/..., GTIFF_DIR:...).
 * `options` are the driver's open options as NAME=VALUE, the last one NULL; or NULL. GDAL need
 * not have been initialised: the driver registers itself, and nothing else. Free the raster
 * with gpugtiff_raster_free(), and before GDALDestroyDriverManager(). Thread-safe.
 */
gpugtiff_result gpugtiff_raster_open(const char *path,
                                     const char *const *options,
                                     gpugtiff_raster **out_raster);

/**
 * A raster of a GDALDatasetH that this driver opened, in this copy of the library. It holds a
 * reference until it is freed: end your own with GDALReleaseDataset(), or free the raster before
 * you call GDALClose(), which closes the dataset whoever refers to it. While the raster is there,
 * other threads must leave the dataset alone and nobody may change it. GPUGTIFF_STATE if the
 * dataset has a raster already. Thread-safe.
 */
gpugtiff_result gpugtiff_raster_wrap(void *dataset, gpugtiff_raster **out_raster);

/**
 * Frees a raster; NULL is fine. Calls that other threads are in with it end first, but for
 * gpugtiff_raster_counters(), whose callback may call this. Tensors and batches that came from it
 * stay, but for batches of a raster that was wrapped: its dataset is given back before this
 * returns. Thread-safe.
 */
gpugtiff_result gpugtiff_raster_free(gpugtiff_raster *raster);

/**
 * Facts of a level of the raster: 0 is the image itself, n its n-th overview. Thread-safe.
 */
gpugtiff_result gpugtiff_raster_info(const gpugtiff_raster *raster,
                                     int32_t level,
                                     gpugtiff_raster_facts *out_facts);

/**
 * What stands for missing data in a band, counted from 1. Thread-safe.
 */
gpugtiff_result gpugtiff_raster_nodata(const gpugtiff_raster *raster,
                                       int32_t band,
                                       gpugtiff_nodata *out_nodata);

/**
 * The coordinate system as WKT; an empty text if there is none. It belongs to the raster and is
 * valid until that is freed. Thread-safe.
 */
gpugtiff_result gpugtiff_raster_wkt(const gpugtiff_raster *raster, const char **out_wkt);

/**
 * The raster's GDALDatasetH, for what this API does not have. It belongs to the raster; use it
 * while no other thread uses the raster. Thread-safe in itself.
 */
gpugtiff_result gpugtiff_raster_dataset(const gpugtiff_raster *raster, void **out_dataset);

/**
 * Reads a window: of all bands and level 0, or as `selection` says; of the whole level if
 * `window` is NULL. Everything is checked before the first pixel is put. After a failure in the
 * middle (GPUGTIFF_CORRUPT, GPUGTIFF_IO) parts of the buffer may have been written. Thread-safe:
 * any number of threads may read from one raster at once, each into memory of its own.
 */
gpugtiff_result gpugtiff_raster_read(const gpugtiff_raster *raster,
                                     const gpugtiff_window *window,
                                     const gpugtiff_selection *selection,
                                     const gpugtiff_buffer *buffer);

/**
 * Begins a walk down the raster: windows as wide as the level, whole tile rows high, of about
 * `batch_mb` MiB of samples as they will be in memory; at least one row of tiles. 0: BATCH_MB as
 * the raster was opened with. The raster may be freed before, unless it was wrapped: then the
 * walk ends with it (GPUGTIFF_BAD_HANDLE). Thread-safe.
 */
gpugtiff_result gpugtiff_batches_new(const gpugtiff_raster *raster,
                                     const gpugtiff_selection *selection,
                                     size_t batch_mb,
                                     gpugtiff_batches **out_batches);

/**
 * The largest of the windows: what a buffer for all of them must hold. Thread-safe.
 */
gpugtiff_result gpugtiff_batches_largest(const gpugtiff_batches *batches,
                                         gpugtiff_window *out_window);

/**
 * Goes to the next window; GPUGTIFF_DONE after the last, then and ever after. Thread-safe, but a
 * walk is one walk: threads that share it get different windows.
 */
gpugtiff_result gpugtiff_batches_next(gpugtiff_batches *batches, gpugtiff_window *out_window);

/**
 * Reads a window that gpugtiff_batches_next() came to, or any other of the level, as
 * gpugtiff_raster_read() does. Thread-safe as that is.
 */
gpugtiff_result gpugtiff_batches_read(const gpugtiff_batches *batches,
                                      const gpugtiff_window *window,
                                      const gpugtiff_buffer *buffer);

/**
 * Frees a walk; NULL is fine. Thread-safe.
 */
gpugtiff_result gpugtiff_batches_free(gpugtiff_batches *batches);

/**
 * Reads a window, as gpugtiff_raster_read() does, into a tensor of shape (bands, height, width)
 * with memory of its own, aligned to 256 bytes. `device` is -1 for the host's memory, or the
 * number of a GPU. Whoever gets the tensor calls its deleter once, on any thread, before or after
 * the raster is freed. Thread-safe.
 */
gpugtiff_result gpugtiff_raster_read_tensor(const gpugtiff_raster *raster,
                                            const gpugtiff_window *window,
                                            const gpugtiff_selection *selection,
                                            int32_t device,
                                            DLManagedTensorVersioned **out_tensor);

/**
 * The same for those who know DLPack from before its 1.0. Thread-safe.
 */
gpugtiff_result gpugtiff_raster_read_tensor_unversioned(const gpugtiff_raster *raster,
                                                        const gpugtiff_window *window,
                                                        const gpugtiff_selection *selection,
                                                        int32_t device,
                                                        DLManagedTensor **out_tensor);

/**
 * Begins a file. What is there under this name is replaced, as GDAL does. Feed it with
 * gpugtiff_writer_write(), end it with gpugtiff_writer_finish(), and free it with
 * gpugtiff_writer_free(). After a failure there is no file. Thread-safe.
 */
gpugtiff_result gpugtiff_writer_create(const char *path,
                                       const gpugtiff_spec *spec,
                                       gpugtiff_writer **out_writer);

/**
 * Writes a window of the buffer's pixels: windows in any order, each pixel any number of times.
 * `window` NULL is the whole image, `selection` NULL all bands in the file's type. What is never
 * written becomes nodata, or 0. Thread-safe: windows are taken one after the other.
 */
gpugtiff_result gpugtiff_writer_write(gpugtiff_writer *writer,
                                      const gpugtiff_window *window,
                                      const gpugtiff_selection *selection,
                                      const gpugtiff_buffer *buffer);

/**
 * Completes the file and closes it. After a failure the file is of no use, and freeing the
 * writer removes it; after success it is all there. The handle stays until it is freed.
 * Thread-safe.
 */
gpugtiff_result gpugtiff_writer_finish(gpugtiff_writer *writer);

/**
 * Gives the file up and removes it. GPUGTIFF_STATE if it is finished already. The handle stays
 * until it is freed. Thread-safe.
 */
gpugtiff_result gpugtiff_writer_abort(gpugtiff_writer *writer);

/**
 * Frees a writer; NULL is fine. A file that was not finished is removed. Thread-safe.
 */
gpugtiff_result gpugtiff_writer_free(gpugtiff_writer *writer);

/**
 * The version of this library, such as "0.1.0". The text is static. Thread-safe.
 */
const char *gpugtiff_version(void);

/**
 * The same as a number: major * 10000 + minor * 100 + patch. Compare it with
 * GPUGTIFF_VERSION_NUMBER, which is the header's. Thread-safe.
 */
uint32_t gpugtiff_version_number(void);

/**
 * The version of GDAL that runs, such as "3.6.2". The text is GDAL's. Thread-safe.
 */
const char *gpugtiff_gdal_version(void);

/**
 * The version of CUDA that the NVIDIA driver knows, as cuDriverGetVersion() says it: 12040 for
 * 12.4. 0 if there is no driver that this library can use. Nothing is started. Thread-safe.
 */
uint32_t gpugtiff_cuda_version(void);

/**
 * The version of nvCOMP that is found, as nvCOMP says it: 5000 for 5.0.0. 0 if there is none, or
 * no NVIDIA driver to use it with. The library is loaded. Thread-safe.
 */
uint32_t gpugtiff_nvcomp_version(void);

/**
 * How many GPUs the NVIDIA driver shows, CUDA_VISIBLE_DEVICES heeded; 0 where there is no driver, and
 * after a GPU failed in this process, as the driver is left alone then. CUDA is initialised.
 * Thread-safe.
 */
int32_t gpugtiff_device_count(void);

/**
 * Facts of a GPU, counted from 0. GPUGTIFF_NO_DEVICE, with the reason, if there is no such.
 * Thread-safe.
 */
gpugtiff_result gpugtiff_device_info(int32_t device, gpugtiff_device_facts *out_facts);

/**
 * Which engine decodes what is read into host memory ("CPU" or "CUDA"), and why; windows into
 * device memory are CUDA's, as far as it decodes them (counters CUDA_...). Both texts are valid
 * until this thread's next such question. Thread-safe.
 */
gpugtiff_result gpugtiff_raster_engine(const gpugtiff_raster *raster,
                                       const char **out_name,
                                       const char **out_reason);

/**
 * Which engine encodes, and why: as gpugtiff_raster_engine(). Thread-safe.
 */
gpugtiff_result gpugtiff_writer_engine(const gpugtiff_writer *writer,
                                       const char **out_name,
                                       const char **out_reason);

/**
 * Tells the raster's counters (TILES_DECODED, BYTES_READ, ...), one call of `callback` for each, on
 * this thread. The callback may use this API. Thread-safe, while others read too.
 */
gpugtiff_result gpugtiff_raster_counters(const gpugtiff_raster *raster,
                                         gpugtiff_counter_callback callback,
                                         void *user);

/**
 * Tells the writer's counters, as gpugtiff_raster_counters(); after it is finished too.
 * Thread-safe.
 */
gpugtiff_result gpugtiff_writer_counters(const gpugtiff_writer *writer,
                                         gpugtiff_counter_callback callback,
                                         void *user);

/**
 * Has this library's own messages told to `callback`, in the whole process; NULL ends that. What
 * GDAL and its other drivers say is not among them. Messages go to GDAL's error handlers as well,
 * but for failures of calls of this API, which are results. The callback may be called on any
 * thread, by several at once, and by a call that is under way when this one returns. Thread-safe.
 */
gpugtiff_result gpugtiff_log_set(gpugtiff_log_callback callback, void *user);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/** A gpugtiff_selection with its size set and all else 0. */
static inline gpugtiff_selection gpugtiff_selection_init(void)
{
    gpugtiff_selection made;
    memset(&made, 0, sizeof(made));
    made.size = sizeof(made);
    return made;
}

/** A gpugtiff_buffer with its size set and all else 0. */
static inline gpugtiff_buffer gpugtiff_buffer_init(void)
{
    gpugtiff_buffer made;
    memset(&made, 0, sizeof(made));
    made.size = sizeof(made);
    return made;
}

/** A gpugtiff_raster_facts with its size set and all else 0. */
static inline gpugtiff_raster_facts gpugtiff_raster_facts_init(void)
{
    gpugtiff_raster_facts made;
    memset(&made, 0, sizeof(made));
    made.size = sizeof(made);
    return made;
}

/** A gpugtiff_spec with its size set and all else 0. */
static inline gpugtiff_spec gpugtiff_spec_init(void)
{
    gpugtiff_spec made;
    memset(&made, 0, sizeof(made));
    made.size = sizeof(made);
    return made;
}

/** A gpugtiff_device_facts with its size set and all else 0. */
static inline gpugtiff_device_facts gpugtiff_device_facts_init(void)
{
    gpugtiff_device_facts made;
    memset(&made, 0, sizeof(made));
    made.size = sizeof(made);
    return made;
}

#endif  /* GPUGTIFF_H */
