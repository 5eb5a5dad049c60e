// A file as GTiff is to see it: some bytes are others. Nothing is copied or named.
#ifndef GPUGTIFF_OVERLAY_H
#define GPUGTIFF_OVERLAY_H

#include "bridge.h"
#include "compat.h"

// Takes over fp, which the handle returned reads from; patches are copied. To be
// closed with VSIFCloseL().
VSILFILE *GPUGTiffOverlay(VSILFILE *fp, const gpugtiff::Patch *pasPatches,
                          size_t nPatches);

#endif
