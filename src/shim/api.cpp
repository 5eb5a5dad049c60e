// What the C API asks of the shim.

#include <string>

#include "output.h"

namespace
{
GDALDataset *Dataset(void *hDataset)
{
    return GDALDataset::FromHandle(static_cast<GDALDatasetH>(hDataset));
}

template <class T> T *Ours(void *hDataset)
{
    return GPUGTiffOurs<T>(Dataset(hDataset));
}

void RaiseOpenFailed(const GDALOpenInfo &oOpenInfo)
{
    if (CPLGetLastErrorType() == CE_Failure)
        return;
    VSIStatBufL sStat;
    const bool bThere = VSIStatL(oOpenInfo.pszFilename, &sStat) == 0;
    if (oOpenInfo.fpL != nullptr || bThere)
        CPLError(CE_Failure, CPLE_OpenFailed,
                 "GPUGTiff: '%s' is not a TIFF file that can be opened",
                 oOpenInfo.pszFilename);
    else
        CPLError(CE_Failure, CPLE_OpenFailed, "GPUGTiff: '%s' does not exist",
                 oOpenInfo.pszFilename);
}
}  // namespace

void *gpugtiff_shim_driver(const gpugtiff::Api *api)
{
    return GPUGTiffReady(api);
}

void *gpugtiff_shim_open(const char *path, const char *const *options)
{
    CPLErrorReset();
    CPLStringList aosOptions(CSLDuplicate(const_cast<char **>(options)));
    GDALOpenInfo oOpenInfo(path, GDAL_OF_RASTER | GDAL_OF_VERBOSE_ERROR);
    oOpenInfo.papszOpenOptions = aosOptions.List();
    auto poDS = static_cast<GPUGTiffDataset *>(GPUGTiffOpenByUs(&oOpenInfo));
    if (poDS == nullptr)
        RaiseOpenFailed(oOpenInfo);
    else
        poDS->SetOpened(GPUGTiffReady(g_poApi), oOpenInfo);
    return static_cast<GDALDataset *>(poDS);
}

int gpugtiff_shim_kind(void *dataset)
{
    if (const auto poDS = Ours<GPUGTiffDataset>(dataset))
        return poDS->IsLevel() ? 2 : 1;
    return Ours<GPUGTiffOutput>(dataset) ? 3 : 0;
}

const gpugtiff::File *gpugtiff_shim_file(void *dataset)
{
    if (const auto poDS = Ours<GPUGTiffDataset>(dataset))
        return poDS->File();
    const auto poOutput = Ours<GPUGTiffOutput>(dataset);
    return poOutput ? poOutput->File() : nullptr;
}

const gpugtiff::Image *gpugtiff_shim_image(void *dataset)
{
    const auto poDS = Ours<GPUGTiffDataset>(dataset);
    return poDS ? poDS->Image() : nullptr;
}

int gpugtiff_shim_close(void *dataset)
{
#if GPUGTIFF_GDAL(3, 7)
    return GDALClose(static_cast<GDALDatasetH>(dataset)) == CE_None ? 0 : 1;
#else
    GDALClose(static_cast<GDALDatasetH>(dataset));
    return 0;
#endif
}

void gpugtiff_shim_discard(void *dataset)
{
    GDALDataset *poDS = Dataset(dataset);
    CPLStringList aosFiles;
    if (const auto poOutput = Ours<GPUGTiffOutput>(dataset))
    {
        poOutput->Discard();
    }
    else
    {
        // Nobody minds what it lacks.
        if (const auto poOurs = Ours<GPUGTiffDataset>(dataset))
            poOurs->CheckAtClose(-1, false);
        // GTiff writes it, and closing may add the last of these.
        aosFiles = poDS->GetFileList();
        aosFiles.AddString(
            (std::string(poDS->GetDescription()) + ".aux.xml").c_str());
    }
    GDALClose(static_cast<GDALDatasetH>(dataset));
    for (int i = 0; i < aosFiles.Count(); ++i)
        VSIUnlink(aosFiles[i]);
}
