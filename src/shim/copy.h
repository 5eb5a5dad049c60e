// Copying a dataset's pixels and masks to a file that is being written.
#ifndef GPUGTIFF_COPY_H
#define GPUGTIFF_COPY_H

#include "output.h"

// Whether the same stands for missing data in all bands.
bool GPUGTiffHasOneFill(GDALDataset *poSrcDS);

class GPUGTiffCopy
{
  public:
    GPUGTiffCopy(const std::string &osTarget, GDALDataset *poSource,
                 bool bStrict, GDALProgressFunc pfnProgress,
                 void *pProgressData);

    // Tells the caller that it begins; false if that is not wanted any more.
    bool Begin() const;

    // All pixels and masks, into the file or beside it. poHollowDS gets the tags
    // of a mask in the file.
    bool ToFile(const gpugtiff::File *psFile, gpugtiff::Output *psOutput,
                const GPUGTiffHollow &oHollow, GDALDataset *poHollowDS) const;

    // Removes masks that were written beside the file.
    void RemoveMasks() const;

  private:
    bool Pixels(gpugtiff::Output *psOutput, int nImage, GDALRasterBand *poMask,
                const gpugtiff::Image *psTiles, double dfFrom,
                double dfTo) const;
    int Tiles(gpugtiff::Output *psOutput, const gpugtiff::Image *psTiles) const;
    bool MasksBeside(const gpugtiff::Output *psOutput,
                     GDALDataset *poHollowDS) const;
    bool Masks(GDALDataset *poTarget) const;
    bool Mask(GDALRasterBand *poFrom, GDALRasterBand *poTo) const;

    std::string m_osTarget;
    GDALDataset *m_poSource;
    bool m_bStrict;
    GDALProgressFunc m_pfnProgress;
    void *m_pProgressData;
    GDALDataType m_eType;
    // GTiff puts masks into the file rather than beside it.
    bool m_bInternal;
    // A mask of the whole dataset; masks of single bands.
    bool m_bMask;
    bool m_bBandMasks;
    // The pixels' share of the work.
    double m_dfShare;

    CPL_DISALLOW_COPY_ASSIGN(GPUGTiffCopy)
};

#endif
