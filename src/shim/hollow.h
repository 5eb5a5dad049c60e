// A GTiff without pixels, made in memory for its tags.
#ifndef GPUGTIFF_HOLLOW_H
#define GPUGTIFF_HOLLOW_H

#include <memory>
#include <string>

#include "compat.h"

// Where it is, and what belongs to it: a directory of its own in /vsimem/, removed
// with this object.
class GPUGTiffHollow
{
  public:
    explicit GPUGTiffHollow(const std::string &osTarget);
    ~GPUGTiffHollow();

    const std::string &Name() const
    {
        return m_osName;
    }

    // The file beside the target that a file beside the hollow one stands for.
    std::string Beside(const std::string &osFile) const;

    // Puts what GTiff wrote beside the hollow file (.aux.xml, .tfw ...) beside the
    // target.
    bool MoveSidecars() const;

  private:
    std::string m_osDirectory;
    std::string m_osName;
    std::string m_osTarget;

    CPL_DISALLOW_COPY_ASSIGN(GPUGTiffHollow)
};

// The dataset to be copied as GTiff shall see it: nRows high, without a pixel, a
// mask or an overview.
std::unique_ptr<GDALDataset> GPUGTiffHollowSource(GDALDataset *poSource,
                                                  int nRows);

// The sample that stands for missing data in a band, as GTiff's NullBlock() has
// it: at most 16 bytes.
void GPUGTiffFillSample(GDALRasterBand *poBand, void *pSample);

#endif
