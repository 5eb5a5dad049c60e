// TIFFs in memory that get some tiles of a file: written by GTiff on a worker's
// thread.

#include <cstdlib>
#include <memory>
#include <vector>

#include "create.h"
#include "dataset.h"
#include "guard.h"
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

// The file has one, in whatever band it is set.
CPLErr SetNoData(GDALDataset *poDS, GDALDataType eType, const char *pszValue)
{
    GDALRasterBand *poBand = poDS->GetRasterBand(1);
    if (eType == GDT_Int64)
        return poBand->SetNoDataValueAsInt64(
            std::strtoll(pszValue, nullptr, 10));
    if (eType == GDT_UInt64)
        return poBand->SetNoDataValueAsUInt64(
            std::strtoull(pszValue, nullptr, 10));
    return poBand->SetNoDataValue(CPLAtofM(pszValue));
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
// 0, how many, and the band that is alpha, from 1, or 0; window: x, y, width,
// height; spacing: bytes from a pixel, a row and a band to the next; nodata: the
// nodata value, or NULL. What goes wrong at the end is told by
// messages only before GDAL 3.7.
extern "C" int gpugtiff_shim_write_tile_file(const char *path, const int *size,
                                             int kind, char **options,
                                             const int *window,
                                             const void *data,
                                             const int64_t *spacing,
                                             const char *nodata)
try
{
    const GPUGTiffNoDirtyBlockFlush oNoFlush;
    const auto eType = static_cast<GDALDataType>(kind);
    std::unique_ptr<GDALDataset> poDS(GPUGTiffInnerDriver()->pfnCreate(
        path, size[0], size[1], size[2], eType, options));
    if (!poDS)
        return 1;
    if (size[5] > 0)
        poDS->GetRasterBand(size[5])->SetColorInterpretation(GCI_AlphaBand);
    std::vector<int> anBands;
    for (int i = 1; i <= size[4]; ++i)
        anBands.push_back(size[3] + i);
    CPLErr eErr =
        nodata != nullptr ? SetNoData(poDS.get(), eType, nodata) : CE_None;
    if (eErr == CE_None)
        eErr =
            IsWholeBlocks(poDS.get(), size, window, spacing)
                ? WriteBlocks(poDS->GetRasterBand(anBands[0]), size[1], data,
                              spacing[1])
                : poDS->RasterIO(GF_Write, window[0], window[1], window[2],
                                 window[3], const_cast<void *>(data), window[2],
                                 window[3], eType, size[4], anBands.data(),
                                 spacing[0], spacing[1], spacing[2], nullptr);
#if GPUGTIFF_GDAL(3, 7)
    if (GDALClose(GDALDataset::ToHandle(poDS.release())) != CE_None)
        eErr = CE_Failure;
#else
    poDS.reset();
#endif
    return eErr == CE_None ? 0 : 1;
}
catch (const std::exception &oException)
{
    GPUGTiffRaise(oException);
    return 1;
}
