/* Decodes codestreams through the emulated driver and nvJPEG2000, all calls by the prototypes of
 * NVIDIA's header: arguments that land in the wrong place show here. */
#include <cuda.h>
#include <stdlib.h>

#include "codestream.h"
#include "nvjpeg2k-declarations.h"

static void check(int code, const char *what)
{
  if (code != 0) {
    fprintf(stderr, "%s: %d\n", what, code);
    exit(1);
  }
}
#define CHECK(call) check((int)(call), #call)

static int asked[4];

static int device_malloc(void *context, void **place, size_t bytes, cudaStream_t stream)
{
  (void)stream;
  check(context != &asked[0], "a context");
  asked[0]++;
  return cuMemAlloc((CUdeviceptr *)place, bytes);
}

static int device_free(void *context, void *pointer, size_t bytes, cudaStream_t stream)
{
  (void)stream;
  check(context != &asked[0] || bytes == 0, "a context or a size");
  asked[1]++;
  return cuMemFree((CUdeviceptr)pointer);
}

static int pinned_malloc(void *context, void **place, size_t bytes, cudaStream_t stream)
{
  (void)stream;
  check(context != &asked[2], "a context");
  asked[2]++;
  return cuMemAllocHost(place, bytes);
}

static int pinned_free(void *context, void *pointer, size_t bytes, cudaStream_t stream)
{
  (void)stream;
  check(context != &asked[2] || bytes == 0, "a context or a size");
  asked[3]++;
  return cuMemFreeHost(pointer);
}

int main(void)
{
  static unsigned char bytes[1 << 16], back[3 * 50 * 210];
  const struct picture picture = {70, 50, 64, 32, 3, 8, 0, 1, 2};
  CUcontext context;
  CUstream stream;
  CUdeviceptr target;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuMemAlloc(&target, sizeof back));
  CHECK(cuMemsetD8Async(target, 9, sizeof back, stream));
  nvjpeg2kDeviceAllocatorV2_t device = {device_malloc, device_free, &asked[0]};
  nvjpeg2kPinnedAllocatorV2_t pinned = {pinned_malloc, pinned_free, &asked[2]};
  nvjpeg2kHandle_t library;
  nvjpeg2kDecodeState_t state;
  nvjpeg2kStream_t parsed;
  nvjpeg2kDecodeParams_t params;
  CHECK(nvjpeg2kCreateV2(NVJPEG2K_BACKEND_DEFAULT, &device, &pinned, &library));
  CHECK(nvjpeg2kDecodeStateCreate(library, &state));
  CHECK(nvjpeg2kStreamCreate(&parsed));
  CHECK(nvjpeg2kDecodeParamsCreate(&params));
  CHECK(nvjpeg2kStreamParse(library, bytes, codestream(&picture, bytes), 0, 0, parsed));
  /* Planes, then interleaved: 70 columns in rows of 210 bytes, and whole rows. */
  for (int interleaved = 0; interleaved < 2; interleaved++) {
    void *planes[3] = {(void *)target, (void *)(target + 50 * 210), (void *)(target + 100 * 210)};
    size_t pitches[3] = {210, 210, 210};
    nvjpeg2kImage_t image = {planes, pitches, NVJPEG2K_UINT8, 3};
    CHECK(nvjpeg2kDecodeParamsSetOutputFormat(params, (nvjpeg2kImageFormat_t)interleaved));
    CHECK(nvjpeg2kDecodeImage(library, state, parsed, params, &image, (cudaStream_t)stream));
    CHECK(cuStreamSynchronize(stream));
    CHECK(cuMemcpyDtoH(back, target, sizeof back));
    size_t right = 0;
    for (size_t i = 0; i < sizeof back; i++)
      right += back[i] == 128;
    check(right != (interleaved ? 50 * 210 + 2 * 50 * 70 : 3 * 50 * 70), "the samples");
  }
  CHECK(nvjpeg2kDecodeStateDestroy(state));
  CHECK(nvjpeg2kStreamDestroy(parsed));
  CHECK(nvjpeg2kDecodeParamsDestroy(params));
  CHECK(nvjpeg2kDestroy(library));
  for (int i = 0; i < 4; i++)
    check(asked[i] != 1, "how often an allocator was called");
  printf("nvJPEG2000: samples are right\n");
  return 0;
}
