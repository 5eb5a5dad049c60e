// GDAL's block cache on a worker's thread.
#ifndef GPUGTIFF_NO_FLUSH_H
#define GPUGTIFF_NO_FLUSH_H

#include "compat.h"

// While it lives, no thread writes other datasets' blocks to make room in GDAL's
// cache: a worker would wait for a dataset whose owner waits for the worker.
class GPUGTiffNoDirtyBlockFlush
{
  public:
    GPUGTiffNoDirtyBlockFlush()
    {
        GDALRasterBlock::EnterDisableDirtyBlockFlush();
    }

    ~GPUGTiffNoDirtyBlockFlush()
    {
        GDALRasterBlock::LeaveDisableDirtyBlockFlush();
    }

  private:
    CPL_DISALLOW_COPY_ASSIGN(GPUGTiffNoDirtyBlockFlush)
};

#endif
