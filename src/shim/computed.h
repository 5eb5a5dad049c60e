// What our bands have in common: what GDAL computes from pixels is computed from
// ours, where they are ours. The proxy would have GTiff decode them. Where GTiff
// reads them it also writes them (update mode), and only its own cache knows what
// was written last.
#ifndef GPUGTIFF_COMPUTED_H
#define GPUGTIFF_COMPUTED_H

#include "compat.h"

class GPUGTiffComputed : public GDALProxyRasterBand
{
  public:
    CPLErr ComputeRasterMinMax(int bApproxOK, double *padfMinMax) override;
    CPLErr GetStatistics(int bApproxOK, int bForce, double *pdfMin,
                         double *pdfMax, double *pdfMean,
                         double *pdfStdDev) override;
    CPLErr ComputeStatistics(int bApproxOK, double *pdfMin, double *pdfMax,
                             double *pdfMean, double *pdfStdDev,
                             GDALProgressFunc, void *pProgressData
                                 GPUGTIFF_STATISTICS_MORE_ARGS) override;
    CPLErr GetDefaultHistogram(double *pdfMin, double *pdfMax, int *pnBuckets,
                               GUIntBig **ppanHistogram, int bForce,
                               GDALProgressFunc, void *pProgressData) override;

#if GPUGTIFF_GDAL(3, 10)
    GDALRasterBlock *GetLockedBlockRef(int nXBlockOff, int nYBlockOff,
                                       int bJustInitialize) override;
    GDALRasterBlock *TryGetLockedBlockRef(int nXBlockOff,
                                          int nYBlockOff) override;
    CPLErr FlushBlock(int nXBlockOff, int nYBlockOff,
                      int bWriteDirtyBlock) override;
    CPLErr InterpolateAtPoint(double dfPixel, double dfLine,
                              GDALRIOResampleAlg eInterpolation,
                              double *pdfRealValue,
                              double *pdfImagValue) const override;
#endif

  protected:
    GPUGTiffComputed() = default;

    // Whether we read and write the pixels, rather than GTiff.
    virtual bool HasOwnPixels() const = 0;

    void UnrefUnderlyingRasterBand(GDALRasterBand *) const override
    {
    }

  private:
    CPL_DISALLOW_COPY_ASSIGN(GPUGTiffComputed)
};

// As a caller's ReadBlock() of GTiff's band, but what is in GTiff's cache counts: it
// may have been written since. Nothing is put there that was not.
CPLErr GPUGTiffReadBlock(GDALRasterBand *poInner, int nColumn, int nRow,
                         void *pImage);

// Copies a block that is locked, and gives it back.
void GPUGTiffCopyBlock(GDALRasterBlock *poBlock, void *pImage);

#endif
