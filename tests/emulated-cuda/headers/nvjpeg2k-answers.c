/* Prints what nvJPEG2000 says of itself and of codestreams, which needs no GPU: run with the real
 * library and with the emulated one, the output is the same. */
#include "codestream.h"
#include "nvjpeg2k-declarations.h"

static const struct picture pictures[] = {
  {1, 1, 1, 1, 1, 8, 0, 1, 0},          {256, 256, 256, 256, 1, 8, 0, 1, 5},
  {300, 200, 128, 64, 3, 8, 0, 1, 5},   {77, 45, 77, 45, 4, 16, 0, 1, 3},
  {100, 70, 64, 32, 3, 12, 1, 2, 4},    {513, 1025, 512, 512, 2, 16, 1, 1, 6},
  {33, 3000, 33, 3000, 1, 1, 0, 1, 2},  {64, 64, 1024, 1024, 1, 10, 1, 1, 1},
  {99, 71, 99, 71, 3, 8, 0, 2, 4},      {99, 71, 64, 64, 3, 8, 0, 2, 4},
  {99, 71, 99, 71, 2, 8, 0, 2, 4},      {99, 71, 99, 71, 4, 8, 0, 2, 4},
  {99, 71, 99, 71, 3, 8, 0, 3, 4},      {99, 71, 99, 71, 3, 8, 0, 4, 4},
  {99, 71, 99, 71, 5, 8, 0, 1, 4},      {99, 71, 99, 71, 1, 17, 0, 1, 4},
  {99, 71, 99, 71, 1, 8, 0, 1, 32},     {99, 71, 99, 71, 1, 8, 0, 1, 33},
  {0, 71, 99, 71, 1, 8, 0, 1, 3},       {60000, 60000, 60000, 60000, 1, 8, 0, 1, 3},
};

static void print_tile(nvjpeg2kStream_t stream, uint32_t tile, const struct picture *p)
{
  uint32_t resolutions = 0, width = 0, height = 0;
  int code = nvjpeg2kStreamGetResolutionsInTile(stream, tile, &resolutions);
  printf(" tile %u: %d %u", tile, code, resolutions);
  for (unsigned i = 0; i < p->components; i++) {
    code = nvjpeg2kStreamGetTileComponentDim(stream, i, tile, &width, &height);
    printf(" [%d %u %u", code, width, height);
    code = nvjpeg2kStreamGetResolutionComponentDim(stream, i, tile, p->levels, &width, &height);
    printf(" %d %u %u]", code, width, height);
  }
  printf("\n");
}

int main(void)
{
  static unsigned char bytes[1 << 16];
  nvjpeg2kHandle_t library = NULL;
  nvjpeg2kStream_t stream = NULL;
  nvjpeg2kDecodeParams_t params = NULL;
  int value = 0;
  for (int i = 0; i < 4; i++) {
    int code = nvjpeg2kGetProperty((libraryPropertyType)i, &value);
    printf("property %d %d", code, code == 0 ? value : 0);
    code = nvjpeg2kGetCudartProperty((libraryPropertyType)i, &value);
    printf(", cudart %d %d\n", code, code == 0 && i == 0 ? value : 0);
  }
  printf("null: %d %d %d\n", nvjpeg2kCreateSimple(NULL), nvjpeg2kDestroy(NULL),
         nvjpeg2kStreamDestroy(NULL));
  printf("V2 without allocators: %d\n",
         nvjpeg2kCreateV2(NVJPEG2K_BACKEND_DEFAULT, NULL, NULL, &library));
  printf("created: %d\n", nvjpeg2kCreateSimple(&library));
  printf("stream: %d\n", nvjpeg2kStreamCreate(&stream));
  printf("params: %d\n", nvjpeg2kDecodeParamsCreate(&params));
  printf("format: %d %d\n", nvjpeg2kDecodeParamsSetOutputFormat(params, 1),
         nvjpeg2kDecodeParamsSetOutputFormat(params, 5));
  size_t device_padding = 0, pinned_padding = 0;
  printf("padding: %d", nvjpeg2kGetDeviceMemoryPadding(&device_padding, library));
  printf(" %d %zu", nvjpeg2kGetPinnedMemoryPadding(&pinned_padding, library), device_padding);
  printf(" %zu\n", pinned_padding);
  nvjpeg2kImageInfo_t info;
  printf("not parsed: %d\n", nvjpeg2kStreamGetImageInfo(stream, &info));
  printf("no stream: %d %d\n", nvjpeg2kStreamParse(library, NULL, 3, 0, 0, stream),
         nvjpeg2kStreamParse(library, (const unsigned char *)"abc", 3, 0, 0, stream));
  for (size_t i = 0; i < sizeof pictures / sizeof pictures[0]; i++) {
    const struct picture *p = &pictures[i];
    size_t length = codestream(p, bytes);
    int code = nvjpeg2kStreamParse(library, bytes, length, 0, 0, stream);
    printf("picture %zu: %d", i, code);
    if (code != 0) {
      printf("\n");
      continue;
    }
    code = nvjpeg2kStreamGetImageInfo(stream, &info);
    printf(" %d %u %u %u %u %u %u %u\n", code, info.image_width, info.image_height,
           info.tile_width, info.tile_height, info.num_tiles_x, info.num_tiles_y,
           info.num_components);
    for (unsigned component = 0; component <= p->components; component++) {
      nvjpeg2kImageComponentInfo_t one = {0, 0, 0, 0};
      nvjpeg2kNLTInfo_t nlt = {0, 0};
      code = nvjpeg2kStreamGetImageComponentInfo(stream, &one, component);
      printf(" component %d %u %u %u %u", code, one.component_width, one.component_height,
             one.precision, one.sgn);
      code = nvjpeg2kStreamGetComponentNLTInfo(stream, component, &nlt);
      printf(" %d %u %u\n", code, nlt.type, nlt.bit_depth);
    }
    print_tile(stream, 0, p);
    print_tile(stream, info.num_tiles_x * info.num_tiles_y - 1, p);
    nvjpeg2kColorSpace_t space = NVJPEG2K_COLORSPACE_NOT_SUPPORTED;
    code = nvjpeg2kStreamGetColorSpace(stream, &space);
    printf(" color space %d %d\n", code, space);
  }
  printf("destroyed: %d %d %d\n", nvjpeg2kStreamDestroy(stream),
         nvjpeg2kDecodeParamsDestroy(params), nvjpeg2kDestroy(library));
  return 0;
}
