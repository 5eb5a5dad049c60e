// Creating datasets.
#ifndef GPUGTIFF_CREATE_H
#define GPUGTIFF_CREATE_H

#include "compat.h"

// GTiff as it was kept at registration.
GDALDriver *GPUGTiffInnerDriver();

// bAsGTiff: in GTiff's place, with its defaults.
GDALDataset *GPUGTiffCreate(const char *pszFilename, int nXSize, int nYSize,
                            int nBandsIn, GDALDataType eType,
                            CreationOptions papszOptions, bool bAsGTiff);
GDALDataset *GPUGTiffCreateCopy(const char *pszFilename, GDALDataset *poSrcDS,
                                int bStrict, CreationOptions papszOptions,
                                GDALProgressFunc pfnProgress,
                                void *pProgressData, bool bAsGTiff);

#endif
