// GDAL's signatures that changed between 3.6 and 3.14, each under one name.
#ifndef GPUGTIFF_COMPAT_H
#define GPUGTIFF_COMPAT_H

#include "gdal_priv.h"
#include "gdal_proxy.h"

#define GPUGTIFF_GDAL(major, minor)                                            \
    (GDAL_VERSION_NUM >= GDAL_COMPUTE_VERSION(major, minor, 0))

#if GPUGTIFF_GDAL(3, 7)
using FlushResult = CPLErr;
#define GPUGTIFF_REF_BAND_ARGS bool
#else
using FlushResult = void;
#define GPUGTIFF_REF_BAND_ARGS
#endif

// GTiff's own default, which changed.
#if GPUGTIFF_GDAL(3, 9)
#define GPUGTIFF_INTERNAL_MASK_DEFAULT "YES"
#else
#define GPUGTIFF_INTERNAL_MASK_DEFAULT "NO"
#endif

#if GPUGTIFF_GDAL(3, 10)
using BandMap = BANDMAP_TYPE;
#else
using BandMap = int *;
#endif

#if GPUGTIFF_GDAL(3, 12)
#define GPUGTIFF_CAPABILITY_CONST const
#else
#define GPUGTIFF_CAPABILITY_CONST
#endif

#if GPUGTIFF_GDAL(3, 13)
using MetadataList = CSLConstList;
using AdviseOptions = CSLConstList;
using CreationOptions = CSLConstList;
#define GPUGTIFF_DRIVER_CONST const
// How much is read or written through a VSIVirtualHandle.
#define GPUGTIFF_IO_ARGS size_t nBytes
#define GPUGTIFF_IO_UNUSED_ARGS size_t
#define GPUGTIFF_IO_UNIT 1
#define GPUGTIFF_IO_COUNT nBytes
#else
using CreationOptions = char **;
using MetadataList = char **;
using AdviseOptions = char **;
#define GPUGTIFF_DRIVER_CONST
#define GPUGTIFF_IO_ARGS size_t nSize, size_t nCount
#define GPUGTIFF_IO_UNUSED_ARGS size_t, size_t
#define GPUGTIFF_IO_UNIT nSize
#define GPUGTIFF_IO_COUNT nCount
#endif

#if GPUGTIFF_GDAL(3, 14)
#define GPUGTIFF_STATISTICS_MORE_ARGS , CSLConstList papszOptions
#define GPUGTIFF_STATISTICS_MORE , papszOptions
#else
#define GPUGTIFF_STATISTICS_MORE_ARGS
#define GPUGTIFF_STATISTICS_MORE
#endif

#endif
