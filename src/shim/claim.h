// Which files are opened by us, and under whose name.
#ifndef GPUGTIFF_CLAIM_H
#define GPUGTIFF_CLAIM_H

#include "compat.h"

constexpr const char *GPUGTIFF_NAME = "GPUGTiff";
constexpr const char *GPUGTIFF_PREFIX = "GPUGTIFF:";

// Why a file is opened by us.
enum class GPUGTiffReason
{
    // It is not: the driver was not named, and plain files are not claimed.
    NONE,
    // By prefix, or by a list of allowed drivers. The dataset says GPUGTiff.
    NAMED,
    // A plain file that GTiff would open (GPUGTIFF_CLAIM). The dataset says GTiff.
    CLAIMED,
};

bool GPUGTiffHasPrefix(const GDALOpenInfo *poOpenInfo);

// Does not look at the file's contents.
GPUGTiffReason GPUGTiffReasonFor(GDALOpenInfo *poOpenInfo);

// GPUGTIFF_REPLACE_GTIFF.
bool GPUGTiffReplaces();

// In GTiff's place nothing is claimed.
void GPUGTiffStopClaiming();

#endif
