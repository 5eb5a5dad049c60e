// Files that GTiff refuses for their codec: it sees them with some bytes changed.
#ifndef GPUGTIFF_OVERLAY_H
#define GPUGTIFF_OVERLAY_H

#include "dataset.h"

// The file behind a name that GTiff opens: GTIFF_DIR:n:file, GTIFF_DIR:off:n:file
// and, before these too, GTIFF_RAW: are one of its directories or a way of reading.
const char *GPUGTiffFileOf(const char *pszName);

// Has GTiff open a file that it refused for its codec, as the overlay shows it,
// under the file's own name, so that GTiff finds what lies beside it.
GDALDataset *GPUGTiffOpenOverlaid(GDALOpenInfo *poOpenInfo,
                                  gpugtiff::File *psFile);

#endif
