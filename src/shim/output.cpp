#include "output.h"

#include "guard.h"
#include "messages.h"

#include <algorithm>
#include <cstring>
#include <unistd.h>
#include <vector>

GPUGTiffOutput::GPUGTiffOutput(std::unique_ptr<GPUGTiffHollow> poHollow,
                               GDALDataset *poInner,
                               GPUGTiffDataset::FilePtr poFile,
                               GPUGTiffOutputPtr poOutput, int nRows,
                               bool bSparse)
    : m_poHollow(std::move(poHollow)), m_poInner(poInner),
      m_poFile(std::move(poFile)), m_poOutput(std::move(poOutput)),
      m_bSparse(bSparse), m_nPid(static_cast<int>(getpid()))
{
    eAccess = GA_Update;
    nRasterXSize = poInner->GetRasterXSize();
    nRasterYSize = nRows;
    for (int i = 1; i <= poInner->GetRasterCount(); ++i)
        SetBand(i, new GPUGTiffOutputBand(this, i, 0, nRows));
    UpdateFill(1);
}

GPUGTiffOutput::~GPUGTiffOutput()
{
    GPUGTiffGuard(CE_Failure, [this] { return CloseInner(); });
}

// What stands where nothing was written is GTiff's nodata value. A file has one: that
// of the band where it was last set or deleted.
void GPUGTiffOutput::UpdateFill(int nBandIn)
{
    if (!m_poOutput)
        return;
    GByte abySample[16] = {};
    GPUGTiffFillSample(m_poInner->GetRasterBand(nBandIn), abySample);
    g_poApi->output_set_fill(m_poOutput.get(), abySample);
}

// GTiff writes the tags when the first pixel comes, and again only what changes
// afterwards. The hollow dataset is asked for a block that it does not have, for the
// same: with one written, libtiff would refuse changes of some tags.
bool GPUGTiffOutput::SettleTags()
{
    if (m_bSettled)
        return true;
    GDALRasterBand *poFirst = m_poInner->GetRasterBand(1);
    int nBlockX = 0;
    int nBlockY = 0;
    poFirst->GetBlockSize(&nBlockX, &nBlockY);
    const GDALDataType eType = poFirst->GetRasterDataType();
    auto pabyBlock = static_cast<GByte *>(VSI_MALLOC3_VERBOSE(
        nBlockX, nBlockY, GDALGetDataTypeSizeBytes(eType)));
    if (pabyBlock == nullptr)
        return false;
    m_bSettled = true;
    CPL_IGNORE_RET_VAL(poFirst->ReadBlock(0, 0, pabyBlock));
    VSIFree(pabyBlock);
    // The same tags are looked at by codecs.
    return g_poApi->output_settle(m_poOutput.get(),
                                  m_poHollow->Name().c_str()) == 0;
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

// A mask in a .msk is GDAL's own dataset. It is written before the header is: where
// a file opens, what belongs beside it is whole. While the file is being written
// callers hold its band, so it is closed only with the file.
bool GPUGTiffOutput::WriteMaskBeside(bool bClose)
{
    if (!oOvManager.IsInitialized() || !oOvManager.HaveMaskFile())
        return true;
    // What goes wrong is told by messages only.
    GPUGTiffMessages oMessages;
    GDALRasterBand *poMask = oOvManager.GetMaskBand(1);
    if (bClose)
        oOvManager.CloseDependentDatasets();
    else if (poMask != nullptr && poMask->GetDataset() != nullptr)
    {
        // Twice: at the first GTiff writes the directory before it knows where the
        // tiles are.
        poMask->GetDataset()->FlushCache(false);
        poMask->GetDataset()->FlushCache(false);
    }
    const bool bWritten = !oMessages.HasFailure();
    oMessages.Raise();
    return bWritten;
}

// The end of writing: the hollow dataset is closed, so that GTiff says its last
// word on the tags, and the file gets them.
CPLErr GPUGTiffOutput::Finish(bool bClosing)
{
    CPLErr eErr = FlushBands();
    const bool bMask = WriteMaskBeside(bClosing);
    GDALDataset *poInner = m_poInner;
    m_poInner = nullptr;
    GDALClose(GDALDataset::ToHandle(poInner));
    // The header is last: where a file opens, what belongs beside it is there. It
    // does not open without its mask.
    if (!m_poHollow->MoveSidecars())
        eErr = CE_Failure;
    const char *pszHollow = m_poHollow->Name().c_str();
    if (!bMask ||
        g_poApi->output_finish(m_poOutput.get(), pszHollow) != 0)
        eErr = CE_Failure;
    m_poOutput.reset();
    m_poHollow.reset();
    return eErr;
}

// The file is removed, and what GTiff would have put beside it is never put there.
void GPUGTiffOutput::Discard()
{
    if (!m_poOutput)
        return;
    GDALDataset *poInner = m_poInner;
    m_poInner = nullptr;
    GDALClose(GDALDataset::ToHandle(poInner));
    g_poApi->output_free(m_poOutput.release(), true);
    m_poHollow.reset();
}

bool GPUGTiffOutput::Realise()
{
    if (!m_poOutput)
        return m_poInner != nullptr;
    if (Finish(false) != CE_None)
        return false;
    GDALOpenInfo oOpenInfo(GetDescription(), GDAL_OF_RASTER | GDAL_OF_UPDATE);
    CPLStringList aosOptions;
    if (m_bSparse)
        aosOptions.SetNameValue("SPARSE_OK", "YES");
    oOpenInfo.papszOpenOptions = aosOptions.List();
    m_poInner = GPUGTiffOpenInner(&oOpenInfo);
    if (m_poInner == nullptr)
        CPLError(CE_Failure, CPLE_OpenFailed,
                 "%s was written but cannot be opened again", GetDescription());
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
        eErr = Finish(true);
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

CPLErr GPUGTiffOutput::Flush(bool bAtClosing)
{
    const CPLErr eErr = FlushBands();
    if (m_poInner == nullptr || (m_poOutput && bAtClosing))
        return eErr;
    // Readers find the tags as they are now, and everything beside the file.
    m_poInner->FlushCache(bAtClosing);
    if (!m_poOutput)
        return eErr;
    // The header is last here as well.
    const char *pszHollow = m_poHollow->Name().c_str();
    const bool bWritten =
        WriteMaskBeside(false) && m_poHollow->MoveSidecars() &&
        g_poApi->output_flush(m_poOutput.get(), pszHollow) == 0;
    return bWritten ? eErr : CE_Failure;
}

FlushResult GPUGTiffOutput::FlushCache(bool bAtClosing)
{
    const CPLErr eErr =
        GPUGTiffGuard(CE_Failure, [this, bAtClosing] { return Flush(bAtClosing); });
#if GPUGTIFF_GDAL(3, 7)
    return eErr;
#else
    CPL_IGNORE_RET_VAL(eErr);
#endif
}

#if GPUGTIFF_GDAL(3, 13)
CPLErr GPUGTiffOutput::Close(GDALProgressFunc pfnProgress, void *pProgressData)
{
    const CPLErr eErr =
        GPUGTiffGuard(CE_Failure, [this] { return CloseInner(); });
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
    const CPLErr eErr =
        GPUGTiffGuard(CE_Failure, [this] { return CloseInner(); });
    const CPLErr eBase = GDALDataset::Close();
    return eErr == CE_None ? eBase : eErr;
}
#endif

// Pixels.

CPLErr GPUGTiffOutput::Write(int nImage, gpugtiff::Request &sRequest)
{
    if (!SettleTags())
        return CE_Failure;
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
try
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
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
}

#if GPUGTIFF_GDAL(3, 10)
CPLErr GPUGTiffOutput::BlockBasedRasterIO(
    GDALRWFlag eRWFlag, int nXOff, int nYOff, int nXSize, int nYSize,
    void *pData, int nBufXSize, int nBufYSize, GDALDataType eBufType,
    int nBandCount, const int *panBandMap, GSpacing nPixelSpace,
    GSpacing nLineSpace, GSpacing nBandSpace, GDALRasterIOExtraArg *psExtraArg)
try
{
    return GDALDataset::BlockBasedRasterIO(
        eRWFlag, nXOff, nYOff, nXSize, nYSize, pData, nBufXSize, nBufYSize,
        eBufType, nBandCount, panBandMap, nPixelSpace, nLineSpace, nBandSpace,
        psExtraArg);
}
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
}
#endif

// What the hollow dataset can't do.

CPLErr GPUGTiffOutput::IBuildOverviews(
    const char *pszResampling, int nOverviews, const int *panOverviewList,
    int nListBands, const int *panBandList, GDALProgressFunc pfnProgress,
    void *pProgressData, CSLConstList papszOptions)
try
{
    if (!Realise())
        return CE_Failure;
    return GDALProxyDataset::IBuildOverviews(
        pszResampling, nOverviews, panOverviewList, nListBands, panBandList,
        pfnProgress, pProgressData, papszOptions);
}
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
}

CPLErr GPUGTiffOutput::AdviseRead(int nXOff, int nYOff, int nXSize, int nYSize,
                                  int nBufXSize, int nBufYSize,
                                  GDALDataType eDT, int nBandCount,
                                  int *panBandList, AdviseOptions papszOptions)
{
    if (m_poOutput)
        return CE_None;
    return GDALProxyDataset::AdviseRead(nXOff, nYOff, nXSize, nYSize, nBufXSize,
                                        nBufYSize, eDT, nBandCount, panBandList,
                                        papszOptions);
}

bool GPUGTiffOutput::MakesMasksInside()
{
    if (CPLTestBool(CPLGetConfigOption("GDAL_TIFF_INTERNAL_MASK",
                                       GPUGTIFF_INTERNAL_MASK_DEFAULT)))
        return true;
    if (!oOvManager.IsInitialized())
        oOvManager.Initialize(this, GetDescription());
    return false;
}

CPLErr GPUGTiffOutput::CreateMaskBand(int nFlagsIn)
try
{
    if (!m_poOutput)
        return GDALProxyDataset::CreateMaskBand(nFlagsIn);
    if (!MakesMasksInside())
        return GDALDataset::CreateMaskBand(nFlagsIn);
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
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
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
    if (pszHandle != nullptr && GPUGTiffHandleName() == pszHandle)
        return static_cast<GDALDataset *>(this);
    return m_poOutput ? nullptr : GDALProxyDataset::GetInternalHandle(pszHandle);
}

// What the proxy does not forward, or not as it should be.

MetadataList GPUGTiffOutput::Counters()
{
    m_aosCounters.Clear();
    g_poApi->file_describe(m_poFile.get(), &m_aosCounters, GPUGTiffAddPair);
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
