// Copying a dataset's pixels and masks to a file that is being written.
#ifndef GPUGTIFF_COPY_H
#define GPUGTIFF_COPY_H

#include "output.h"

class GPUGTiffCopy
{
  public:
    GPUGTiffCopy(GDALDataset *poSource, bool bStrict,
                 GDALProgressFunc pfnProgress, void *pProgressData);

    // Tells the caller that it begins; false if that is not wanted any more.
    bool Begin() const;

    // All pixels, and the mask if that goes into the file. poHollowDS gets the
    // mask's tags.
    bool ToFile(const gpugtiff::File *psFile, gpugtiff::Output *psOutput,
                const GPUGTiffHollow &oHollow, GDALDataset *poHollowDS) const;

    // Masks that do not go into the file, beside it: poInner is the finished file.
    bool MasksBeside(GDALDataset *poInner) const;

  private:
    bool Pixels(gpugtiff::Output *psOutput, int nImage, GDALRasterBand *poMask,
                const gpugtiff::Image *psTiles, double dfFrom,
                double dfTo) const;
    int Tiles(gpugtiff::Output *psOutput, const gpugtiff::Image *psTiles) const;
    bool Mask(GDALRasterBand *poFrom, GDALRasterBand *poTo) const;

    GDALDataset *m_poSource;
    bool m_bStrict;
    GDALProgressFunc m_pfnProgress;
    void *m_pProgressData;
    GDALDataType m_eType;
    // A mask of the whole dataset, and whether it goes into the file.
    bool m_bMask;
    bool m_bInside;
    // The pixels' share of the work.
    double m_dfShare;

    CPL_DISALLOW_COPY_ASSIGN(GPUGTiffCopy)
};

#endif
