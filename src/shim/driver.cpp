// The driver: what GDAL is told, what is opened, and the GTiff driver underneath.

#include <atomic>
#include <cstring>
#include <mutex>
#include <string>

#include "claim.h"
#include "create.h"
#include "dataset.h"
#include "gdal_frmts.h"
#include "guard.h"
#include "messages.h"
#include "overlay.h"

namespace
{
constexpr const char *HELP = "https://github.com/gpugtiff/gpugtiff#readme";

// GTiff as GDAL made it. Kept for the life of the process if it is ours alone, so
// that nothing depends on what is registered under the name GTiff.
struct KeptGTiff
{
    GDALDriver *poDriver = nullptr;
    bool bBorrowed = false;
};

KeptGTiff g_sKept;

// A driver whose lists of options are made when they are first asked for: GTiff's
// own are parsed for them, which was a third of what registration took.
class ListedDriver : public GDALDriver
{
  public:
    // bDefaults: ours where they are not GTiff's.
    explicit ListedDriver(bool bDefaults) : m_bDefaults(bDefaults)
    {
    }

    const char *GetMetadataItem(const char *pszName,
                                const char *pszDomain = "") override;
    MetadataList GetMetadata(const char *pszDomain = "") override;

    // To be called once the driver is registered: GDAL looks there whether there
    // are open options, and not what they are.
    void ShowLists()
    {
        m_bShown = true;
    }

  private:
    const std::string *List(const char *pszName);

    const bool m_bDefaults;
    std::atomic<bool> m_bShown{false};
    // Any thread may ask.
    std::mutex m_oMutex{};
    std::string m_osOpen{};
    std::string m_osCreation{};
    CPLStringList m_aosAll{};
    int m_nOthers = -1;

    CPL_DISALLOW_COPY_ASSIGN(ListedDriver)
};

class GPUGTiffDriver final : public ListedDriver
{
  public:
    GPUGTiffDriver() : ListedDriver(true)
    {
    }

    ~GPUGTiffDriver() override;
};

// The driver of this copy of the library. Not registered where another copy has
// the name.
GPUGTiffDriver *g_poOurs = nullptr;

GPUGTiffDriver::~GPUGTiffDriver()
{
    if (g_poOurs == this)
        g_poOurs = nullptr;
    // A borrowed driver dies with the manager that is destroying us.
    if (g_sKept.bBorrowed)
        g_sKept = KeptGTiff();
}

void KeepGTiff()
{
    GDALDriverManager *poManager = GetGDALDriverManager();
    // Unregistered, we do not hear of the manager's end.
    if (g_sKept.bBorrowed &&
        poManager->GetDriverByName("GTiff") != g_sKept.poDriver)
        g_sKept = KeptGTiff();
    if (g_sKept.poDriver != nullptr)
        return;
    g_sKept.poDriver = poManager->GetDriverByName("GTiff");
    g_sKept.bBorrowed = g_sKept.poDriver != nullptr;
    if (g_sKept.bBorrowed)
        return;
    // Built-in drivers are registered after plugins: this one is ours alone.
    GDALRegister_GTiff();
    g_sKept.poDriver = poManager->GetDriverByName("GTiff");
    if (g_sKept.poDriver != nullptr)
        poManager->DeregisterDriver(g_sKept.poDriver);
}

// A file that is claimed is GTiff's when GDAL asks whose it is, and is opened by us
// all the same: GDALOpen() tries a driver that does not know.
int Identify(GDALOpenInfo *poOpenInfo)
{
    constexpr int UNKNOWN = -1;
    if (GPUGTiffHasPrefix(poOpenInfo))
        return TRUE;
    const GPUGTiffReason eReason = GPUGTiffReasonFor(poOpenInfo);
    if (eReason == GPUGTiffReason::NONE)
        return FALSE;
    const int nAnswer = g_sKept.poDriver->pfnIdentify(poOpenInfo);
    return nAnswer && eReason == GPUGTiffReason::CLAIMED ? UNKNOWN : nAnswer;
}

// Whether GTiff will read the file from front to back, as it does with a pipe. Its
// bytes can then be had once only.
bool IsStream(const GDALOpenInfo *poOpenInfo)
{
    const char *pszStreaming =
        CPLGetConfigOption("TIFF_READ_STREAMING", nullptr);
    if (poOpenInfo->fpL == nullptr ||
        (pszStreaming != nullptr && !CPLTestBool(pszStreaming)))
        return false;
    return pszStreaming != nullptr ||
           EQUAL(poOpenInfo->pszFilename, "/vsistdin/") ||
           // GDAL goes back to the start of whatever it can go back in.
           VSIFTellL(poOpenInfo->fpL) != 0;
}

// Whether GDAL finds all open options in our list. It warns of others, in our name.
bool KnowsOptions(const GDALOpenInfo *poOpenInfo)
{
    const char *pszList =
        g_poOurs ? g_poOurs->GetMetadataItem(GDAL_DMD_OPENOPTIONLIST) : nullptr;
    const CPLString osList = CPLString(pszList ? pszList : "").toupper();
    for (int i = 0; i < CSLCount(poOpenInfo->papszOpenOptions); ++i)
    {
        const char *pszOption = poOpenInfo->papszOpenOptions[i];
        const CPLString osName =
            CPLString(std::string(pszOption, strcspn(pszOption, "="))).toupper();
        if (osList.find("NAME='" + osName + "'") == std::string::npos &&
            osList.find("NAME=\"" + osName + "\"") == std::string::npos)
            return false;
    }
    return true;
}

// The inner dataset: GTiff's, or GTiff's of the overlay. A claim opens nothing that
// GTiff does not.
GDALDataset *OpenEither(GDALOpenInfo *poOpenInfo, gpugtiff::File *psFile,
                        bool bClaimed, bool &bOverlaid)
{
    if (poOpenInfo->eAccess == GA_Update || IsStream(poOpenInfo))
        return GPUGTiffOpenInner(poOpenInfo);
    GPUGTiffMessages oMessages;
    CPLSetCurrentErrorHandlerCatchDebug(FALSE);
    GDALDataset *poInner = nullptr;
    {
        // What is raised below makes the state.
        CPLErrorStateBackuper oBackuper;
        poInner = GPUGTiffOpenInner(poOpenInfo);
        if (poInner == nullptr && !bClaimed)
        {
            GPUGTiffMessages oOfOverlay;
            poInner = GPUGTiffOpenOverlaid(poOpenInfo, psFile);
            bOverlaid = poInner != nullptr;
            if (bOverlaid)
            {
                oMessages.Clear();
                oOfOverlay.Raise();
            }
        }
    }
    oMessages.Raise();
    return poInner;
}

GPUGTiffDataset *OpenThrough(GDALOpenInfo *poOpenInfo, bool bClaimed = false)
{
    GPUGTiffDataset::FilePtr poFile(g_poApi->file_open(
        GPUGTiffFileOf(poOpenInfo->pszFilename),
        const_cast<const char *const *>(poOpenInfo->papszOpenOptions),
        poOpenInfo->fpL, bClaimed));
    if (!poFile)
        return nullptr;
    const bool bStream = IsStream(poOpenInfo);
    const std::string osName(poOpenInfo->pszFilename);
    bool bOverlaid = false;
    GDALDataset *poInner = OpenEither(poOpenInfo, poFile.get(), bClaimed, bOverlaid);
    if (poInner == nullptr)
        return nullptr;
    if (!bOverlaid)
        g_poApi->file_rely_on_gdal(poFile.get());
    auto poDS = new GPUGTiffDataset(poInner, std::move(poFile), osName);
    if (bOverlaid)
        poDS->SetOverlaid();
    if (bStream)
        poDS->LeaveToGTiff();
    return poDS;
}

GDALDataset *Open(GDALOpenInfo *poOpenInfo)
{
    const int nAnswer = Identify(poOpenInfo);
    if (!nAnswer)
        return nullptr;
    if (!GPUGTiffHasPrefix(poOpenInfo))
    {
        const bool bClaimed = nAnswer < 0;
        if (bClaimed && !KnowsOptions(poOpenInfo))
            return nullptr;
        GPUGTiffDataset *poDS = OpenThrough(poOpenInfo, bClaimed);
        if (poDS != nullptr)
        {
            poDS->SetDescription(poOpenInfo->pszFilename);
            if (bClaimed)
                poDS->SetClaimed();
        }
        return poDS;
    }
    GDALOpenInfo oInner(poOpenInfo->pszFilename + strlen(GPUGTIFF_PREFIX),
                        poOpenInfo->nOpenFlags);
    oInner.papszOpenOptions = poOpenInfo->papszOpenOptions;
    if (!g_sKept.poDriver->pfnIdentify(&oInner))
    {
        CPLError(CE_Failure, CPLE_OpenFailed,
                 oInner.bStatOK
                     ? "GPUGTiff: '%s' is not a TIFF file that can be opened"
                     : "GPUGTiff: %s: No such file or directory",
                 oInner.pszFilename);
        return nullptr;
    }
    GDALDataset *poDS = OpenThrough(&oInner);
    if (poDS != nullptr)
        poDS->SetDescription(poOpenInfo->pszFilename);
    return poDS;
}

// In GTiff's place only reading is ours: a dataset to be changed is GTiff's own.
GDALDataset *OpenAsGTiff(GDALOpenInfo *poOpenInfo)
{
    if (poOpenInfo->eAccess == GA_Update)
        return g_sKept.poDriver->pfnOpen(poOpenInfo);
    if (!g_sKept.poDriver->pfnIdentify(poOpenInfo))
        return nullptr;
    GDALDataset *poDS = OpenThrough(poOpenInfo);
    if (poDS != nullptr)
        poDS->SetDescription(poOpenInfo->pszFilename);
    return poDS;
}

// Our options and GTiff's, each name once.
std::string OptionList(const char *pszItem, const char *pszElement,
                       const std::string &osOurs)
{
    std::string osList = std::string("<") + pszElement + ">\n" + osOurs;
    const char *pszGTiff = g_sKept.poDriver->GetMetadataItem(pszItem);
    CPLXMLNode *psTree = pszGTiff ? CPLParseXMLString(pszGTiff) : nullptr;
    for (CPLXMLNode *psOption = psTree ? psTree->psChild : nullptr; psOption;
         psOption = psOption->psNext)
    {
        const std::string osName =
            std::string("name='") + CPLGetXMLValue(psOption, "name", "") + "'";
        if (psOption->eType != CXT_Element ||
            osList.find(osName) != std::string::npos)
            continue;
        CPLXMLNode *psNext = psOption->psNext;
        psOption->psNext = nullptr;
        char *pszOption = CPLSerializeXMLTree(psOption);
        psOption->psNext = psNext;
        osList += pszOption;
        CPLFree(pszOption);
    }
    CPLDestroyXMLNode(psTree);
    return osList + "</" + pszElement + ">\n";
}

std::string OpenOptionList()
{
    return OptionList(GDAL_DMD_OPENOPTIONLIST, "OpenOptionList",
                      g_poApi->options_xml(false));
}

// With bDefaults, ours where they are not GTiff's.
std::string CreationOptionList(bool bDefaults)
{
    std::string osOurs = g_poApi->options_xml(true);
    osOurs += "  <Option name='PREDICTOR' type='string' description='Predictor "
              "Type (1=none/NO, 2=horizontal differencing/STANDARD, 3=floating "
              "point/FLOATING_POINT, YES=the one for the data type)' "
              "default='1'/>\n";
    if (bDefaults)
        osOurs += "  <Option name='TILED' type='boolean' description='Tiles "
                  "rather than strips' default='YES'/>\n";
    std::string osList = OptionList(GDAL_DMD_CREATIONOPTIONLIST,
                                    "CreationOptionList", osOurs);
    // GTiff's list has the codecs of this GDAL, and says nothing about them.
    const size_t nCompress = osList.find("name=\"COMPRESS\"");
    if (nCompress != std::string::npos)
        osList.insert(nCompress,
                      std::string(bDefaults ? "default=\"DEFLATE\" " : "") +
                          "description=\"Compression of tiles. NONE, LZW, "
                          "DEFLATE, ZSTD and PACKBITS are encoded by the engine, "
                          "others by GTiff\" ");
    return osList;
}

// The list of that name, made if need be; nullptr for any other item. The mutex is
// held.
const std::string *ListedDriver::List(const char *pszName)
{
    const bool bOpen = EQUAL(pszName, GDAL_DMD_OPENOPTIONLIST);
    if (!bOpen && !EQUAL(pszName, GDAL_DMD_CREATIONOPTIONLIST))
        return nullptr;
    std::string &osList = bOpen ? m_osOpen : m_osCreation;
    if (osList.empty())
        osList = bOpen ? OpenOptionList() : CreationOptionList(m_bDefaults);
    return &osList;
}

bool IsDefaultDomain(const char *pszDomain)
{
    return pszDomain == nullptr || *pszDomain == '\0';
}

const char *ListedDriver::GetMetadataItem(const char *pszName,
                                          const char *pszDomain)
{
    const std::string *posList = nullptr;
    if (m_bShown && pszName != nullptr && IsDefaultDomain(pszDomain))
        posList = GPUGTiffGuard(static_cast<const std::string *>(nullptr),
                                [this, pszName]
                                {
                                    const std::lock_guard<std::mutex> oLock(
                                        m_oMutex);
                                    return List(pszName);
                                });
    return posList ? posList->c_str()
                   : GDALDriver::GetMetadataItem(pszName, pszDomain);
}

MetadataList ListedDriver::GetMetadata(const char *pszDomain)
{
    MetadataList papszOthers = GDALDriver::GetMetadata(pszDomain);
    if (!m_bShown || !IsDefaultDomain(pszDomain))
        return papszOthers;
    return GPUGTiffGuard(
        papszOthers,
        [this, papszOthers]() -> MetadataList
        {
            const std::lock_guard<std::mutex> oLock(m_oMutex);
            if (m_nOthers != CSLCount(papszOthers))
            {
                m_nOthers = CSLCount(papszOthers);
                m_aosAll = CSLDuplicate(const_cast<char **>(papszOthers));
                for (const char *pszName : {GDAL_DMD_OPENOPTIONLIST,
                                            GDAL_DMD_CREATIONOPTIONLIST})
                    m_aosAll.SetNameValue(pszName, List(pszName)->c_str());
            }
            return m_aosAll.List();
        });
}

#if GPUGTIFF_GDAL(3, 9)
// Lets VRTs keep the name behind the prefix relative to themselves.
struct PrefixedName final : public GDALSubdatasetInfo
{
    explicit PrefixedName(const char *pszName) : GDALSubdatasetInfo(pszName)
    {
    }

  protected:
    void parseFileName() override
    {
        const size_t nPrefix = strlen(GPUGTIFF_PREFIX);
        m_driverPrefixComponent = m_fileName.substr(0, nPrefix - 1);
        m_pathComponent = GPUGTiffFileOf(m_fileName.c_str() + nPrefix);
    }
};

GDALSubdatasetInfo *GetPrefixedName(const char *pszName)
{
    return STARTS_WITH_CI(pszName, GPUGTIFF_PREFIX) ? new PrefixedName(pszName)
                                                    : nullptr;
}
#endif

// A file of that name could be made, but not be opened by it.
bool IsTarget(const char *pszFilename)
{
    if (!STARTS_WITH_CI(pszFilename, GPUGTIFF_PREFIX))
        return true;
    CPLError(CE_Failure, CPLE_IllegalArg,
             "GPUGTiff: '%s': the prefix %s is for opening; to write with this "
             "driver name it as the format (-of GPUGTiff)",
             pszFilename, GPUGTIFF_PREFIX);
    return false;
}

template <bool bAsGTiff>
GDALDataset *Create(const char *pszFilename, int nXSize, int nYSize, int nBands,
                    GDALDataType eType, CreationOptions papszOptions)
{
    if (!IsTarget(pszFilename))
        return nullptr;
    return GPUGTiffCreate(pszFilename, nXSize, nYSize, nBands, eType,
                          papszOptions, bAsGTiff);
}

template <bool bAsGTiff>
GDALDataset *CreateCopy(const char *pszFilename, GDALDataset *poSrcDS,
                        int bStrict, CreationOptions papszOptions,
                        GDALProgressFunc pfnProgress, void *pProgressData)
{
    if (!IsTarget(pszFilename))
        return nullptr;
    return GPUGTiffCreateCopy(pszFilename, poSrcDS, bStrict, papszOptions,
                              pfnProgress, pProgressData, bAsGTiff);
}

GPUGTiffDriver *MakeOurs()
{
    auto poDriver = new GPUGTiffDriver();
    poDriver->SetDescription(GPUGTIFF_NAME);
    poDriver->SetMetadataItem(GDAL_DCAP_RASTER, "YES");
    poDriver->SetMetadataItem(GDAL_DCAP_OPEN, "YES");
    poDriver->SetMetadataItem(GDAL_DCAP_VIRTUALIO, "YES");
    poDriver->SetMetadataItem(GDAL_DMD_SUBDATASETS, "YES");
    poDriver->SetMetadataItem(GDAL_DMD_LONGNAME,
                              "GeoTIFF in batches, on all CPU cores or a GPU");
    poDriver->SetMetadataItem(GDAL_DMD_HELPTOPIC, HELP);
    poDriver->SetMetadataItem(GDAL_DMD_CONNECTION_PREFIX, GPUGTIFF_PREFIX);
    poDriver->SetMetadataItem(GDAL_DMD_MIMETYPE, "image/tiff");
    poDriver->SetMetadataItem(GDAL_DMD_CREATIONDATATYPES,
                              g_sKept.poDriver->GetMetadataItem(
                                  GDAL_DMD_CREATIONDATATYPES));
    poDriver->pfnIdentify = Identify;
    poDriver->pfnOpen = GPUGTiffGuarded<Open, nullptr>::Call;
    poDriver->pfnCreate = GPUGTiffGuarded<Create<false>, nullptr>::Call;
    poDriver->pfnCreateCopy = GPUGTiffGuarded<CreateCopy<false>, nullptr>::Call;
    poDriver->pfnDelete = g_sKept.poDriver->pfnDelete;
    poDriver->pfnRename = g_sKept.poDriver->pfnRename;
    poDriver->pfnCopyFiles = g_sKept.poDriver->pfnCopyFiles;
#if GPUGTIFF_GDAL(3, 9)
    poDriver->pfnGetSubdatasetInfoFunc = GetPrefixedName;
#endif
    return poDriver;
}

// GTiff's name and all it can do, with our way of reading.
void RegisterAsGTiff()
{
    GDALDriverManager *poManager = GetGDALDriverManager();
    GDALDriver *poPresent = poManager->GetDriverByName("GTiff");
    if (poPresent != nullptr)
        poManager->DeregisterDriver(poPresent);
    if (poPresent == g_sKept.poDriver)
        g_sKept.bBorrowed = false;
    const GDALDriver *poInner = g_sKept.poDriver;
    auto poDriver = new ListedDriver(false);
    poDriver->SetDescription("GTiff");
    poDriver->SetMetadata(g_sKept.poDriver->GetMetadata());
    poDriver->pfnIdentify = poInner->pfnIdentify;
    poDriver->pfnOpen = GPUGTiffGuarded<OpenAsGTiff, nullptr>::Call;
    poDriver->pfnCreate = GPUGTiffGuarded<Create<true>, nullptr>::Call;
    poDriver->pfnCreateCopy = GPUGTiffGuarded<CreateCopy<true>, nullptr>::Call;
    poDriver->pfnDelete = poInner->pfnDelete;
    poDriver->pfnRename = poInner->pfnRename;
    poDriver->pfnCopyFiles = poInner->pfnCopyFiles;
#if GPUGTIFF_GDAL(3, 9)
    poDriver->pfnGetSubdatasetInfoFunc = poInner->pfnGetSubdatasetInfoFunc;
#endif
    poManager->RegisterDriver(poDriver);
    poDriver->ShowLists();
}

// GDALDataset's open options are protected and set by GDALOpen(), which is not
// used for the inner dataset; GTiff reads GEOREF_SOURCES from them later.
class OpenOptionsAccess : public GDALDataset
{
  public:
    static void Set(GDALDataset *poDS, char **papszOptions)
    {
        char **GDALDataset::*ppMember = &OpenOptionsAccess::papszOpenOptions;
        CSLDestroy(poDS->*ppMember);
        poDS->*ppMember = CSLDuplicate(papszOptions);
    }
};
}  // namespace

GDALDriver *GPUGTiffInnerDriver()
{
    return g_sKept.poDriver;
}

GDALDataset *GPUGTiffOpenInner(GDALOpenInfo *poOpenInfo)
{
    CPLStringList aosOptions(
        CSLDuplicate(const_cast<char **>(poOpenInfo->papszOpenOptions)));
    aosOptions.SetNameValue("NUM_THREADS", nullptr);
    CPLStringList aosAlone(aosOptions);
    aosAlone.SetNameValue("NUM_THREADS", "1");
    auto papszSaved = poOpenInfo->papszOpenOptions;
    poOpenInfo->papszOpenOptions = aosAlone.List();
    GDALDataset *poInner = g_sKept.poDriver->pfnOpen(poOpenInfo);
    poOpenInfo->papszOpenOptions = papszSaved;
    if (poInner == nullptr)
        return nullptr;
    if (*poInner->GetDescription() == '\0')
        poInner->SetDescription(poOpenInfo->pszFilename);
    OpenOptionsAccess::Set(poInner, aosOptions.List());
    return poInner;
}

GDALDriver *GPUGTiffReady(const gpugtiff::Api *api)
{
    if (!GDAL_CHECK_VERSION("GPUGTiff"))
        return nullptr;
    GDALDriverManager *poManager = GetGDALDriverManager();
    const GDALDriver *poPresent = poManager->GetDriverByName(GPUGTIFF_NAME);
    if (poPresent != nullptr && poPresent == g_poOurs)
        return g_poOurs;
    g_poApi = api;
    KeepGTiff();
    if (g_sKept.poDriver == nullptr || g_sKept.poDriver->pfnOpen == nullptr ||
        g_sKept.poDriver->pfnIdentify == nullptr)
    {
        CPLDebug("GPUGTIFF", "this GDAL has no GTiff driver: not registered");
        return nullptr;
    }
    if (g_poOurs == nullptr)
        g_poOurs = MakeOurs();
    if (poPresent == nullptr)
        poManager->RegisterDriver(g_poOurs);
    g_poOurs->ShowLists();
    if (poPresent != nullptr)
        return g_poOurs;
    if (GPUGTiffReplaces())
    {
        RegisterAsGTiff();
        GPUGTiffStopClaiming();
    }
    return g_poOurs;
}

GDALDataset *GPUGTiffOpenByUs(GDALOpenInfo *poOpenInfo)
{
    static const char *const apszUs[] = {GPUGTIFF_NAME, nullptr};
    poOpenInfo->papszAllowedDrivers = apszUs;
    return Open(poOpenInfo);
}

extern "C" void gpugtiff_shim_register(const gpugtiff::Api *api)
{
    // The first copy of the library that GDAL loads has the name.
    if (GetGDALDriverManager()->GetDriverByName(GPUGTIFF_NAME) == nullptr)
        GPUGTiffReady(api);
}
