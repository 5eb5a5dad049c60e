/* A round trip through the emulated driver and nvCOMP, all calls by the prototypes of
 * NVIDIA's headers: arguments that land in the wrong place show here. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "declarations.h"

#define CHUNK 50000
#define COUNT 3
#define BOUND 120000

static void check(int code, const char *what)
{
  if (code != 0) {
    fprintf(stderr, "%s: %d\n", what, code);
    exit(1);
  }
}
#define CHECK(call) check((int)(call), #call)

static CUdeviceptr table(CUdeviceptr base, size_t stride)
{
  CUdeviceptr pointers[COUNT], made;
  for (int i = 0; i < COUNT; i++)
    pointers[i] = base + i * stride;
  CHECK(cuMemAlloc(&made, sizeof pointers));
  CHECK(cuMemcpyHtoD(made, pointers, sizeof pointers));
  return made;
}

static CUdeviceptr sizes(size_t bytes)
{
  size_t all[COUNT];
  CUdeviceptr made;
  for (int i = 0; i < COUNT; i++)
    all[i] = bytes;
  CHECK(cuMemAlloc(&made, sizeof all));
  CHECK(cuMemcpyHtoD(made, all, sizeof all));
  return made;
}

static void statuses_are_success(CUdeviceptr statuses)
{
  nvcompStatus_t all[COUNT];
  CHECK(cuMemcpyDtoH(all, statuses, sizeof all));
  for (int i = 0; i < COUNT; i++)
    check(all[i], "a chunk's status");
}

/* The tables of one round trip, and the functions' arguments that differ by codec. */
#define ROUND_TRIP(X)                                                                          \
  static void round_trip_##X(CUstream stream, CUdeviceptr raw)                                 \
  {                                                                                            \
    CUdeviceptr packed, temp, statuses, back, lengths = sizes(0), actual = sizes(0);           \
    CHECK(cuMemAlloc(&packed, COUNT * BOUND));                                                 \
    CHECK(cuMemAlloc(&temp, 64 << 20));                                                        \
    CHECK(cuMemAlloc(&statuses, COUNT * sizeof(nvcompStatus_t)));                              \
    CHECK(cuMemAlloc(&back, COUNT * CHUNK));                                                   \
    CUdeviceptr inputs = table(raw, CHUNK), outputs = table(packed, BOUND);                    \
    CUdeviceptr results = table(back, CHUNK), rooms = sizes(CHUNK);                            \
    CHECK(nvcompBatched##X##CompressAsync(                                                     \
      (const void *const *)inputs, (const size_t *)rooms, CHUNK, COUNT, (void *)temp,          \
      64 << 20, (void *const *)outputs, (size_t *)lengths,                                     \
      nvcompBatched##X##CompressDefaultOpts, (nvcompStatus_t *)statuses,                       \
      (cudaStream_t)stream));                                                                  \
    CHECK(cuStreamSynchronize(stream));                                                        \
    statuses_are_success(statuses);                                                            \
    CHECK(cuMemsetD8Async(statuses, 0xee, COUNT * sizeof(nvcompStatus_t), stream));            \
    CHECK(nvcompBatched##X##DecompressAsync(                                                   \
      (const void *const *)outputs, (const size_t *)lengths, (const size_t *)rooms,            \
      (size_t *)actual, COUNT, (void *)temp, 64 << 20, (void *const *)results,                 \
      nvcompBatched##X##DecompressDefaultOpts, (nvcompStatus_t *)statuses,                     \
      (cudaStream_t)stream));                                                                  \
    CHECK(nvcompBatched##X##GetDecompressSizeAsync(                                            \
      (const void *const *)outputs, (const size_t *)lengths, (size_t *)actual, COUNT,          \
      (cudaStream_t)stream));                                                                  \
    CHECK(cuStreamSynchronize(stream));                                                        \
    statuses_are_success(statuses);                                                            \
    static unsigned char before[COUNT * CHUNK], after[COUNT * CHUNK];                          \
    size_t measured[COUNT];                                                                    \
    CHECK(cuMemcpyDtoH(before, raw, sizeof before));                                           \
    CHECK(cuMemcpyDtoH(after, back, sizeof after));                                            \
    CHECK(cuMemcpyDtoH(measured, actual, sizeof measured));                                    \
    check(memcmp(before, after, sizeof before), "a round trip of " #X);                        \
    for (int i = 0; i < COUNT; i++)                                                            \
      check(measured[i] != CHUNK, "a size of " #X);                                            \
  }

ROUND_TRIP(Deflate)
ROUND_TRIP(Zstd)

int main(void)
{
  CUcontext context, current;
  CUstream stream;
  CUevent begin, end;
  CUdeviceptr raw;
  CUuuid uuid;
  char name[64];
  int version, value;
  size_t available, total;
  float milliseconds;
  CHECK(cuInit(0));
  CHECK(cuDriverGetVersion(&version));
  CHECK(cuDeviceGetName(name, sizeof name, 0));
  CHECK(cuDeviceGetUuid(&uuid, 0));
  CHECK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
  check(value < 7, "the compute capability");
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxPushCurrent(context));
  CHECK(cuCtxGetCurrent(&current));
  check(current != context, "the current context");
  CHECK(cuMemGetInfo(&available, &total));
  CHECK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
  CHECK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
  CHECK(cuEventCreate(&end, CU_EVENT_DEFAULT));
  CHECK(cuMemAlloc(&raw, COUNT * CHUNK));
  CHECK(cuMemsetD32Async(raw, 0x01020304, COUNT * CHUNK / 4, stream));
  CHECK(cuEventRecord(begin, stream));
  round_trip_Deflate(stream, raw);
  round_trip_Zstd(stream, raw);
  CHECK(cuEventRecord(end, stream));
  CHECK(cuEventSynchronize(end));
  CHECK(cuEventElapsedTime(&milliseconds, begin, end));
  check(!(milliseconds > 0), "the elapsed time");
  printf("%s, driver %d, %zu of %zu bytes free: round trips are right\n", name, version,
         available, total);
  return 0;
}
