#include "output.h"

#include <algorithm>
#include <cstring>
#include <unistd.h>
#include <vector>

GPUGTiffOutput::GPUGTiffOutput(std::unique_ptr<GPUGTiffHollow> poHollow,
                               GDALDataset *poInner,
                               GPUGTiffDataset::FilePtr poFile,
                               GPUGTiffOutputPtr poOutput, int nRows)
    : m_poHollow(std::move(poHollow)), m_poInner(poInner),
      m_poFile(std::move(poFile)), m_poOutput(std::move(poOutput)),
      m_nPid(static_cast<int>(getpid()))
{
    eAccess = GA_Update;
    nRasterXSize = poInner->GetRasterXSize();
    nRasterYSize = nRows;
    for (int i = 1; i <= poInner->GetRasterCount(); ++i)
        SetBand(i, new GPUGTiffOutputBand(this, i, 0, nRows));
    UpdateFill();
}

GPUGTiffOutput::~GPUGTiffOutput()
{
    CloseInner();
}

// What stands where nothing was written is GTiff's nodata value.
void GPUGTiffOutput::UpdateFill()
{
    if (!m_poOutput)
        return;
    GByte abySample[16] = {};
    GPUGTiffFillSample(m_poInner->GetRasterBand(1), abySample);
    g_poApi->output_set_fill(m_poOutput.get(), abySample);
}

// GTiff writes the tags when the first pixel comes, and again only what changes
// afterwards. The hollow dataset gets a block that it leaves out, for the same.
void GPUGTiffOutput::SettleTags()
{
    if (m_bSettled)
        return;
    m_bSettled = true;
    GDALRasterBand *poFirst = m_poInner->GetRasterBand(1);
    int nBlockX = 0;
    int nBlockY = 0;
    poFirst->GetBlockSize(&nBlockX, &nBlockY);
    const GDALDataType eType = poFirst->GetRasterDataType();
    const int nBytes = GDALGetDataTypeSizeBytes(eType);
    GByte abySample[16] = {};
    GPUGTiffFillSample(poFirst, abySample);
    std::vector<GByte> abyBlock(static_cast<size_t>(nBlockX) * nBlockY * nBytes);
    for (size_t i = 0; i < abyBlock.size(); i += nBytes)
        memcpy(&abyBlock[i], abySample, nBytes);
    CPL_IGNORE_RET_VAL(poFirst->WriteBlock(0, 0, abyBlock.data()));
}

GDALRasterBand *GPUGTiffOutput::Mask() const
{
    return m_poMask.get();
}

CPLErr GPUGTiffOutput::FlushBands()
{
    CPLErr eErr = CE_None;
    for (int i = 0; i < nBands; ++i)
    {
        if (papoBands[i]->FlushCache(false) != CE_None)
            eErr = CE_Failure;
    }
    if (m_poMask && m_poMask->FlushCache(false) != CE_None)
        eErr = CE_Failure;
    return eErr;
}

// The end of writing: the hollow dataset is closed, so that GTiff says its last
// word on the tags, and the file gets them.
CPLErr GPUGTiffOutput::Finish()
{
    CPLErr eErr = FlushBands();
    GDALDataset *poInner = m_poInner;
    m_poInner = nullptr;
    GDALClose(GDALDataset::ToHandle(poInner));
    if (g_poApi->output_finish(m_poOutput.get(), m_poHollow->Name().c_str()) !=
        0)
        eErr = CE_Failure;
    else if (!m_poHollow->MoveSidecars())
        eErr = CE_Failure;
    m_poOutput.reset();
    m_poHollow.reset();
    return eErr;
}

bool GPUGTiffOutput::Realise()
{
    if (!m_poOutput)
        return m_poInner != nullptr;
    if (Finish() != CE_None)
        return false;
    GDALOpenInfo oOpenInfo(GetDescription(), GDAL_OF_RASTER | GDAL_OF_UPDATE);
    m_poInner = GPUGTiffOpenInner(&oOpenInfo, 0);
    return m_poInner != nullptr;
}

CPLErr GPUGTiffOutput::CloseInner()
{
    if (m_nPid != static_cast<int>(getpid()))
    {
        // A forked child: the file is its parent's to finish.
        m_poOutput.release();
        m_poInner = nullptr;
    }
    CPLErr eErr = CE_None;
    if (m_poOutput)
        eErr = Finish();
    else if (m_poInner != nullptr)
    {
        FlushBands();
        GDALDataset *poInner = m_poInner;
        m_poInner = nullptr;
#if GPUGTIFF_GDAL(3, 7)
        eErr = GDALClose(GDALDataset::ToHandle(poInner));
#else
        GDALClose(GDALDataset::ToHandle(poInner));
#endif
    }
    m_poMask.reset();
    return eErr;
}

FlushResult GPUGTiffOutput::FlushCache(bool bAtClosing)
{
    CPLErr eErr = FlushBands();
    if (m_poInner != nullptr && !(m_poOutput && bAtClosing))
    {
        // Readers find the tags as they are now, and everything beside the file.
        m_poInner->FlushCache(bAtClosing);
        if (m_poOutput)
        {
            const char *pszHollow = m_poHollow->Name().c_str();
            if (g_poApi->output_flush(m_poOutput.get(), pszHollow) != 0 ||
                !m_poHollow->MoveSidecars())
                eErr = CE_Failure;
        }
    }
#if GPUGTIFF_GDAL(3, 7)
    return eErr;
#else
    CPL_IGNORE_RET_VAL(eErr);
#endif
}

#if GPUGTIFF_GDAL(3, 13)
CPLErr GPUGTiffOutput::Close(GDALProgressFunc pfnProgress, void *pProgressData)
{
    const CPLErr eErr = CloseInner();
    const CPLErr eBase = GDALDataset::Close(pfnProgress, pProgressData);
    return eErr == CE_None ? eBase : eErr;
}

bool GPUGTiffOutput::GetCloseReportsProgress() const
{
    return false;
}
#elif GPUGTIFF_GDAL(3, 7)
CPLErr GPUGTiffOutput::Close()
{
    const CPLErr eErr = CloseInner();
    const CPLErr eBase = GDALDataset::Close();
    return eErr == CE_None ? eBase : eErr;
}
#endif

// Pixels.

CPLErr GPUGTiffOutput::Write(int nImage, gpugtiff::Request &sRequest)
{
    SettleTags();
    // What GDAL's cache holds of the window was written or read before.
    for (int i = 0; i < sRequest.band_count; ++i)
    {
        GDALRasterBand *poBand =
            nImage ? m_poMask.get() : papoBands[sRequest.bands[i] - 1];
        int nBlockX = 0;
        int nBlockY = 0;
        poBand->GetBlockSize(&nBlockX, &nBlockY);
        const int nRight = (sRequest.x + sRequest.width - 1) / nBlockX;
        const int nBottom = (sRequest.y + sRequest.height - 1) / nBlockY;
        for (int iY = sRequest.y / nBlockY; iY <= nBottom; ++iY)
        {
            for (int iX = sRequest.x / nBlockX; iX <= nRight; ++iX)
            {
                GDALRasterBlock *poBlock = poBand->TryGetLockedBlockRef(iX, iY);
                if (poBlock == nullptr)
                    continue;
                poBlock->DropLock();
                if (poBand->FlushBlock(iX, iY, TRUE) != CE_None)
                    return CE_Failure;
            }
        }
    }
    return g_poApi->output_write(m_poOutput.get(), nImage, &sRequest) == 0
               ? CE_None
               : CE_Failure;
}

CPLErr GPUGTiffOutput::IRasterIO(GDALRWFlag eRWFlag, int nXOff, int nYOff,
                                 int nXSize, int nYSize, void *pData,
                                 int nBufXSize, int nBufYSize,
                                 GDALDataType eBufType, int nBandCount,
                                 BandMap panBandMap, GSpacing nPixelSpace,
                                 GSpacing nLineSpace, GSpacing nBandSpace,
                                 GDALRasterIOExtraArg *psExtraArg)
{
    if (!m_poOutput)
        return GDALProxyDataset::IRasterIO(
            eRWFlag, nXOff, nYOff, nXSize, nYSize, pData, nBufXSize, nBufYSize,
            eBufType, nBandCount, panBandMap, nPixelSpace, nLineSpace,
            nBandSpace, psExtraArg);
    bool bOnce = true;
    for (int i = 0; i < nBandCount; ++i)
        bOnce = bOnce && std::find(panBandMap, panBandMap + i, panBandMap[i]) ==
                             panBandMap + i;
    if (eRWFlag == GF_Write && bOnce &&
        GPUGTiffIsPlain(nXOff, nYOff, nXSize, nYSize, nBufXSize, nBufYSize,
                        psExtraArg))
    {
        gpugtiff::Request sRequest = {};
        sRequest.x = nXOff;
        sRequest.y = nYOff;
        sRequest.width = nXSize;
        sRequest.height = nYSize;
        sRequest.bands = panBandMap;
        sRequest.band_count = nBandCount;
        sRequest.kind = eBufType;
        sRequest.data = pData;
        sRequest.pixel_space = nPixelSpace;
        sRequest.line_space = nLineSpace;
        sRequest.band_space = nBandSpace;
        const CPLErr eErr = Write(0, sRequest);
        if (eErr == CE_None && psExtraArg && psExtraArg->pfnProgress &&
            !psExtraArg->pfnProgress(1, "", psExtraArg->pProgressData))
            return CE_Failure;
        return eErr;
    }
    return GDALDataset::IRasterIO(eRWFlag, nXOff, nYOff, nXSize, nYSize, pData,
                                  nBufXSize, nBufYSize, eBufType, nBandCount,
                                  panBandMap, nPixelSpace, nLineSpace,
                                  nBandSpace, psExtraArg);
}

#if GPUGTIFF_GDAL(3, 10)
CPLErr GPUGTiffOutput::BlockBasedRasterIO(
    GDALRWFlag eRWFlag, int nXOff, int nYOff, int nXSize, int nYSize,
    void *pData, int nBufXSize, int nBufYSize, GDALDataType eBufType,
    int nBandCount, const int *panBandMap, GSpacing nPixelSpace,
    GSpacing nLineSpace, GSpacing nBandSpace, GDALRasterIOExtraArg *psExtraArg)
{
    return GDALDataset::BlockBasedRasterIO(
        eRWFlag, nXOff, nYOff, nXSize, nYSize, pData, nBufXSize, nBufYSize,
        eBufType, nBandCount, panBandMap, nPixelSpace, nLineSpace, nBandSpace,
        psExtraArg);
}
#endif

// What the hollow dataset can't do.

CPLErr GPUGTiffOutput::IBuildOverviews(
    const char *pszResampling, int nOverviews, const int *panOverviewList,
    int nListBands, const int *panBandList, GDALProgressFunc pfnProgress,
    void *pProgressData, CSLConstList papszOptions)
{
    if (!Realise())
        return CE_Failure;
    return GDALProxyDataset::IBuildOverviews(
        pszResampling, nOverviews, panOverviewList, nListBands, panBandList,
        pfnProgress, pProgressData, papszOptions);
}

CPLErr GPUGTiffOutput::CreateMaskBand(int nFlagsIn)
{
    if (!m_poOutput)
        return GDALProxyDataset::CreateMaskBand(nFlagsIn);
    const bool bInternal = CPLTestBool(CPLGetConfigOption(
        "GDAL_TIFF_INTERNAL_MASK", GPUGTIFF_INTERNAL_MASK_DEFAULT));
    if (!bInternal)
    {
        // A file beside the target, which GDAL makes.
        if (!oOvManager.IsInitialized())
            oOvManager.Initialize(this, GetDescription());
        return GDALDataset::CreateMaskBand(nFlagsIn);
    }
    if (m_poInner->CreateMaskBand(nFlagsIn) != CE_None)
        return CE_Failure;
    m_poInner->FlushCache(false);
    const int nBit = CPLTestBool(CPLGetConfigOption(
                         "GDAL_TIFF_INTERNAL_MASK_TO_8BIT", "YES"))
                         ? 255
                         : 1;
    const int nImage = g_poApi->output_add_mask(
        m_poOutput.get(), m_poHollow->Name().c_str(), nBit);
    if (nImage < 0)
        return CE_Failure;
    m_poMask.reset(new GPUGTiffOutputBand(this, 1, nImage, nRasterYSize));
    return CE_None;
}

char **GPUGTiffOutput::GetFileList()
{
    if (!m_poOutput)
        return GDALProxyDataset::GetFileList();
    const CPLStringList aosHollow(m_poInner->GetFileList());
    CPLStringList aosFiles;
    for (int i = 0; i < aosHollow.Count(); ++i)
    {
        if (m_poHollow->Name() == aosHollow[i])
            aosFiles.AddString(GetDescription());
        else
            aosFiles.AddString(m_poHollow->Beside(aosHollow[i]).c_str());
    }
    if (oOvManager.IsInitialized() && oOvManager.HaveMaskFile())
        aosFiles.AddString((std::string(GetDescription()) + ".msk").c_str());
    return aosFiles.StealList();
}

void *GPUGTiffOutput::GetInternalHandle(const char *pszHandle)
{
    return m_poOutput ? nullptr : GDALProxyDataset::GetInternalHandle(pszHandle);
}

// What the proxy does not forward, or not as it should be.

static void AddCounter(void *pList, const char *pszName, const char *pszValue)
{
    static_cast<CPLStringList *>(pList)->SetNameValue(pszName, pszValue);
}

MetadataList GPUGTiffOutput::Counters()
{
    m_aosCounters.Clear();
    g_poApi->file_describe(m_poFile.get(), &m_aosCounters, AddCounter);
    return m_aosCounters.List();
}

MetadataList GPUGTiffOutput::GetMetadata(const char *pszDomain)
{
    if (pszDomain != nullptr && EQUAL(pszDomain, "GPUGTIFF"))
        return Counters();
    return GDALProxyDataset::GetMetadata(pszDomain);
}

const char *GPUGTiffOutput::GetMetadataItem(const char *pszName,
                                            const char *pszDomain)
{
    if (pszDomain != nullptr && EQUAL(pszDomain, "GPUGTIFF"))
        return CSLFetchNameValue(Counters(), pszName);
    return GDALProxyDataset::GetMetadataItem(pszName, pszDomain);
}

GDALDriver *GPUGTiffOutput::GetDriver() GPUGTIFF_DRIVER_CONST
{
    return poDriver;
}

int GPUGTiffOutput::TestCapability(const char *pszCap) GPUGTIFF_CAPABILITY_CONST
{
    return m_poInner ? m_poInner->TestCapability(pszCap) : FALSE;
}

void GPUGTiffOutput::ClearStatistics()
{
    if (m_poInner != nullptr)
        m_poInner->ClearStatistics();
}

// The bands.

GPUGTiffOutputBand::GPUGTiffOutputBand(GPUGTiffOutput *poDSIn, int nBandIn,
                                       int nImage, int nRows)
    : m_nImage(nImage)
{
    poDS = poDSIn;
    nBand = nBandIn;
    eAccess = GA_Update;
    GDALRasterBand *poInner = Inner();
    eDataType = poInner->GetRasterDataType();
    nRasterXSize = poInner->GetXSize();
    nRasterYSize = nRows;
    poInner->GetBlockSize(&nBlockXSize, &nBlockYSize);
}

GDALRasterBand *GPUGTiffOutputBand::Inner() const
{
    GDALDataset *poInner = Owner()->Inner();
    if (poInner == nullptr)
        return nullptr;
    if (m_nImage == 0)
        return poInner->GetRasterBand(nBand);
    return poInner->GetRasterBand(1)->GetMaskBand();
}

CPLErr GPUGTiffOutputBand::FlushCache(bool bAtClosing)
{
    return GDALRasterBand::FlushCache(bAtClosing);
}

CPLErr GPUGTiffOutputBand::WriteWindow(int nXOff, int nYOff, int nXSize,
                                       int nYSize, const void *pData,
                                       GDALDataType eBufType,
                                       GSpacing nPixelSpace,
                                       GSpacing nLineSpace)
{
    gpugtiff::Request sRequest = {};
    sRequest.x = nXOff;
    sRequest.y = nYOff;
    sRequest.width = nXSize;
    sRequest.height = nYSize;
    sRequest.bands = &nBand;
    sRequest.band_count = 1;
    sRequest.kind = eBufType;
    sRequest.data = const_cast<void *>(pData);
    sRequest.pixel_space = nPixelSpace;
    sRequest.line_space = nLineSpace;
    return Owner()->Write(m_nImage, sRequest);
}

CPLErr GPUGTiffOutputBand::IReadBlock(int nBlockXOff, int nBlockYOff,
                                      void *pImage)
{
    if (Owner()->Output() == nullptr)
    {
        GDALRasterBand *poInner = Inner();
        return poInner ? poInner->ReadBlock(nBlockXOff, nBlockYOff, pImage)
                       : CE_Failure;
    }
    return g_poApi->output_read(Owner()->Output(), m_nImage, nBand, nBlockXOff,
                                nBlockYOff, pImage) == 0
               ? CE_None
               : CE_Failure;
}

CPLErr GPUGTiffOutputBand::IWriteBlock(int nBlockXOff, int nBlockYOff,
                                       void *pImage)
{
    if (Owner()->Output() == nullptr)
    {
        GDALRasterBand *poInner = Inner();
        return poInner ? poInner->WriteBlock(nBlockXOff, nBlockYOff, pImage)
                       : CE_Failure;
    }
    Owner()->SettleTags();
    gpugtiff::Request sRequest = {};
    sRequest.x = nBlockXOff * nBlockXSize;
    sRequest.y = nBlockYOff * nBlockYSize;
    sRequest.width = std::min(nBlockXSize, nRasterXSize - sRequest.x);
    sRequest.height = std::min(nBlockYSize, nRasterYSize - sRequest.y);
    sRequest.bands = &nBand;
    sRequest.band_count = 1;
    sRequest.kind = eDataType;
    sRequest.data = pImage;
    sRequest.pixel_space = GDALGetDataTypeSizeBytes(eDataType);
    sRequest.line_space = sRequest.pixel_space * nBlockXSize;
    // Straight to the writer: this block is on its way out of GDAL's cache.
    return g_poApi->output_write(Owner()->Output(), m_nImage, &sRequest) == 0
               ? CE_None
               : CE_Failure;
}

CPLErr GPUGTiffOutputBand::IRasterIO(GDALRWFlag eRWFlag, int nXOff, int nYOff,
                                     int nXSize, int nYSize, void *pData,
                                     int nBufXSize, int nBufYSize,
                                     GDALDataType eBufType,
                                     GSpacing nPixelSpace, GSpacing nLineSpace,
                                     GDALRasterIOExtraArg *psExtraArg)
{
    if (Owner()->Output() == nullptr)
        return GDALProxyRasterBand::IRasterIO(
            eRWFlag, nXOff, nYOff, nXSize, nYSize, pData, nBufXSize, nBufYSize,
            eBufType, nPixelSpace, nLineSpace, psExtraArg);
    if (eRWFlag == GF_Write &&
        GPUGTiffIsPlain(nXOff, nYOff, nXSize, nYSize, nBufXSize, nBufYSize,
                        psExtraArg))
    {
        const CPLErr eErr = WriteWindow(nXOff, nYOff, nXSize, nYSize, pData,
                                        eBufType, nPixelSpace, nLineSpace);
        if (eErr == CE_None && psExtraArg && psExtraArg->pfnProgress &&
            !psExtraArg->pfnProgress(1, "", psExtraArg->pProgressData))
            return CE_Failure;
        return eErr;
    }
    return GDALRasterBand::IRasterIO(eRWFlag, nXOff, nYOff, nXSize, nYSize,
                                     pData, nBufXSize, nBufYSize, eBufType,
                                     nPixelSpace, nLineSpace, psExtraArg);
}

CPLErr GPUGTiffOutputBand::Fill(double dfReal, double dfImaginary)
{
    return Owner()->Output() ? GDALRasterBand::Fill(dfReal, dfImaginary)
                             : GDALProxyRasterBand::Fill(dfReal, dfImaginary);
}

int GPUGTiffOutputBand::IGetDataCoverageStatus(int nXOff, int nYOff, int nXSize,
                                               int nYSize, int nMaskFlagStop,
                                               double *pdfDataPct)
{
    if (Owner()->Output() == nullptr)
    {
        GDALRasterBand *poInner = Inner();
        return poInner ? poInner->GetDataCoverageStatus(nXOff, nYOff, nXSize,
                                                        nYSize, nMaskFlagStop,
                                                        pdfDataPct)
                       : GDAL_DATA_COVERAGE_STATUS_UNIMPLEMENTED;
    }
    // GDAL's cache may hold what the writer does not know of yet.
    FlushCache(false);
    const int anWindow[] = {nXOff, nYOff, nXSize, nYSize};
    const int64_t nWritten = g_poApi->output_written(Owner()->Output(), m_nImage,
                                                     nBand, anWindow);
    const int64_t nAll = static_cast<int64_t>(nXSize) * nYSize;
    if (pdfDataPct)
        *pdfDataPct = 100.0 * nWritten / nAll;
    return (nWritten > 0 ? GDAL_DATA_COVERAGE_STATUS_DATA : 0) |
           (nWritten < nAll ? GDAL_DATA_COVERAGE_STATUS_EMPTY : 0);
}

// Nodata is also what the writer fills with.

CPLErr GPUGTiffOutputBand::SetNoDataValue(double dfNoData)
{
    const CPLErr eErr = GDALProxyRasterBand::SetNoDataValue(dfNoData);
    Owner()->UpdateFill();
    return eErr;
}

CPLErr GPUGTiffOutputBand::DeleteNoDataValue()
{
    const CPLErr eErr = GDALProxyRasterBand::DeleteNoDataValue();
    Owner()->UpdateFill();
    return eErr;
}

int64_t GPUGTiffOutputBand::GetNoDataValueAsInt64(int *pbSuccess)
{
    return Inner()->GetNoDataValueAsInt64(pbSuccess);
}

uint64_t GPUGTiffOutputBand::GetNoDataValueAsUInt64(int *pbSuccess)
{
    return Inner()->GetNoDataValueAsUInt64(pbSuccess);
}

CPLErr GPUGTiffOutputBand::SetNoDataValueAsInt64(int64_t nNoData)
{
    const CPLErr eErr = Inner()->SetNoDataValueAsInt64(nNoData);
    Owner()->UpdateFill();
    return eErr;
}

CPLErr GPUGTiffOutputBand::SetNoDataValueAsUInt64(uint64_t nNoData)
{
    const CPLErr eErr = Inner()->SetNoDataValueAsUInt64(nNoData);
    Owner()->UpdateFill();
    return eErr;
}

const char *GPUGTiffOutputBand::GetDescription() const
{
    GDALRasterBand *poInner = Inner();
    return poInner ? poInner->GetDescription() : "";
}

void GPUGTiffOutputBand::SetDescription(const char *pszDescription)
{
    if (GDALRasterBand *poInner = Inner())
        poInner->SetDescription(pszDescription);
}

MetadataList GPUGTiffOutputBand::GetMetadata(const char *pszDomain)
{
    if (pszDomain != nullptr && EQUAL(pszDomain, "GPUGTIFF"))
        return Owner()->Counters();
    return GDALProxyRasterBand::GetMetadata(pszDomain);
}

const char *GPUGTiffOutputBand::GetMetadataItem(const char *pszName,
                                                const char *pszDomain)
{
    if (pszDomain != nullptr && EQUAL(pszDomain, "GPUGTIFF"))
        return CSLFetchNameValue(Owner()->Counters(), pszName);
    // Where tiles are is only known of a finished file.
    if (pszDomain != nullptr && EQUAL(pszDomain, "TIFF"))
        Owner()->Realise();
    return GDALProxyRasterBand::GetMetadataItem(pszName, pszDomain);
}

// Masks and overviews.

GDALRasterBand *GPUGTiffOutputBand::GetMaskBand()
{
    if (Owner()->Output() == nullptr)
        return GDALProxyRasterBand::GetMaskBand();
    if (Owner()->Mask() != nullptr && m_nImage == 0)
        return Owner()->Mask();
    return GDALRasterBand::GetMaskBand();
}

int GPUGTiffOutputBand::GetMaskFlags()
{
    if (Owner()->Output() == nullptr)
        return GDALProxyRasterBand::GetMaskFlags();
    if (Owner()->Mask() != nullptr && m_nImage == 0)
        return GMF_PER_DATASET;
    return GDALRasterBand::GetMaskFlags();
}

CPLErr GPUGTiffOutputBand::CreateMaskBand(int nFlagsIn)
{
    if (Owner()->Output() == nullptr)
        return GDALProxyRasterBand::CreateMaskBand(nFlagsIn);
    return Owner()->CreateMaskBand(nFlagsIn);
}

GDALRasterBand *GPUGTiffOutputBand::GetRasterSampleOverview(GUIntBig nSamples)
{
    return Owner()->Output()
               ? GDALRasterBand::GetRasterSampleOverview(nSamples)
               : GDALProxyRasterBand::GetRasterSampleOverview(nSamples);
}

CPLErr GPUGTiffOutputBand::BuildOverviews(
    const char *pszResampling, int nOverviews, const int *panOverviewList,
    GDALProgressFunc pfnProgress, void *pProgressData,
    CSLConstList papszOptions)
{
    if (!Owner()->Realise())
        return CE_Failure;
    return GDALProxyRasterBand::BuildOverviews(pszResampling, nOverviews,
                                               panOverviewList, pfnProgress,
                                               pProgressData, papszOptions);
}

// What is computed from pixels is computed from what was written.

CPLErr GPUGTiffOutputBand::ComputeRasterMinMax(int bApproxOK,
                                               double *padfMinMax)
{
    return GDALRasterBand::ComputeRasterMinMax(bApproxOK, padfMinMax);
}

CPLErr GPUGTiffOutputBand::GetStatistics(int bApproxOK, int bForce,
                                         double *pdfMin, double *pdfMax,
                                         double *pdfMean, double *pdfStdDev)
{
    return GDALRasterBand::GetStatistics(bApproxOK, bForce, pdfMin, pdfMax,
                                         pdfMean, pdfStdDev);
}

CPLErr GPUGTiffOutputBand::ComputeStatistics(
    int bApproxOK, double *pdfMin, double *pdfMax, double *pdfMean,
    double *pdfStdDev, GDALProgressFunc pfnProgress,
    void *pProgressData GPUGTIFF_STATISTICS_MORE_ARGS)
{
    return GDALRasterBand::ComputeStatistics(
        bApproxOK, pdfMin, pdfMax, pdfMean, pdfStdDev, pfnProgress,
        pProgressData GPUGTIFF_STATISTICS_MORE);
}

CPLErr GPUGTiffOutputBand::GetHistogram(double dfMin, double dfMax,
                                        int nBuckets, GUIntBig *panHistogram,
                                        int bIncludeOutOfRange, int bApproxOK,
                                        GDALProgressFunc pfnProgress,
                                        void *pProgressData)
{
    // GTiff remembers histograms (.aux.xml), and can be handed one of this kind
    // only.
    if (!bIncludeOutOfRange || bApproxOK)
        Owner()->Realise();
    if (Owner()->Output() == nullptr)
        return GDALProxyRasterBand::GetHistogram(
            dfMin, dfMax, nBuckets, panHistogram, bIncludeOutOfRange, bApproxOK,
            pfnProgress, pProgressData);
    const CPLErr eErr = GDALRasterBand::GetHistogram(
        dfMin, dfMax, nBuckets, panHistogram, bIncludeOutOfRange, bApproxOK,
        pfnProgress, pProgressData);
    if (eErr == CE_None)
        GDALProxyRasterBand::SetDefaultHistogram(dfMin, dfMax, nBuckets,
                                                 panHistogram);
    return eErr;
}

CPLErr GPUGTiffOutputBand::GetDefaultHistogram(
    double *pdfMin, double *pdfMax, int *pnBuckets, GUIntBig **ppanHistogram,
    int bForce, GDALProgressFunc pfnProgress, void *pProgressData)
{
    const CPLErr eSaved = GDALProxyRasterBand::GetDefaultHistogram(
        pdfMin, pdfMax, pnBuckets, ppanHistogram, FALSE, nullptr, nullptr);
    if (eSaved == CE_None || !bForce)
        return eSaved;
    return GDALRasterBand::GetDefaultHistogram(pdfMin, pdfMax, pnBuckets,
                                               ppanHistogram, bForce,
                                               pfnProgress, pProgressData);
}

CPLErr GPUGTiffOutputBand::AdviseRead(int, int, int, int, int, int,
                                      GDALDataType, AdviseOptions)
{
    return CE_None;
}

#if GPUGTIFF_GDAL(3, 10)

GDALRasterBlock *GPUGTiffOutputBand::GetLockedBlockRef(int nXBlockOff,
                                                       int nYBlockOff,
                                                       int bJustInitialize)
{
    return GDALRasterBand::GetLockedBlockRef(nXBlockOff, nYBlockOff,
                                             bJustInitialize);
}

GDALRasterBlock *GPUGTiffOutputBand::TryGetLockedBlockRef(int nXBlockOff,
                                                          int nYBlockOff)
{
    return GDALRasterBand::TryGetLockedBlockRef(nXBlockOff, nYBlockOff);
}

CPLErr GPUGTiffOutputBand::FlushBlock(int nXBlockOff, int nYBlockOff,
                                      int bWriteDirtyBlock)
{
    return GDALRasterBand::FlushBlock(nXBlockOff, nYBlockOff, bWriteDirtyBlock);
}

CPLErr GPUGTiffOutputBand::InterpolateAtPoint(
    double dfPixel, double dfLine, GDALRIOResampleAlg eInterpolation,
    double *pdfRealValue, double *pdfImagValue) const
{
    return GDALRasterBand::InterpolateAtPoint(
        dfPixel, dfLine, eInterpolation, pdfRealValue, pdfImagValue);
}

#endif
