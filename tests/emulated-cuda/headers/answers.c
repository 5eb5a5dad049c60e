/* Prints what the library answers to calls that need no GPU: run with the real nvCOMP and
 * with the emulated one, the output is the same. */
#include <stdio.h>

#include "declarations.h"

#if NVCOMP_VER_MAJOR >= 6
#define TEMP(f, n, m, o, t, total) f(n, m, o, t, total, NULL)
#define DEFLATE_TEMP nvcompBatchedDeflateCompressGetTempSize
#define DEFLATE_DECODE_TEMP nvcompBatchedDeflateDecompressGetTempSize
#define ZSTD_DECODE_TEMP nvcompBatchedZstdDecompressGetTempSize
#else
#define TEMP(f, n, m, o, t, total) f(n, m, o, t, total)
#define DEFLATE_TEMP nvcompBatchedDeflateCompressGetTempSizeAsync
#define DEFLATE_DECODE_TEMP nvcompBatchedDeflateDecompressGetTempSizeAsync
#define ZSTD_DECODE_TEMP nvcompBatchedZstdDecompressGetTempSizeAsync
#endif

static const size_t sizes[] = {0,     1,      100,    255,     256,     257,      1000,   4096,
                               16384, 65535,  65536,  65537,   100000,  131072,   131073, 262144,
                               300000, 1048576, 4194304, 12582912, 16777216};
static const size_t counts[] = {1, 2, 3, 10, 1023, 1024, 70000};
#define EACH(i, a) for (size_t i = 0; i < sizeof(a) / sizeof(a[0]); i++)

static void bounds(void)
{
  EACH(i, sizes) {
    size_t deflate = 0, zstd = 0;
    int a = nvcompBatchedDeflateCompressGetMaxOutputChunkSize(
      sizes[i], nvcompBatchedDeflateCompressDefaultOpts, &deflate);
    int b = nvcompBatchedZstdCompressGetMaxOutputChunkSize(
      sizes[i], nvcompBatchedZstdCompressDefaultOpts, &zstd);
    printf("bound of %zu: deflate %d %zu, zstd %d %zu\n", sizes[i], a, deflate, b, zstd);
  }
}

static void temporary_sizes(void)
{
  EACH(i, sizes) EACH(j, counts) {
    size_t n = counts[j], m = sizes[i], bytes = 0;
    if (m == 0)
      continue;
    printf("temp of %zu x %zu:", n, m);
    for (int algorithm = 0; algorithm < 6; algorithm++) {
      nvcompBatchedDeflateCompressOpts_t options = {algorithm, {0}};
      int status = TEMP(DEFLATE_TEMP, n, m, options, &bytes, n * m);
      printf(" %d %zu", status, status == 0 ? bytes : 0);
    }
    int a = TEMP(DEFLATE_DECODE_TEMP, n, m, nvcompBatchedDeflateDecompressDefaultOpts, &bytes,
                 n * m);
    printf(" decode %d %zu", a, bytes);
    int b =
      TEMP(ZSTD_DECODE_TEMP, n, m, nvcompBatchedZstdDecompressDefaultOpts, &bytes, n * m);
    printf(" zstd %d %zu\n", b, bytes);
  }
}

#define ALIGNMENTS(f, options)                                                                 \
  do {                                                                                         \
    nvcompAlignmentRequirements_t a = {0, 0, 0};                                               \
    int status = f(options, &a);                                                               \
    printf(#f " %d %zu %zu %zu\n", status, a.input, a.output, a.temp);                         \
  } while (0)

int main(void)
{
  nvcompProperties_t properties = {0, 0};
  int status = nvcompGetProperties(&properties);
  printf("properties %d %u\n", status, properties.version / 1000);
  bounds();
  temporary_sizes();
  for (int algorithm = -1; algorithm < 8; algorithm++) {
    nvcompBatchedDeflateCompressOpts_t options = {algorithm, {0}};
    ALIGNMENTS(nvcompBatchedDeflateCompressGetRequiredAlignments, options);
  }
  ALIGNMENTS(nvcompBatchedDeflateDecompressGetRequiredAlignments,
             nvcompBatchedDeflateDecompressDefaultOpts);
  ALIGNMENTS(nvcompBatchedZstdCompressGetRequiredAlignments,
             nvcompBatchedZstdCompressDefaultOpts);
  ALIGNMENTS(nvcompBatchedZstdDecompressGetRequiredAlignments,
             nvcompBatchedZstdDecompressDefaultOpts);
  return 0;
}
