// TIFFs in memory that get some tiles of a file: written by GTiff on a worker's
// thread.

#include <vector>

#include "create.h"
#include "dataset.h"
#include "no_flush.h"

namespace
{
// Whole blocks of a lone band need no block cache.
bool IsWholeBlocks(GDALDataset *poDS, const int *panSize, const int *panWindow,
                   const int64_t *panSpacing)
{
    if (panSize[4] != 1 || panWindow[0] != 0 || panWindow[1] != 0 ||
        panWindow[2] != panSize[0] || panWindow[3] != panSize[1])
        return false;
    int nBlockX = 0;
    int nBlockY = 0;
    poDS->GetRasterBand(1)->GetBlockSize(&nBlockX, &nBlockY);
    return panSize[0] == nBlockX && panSize[1] % nBlockY == 0 &&
           panSpacing[1] == panSpacing[0] * nBlockX;
}

CPLErr WriteBlocks(GDALRasterBand *poBand, int nRows, const void *pData,
                   int64_t nRowBytes)
{
    int nBlockX = 0;
    int nBlockY = 0;
    poBand->GetBlockSize(&nBlockX, &nBlockY);
    CPLErr eErr = CE_None;
    for (int i = 0; eErr == CE_None && i < nRows / nBlockY; ++i)
        eErr = poBand->WriteBlock(
            0, i,
            static_cast<GByte *>(const_cast<void *>(pData)) +
                i * nBlockY * nRowBytes);
    return eErr;
}
}  // namespace

// size: columns, rows and bands of the file, the first band that is written, from
// 0, and how many; window: x, y, width, height; spacing: bytes from a
// pixel, a row and a band to the next. What goes wrong at the end is told by
// messages only before GDAL 3.7.
extern "C" int gpugtiff_shim_write_tile_file(const char *path, const int *size,
                                             int kind, char **options,
                                             const int *window,
                                             const void *data,
                                             const int64_t *spacing)
{
    const GPUGTiffNoDirtyBlockFlush oNoFlush;
    const auto eType = static_cast<GDALDataType>(kind);
    GDALDataset *poDS = GPUGTiffInnerDriver()->pfnCreate(
        path, size[0], size[1], size[2], eType, options);
    if (poDS == nullptr)
        return 1;
    std::vector<int> anBands;
    for (int i = 1; i <= size[4]; ++i)
        anBands.push_back(size[3] + i);
    CPLErr eErr =
        IsWholeBlocks(poDS, size, window, spacing)
            ? WriteBlocks(poDS->GetRasterBand(anBands[0]), size[1], data,
                          spacing[1])
            : poDS->RasterIO(GF_Write, window[0], window[1], window[2],
                             window[3], const_cast<void *>(data), window[2],
                             window[3], eType, size[4], anBands.data(), spacing[0],
                             spacing[1], spacing[2], nullptr);
#if GPUGTIFF_GDAL(3, 7)
    if (GDALClose(GDALDataset::ToHandle(poDS)) != CE_None)
        eErr = CE_Failure;
#else
    GDALClose(GDALDataset::ToHandle(poDS));
#endif
    return eErr == CE_None ? 0 : 1;
}
