#include "computed.h"

#include <cstring>

#include "guard.h"

CPLErr GPUGTiffComputed::ComputeRasterMinMax(int bApproxOK, double *padfMinMax)
try
{
    return HasOwnPixels()
               ? GDALRasterBand::ComputeRasterMinMax(bApproxOK, padfMinMax)
               : GDALProxyRasterBand::ComputeRasterMinMax(bApproxOK, padfMinMax);
}
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
}

CPLErr GPUGTiffComputed::GetStatistics(int bApproxOK, int bForce,
                                       double *pdfMin, double *pdfMax,
                                       double *pdfMean, double *pdfStdDev)
try
{
    return HasOwnPixels()
               ? GDALRasterBand::GetStatistics(bApproxOK, bForce, pdfMin,
                                               pdfMax, pdfMean, pdfStdDev)
               : GDALProxyRasterBand::GetStatistics(bApproxOK, bForce, pdfMin,
                                                    pdfMax, pdfMean, pdfStdDev);
}
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
}

CPLErr GPUGTiffComputed::ComputeStatistics(
    int bApproxOK, double *pdfMin, double *pdfMax, double *pdfMean,
    double *pdfStdDev, GDALProgressFunc pfnProgress,
    void *pProgressData GPUGTIFF_STATISTICS_MORE_ARGS)
try
{
    return HasOwnPixels()
               ? GDALRasterBand::ComputeStatistics(
                     bApproxOK, pdfMin, pdfMax, pdfMean, pdfStdDev, pfnProgress,
                     pProgressData GPUGTIFF_STATISTICS_MORE)
               : GDALProxyRasterBand::ComputeStatistics(
                     bApproxOK, pdfMin, pdfMax, pdfMean, pdfStdDev, pfnProgress,
                     pProgressData GPUGTIFF_STATISTICS_MORE);
}
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
}

CPLErr GPUGTiffComputed::GetDefaultHistogram(double *pdfMin, double *pdfMax,
                                             int *pnBuckets,
                                             GUIntBig **ppanHistogram,
                                             int bForce,
                                             GDALProgressFunc pfnProgress,
                                             void *pProgressData)
try
{
    // One that was saved (.aux.xml) is GTiff's to know.
    const CPLErr eSaved = GDALProxyRasterBand::GetDefaultHistogram(
        pdfMin, pdfMax, pnBuckets, ppanHistogram, FALSE, nullptr, nullptr);
    if (eSaved == CE_None || !bForce)
        return eSaved;
    return HasOwnPixels()
               ? GDALRasterBand::GetDefaultHistogram(pdfMin, pdfMax, pnBuckets,
                                                     ppanHistogram, bForce,
                                                     pfnProgress, pProgressData)
               : GDALProxyRasterBand::GetDefaultHistogram(
                     pdfMin, pdfMax, pnBuckets, ppanHistogram, bForce,
                     pfnProgress, pProgressData);
}
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
}

#if GPUGTIFF_GDAL(3, 10)

GDALRasterBlock *GPUGTiffComputed::GetLockedBlockRef(int nXBlockOff,
                                                     int nYBlockOff,
                                                     int bJustInitialize)
{
    return GDALRasterBand::GetLockedBlockRef(nXBlockOff, nYBlockOff,
                                             bJustInitialize);
}

GDALRasterBlock *GPUGTiffComputed::TryGetLockedBlockRef(int nXBlockOff,
                                                        int nYBlockOff)
{
    return GDALRasterBand::TryGetLockedBlockRef(nXBlockOff, nYBlockOff);
}

CPLErr GPUGTiffComputed::FlushBlock(int nXBlockOff, int nYBlockOff,
                                    int bWriteDirtyBlock)
{
    return GDALRasterBand::FlushBlock(nXBlockOff, nYBlockOff, bWriteDirtyBlock);
}

CPLErr GPUGTiffComputed::InterpolateAtPoint(double dfPixel, double dfLine,
                                            GDALRIOResampleAlg eInterpolation,
                                            double *pdfRealValue,
                                            double *pdfImagValue) const
{
    return GDALRasterBand::InterpolateAtPoint(
        dfPixel, dfLine, eInterpolation, pdfRealValue, pdfImagValue);
}

#endif

void GPUGTiffCopyBlock(GDALRasterBlock *poBlock, void *pImage)
{
    memcpy(pImage, poBlock->GetDataRef(), poBlock->GetBlockSize());
    poBlock->DropLock();
}

CPLErr GPUGTiffReadBlock(GDALRasterBand *poInner, int nColumn, int nRow,
                         void *pImage)
{
    GDALRasterBlock *poBlock = poInner->TryGetLockedBlockRef(nColumn, nRow);
    if (poBlock == nullptr)
        return poInner->ReadBlock(nColumn, nRow, pImage);
    GPUGTiffCopyBlock(poBlock, pImage);
    return CE_None;
}
