#include "hollow.h"

#include <atomic>
#include <cstring>

#include "guard.h"

GPUGTiffHollow::GPUGTiffHollow(const std::string &osTarget)
    : m_osTarget(osTarget)
{
    static std::atomic<int> nCounter{0};
    m_osDirectory = CPLSPrintf("/vsimem/.gpugtiff_%p_%d",
                               static_cast<void *>(&nCounter), ++nCounter);
    const char *pszBase = CPLGetFilename(osTarget.c_str());
    m_osName = m_osDirectory + "/" + (*pszBase ? pszBase : "hollow.tif");
}

GPUGTiffHollow::~GPUGTiffHollow()
{
    GPUGTiffGuard(-1, [this]
                  { return VSIRmdirRecursive(m_osDirectory.c_str()); });
}

std::string GPUGTiffHollow::Beside(const std::string &osFile) const
{
    const std::string osDirectory = CPLGetPath(m_osTarget.c_str());
    return CPLFormFilename(osDirectory.c_str(), CPLGetFilename(osFile.c_str()),
                           nullptr);
}

bool GPUGTiffHollow::MoveSidecars() const
{
    const CPLStringList aosFiles(VSIReadDir(m_osDirectory.c_str()));
    bool bOK = true;
    for (int i = 0; i < aosFiles.Count(); ++i)
    {
        const std::string osFile = m_osDirectory + "/" + aosFiles[i];
        if (osFile == m_osName || EQUAL(aosFiles[i], ".") ||
            EQUAL(aosFiles[i], ".."))
            continue;
        if (CPLCopyFile(Beside(osFile).c_str(), osFile.c_str()) != 0)
        {
            CPLError(CE_Failure, CPLE_FileIO, "GPUGTiff: cannot write %s",
                     Beside(osFile).c_str());
            bOK = false;
        }
    }
    return bOK;
}

void GPUGTiffFillSample(GDALRasterBand *poBand, void *pSample)
{
    const GDALDataType eType = poBand->GetRasterDataType();
    int bSet = FALSE;
    if (eType == GDT_Int64)
    {
        const int64_t nValue = poBand->GetNoDataValueAsInt64(&bSet);
        if (bSet)
            memcpy(pSample, &nValue, sizeof(nValue));
        return;
    }
    if (eType == GDT_UInt64)
    {
        const uint64_t nValue = poBand->GetNoDataValueAsUInt64(&bSet);
        if (bSet)
            memcpy(pSample, &nValue, sizeof(nValue));
        return;
    }
    double dfValue = poBand->GetNoDataValue(&bSet);
    if (!bSet)
        return;
    // Signed bytes shown as GDT_Byte: -1 is 255 there.
    if (eType == GDT_Byte && dfValue < 0 && dfValue >= -128 &&
        static_cast<int>(dfValue) == dfValue)
    {
        const char *pszPixelType =
            poBand->GetMetadataItem("PIXELTYPE", "IMAGE_STRUCTURE");
        if (pszPixelType != nullptr && EQUAL(pszPixelType, "SIGNEDBYTE"))
            dfValue += 256;
    }
    GDALCopyWords64(&dfValue, GDT_Float64, 0, pSample, eType, 0, 1);
}

namespace
{
class HollowSourceBand final : public GDALProxyRasterBand
{
  public:
    HollowSourceBand(GDALDataset *poDSIn, int nBandIn, int nRows,
                     GDALRasterBand *poSource)
        : m_poSource(poSource)
    {
        poDS = poDSIn;
        nBand = nBandIn;
        eDataType = poSource->GetRasterDataType();
        nRasterXSize = poSource->GetXSize();
        nRasterYSize = nRows;
        nBlockXSize = nRasterXSize;
        nBlockYSize = 1;
    }

    const char *GetDescription() const override
    {
        return m_poSource->GetDescription();
    }

    int64_t GetNoDataValueAsInt64(int *pbSuccess) override
    {
        return m_poSource->GetNoDataValueAsInt64(pbSuccess);
    }

    uint64_t GetNoDataValueAsUInt64(int *pbSuccess) override
    {
        return m_poSource->GetNoDataValueAsUInt64(pbSuccess);
    }

    int GetMaskFlags() override
    {
        return GMF_ALL_VALID;
    }

    int GetOverviewCount() override
    {
        return 0;
    }

    GDALRasterBand *GetOverview(int) override
    {
        return nullptr;
    }

  protected:
    int IGetDataCoverageStatus(int, int, int, int, int,
                               double *pdfDataPct) override
    {
        if (pdfDataPct)
            *pdfDataPct = 0;
        return GDAL_DATA_COVERAGE_STATUS_EMPTY;
    }

    CPLErr IReadBlock(int, int, void *pImage) override
    {
        return FillBuffer(pImage, nBlockXSize, 1, eDataType,
                    GDALGetDataTypeSizeBytes(eDataType), 0);
    }

    // Some versions of GTiff read although there is nothing: it gets what it
    // leaves out.
    CPLErr IRasterIO(GDALRWFlag eRWFlag, int, int, int, int, void *pData,
                     int nBufXSize, int nBufYSize, GDALDataType eBufType,
                     GSpacing nPixelSpace, GSpacing nLineSpace,
                     GDALRasterIOExtraArg *) override
    {
        if (eRWFlag != GF_Read)
            return CE_Failure;
        return FillBuffer(pData, nBufXSize, nBufYSize, eBufType, nPixelSpace,
                    nLineSpace);
    }

#if GPUGTIFF_GDAL(3, 10)
    GDALRasterBlock *GetLockedBlockRef(int nX, int nY, int bInit) override
    {
        return GDALRasterBand::GetLockedBlockRef(nX, nY, bInit);
    }

    GDALRasterBlock *TryGetLockedBlockRef(int nX, int nY) override
    {
        return GDALRasterBand::TryGetLockedBlockRef(nX, nY);
    }

    CPLErr FlushBlock(int nX, int nY, int bWrite) override
    {
        return GDALRasterBand::FlushBlock(nX, nY, bWrite);
    }
#endif

    GDALRasterBand *
        RefUnderlyingRasterBand(GPUGTIFF_REF_BAND_ARGS) const override
    {
        return m_poSource;
    }

    void UnrefUnderlyingRasterBand(GDALRasterBand *) const override
    {
    }

  private:
    CPLErr FillBuffer(void *pData, int nWidth, int nHeight, GDALDataType eType,
                GSpacing nPixelSpace, GSpacing nLineSpace)
    {
        GByte abySample[16] = {};
        GPUGTiffFillSample(m_poSource, abySample);
        for (int i = 0; i < nHeight; ++i)
            GDALCopyWords64(abySample, eDataType, 0,
                            static_cast<GByte *>(pData) + i * nLineSpace, eType,
                            static_cast<int>(nPixelSpace), nWidth);
        return CE_None;
    }

    GDALRasterBand *m_poSource;

    CPL_DISALLOW_COPY_ASSIGN(HollowSourceBand)
};

class HollowSource final : public GDALProxyDataset
{
  public:
    HollowSource(GDALDataset *poSource, int nRows) : m_poSource(poSource)
    {
        nRasterXSize = poSource->GetRasterXSize();
        nRasterYSize = nRows;
        SetDescription(poSource->GetDescription());
        for (int i = 1; i <= poSource->GetRasterCount(); ++i)
            SetBand(i, new HollowSourceBand(this, i, nRows,
                                            poSource->GetRasterBand(i)));
    }

    // GTiff takes the dataset of a driver that it knows for that driver's class.
    GDALDriver *GetDriver() GPUGTIFF_DRIVER_CONST override
    {
        return nullptr;
    }

  protected:
    CPLErr IRasterIO(GDALRWFlag eRWFlag, int nXOff, int nYOff, int nXSize,
                     int nYSize, void *pData, int nBufXSize, int nBufYSize,
                     GDALDataType eBufType, int nBandCount, BandMap panBandMap,
                     GSpacing nPixelSpace, GSpacing nLineSpace,
                     GSpacing nBandSpace,
                     GDALRasterIOExtraArg *psExtraArg) override
    {
        for (int i = 0; i < nBandCount; ++i)
        {
            if (GetRasterBand(panBandMap[i])
                    ->RasterIO(eRWFlag, nXOff, nYOff, nXSize, nYSize,
                               static_cast<GByte *>(pData) + i * nBandSpace,
                               nBufXSize, nBufYSize, eBufType, nPixelSpace,
                               nLineSpace, psExtraArg) != CE_None)
                return CE_Failure;
        }
        return CE_None;
    }

    FlushResult FlushCache(bool) override
    {
#if GPUGTIFF_GDAL(3, 7)
        return CE_None;
#endif
    }

#if GPUGTIFF_GDAL(3, 13)
    CPLErr Close(GDALProgressFunc pfnProgress, void *pProgressData) override
    {
        return GDALDataset::Close(pfnProgress, pProgressData);
    }
#elif GPUGTIFF_GDAL(3, 7)
    CPLErr Close() override
    {
        return GDALDataset::Close();
    }
#endif

    GDALDataset *RefUnderlyingDataset() const override
    {
        return m_poSource;
    }

    void UnrefUnderlyingDataset(GDALDataset *) const override
    {
    }

  private:
    GDALDataset *m_poSource;

    CPL_DISALLOW_COPY_ASSIGN(HollowSource)
};
}  // namespace

std::unique_ptr<GDALDataset> GPUGTiffHollowSource(GDALDataset *poSource,
                                                  int nRows)
{
    return std::unique_ptr<GDALDataset>(new HollowSource(poSource, nRows));
}
