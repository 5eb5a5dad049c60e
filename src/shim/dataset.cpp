#include "dataset.h"

#include <cstring>

#include "band.h"
#include "guard.h"

const gpugtiff::Api *g_poApi = nullptr;

// GTiff's own name for what it has no codec for.
static constexpr const char *COMPRESSION_OF_OURS = "JP2000";

GPUGTiffDataset::GPUGTiffDataset(GDALDataset *poInner, FilePtr poFile,
                                 const std::string &osInnerName)
    : m_poInner(poInner), m_osInnerName(osInnerName),
      m_poOwnFile(std::move(poFile)), m_poFile(m_poOwnFile.get())
{
    eAccess = poInner->GetAccess();
    AddBands();
}

GPUGTiffDataset::GPUGTiffDataset(GDALDataset *poInner,
                                 GPUGTiffDataset *poParent,
                                 const std::string &osInnerName, int nOverview,
                                 int nBit)
    : m_poInner(poInner), m_poParent(poParent), m_nOverview(nOverview),
      m_nBit(nBit), m_osInnerName(osInnerName), m_poFile(poParent->m_poFile)
{
    // An external overview or mask is another file.
    if (m_osInnerName != poParent->m_osInnerName)
    {
        m_poOwnFile.reset(
            g_poApi->file_beside(m_poFile, m_osInnerName.c_str()));
        m_poFile = m_poOwnFile.get();
    }
    else
    {
        m_bOverlaid = poParent->m_bOverlaid;
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
    GPUGTiffGuard(CE_Failure, [this] { return CloseInner(); });
}

CPLErr GPUGTiffDataset::CloseInner()
{
    if (m_poInner == nullptr)
        return CE_None;
    // Our blocks first: they point to bands that are about to go.
    for (int i = 0; i < nBands; ++i)
        papoBands[i]->GDALRasterBand::FlushCache(true);
    DropLevels(true);
    m_poImage.reset();
    if (m_poParent != nullptr)
        return CE_None;
    GDALDataset *poInner = m_poInner;
    m_poInner = nullptr;
    CPLErr eErr = CE_None;
#if GPUGTIFF_GDAL(3, 7)
    eErr = GDALClose(GDALDataset::ToHandle(poInner));
#else
    GDALClose(GDALDataset::ToHandle(poInner));
#endif
    VSIStatBufL sStat;
    // It may have been removed in the meantime.
    if (m_nCheckFrom >= 0 &&
        VSIStatExL(m_osInnerName.c_str(), &sStat, VSI_STAT_EXISTS_FLAG) == 0 &&
        g_poApi->written_check(m_osInnerName.c_str(), m_osInnerName.c_str(),
                               m_nCheckFrom, m_bSparse ? 0 : 1) != 0)
        eErr = CE_Failure;
    return eErr;
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

// Before levels change: GTiff opens other files anew, and removes its own only if
// all go. The rest are kept, since callers hold their bands.
void GPUGTiffDataset::DropLevels(bool bAll)
{
    for (auto oIter = m_oLevels.begin(); oIter != m_oLevels.end();)
    {
        if (bAll || oIter->second->m_osInnerName != m_osInnerName)
            oIter = m_oLevels.erase(oIter);
        else
            ++oIter;
    }
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

CPLErr GPUGTiffDataset::Refuse(const char *pszWhat) const
{
    g_poApi->file_refuse(m_poFile, m_nDirectory, pszWhat);
    return CE_Failure;
}

// Every request.
void GPUGTiffDataset::LeaveToGTiff()
{
    m_poImage.reset();
    m_bImageTried = true;
}

GDALRasterBand *GPUGTiffDataset::BorrowedMask(int nBandIn)
{
    return oOvManager.HaveMaskFile() ? oOvManager.GetMaskBand(nBandIn)
                                     : nullptr;
}

// A level in the same file as its parent, where every look costs a request: GTiff
// says of a file that is laid out as a COG that its levels are inside.
bool GPUGTiffDataset::IsInRemoteCOG() const
{
    const GPUGTiffDataset *poRoot = this;
    for (; poRoot->m_poParent != nullptr; poRoot = poRoot->m_poParent)
    {
        if (poRoot->m_osInnerName != poRoot->m_poParent->m_osInnerName)
            return false;
    }
    const char *pszLayout =
        poRoot->m_poInner->GetMetadataItem("LAYOUT", "IMAGE_STRUCTURE");
    return pszLayout != nullptr && EQUAL(pszLayout, "COG") &&
           VSIHasOptimizedReadMultiRange(m_osInnerName.c_str());
}

// A block of the mask of an image that GTiff reads: from afar it reads both.
GDALRasterBlock *GPUGTiffDataset::HeldByGTiff(int nBandIn, int nColumn,
                                              int nRow) const
{
    return m_bReadByGTiffToo
               ? m_poInner->GetRasterBand(nBandIn)->TryGetLockedBlockRef(nColumn,
                                                                         nRow)
               : nullptr;
}

bool GPUGTiffDataset::OpenImage()
{
    if (eAccess == GA_Update || nBands == 0 || m_poFile == nullptr)
        return false;
    GDALRasterBand *poFirst = m_poInner->GetRasterBand(1);
    gpugtiff::ImageFacts sFacts = {};
    // Asked for an item GTiff first looks for georeferencing, in files beside this
    // one too. A file opened by its name needs no asking: it is the first.
    if (m_poParent != nullptr ||
        STARTS_WITH_CI(m_osInnerName.c_str(), "GTIFF_DIR:") ||
        STARTS_WITH_CI(m_osInnerName.c_str(), "GTIFF_RAW:GTIFF_DIR:"))
    {
        const char *pszOffset = poFirst->GetMetadataItem("IFD_OFFSET", "TIFF");
        if (pszOffset == nullptr)
            return false;
        sFacts.ifd_offset = std::strtoull(pszOffset, nullptr, 10);
    }
    m_nDirectory = sFacts.ifd_offset;
    m_bOursAlone =
        m_bOverlaid && g_poApi->file_is_overlaid(m_poFile, sFacts.ifd_offset);
    // Ways of reading that users ask GTiff for by name.
    if (!m_bOursAlone &&
        (CPLTestBool(CPLGetConfigOption("GTIFF_DIRECT_IO", "NO")) ||
         !EQUAL(CPLGetConfigOption("GTIFF_VIRTUAL_MEM_IO", "NO"), "NO") ||
         CPLTestBool(
             CPLGetConfigOption("GTIFF_HAS_OPTIMIZED_READ_MULTI_RANGE", "NO"))))
        return false;
    // Present where GTiff converts (CMYK, CIELab) rather than show samples.
    sFacts.converted = m_poInner->GetMetadataItem("SOURCE_COLOR_SPACE",
                                                  "IMAGE_STRUCTURE") != nullptr;
    const bool bInRemoteCOG = m_poParent != nullptr && IsInRemoteCOG();
    m_bReadByGTiffToo = bInRemoteCOG && m_nBit > 0 && !m_poParent->DecodesHere();
    sFacts.width = nRasterXSize;
    sFacts.height = nRasterYSize;
    sFacts.bands = nBands;
    sFacts.kind = poFirst->GetRasterDataType();
    sFacts.sample_bytes = GDALGetDataTypeSizeBytes(poFirst->GetRasterDataType());
    poFirst->GetBlockSize(&sFacts.block_width, &sFacts.block_height);
    sFacts.bit = m_nBit;
    m_poImage.reset(g_poApi->image_open(m_poFile, &sFacts));
    if (!m_poImage || m_poParent == nullptr || bInRemoteCOG)
        return m_poImage != nullptr;
    // A level's file is a conclusion (see Wrap): let GTiff confirm it. Not before the
    // arrays were read: of one that cannot be, GTiff says so only once.
    const char *pszFirst = poFirst->GetMetadataItem("BLOCK_OFFSET_0_0", "TIFF");
    sFacts.first_tile = pszFirst ? std::strtoull(pszFirst, nullptr, 10) : 0;
    m_poImage.reset(g_poApi->image_open(m_poFile, &sFacts));
    return m_poImage != nullptr;
}

// GTiff shows smaller versions of JPEG images that are no overviews of the file, and
// chooses among them by the whole request.
bool GPUGTiffDataset::Serves(GDALRWFlag eRWFlag, bool bPlain)
{
    return eRWFlag == GF_Read && DecodesHere() &&
           (bPlain || !g_poApi->image_leaves_resampling(m_poImage.get()));
}

void GPUGTiffDataset::CountPassed(bool bBlock) const
{
    if (m_poFile != nullptr)
        g_poApi->file_count_gtiff(m_poFile, bBlock ? 1 : 0);
}

// Changes beside the pixels: the inner dataset makes them, wrappers are made anew.

CPLErr GPUGTiffDataset::IBuildOverviews(
    const char *pszResampling, int nOverviews, const int *panOverviewList,
    int nListBands, const int *panBandList, GDALProgressFunc pfnProgress,
    void *pProgressData, CSLConstList papszOptions)
try
{
    // GTiff would have to read the pixels.
    if (nOverviews > 0 && IsOursAlone())
        return Refuse("building overviews");
    DropLevels(nOverviews == 0);
    return GDALProxyDataset::IBuildOverviews(
        pszResampling, nOverviews, panOverviewList, nListBands, panBandList,
        pfnProgress, pProgressData, papszOptions);
}
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
}

CPLErr GPUGTiffDataset::CreateMaskBand(int nFlagsIn)
try
{
    DropLevels(false);
    return GDALProxyDataset::CreateMaskBand(nFlagsIn);
}
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
}

// Metadata.

void GPUGTiffAddPair(void *pList, const char *pszName, const char *pszValue)
{
    static_cast<CPLStringList *>(pList)->SetNameValue(pszName, pszValue);
}

MetadataList GPUGTiffDataset::Counters()
{
    m_aosCounters.Clear();
    if (m_poFile != nullptr)
        g_poApi->file_describe(m_poFile, &m_aosCounters, GPUGTiffAddPair);
    return m_aosCounters.List();
}

MetadataList GPUGTiffDataset::GetMetadata(const char *pszDomain)
{
    if (pszDomain != nullptr && EQUAL(pszDomain, "GPUGTIFF"))
        return Counters();
    if (pszDomain != nullptr && EQUAL(pszDomain, "IMAGE_STRUCTURE") &&
        IsOursAlone())
    {
        m_aosStructure =
            CSLDuplicate(const_cast<char **>(m_poInner->GetMetadata(pszDomain)));
        m_aosStructure.SetNameValue("COMPRESSION", COMPRESSION_OF_OURS);
        return m_aosStructure.List();
    }
    return GDALProxyDataset::GetMetadata(pszDomain);
}

const char *GPUGTiffDataset::GetMetadataItem(const char *pszName,
                                             const char *pszDomain)
{
    if (pszDomain != nullptr && EQUAL(pszDomain, "GPUGTIFF"))
        return CSLFetchNameValue(Counters(), pszName);
    if (pszDomain != nullptr && EQUAL(pszDomain, "IMAGE_STRUCTURE") &&
        EQUAL(pszName, "COMPRESSION") && IsOursAlone())
        return COMPRESSION_OF_OURS;
    return GDALProxyDataset::GetMetadataItem(pszName, pszDomain);
}

std::string GPUGTiffHandleName()
{
    return CPLSPrintf("GPUGTIFF:%p", static_cast<const void *>(g_poApi));
}

void *GPUGTiffDataset::GetInternalHandle(const char *pszHandle)
{
    if (pszHandle != nullptr && GPUGTiffHandleName() == pszHandle)
        return static_cast<GDALDataset *>(this);
    return GDALProxyDataset::GetInternalHandle(pszHandle);
}

void GPUGTiffDataset::SetOpened(GDALDriver *poDriverIn,
                                const GDALOpenInfo &oOpenInfo)
{
    poDriver = poDriverIn;
    nOpenFlags = oOpenInfo.nOpenFlags;
    CSLDestroy(papszOpenOptions);
    papszOpenOptions =
        CSLDuplicate(const_cast<char **>(oOpenInfo.papszOpenOptions));
}

void GPUGTiffDataset::SetClaimed()
{
    m_bClaimed = true;
    poDriver = GetGDALDriverManager()->GetDriverByName("GTiff");
}

// GDALOpenEx() sets poDriver to the driver that opened the file, in some cases even
// if it has a value; what is asked of a claimed dataset is GTiff's.
GDALDriver *GPUGTiffDataset::GetDriver() GPUGTIFF_DRIVER_CONST
{
    if (m_bClaimed)
        return GetGDALDriverManager()->GetDriverByName("GTiff");
    return m_poParent ? m_poInner->GetDriver() : poDriver;
}

#if GPUGTIFF_GDAL(3, 10)
// For each thread of a thread-safe dataset. The base class would have the driver
// open the file that the dataset says it is of.
std::unique_ptr<GDALDataset> GPUGTiffDataset::Clone(int nScopeFlags, bool) const
{
    CPLStringList aosOptions(CSLDuplicate(papszOpenOptions));
    GDALOpenInfo oOpenInfo(GetDescription(), nScopeFlags | GDAL_OF_INTERNAL |
                                                 GDAL_OF_VERBOSE_ERROR);
    oOpenInfo.papszOpenOptions = aosOptions.List();
    std::unique_ptr<GDALDataset> poClone(GPUGTiffOpenByUs(&oOpenInfo));
    if (!poClone)
        return nullptr;
    auto poOurs = cpl::down_cast<GPUGTiffDataset *>(poClone.get());
    poOurs->SetOpened(poDriver, oOpenInfo);
    poOurs->m_bClaimed = m_bClaimed;
    return poClone;
}
#endif

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
        DropLevels(true);
        bDropped = TRUE;
    }
    return bDropped;
}

#if GPUGTIFF_GDAL(3, 13)
CPLErr GPUGTiffDataset::Close(GDALProgressFunc pfnProgress, void *pProgressData)
{
    const CPLErr eErr =
        GPUGTiffGuard(CE_Failure, [this] { return CloseInner(); });
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
    const CPLErr eErr =
        GPUGTiffGuard(CE_Failure, [this] { return CloseInner(); });
    const CPLErr eBase = GDALDataset::Close();
    return eErr == CE_None ? eBase : eErr;
}
#endif
