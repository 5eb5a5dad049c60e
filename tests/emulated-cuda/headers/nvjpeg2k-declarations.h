/* The functions of nvJPEG2000 that the emulated library exports, as its Rust sources have them,
 * after NVIDIA's own header: a compiler refuses a declaration that differs from theirs. */
#define _NVJPEG2K_DISABLE_CUDA_TOOLKIT_HEADERS
#include <nvjpeg2k.h>
#include <stddef.h>

typedef nvjpeg2kStatus_t status;
status nvjpeg2kGetProperty(libraryPropertyType, int *);
status nvjpeg2kGetCudartProperty(libraryPropertyType, int *);
status nvjpeg2kCreateSimple(nvjpeg2kHandle_t *);
status nvjpeg2kCreate(nvjpeg2kBackend_t, nvjpeg2kDeviceAllocator_t *, nvjpeg2kPinnedAllocator_t *,
                      nvjpeg2kHandle_t *);
status nvjpeg2kCreateV2(nvjpeg2kBackend_t, nvjpeg2kDeviceAllocatorV2_t *,
                        nvjpeg2kPinnedAllocatorV2_t *, nvjpeg2kHandle_t *);
status nvjpeg2kDestroy(nvjpeg2kHandle_t);
status nvjpeg2kSetDeviceMemoryPadding(size_t, nvjpeg2kHandle_t);
status nvjpeg2kSetPinnedMemoryPadding(size_t, nvjpeg2kHandle_t);
status nvjpeg2kGetDeviceMemoryPadding(size_t *, nvjpeg2kHandle_t);
status nvjpeg2kGetPinnedMemoryPadding(size_t *, nvjpeg2kHandle_t);
status nvjpeg2kDecodeStateCreate(nvjpeg2kHandle_t, nvjpeg2kDecodeState_t *);
status nvjpeg2kDecodeStateDestroy(nvjpeg2kDecodeState_t);
status nvjpeg2kStreamCreate(nvjpeg2kStream_t *);
status nvjpeg2kStreamDestroy(nvjpeg2kStream_t);
status nvjpeg2kStreamParse(nvjpeg2kHandle_t, const unsigned char *, size_t, int, int,
                           nvjpeg2kStream_t);
status nvjpeg2kStreamGetImageInfo(nvjpeg2kStream_t, nvjpeg2kImageInfo_t *);
status nvjpeg2kStreamGetImageComponentInfo(nvjpeg2kStream_t, nvjpeg2kImageComponentInfo_t *,
                                           uint32_t);
status nvjpeg2kStreamGetComponentNLTInfo(nvjpeg2kStream_t, uint32_t, nvjpeg2kNLTInfo_t *);
status nvjpeg2kStreamGetResolutionsInTile(nvjpeg2kStream_t, uint32_t, uint32_t *);
status nvjpeg2kStreamGetTileComponentDim(nvjpeg2kStream_t, uint32_t, uint32_t, uint32_t *,
                                         uint32_t *);
status nvjpeg2kStreamGetResolutionComponentDim(nvjpeg2kStream_t, uint32_t, uint32_t, uint32_t,
                                               uint32_t *, uint32_t *);
status nvjpeg2kStreamGetColorSpace(nvjpeg2kStream_t, nvjpeg2kColorSpace_t *);
status nvjpeg2kDecodeParamsCreate(nvjpeg2kDecodeParams_t *);
status nvjpeg2kDecodeParamsDestroy(nvjpeg2kDecodeParams_t);
status nvjpeg2kDecodeParamsSetOutputFormat(nvjpeg2kDecodeParams_t, nvjpeg2kImageFormat_t);
status nvjpeg2kDecodeParamsSetRGBOutput(nvjpeg2kDecodeParams_t, int32_t);
status nvjpeg2kDecode(nvjpeg2kHandle_t, nvjpeg2kDecodeState_t, nvjpeg2kStream_t, nvjpeg2kImage_t *,
                      cudaStream_t);
status nvjpeg2kDecodeImage(nvjpeg2kHandle_t, nvjpeg2kDecodeState_t, nvjpeg2kStream_t,
                           nvjpeg2kDecodeParams_t, nvjpeg2kImage_t *, cudaStream_t);

#define AT(type, member, offset) _Static_assert(offsetof(type, member) == offset, #member)
_Static_assert(sizeof(nvjpeg2kImage_t) == 24, "image");
_Static_assert(sizeof(nvjpeg2kImageInfo_t) == 28, "info");
_Static_assert(sizeof(nvjpeg2kImageComponentInfo_t) == 12, "component");
_Static_assert(sizeof(nvjpeg2kNLTInfo_t) == 8, "NLT");
_Static_assert(sizeof(nvjpeg2kDeviceAllocator_t) == 16, "allocator");
_Static_assert(sizeof(nvjpeg2kDeviceAllocatorV2_t) == 24, "allocator");
_Static_assert(sizeof(nvjpeg2kPinnedAllocatorV2_t) == 24, "allocator");
AT(nvjpeg2kImage_t, pitch_in_bytes, 8);
AT(nvjpeg2kImage_t, pixel_type, 16);
AT(nvjpeg2kImage_t, num_components, 20);
AT(nvjpeg2kImageComponentInfo_t, precision, 8);
AT(nvjpeg2kImageComponentInfo_t, sgn, 9);
AT(nvjpeg2kNLTInfo_t, bit_depth, 4);
AT(nvjpeg2kDeviceAllocatorV2_t, device_free, 8);
AT(nvjpeg2kDeviceAllocatorV2_t, device_ctx, 16);
AT(nvjpeg2kPinnedAllocatorV2_t, pinned_ctx, 16);
_Static_assert(NVJPEG2K_STATUS_INVALID_PARAMETER == 2 && NVJPEG2K_STATUS_BAD_JPEG == 3 &&
                 NVJPEG2K_STATUS_JPEG_NOT_SUPPORTED == 4 &&
                 NVJPEG2K_STATUS_ALLOCATOR_FAILURE == 5 &&
                 NVJPEG2K_STATUS_EXECUTION_FAILED == 6 && NVJPEG2K_STATUS_ARCH_MISMATCH == 7 &&
                 NVJPEG2K_STATUS_INTERNAL_ERROR == 8 &&
                 NVJPEG2K_STATUS_IMPLEMENTATION_NOT_SUPPORTED == 9,
               "status");
_Static_assert(NVJPEG2K_UINT8 == 0 && NVJPEG2K_UINT16 == 1 && NVJPEG2K_INT16 == 2 &&
                 NVJPEG2K_FORMAT_PLANAR == 0 && NVJPEG2K_FORMAT_INTERLEAVED == 1 &&
                 NVJPEG2K_COLORSPACE_SRGB == 1 && NVJPEG2K_COLORSPACE_GRAY == 2 &&
                 NVJPEG2K_COLORSPACE_SYCC == 3 && NVJPEG2K_COLORSPACE_NOT_SUPPORTED == -1,
               "values");
