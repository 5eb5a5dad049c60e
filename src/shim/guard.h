// Where C++ exceptions end. Memory that cannot be had throws, in GDAL's code and
// in ours; neither GDAL's C functions nor Rust may see that.

#ifndef GPUGTIFF_GUARD_H
#define GPUGTIFF_GUARD_H

#include <exception>
#include <new>
#include <type_traits>

#include "cpl_error.h"

// Raises a CPLError that tells of an exception; also for what GDAL calls, which a
// function's own try block ends in.
inline CPLErr GPUGTiffRaise(const std::exception &oException)
{
    if (dynamic_cast<const std::bad_alloc *>(&oException) != nullptr)
        CPLError(CE_Failure, CPLE_OutOfMemory, "GPUGTiff: out of memory");
    else
        CPLError(CE_Failure, CPLE_AppDefined, "GPUGTiff: internal error: %s",
                 oException.what());
    return CE_Failure;
}

// Runs the work; after an exception raises a CPLError and returns `tOtherwise`.
template <class T, class Work> T GPUGTiffGuard(T tOtherwise, Work &&work)
{
    try
    {
        return work();
    }
    catch (const std::exception &oException)
    {
        GPUGTiffRaise(oException);
    }
    return tOtherwise;
}

// A function that others call by its address, guarded: `tOtherwise` is what it
// returns after an exception.
template <auto pfn, auto tOtherwise> struct GPUGTiffGuarded;

template <class T, class... Args, T (*pfn)(Args...), auto tOtherwise>
struct GPUGTiffGuarded<pfn, tOtherwise>
{
    static T Call(Args... args)
    {
        if constexpr (std::is_void_v<T>)
            GPUGTiffGuard(tOtherwise,
                          [&]
                          {
                              pfn(args...);
                              return tOtherwise;
                          });
        else
            return GPUGTiffGuard<T>(tOtherwise, [&] { return pfn(args...); });
    }
};

#endif
