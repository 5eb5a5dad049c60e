#include "dataset.h"

#include <algorithm>
#include <cstring>
#include <vector>
#include <unistd.h>

#include "band.h"

const gpugtiff::Api *g_poApi = nullptr;

bool GPUGTiffIsPlain(int nXOff, int nYOff, int nXSize, int nYSize,
                     int nBufXSize, int nBufYSize,
                     const GDALRasterIOExtraArg *psExtraArg)
{
    if (nBufXSize != nXSize || nBufYSize != nYSize)
        return false;
    return psExtraArg == nullptr ||
           !psExtraArg->bFloatingPointWindowValidity ||
           (psExtraArg->dfXOff == nXOff && psExtraArg->dfYOff == nYOff &&
            psExtraArg->dfXSize == nXSize && psExtraArg->dfYSize == nYSize);
}

bool GPUGTiffIsInOneBlock(GDALRasterBand *poBand, int nXOff, int nYOff,
                          int nXSize, int nYSize)
{
    int nBlockX = 0;
    int nBlockY = 0;
    poBand->GetBlockSize(&nBlockX, &nBlockY);
    return nXOff / nBlockX == (nXOff + nXSize - 1) / nBlockX &&
           nYOff / nBlockY == (nYOff + nYSize - 1) / nBlockY;
}

GPUGTiffDataset::GPUGTiffDataset(GDALDataset *poInner, FilePtr poFile,
                                 const std::string &osInnerName)
    : m_poInner(poInner), m_osInnerName(osInnerName),
      m_poOwnFile(std::move(poFile)), m_poFile(m_poOwnFile.get()),
      m_nPid(static_cast<int>(getpid()))
{
    eAccess = poInner->GetAccess();
    AddBands();
}

GPUGTiffDataset::GPUGTiffDataset(GDALDataset *poInner,
                                 GPUGTiffDataset *poParent,
                                 const std::string &osInnerName, int nOverview,
                                 int nBit)
    : m_poInner(poInner), m_poParent(poParent), m_nOverview(nOverview),
      m_nBit(nBit), m_osInnerName(osInnerName), m_poFile(poParent->m_poFile),
      m_nPid(static_cast<int>(getpid()))
{
    // An external overview or mask is another file.
    if (m_osInnerName != poParent->m_osInnerName)
    {
        m_poOwnFile.reset(
            g_poApi->file_beside(m_poFile, m_osInnerName.c_str()));
        m_poFile = m_poOwnFile.get();
    }
    SetDescription(poInner->GetDescription());
    eAccess = poInner->GetAccess();
    AddBands();
}

void GPUGTiffDataset::AddBands()
{
    nRasterXSize = m_poInner->GetRasterXSize();
    nRasterYSize = m_poInner->GetRasterYSize();
    for (int i = 1; i <= m_poInner->GetRasterCount(); ++i)
        SetBand(i, new GPUGTiffBand(this, i, m_poInner->GetRasterBand(i)));
}

GPUGTiffDataset::~GPUGTiffDataset()
{
    CloseInner();
}

CPLErr GPUGTiffDataset::CloseInner()
{
    if (m_poInner == nullptr)
        return CE_None;
    // Our blocks first: they point to bands that are about to go.
    for (int i = 0; i < nBands; ++i)
        papoBands[i]->GDALRasterBand::FlushCache(true);
    DropLevels();
    m_poImage.reset();
    if (m_poParent != nullptr)
        return CE_None;
    const char *pszSummary = "tiles decoded %s, from GTiff %s, engine %s";
    const CPLStringList aosCounters(CSLDuplicate(Counters()));
    CPLDebug("GPUGTIFF", pszSummary,
             aosCounters.FetchNameValueDef("TILES_DECODED", "0"),
             aosCounters.FetchNameValueDef("TILES_GTIFF", "0"),
             aosCounters.FetchNameValueDef("ENGINE", "?"));
    m_poThreaded.reset();
    GDALDataset *poInner = m_poInner;
    m_poInner = nullptr;
#if GPUGTIFF_GDAL(3, 7)
    return GDALClose(GDALDataset::ToHandle(poInner));
#else
    GDALClose(GDALDataset::ToHandle(poInner));
    return CE_None;
#endif
}

GDALRasterBand *GPUGTiffDataset::Wrap(GDALRasterBand *poInnerBand,
                                      GDALRasterBand *poFirst, int nOverview,
                                      int nBit)
{
    GDALDataset *poLevelInner = poInnerBand->GetDataset();
    if (dynamic_cast<GPUGTiffBand *>(poInnerBand) != nullptr ||
        poLevelInner == nullptr || poInnerBand->GetBand() < 1 ||
        poInnerBand->GetMetadataItem("IFD_OFFSET", "TIFF") == nullptr)
        return nullptr;
    auto &poLevel = m_oLevels[poLevelInner];
    if (!poLevel)
    {
        // Directories of the file itself have no name; nor have the further
        // levels of an external file, which is named at its first.
        std::string osName = poLevelInner->GetDescription();
        if (osName.empty() && poFirst != nullptr && poFirst->GetDataset())
            osName = poFirst->GetDataset()->GetDescription();
        if (osName.empty())
            osName = m_osInnerName;
        poLevel.reset(
            new GPUGTiffDataset(poLevelInner, this, osName, nOverview, nBit));
    }
    return poLevel->GetRasterBand(poInnerBand->GetBand());
}

void GPUGTiffDataset::DropLevels()
{
    m_oLevels.clear();
}

// Whether our engines decode this image. Looked at when pixels are first wanted,
// so that opening costs nothing more than GTiff's opening.
bool GPUGTiffDataset::DecodesHere()
{
    if (!m_bImageTried)
    {
        m_bImageTried = true;
        OpenImage();
    }
    return m_poImage != nullptr;
}

// Every request, in one thread.
void GPUGTiffDataset::LeaveToGTiff()
{
    m_poImage.reset();
    m_bImageTried = true;
    m_bThreadedTried = true;
}

GDALRasterBand *GPUGTiffDataset::BorrowedMask(int nBandIn)
{
    return oOvManager.HaveMaskFile() ? oOvManager.GetMaskBand(nBandIn)
                                     : nullptr;
}

bool GPUGTiffDataset::OpenImage()
{
    if (eAccess == GA_Update || nBands == 0 || m_poFile == nullptr)
        return false;
    // Ways of reading that users ask GTiff for by name.
    if (CPLTestBool(CPLGetConfigOption("GTIFF_DIRECT_IO", "NO")) ||
        !EQUAL(CPLGetConfigOption("GTIFF_VIRTUAL_MEM_IO", "NO"), "NO") ||
        CPLTestBool(
            CPLGetConfigOption("GTIFF_HAS_OPTIMIZED_READ_MULTI_RANGE", "NO")))
        return false;
    GDALRasterBand *poFirst = m_poInner->GetRasterBand(1);
    gpugtiff::ImageFacts sFacts = {};
    // Asked for an item GTiff first looks for georeferencing, in files beside this
    // one too. A file opened by its name needs no asking: it is the first.
    if (m_poParent != nullptr || STARTS_WITH_CI(m_osInnerName.c_str(), "GTIFF_DIR:"))
    {
        const char *pszOffset = poFirst->GetMetadataItem("IFD_OFFSET", "TIFF");
        if (pszOffset == nullptr)
            return false;
        sFacts.ifd_offset = std::strtoull(pszOffset, nullptr, 10);
    }
    // Present where GTiff converts (CMYK, CIELab) rather than show samples.
    sFacts.converted = m_poInner->GetMetadataItem("SOURCE_COLOR_SPACE",
                                                  "IMAGE_STRUCTURE") != nullptr;
    // A level's file is a conclusion (see Wrap): let GTiff confirm it.
    if (m_poParent != nullptr)
    {
        const char *pszFirst =
            poFirst->GetMetadataItem("BLOCK_OFFSET_0_0", "TIFF");
        sFacts.first_tile = pszFirst ? std::strtoull(pszFirst, nullptr, 10) : 0;
    }
    sFacts.width = nRasterXSize;
    sFacts.height = nRasterYSize;
    sFacts.bands = nBands;
    sFacts.kind = poFirst->GetRasterDataType();
    sFacts.sample_bytes = GDALGetDataTypeSizeBytes(poFirst->GetRasterDataType());
    poFirst->GetBlockSize(&sFacts.block_width, &sFacts.block_height);
    sFacts.bit = m_nBit;
    m_poImage.reset(g_poApi->image_open(m_poFile, &sFacts));
    return m_poImage != nullptr;
}

bool GPUGTiffDataset::HasThreadedCodec(int nBandCount, const int *panBandMap) const
{
    const char *pszCodec =
        m_poInner->GetMetadataItem("COMPRESSION", "IMAGE_STRUCTURE");
    if (pszCodec == nullptr)
        return false;
    if (strstr(pszCodec, "JPEG") == nullptr && !EQUAL(pszCodec, "WEBP") &&
        !EQUAL(pszCodec, "LZMA") && !EQUAL(pszCodec, "JXL") &&
        !STARTS_WITH_CI(pszCodec, "LERC"))
        return false;
    // With separate planes GTiff's threads put band n at place n, whatever place
    // it was asked for at (3.6).
    const char *pszInterleave =
        m_poInner->GetMetadataItem("INTERLEAVE", "IMAGE_STRUCTURE");
    if (nBandCount == 1 || (pszInterleave && EQUAL(pszInterleave, "PIXEL")))
        return true;
    for (int i = 0; i < nBandCount; ++i)
    {
        if (panBandMap[i] != i + 1)
            return false;
    }
    return true;
}

bool GPUGTiffDataset::InThreads(GDALRWFlag eRWFlag, int nXOff, int nYOff,
                                int nXSize, int nYSize, int nBufXSize,
                                int nBufYSize, int nBandCount,
                                const int *panBandMap,
                                const GDALRasterIOExtraArg *psExtraArg) const
{
    return eRWFlag == GF_Read && nBands > 0 &&
           GPUGTiffIsPlain(nXOff, nYOff, nXSize, nYSize, nBufXSize, nBufYSize,
                           psExtraArg) &&
           !GPUGTiffIsInOneBlock(papoBands[0], nXOff, nYOff, nXSize, nYSize) &&
           HasThreadedCodec(nBandCount, panBandMap);
}

// The same file opened by GTiff with NUM_THREADS, when it is first needed: GTiff
// starts its threads on opening, and they do not survive a fork.
GDALDataset *GPUGTiffDataset::ThreadedInner()
{
    if (eAccess == GA_Update || static_cast<int>(getpid()) != m_nPid)
        return nullptr;
    // GTiff said what it had to say when it first opened the file.
    CPLErrorStateBackuper oBackuper;
    CPLErrorHandlerPusher oQuiet(CPLQuietErrorHandler);
    if (m_poParent != nullptr)
    {
        GDALDataset *poParent = m_poParent->ThreadedInner();
        if (poParent == nullptr || poParent->GetRasterCount() == 0)
            return nullptr;
        GDALRasterBand *poFirst = poParent->GetRasterBand(1);
        GDALRasterBand *poLevel = m_nOverview >= 0
                                      ? poFirst->GetOverview(m_nOverview)
                                      : poFirst->GetMaskBand();
        return poLevel ? poLevel->GetDataset() : nullptr;
    }
    if (!m_bThreadedTried)
    {
        m_bThreadedTried = true;
        const int nThreads = g_poApi->file_threads(m_poFile);
        if (nThreads > 1)
        {
            GDALOpenInfo oOpenInfo(m_osInnerName.c_str(),
                                   GDAL_OF_RASTER | GDAL_OF_INTERNAL);
            oOpenInfo.papszOpenOptions = m_poInner->GetOpenOptions();
            m_poThreaded.reset(GPUGTiffOpenInner(&oOpenInfo, nThreads));
        }
    }
    return m_poThreaded.get();
}

void GPUGTiffDataset::DropThreaded()
{
    if (m_poParent != nullptr)
        return m_poParent->DropThreaded();
    m_poThreaded.reset();
}

void GPUGTiffDataset::CountPassed(bool bBlock) const
{
    if (m_poFile != nullptr)
        g_poApi->file_count_gtiff(m_poFile, bBlock ? 1 : 0);
}

// Requests.

bool GPUGTiffDataset::ReadWindow(int nXOff, int nYOff, int nXSize, int nYSize,
                                 void *pData, GDALDataType eBufType,
                                 int nBandCount, const int *panBandMap,
                                 GSpacing nPixelSpace, GSpacing nLineSpace,
                                 GSpacing nBandSpace,
                                 GDALRasterIOExtraArg *psExtraArg, CPLErr &eErr)
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
    return ReadWindow(sRequest, psExtraArg, eErr);
}

bool GPUGTiffDataset::ReadBlock(int nBandIn, int nBlockXOff, int nBlockYOff,
                                void *pImage, CPLErr &eErr)
{
    GDALRasterBand *poBand = papoBands[nBandIn - 1];
    int nBlockX = 0;
    int nBlockY = 0;
    poBand->GetBlockSize(&nBlockX, &nBlockY);
    const GDALDataType eType = poBand->GetRasterDataType();
    gpugtiff::Request sRequest = {};
    sRequest.x = nBlockXOff * nBlockX;
    sRequest.y = nBlockYOff * nBlockY;
    sRequest.width = std::min(nBlockX, nRasterXSize - sRequest.x);
    sRequest.height = std::min(nBlockY, nRasterYSize - sRequest.y);
    sRequest.bands = &nBandIn;
    sRequest.band_count = 1;
    sRequest.kind = eType;
    sRequest.data = pImage;
    sRequest.pixel_space = GDALGetDataTypeSizeBytes(eType);
    sRequest.line_space = sRequest.pixel_space * nBlockX;
    sRequest.whole_block = 1;
    // Rows below the image are zero, as in GTiff.
    if (sRequest.height < nBlockY)
        memset(static_cast<GByte *>(pImage) +
                   sRequest.line_space * sRequest.height,
               0, sRequest.line_space * (nBlockY - sRequest.height));
    return ReadWindow(sRequest, nullptr, eErr);
}

// What the callbacks need to know of the request they are called for.
struct GPUGTiffDataset::Call
{
    GPUGTiffDataset *poDS;
    const gpugtiff::Request *psRequest;
    GDALRasterIOExtraArg *psExtraArg;
};

bool GPUGTiffDataset::ReadWindow(gpugtiff::Request &sRequest,
                                 GDALRasterIOExtraArg *psExtraArg, CPLErr &eErr)
{
    Call sCall = {this, &sRequest, psExtraArg};
    sRequest.cache_max = GDALGetCacheMax64();
    sRequest.callbacks = {&sCall,       FindBlock,   MakeBlock,     ReleaseBlock,
                          FillSample,   RedoByGTiff, ReportProgress};
    const int nResult = g_poApi->image_read(m_poImage.get(), &sRequest);
    if (nResult == 2)
        m_poImage.reset();
    eErr = nResult == 0 ? CE_None : CE_Failure;
    return nResult != 2;
}

int GPUGTiffDataset::FindBlock(void *pCall, int nBandIn, int nColumn, int nRow,
                               gpugtiff::Block *psBlock)
{
    GDALRasterBand *poBand =
        static_cast<Call *>(pCall)->poDS->GetRasterBand(nBandIn);
    GDALRasterBlock *poBlock = poBand->TryGetLockedBlockRef(nColumn, nRow);
    if (poBlock == nullptr)
        return 0;
    *psBlock = {poBlock, poBlock->GetDataRef()};
    return 1;
}

int GPUGTiffDataset::MakeBlock(void *pCall, int nBandIn, int nColumn, int nRow,
                               gpugtiff::Block *psBlock)
{
    GDALRasterBand *poBand =
        static_cast<Call *>(pCall)->poDS->GetRasterBand(nBandIn);
    GDALRasterBlock *poBlock = poBand->GetLockedBlockRef(nColumn, nRow, TRUE);
    if (poBlock == nullptr)
        return 0;
    *psBlock = {poBlock, poBlock->GetDataRef()};
    return 1;
}

void GPUGTiffDataset::ReleaseBlock(void *, const gpugtiff::Block *psBlock,
                                   int bKeep)
{
    auto poBlock = static_cast<GDALRasterBlock *>(psBlock->handle);
    GDALRasterBand *poBand = poBlock->GetBand();
    const int nColumn = poBlock->GetXOff();
    const int nRow = poBlock->GetYOff();
    poBlock->DropLock();
    if (!bKeep)
        poBand->FlushBlock(nColumn, nRow, FALSE);
}

// The sample that stands for missing data, as GTiff's NullBlock() has it.
void GPUGTiffDataset::FillSample(void *pCall, int nBandIn, void *pSample)
{
    GDALRasterBand *poBand =
        static_cast<Call *>(pCall)->poDS->m_poInner->GetRasterBand(nBandIn);
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

// Messages held back until it is known what becomes of a tile.
struct HeldMessage
{
    CPLErr eClass;
    CPLErrorNum nNumber;
    std::string osText;
};

static void CPL_STDCALL HoldMessage(CPLErr eClass, CPLErrorNum nNumber,
                                    const char *pszText)
{
    auto paoHeld =
        static_cast<std::vector<HeldMessage> *>(CPLGetErrorHandlerUserData());
    paoHeld->push_back({eClass, nNumber, pszText});
}

int GPUGTiffDataset::RedoByGTiff(void *pCall, const gpugtiff::Redo *psRedo)
{
    const Call *psCall = static_cast<Call *>(pCall);
    const gpugtiff::Request &sRequest = *psCall->psRequest;
    GDALDataset *poInner = psCall->poDS->m_poInner;
    std::vector<HeldMessage> aoHeld;
    CPLPushErrorHandlerEx(HoldMessage, &aoHeld);
    // libtiff takes the first tile it decodes for the kind of all (old-style LZW):
    // that must not be a damaged one.
    if (!psCall->poDS->m_bInnerHasRead)
    {
        psCall->poDS->m_bInnerHasRead = true;
        GDALRasterBlock *poBlock =
            poInner->GetRasterBand(1)->GetLockedBlockRef(0, 0);
        if (poBlock != nullptr)
            poBlock->DropLock();
        aoHeld.clear();
    }
    CPLErr eErr;
    if (sRequest.whole_block)
    {
        GDALRasterBand *poBand = poInner->GetRasterBand(psRedo->bands[0]);
        int nBlockX = 0;
        int nBlockY = 0;
        poBand->GetBlockSize(&nBlockX, &nBlockY);
        eErr = poBand->ReadBlock(sRequest.x / nBlockX, sRequest.y / nBlockY,
                                 sRequest.data);
    }
    else
    {
        eErr = poInner->RasterIO(
            GF_Read, psRedo->x, psRedo->y, psRedo->width, psRedo->height,
            psRedo->data, psRedo->width, psRedo->height,
            static_cast<GDALDataType>(sRequest.kind), psRedo->band_count,
            const_cast<int *>(psRedo->bands), sRequest.pixel_space,
            sRequest.line_space, sRequest.band_space, nullptr);
    }
    CPLPopErrorHandler();
    // Where GTiff fails, its first reason goes into our message; where it reads
    // on, the user hears what GTiff has to say.
    if (eErr != CE_None)
    {
        snprintf(psRedo->message, psRedo->message_size, "%s",
                 aoHeld.empty() ? "" : aoHeld.front().osText.c_str());
        return 1;
    }
    for (const HeldMessage &sMessage : aoHeld)
        CPLError(sMessage.eClass, sMessage.nNumber, "%s",
                 sMessage.osText.c_str());
    return 0;
}

int GPUGTiffDataset::ReportProgress(void *pCall, double dfDone)
{
    const GDALRasterIOExtraArg *psExtraArg =
        static_cast<Call *>(pCall)->psExtraArg;
    if (psExtraArg == nullptr || psExtraArg->pfnProgress == nullptr)
        return 1;
    return psExtraArg->pfnProgress(dfDone, "", psExtraArg->pProgressData);
}

CPLErr GPUGTiffDataset::IRasterIO(GDALRWFlag eRWFlag, int nXOff, int nYOff,
                                  int nXSize, int nYSize, void *pData,
                                  int nBufXSize, int nBufYSize,
                                  GDALDataType eBufType, int nBandCount,
                                  BandMap panBandMap, GSpacing nPixelSpace,
                                  GSpacing nLineSpace, GSpacing nBandSpace,
                                  GDALRasterIOExtraArg *psExtraArg)
{
    if (eRWFlag != GF_Read || !DecodesHere())
    {
        const bool bInThreads =
            InThreads(eRWFlag, nXOff, nYOff, nXSize, nYSize, nBufXSize,
                      nBufYSize, nBandCount, panBandMap, psExtraArg);
        return Pass(bInThreads,
                    [=](GDALDataset *poInner)
                    {
                        return poInner->RasterIO(
                            eRWFlag, nXOff, nYOff, nXSize, nYSize, pData,
                            nBufXSize, nBufYSize, eBufType, nBandCount,
                            panBandMap, nPixelSpace, nLineSpace, nBandSpace,
                            psExtraArg);
                    });
    }
    // As GTiff: overviews first, for all bands at once.
    if (nBufXSize < nXSize && nBufYSize < nYSize)
    {
        int bTried = FALSE;
        const CPLErr eErr = TryOverviewRasterIO(
            eRWFlag, nXOff, nYOff, nXSize, nYSize, pData, nBufXSize, nBufYSize,
            eBufType, nBandCount, panBandMap, nPixelSpace, nLineSpace,
            nBandSpace, psExtraArg, &bTried);
        if (bTried)
            return eErr;
    }
    if (GPUGTiffIsPlain(nXOff, nYOff, nXSize, nYSize, nBufXSize, nBufYSize,
                        psExtraArg) &&
        !GPUGTiffIsInOneBlock(papoBands[0], nXOff, nYOff, nXSize, nYSize))
    {
        CPLErr eErr = CE_None;
        if (ReadWindow(nXOff, nYOff, nXSize, nYSize, pData, eBufType,
                       nBandCount, panBandMap, nPixelSpace, nLineSpace,
                       nBandSpace, psExtraArg, eErr))
            return eErr;
        return IRasterIO(eRWFlag, nXOff, nYOff, nXSize, nYSize, pData,
                         nBufXSize, nBufYSize, eBufType, nBandCount, panBandMap,
                         nPixelSpace, nLineSpace, nBandSpace, psExtraArg);
    }
    return GDALDataset::IRasterIO(eRWFlag, nXOff, nYOff, nXSize, nYSize, pData,
                                  nBufXSize, nBufYSize, eBufType, nBandCount,
                                  panBandMap, nPixelSpace, nLineSpace,
                                  nBandSpace, psExtraArg);
}

#if GPUGTIFF_GDAL(3, 10)
CPLErr GPUGTiffDataset::BlockBasedRasterIO(
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

CPLErr GPUGTiffDataset::AdviseRead(int nXOff, int nYOff, int nXSize, int nYSize,
                                   int nBufXSize, int nBufYSize,
                                   GDALDataType eDT, int nBandCount,
                                   int *panBandList, AdviseOptions papszOptions)
{
    if (DecodesHere())
        return CE_None;
    return GDALProxyDataset::AdviseRead(nXOff, nYOff, nXSize, nYSize, nBufXSize,
                                        nBufYSize, eDT, nBandCount, panBandList,
                                        papszOptions);
}

// Changes beside the pixels: the inner dataset makes them, wrappers are made anew.

CPLErr GPUGTiffDataset::IBuildOverviews(
    const char *pszResampling, int nOverviews, const int *panOverviewList,
    int nListBands, const int *panBandList, GDALProgressFunc pfnProgress,
    void *pProgressData, CSLConstList papszOptions)
{
    DropLevels();
    return GDALProxyDataset::IBuildOverviews(
        pszResampling, nOverviews, panOverviewList, nListBands, panBandList,
        pfnProgress, pProgressData, papszOptions);
}

CPLErr GPUGTiffDataset::CreateMaskBand(int nFlagsIn)
{
    DropLevels();
    return GDALProxyDataset::CreateMaskBand(nFlagsIn);
}

// Metadata.

static void AddCounter(void *pList, const char *pszName, const char *pszValue)
{
    static_cast<CPLStringList *>(pList)->SetNameValue(pszName, pszValue);
}

MetadataList GPUGTiffDataset::Counters()
{
    m_aosCounters.Clear();
    if (m_poFile != nullptr)
        g_poApi->file_describe(m_poFile, &m_aosCounters, AddCounter);
    return m_aosCounters.List();
}

MetadataList GPUGTiffDataset::GetMetadata(const char *pszDomain)
{
    if (pszDomain != nullptr && EQUAL(pszDomain, "GPUGTIFF"))
        return Counters();
    return GDALProxyDataset::GetMetadata(pszDomain);
}

const char *GPUGTiffDataset::GetMetadataItem(const char *pszName,
                                             const char *pszDomain)
{
    if (pszDomain != nullptr && EQUAL(pszDomain, "GPUGTIFF"))
        return CSLFetchNameValue(Counters(), pszName);
    return GDALProxyDataset::GetMetadataItem(pszName, pszDomain);
}

GDALDriver *GPUGTiffDataset::GetDriver() GPUGTIFF_DRIVER_CONST
{
    return m_poParent ? m_poInner->GetDriver() : poDriver;
}

int GPUGTiffDataset::TestCapability(const char *pszCap) GPUGTIFF_CAPABILITY_CONST
{
    return m_poInner->TestCapability(pszCap);
}

bool GPUGTiffDataset::GetRawBinaryLayout(RawBinaryLayout &sLayout)
{
    return m_poInner->GetRawBinaryLayout(sLayout);
}

void GPUGTiffDataset::ClearStatistics()
{
    m_poInner->ClearStatistics();
}

// The end.

FlushResult GPUGTiffDataset::FlushCache(bool bAtClosing)
{
    if (m_poInner != nullptr)
        return GDALProxyDataset::FlushCache(bAtClosing);
#if GPUGTIFF_GDAL(3, 7)
    return CE_None;
#endif
}

int GPUGTiffDataset::CloseDependentDatasets()
{
    int bDropped = GDALProxyDataset::CloseDependentDatasets();
    if (!m_oLevels.empty())
    {
        DropLevels();
        bDropped = TRUE;
    }
    return bDropped;
}

#if GPUGTIFF_GDAL(3, 13)
CPLErr GPUGTiffDataset::Close(GDALProgressFunc pfnProgress, void *pProgressData)
{
    const CPLErr eErr = CloseInner();
    const CPLErr eBase = GDALDataset::Close(pfnProgress, pProgressData);
    return eErr == CE_None ? eBase : eErr;
}

bool GPUGTiffDataset::GetCloseReportsProgress() const
{
    return false;
}
#elif GPUGTIFF_GDAL(3, 7)
CPLErr GPUGTiffDataset::Close()
{
    const CPLErr eErr = CloseInner();
    const CPLErr eBase = GDALDataset::Close();
    return eErr == CE_None ? eBase : eErr;
}
#endif
