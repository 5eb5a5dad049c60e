// TIFFs in memory that hold some tiles of a file: read by GTiff on a worker's thread.

#include <memory>

#include "create.h"
#include "dataset.h"
#include "messages.h"
#include "no_flush.h"

namespace
{
std::unique_ptr<GDALDataset> Open(const char *pszPath)
{
    // What there is to say of the tags was said when the file itself was opened.
    GPUGTiffMessages oMessages;
    const char *const apszNoSiblings[] = {nullptr};
    GDALOpenInfo oOpenInfo(pszPath, GDAL_OF_RASTER | GDAL_OF_INTERNAL,
                           apszNoSiblings);
    return std::unique_ptr<GDALDataset>(GPUGTiffOpenInner(&oOpenInfo));
}

bool IsAsExpected(GDALDataset *poDS, const int *panSize, GDALDataType eType)
{
    if (poDS->GetRasterXSize() != panSize[0] ||
        poDS->GetRasterYSize() != panSize[1] ||
        poDS->GetRasterCount() != panSize[2])
        return false;
    for (int i = 1; i <= panSize[2]; ++i)
    {
        if (poDS->GetRasterBand(i)->GetRasterDataType() != eType)
            return false;
    }
    return true;
}
}  // namespace

extern "C" void *gpugtiff_shim_open_excerpt(const char *path, const int *size,
                                            int kind, void **tiff)
{
    std::unique_ptr<GDALDataset> poDS(Open(path));
    if (!poDS || !IsAsExpected(poDS.get(), size, static_cast<GDALDataType>(kind)))
        return nullptr;
    *tiff = poDS->GetInternalHandle("TIFF_HANDLE");
    return poDS.release();
}

extern "C" void gpugtiff_shim_close_excerpt(void *dataset)
{
    delete static_cast<GDALDataset *>(dataset);
}

extern "C" int gpugtiff_shim_read_excerpt(const char *path, const int *size,
                                          int kind, void *data,
                                          const int64_t *spacing)
{
    const GPUGTiffNoDirtyBlockFlush oNoFlush;
    const auto eType = static_cast<GDALDataType>(kind);
    std::unique_ptr<GDALDataset> poDS(Open(path));
    if (!poDS || !IsAsExpected(poDS.get(), size, eType))
        return 1;
    return poDS->RasterIO(GF_Read, 0, 0, size[0], size[1], data, size[0],
                          size[1], eType, size[2], nullptr, spacing[0],
                          spacing[1], spacing[2], nullptr) == CE_None
               ? 0
               : 1;
}
