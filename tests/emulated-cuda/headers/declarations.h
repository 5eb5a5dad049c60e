/* The functions that the emulated library exports, as its Rust sources have them, after
 * NVIDIA's own headers: a compiler refuses a declaration that differs from theirs. */
/* Some of their headers want this from the CUDA runtime's. */
typedef struct CUstream_st *cudaStream_t;

#include <nvcomp.h>
#include <nvcomp/deflate.h>
#include <nvcomp/version.h>
#include <nvcomp/zstd.h>
#include <stddef.h>

#define CODEC(X)                                                                               \
  nvcompStatus_t nvcompBatched##X##CompressGetRequiredAlignments(                              \
    nvcompBatched##X##CompressOpts_t, nvcompAlignmentRequirements_t *);                        \
  nvcompStatus_t nvcompBatched##X##CompressGetMaxOutputChunkSize(                              \
    size_t, nvcompBatched##X##CompressOpts_t, size_t *);                                       \
  nvcompStatus_t nvcompBatched##X##CompressAsync(                                              \
    const void *const *, const size_t *, size_t, size_t, void *, size_t, void *const *,        \
    size_t *, nvcompBatched##X##CompressOpts_t, nvcompStatus_t *, cudaStream_t);               \
  nvcompStatus_t nvcompBatched##X##DecompressGetRequiredAlignments(                            \
    nvcompBatched##X##DecompressOpts_t, nvcompAlignmentRequirements_t *);                      \
  nvcompStatus_t nvcompBatched##X##GetDecompressSizeAsync(                                     \
    const void *const *, const size_t *, size_t *, size_t, cudaStream_t);                      \
  nvcompStatus_t nvcompBatched##X##DecompressAsync(                                            \
    const void *const *, const size_t *, const size_t *, size_t *, size_t, void *, size_t,     \
    void *const *, nvcompBatched##X##DecompressOpts_t, nvcompStatus_t *, cudaStream_t);        \
  TEMP_SIZES(X)

#if NVCOMP_VER_MAJOR >= 6
#define TEMP_SIZES(X)                                                                          \
  nvcompStatus_t nvcompBatched##X##CompressGetTempSize(                                        \
    size_t, size_t, nvcompBatched##X##CompressOpts_t, size_t *, size_t, cudaStream_t);         \
  nvcompStatus_t nvcompBatched##X##DecompressGetTempSize(                                      \
    size_t, size_t, nvcompBatched##X##DecompressOpts_t, size_t *, size_t, cudaStream_t);
#else
#define TEMP_SIZES(X)                                                                          \
  nvcompStatus_t nvcompBatched##X##CompressGetTempSizeAsync(                                   \
    size_t, size_t, nvcompBatched##X##CompressOpts_t, size_t *, size_t);                       \
  nvcompStatus_t nvcompBatched##X##DecompressGetTempSizeAsync(                                 \
    size_t, size_t, nvcompBatched##X##DecompressOpts_t, size_t *, size_t);
#endif

CODEC(Deflate)
CODEC(Zstd)
nvcompStatus_t nvcompGetProperties(nvcompProperties_t *);
const char *nvcompGetStatusString(nvcompStatus_t);

/* What is passed by value, and what tables hold. */
_Static_assert(sizeof(nvcompBatchedDeflateCompressOpts_t) == 64, "options");
_Static_assert(sizeof(nvcompBatchedDeflateDecompressOpts_t) == 64, "options");
_Static_assert(sizeof(nvcompBatchedZstdCompressOpts_t) == 64, "options");
_Static_assert(sizeof(nvcompBatchedZstdDecompressOpts_t) == 64, "options");
_Static_assert(offsetof(nvcompBatchedDeflateDecompressOpts_t, sort_before_hw_decompress) == 4,
               "options");
_Static_assert(sizeof(nvcompAlignmentRequirements_t) == 24, "alignments");
_Static_assert(sizeof(nvcompProperties_t) == 8, "properties");
_Static_assert(sizeof(nvcompStatus_t) == 4, "status");
_Static_assert(nvcompErrorInvalidValue == 10 && nvcompErrorNotSupported == 11 &&
                 nvcompErrorCannotDecompress == 12 && nvcompErrorAlignment == 17 &&
                 nvcompErrorChunkSizeTooLarge == 18 && nvcompErrorCudaError == 1000,
               "status");
