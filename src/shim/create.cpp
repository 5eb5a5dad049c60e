// Create() and CreateCopy(): a hollow GTiff says what the file shall be like, our
// writer makes it; what it can't make GTiff makes.

#include "create.h"

#include <algorithm>

#include "copy.h"
#include "messages.h"

namespace
{
// A file on its way: what was asked, and what GTiff is told.
struct Order
{
    const char *pszFilename;
    CPLStringList aosAsked;
    CPLStringList aosForGTiff{};
    bool bAsGTiff;
    int nXSize, nYSize;
    GDALDataType eType;
    int nHollowRows = 1;
    GPUGTiffDataset::FilePtr poFile{};
};

// Whether the target can only be written from front to back; or is a pipe, a
// device or a directory, of which GTiff shall make what it can.
bool IsStream(const char *pszFilename)
{
    if (STARTS_WITH(pszFilename, "/vsistdout") ||
        !VSISupportsRandomWrite(pszFilename, true))
        return true;
    VSIStatBufL sStat;
    return VSIStatExL(pszFilename, &sStat,
                      VSI_STAT_EXISTS_FLAG | VSI_STAT_NATURE_FLAG) == 0 &&
           !VSI_ISREG(sStat.st_mode);
}

// Checks the options: 0 after an error, 1 if the file may be ours, 2 if it is
// GTiff's to write.
int Prepare(Order &sOrder)
{
    auto papszOptions =
        const_cast<const char *const *>(sOrder.aosAsked.List());
    // Nothing is read of a file that is made.
    CPLStringList aosEngine(sOrder.aosAsked);
    aosEngine.SetNameValue("GDS", "NO");
    sOrder.poFile.reset(g_poApi->file_open(
        sOrder.pszFilename,
        const_cast<const char *const *>(aosEngine.List()), nullptr, 0));
    if (!sOrder.poFile)
        return 0;
    gpugtiff::Creation sCreation = {};
    sCreation.path = sOrder.pszFilename;
    sCreation.options = papszOptions;
    sCreation.gtiff_xml = GPUGTiffInnerDriver()->GetMetadataItem(
        GDAL_DMD_CREATIONOPTIONLIST);
    sCreation.width = sOrder.nXSize;
    sCreation.height = sOrder.nYSize;
    sCreation.sample_bytes = GDALGetDataTypeSizeBytes(sOrder.eType);
    sCreation.floats = GDALDataTypeIsFloating(sOrder.eType);
    sCreation.as_gtiff = sOrder.bAsGTiff;
    sCreation.stream = IsStream(sOrder.pszFilename);
    sCreation.hollow_rows = &sOrder.nHollowRows;
    return g_poApi->creation_prepare(&sCreation, &sOrder.aosForGTiff,
                                     GPUGTiffAddPair);
}

// What the hollow file is made with: it never holds a pixel, and we decide on
// BigTIFF when all is written.
CPLStringList HollowOptions(const Order &sOrder)
{
    CPLStringList aosOptions(sOrder.aosForGTiff);
    aosOptions.SetNameValue("SPARSE_OK", "TRUE");
    aosOptions.SetNameValue("BIGTIFF", nullptr);
    return aosOptions;
}

CPLStringList GTiffOptions(const Order &sOrder)
{
    CPLStringList aosOptions(sOrder.aosForGTiff);
    // What fails in GTiff's threads it does not tell. Said even under its own name:
    // GDAL_NUM_THREADS would switch them on.
    aosOptions.SetNameValue("NUM_THREADS", "1");
    g_poApi->file_count_gtiff(sOrder.poFile.get(), 2);
    return aosOptions;
}

// GDALDriver::Create() names datasets, and is not used here; .aux.xml needs it.
GDALDataset *Named(GDALDataset *poDS, const std::string &osName)
{
    if (poDS != nullptr)
        poDS->SetDescription(osName.c_str());
    return poDS;
}

// A dataset that GTiff has open for update, as ours.
GDALDataset *Finished(Order &sOrder, GDALDataset *poInner)
{
    if (poInner == nullptr || sOrder.bAsGTiff)
        return poInner;
    auto poDS = new GPUGTiffDataset(poInner, std::move(sOrder.poFile),
                                    sOrder.pszFilename);
    poDS->SetDescription(sOrder.pszFilename);
    return poDS;
}

// The writer for a file like the hollow one; bLeft if it is GTiff's to write. A
// copy has no name before it is finished.
GPUGTiffOutputPtr MakeOutput(const Order &sOrder, const GPUGTiffHollow &oHollow,
                             bool bCopy, bool &bLeft)
{
    gpugtiff::Target sTarget = {};
    sTarget.path = sOrder.pszFilename;
    sTarget.hollow = oHollow.Name().c_str();
    sTarget.options = const_cast<CPLStringList &>(sOrder.aosAsked).List();
    sTarget.gtiff_options =
        const_cast<CPLStringList &>(sOrder.aosForGTiff).List();
    sTarget.height = sOrder.nYSize;
    sTarget.kind = sOrder.eType;
    sTarget.sample_bytes = GDALGetDataTypeSizeBytes(sOrder.eType);
    sTarget.unnamed = bCopy;
    int nLeft = 0;
    GPUGTiffOutputPtr poOutput(
        g_poApi->output_create(sOrder.poFile.get(), &sTarget, &nLeft));
    bLeft = nLeft != 0;
    return poOutput;
}

// Whether the hollow file is too low to show how high its blocks are.
bool IsTooLow(const Order &sOrder, GDALDataset *poHollowDS)
{
    int nBlockX = 0;
    int nBlockY = 0;
    poHollowDS->GetRasterBand(1)->GetBlockSize(&nBlockX, &nBlockY);
    const bool bGiven =
        sOrder.aosForGTiff.FetchNameValue("BLOCKYSIZE") != nullptr ||
        CPLTestBool(sOrder.aosForGTiff.FetchNameValueDef("TILED", "NO"));
    return !bGiven && nBlockY >= sOrder.nHollowRows &&
           sOrder.nHollowRows < sOrder.nYSize;
}

// Create() through our writer; nullptr after an error, or with bLeft set.
GDALDataset *CreateOurs(Order &sOrder, int nBands, bool &bLeft)
{
    std::unique_ptr<GPUGTiffHollow> poHollow(
        new GPUGTiffHollow(sOrder.pszFilename));
    CPLStringList aosHollow(HollowOptions(sOrder));
    auto Make = [&]()
    {
        return Named(GPUGTiffInnerDriver()->pfnCreate(
                         poHollow->Name().c_str(), sOrder.nXSize,
                         sOrder.nHollowRows, nBands, sOrder.eType,
                         aosHollow.List()),
                     poHollow->Name());
    };
    // One that is closed, for the writer to look at; and one that lives on.
    GPUGTiffMessages oMessages;
    std::unique_ptr<GDALDataset> poProbe(Make());
    oMessages.Raise(poHollow->Name(), sOrder.pszFilename);
    if (!poProbe)
        return nullptr;
    bLeft = IsTooLow(sOrder, poProbe.get());
    poProbe.reset();
    if (bLeft)
        return nullptr;
    GPUGTiffOutputPtr poOutput(MakeOutput(sOrder, *poHollow, false, bLeft));
    if (!poOutput)
        return nullptr;
    // It has nothing to say that it did not say before.
    CPLErrorHandlerPusher oQuiet(CPLQuietErrorHandler);
    GDALDataset *poInner = Make();
    if (poInner == nullptr)
        return nullptr;
    auto poDS = new GPUGTiffOutput(std::move(poHollow), poInner,
                                   std::move(sOrder.poFile),
                                   std::move(poOutput), sOrder.nYSize,
                                   sOrder.aosForGTiff.FetchBool("SPARSE_OK", false));
    poDS->SetDescription(sOrder.pszFilename);
    return poDS;
}

// Removes what MoveSidecars() put beside the target.
void RemoveSidecars(const GPUGTiffHollow &oHollow)
{
    const CPLStringList aosFiles(
        VSIReadDir(CPLGetPath(oHollow.Name().c_str())));
    for (int i = 0; i < aosFiles.Count(); ++i)
    {
        if (!EQUAL(aosFiles[i], CPLGetFilename(oHollow.Name().c_str())))
            VSIUnlink(oHollow.Beside(aosFiles[i]).c_str());
    }
}

int MoveSidecarsOf(void *pHollow)
{
    return static_cast<const GPUGTiffHollow *>(pHollow)->MoveSidecars();
}

// The end of CreateCopy(): the finished file, opened for update by GTiff.
GDALDataset *FinishCopy(const Order &sOrder, gpugtiff::Output *psOutput,
                        GPUGTiffHollow &oHollow, int nBands)
{
    // Where a file opens, what belongs beside it is there.
    if (g_poApi->output_finish_copy(psOutput, oHollow.Name().c_str(), &oHollow,
                                    MoveSidecarsOf) != 0)
        return nullptr;
    GDALOpenInfo oOpenInfo(sOrder.pszFilename, GDAL_OF_RASTER | GDAL_OF_UPDATE);
    std::unique_ptr<GDALDataset> poInner(GPUGTiffOpenInner(&oOpenInfo));
    if (!poInner || poInner->GetRasterXSize() != sOrder.nXSize ||
        poInner->GetRasterYSize() != sOrder.nYSize ||
        poInner->GetRasterCount() != nBands)
        return nullptr;
    return poInner.release();
}

// CreateCopy() through our writer; nullptr after an error, or with bLeft set.
GDALDataset *CopyOurs(Order &sOrder, GDALDataset *poSrcDS, bool bStrict,
                      GDALProgressFunc pfnProgress, void *pProgressData,
                      bool &bLeft)
{
    const int nSrcBands = poSrcDS->GetRasterCount();
    GPUGTiffHollow oHollow(sOrder.pszFilename);
    CPLStringList aosHollow(HollowOptions(sOrder));
    const auto poHollowSource =
        GPUGTiffHollowSource(poSrcDS, sOrder.nHollowRows);
    GPUGTiffMessages oMessages;
    std::unique_ptr<GDALDataset> poHollowDS(GPUGTiffInnerDriver()->pfnCreateCopy(
        oHollow.Name().c_str(), poHollowSource.get(), bStrict, aosHollow.List(),
        GDALDummyProgress, nullptr));
    // With some photometric interpretations GTiff shows other bands.
    bLeft = poHollowDS && (IsTooLow(sOrder, poHollowDS.get()) ||
                           poHollowDS->GetRasterCount() != nSrcBands);
    // Whoever writes the file says the rest.
    if (bLeft)
        return nullptr;
    oMessages.Raise(oHollow.Name(), sOrder.pszFilename);
    if (!poHollowDS)
        return nullptr;
    poHollowDS->FlushCache(false);
    GPUGTiffOutputPtr poOutput(MakeOutput(sOrder, oHollow, true, bLeft));
    if (!poOutput)
        return nullptr;
    GByte abySample[16] = {};
    GPUGTiffFillSample(poHollowDS->GetRasterBand(1), abySample);
    g_poApi->output_set_fill(poOutput.get(), abySample);
    if (!GPUGTiffHasOneFill(poSrcDS))
        g_poApi->output_set_fill(poOutput.get(), nullptr);

    const GPUGTiffCopy oCopy(sOrder.pszFilename, poSrcDS, bStrict, pfnProgress,
                             pProgressData);
    const bool bCopied =
        oCopy.Begin() && oCopy.ToFile(sOrder.poFile.get(), poOutput.get(),
                                      oHollow, poHollowDS.get());
    // GTiff's last word on the tags.
    poHollowDS.reset();
    GDALDataset *poInner =
        bCopied ? FinishCopy(sOrder, poOutput.get(), oHollow, nSrcBands)
                : nullptr;
    g_poApi->output_free(poOutput.release(), poInner == nullptr);
    if (poInner == nullptr)
    {
        oCopy.RemoveMasks();
        if (bCopied)
            RemoveSidecars(oHollow);
    }
    if (poInner == nullptr && CPLGetLastErrorType() != CE_Failure)
        CPLError(CE_Failure, CPLE_AppDefined,
                 "GPUGTiff: %s could not be written", sOrder.pszFilename);
    return Finished(sOrder, poInner);
}

// A dataset that GTiff goes on writing: its tiles are checked when it is closed.
// Of a stream nothing can be read back.
GDALDataset *Unclosed(Order &sOrder, GDALDataset *poInner, int64_t nBefore)
{
    GDALDataset *poDS = Finished(sOrder, poInner);
    if (poDS != nullptr && !sOrder.bAsGTiff && nBefore >= 0)
        static_cast<GPUGTiffDataset *>(poDS)->CheckAtClose(
            nBefore, sOrder.aosForGTiff.FetchBool("SPARSE_OK", false));
    return poDS;
}

// Directories that a file has before GTiff adds one; -1 if nobody can tell what
// GTiff will have added.
int64_t DirectoriesBefore(const Order &sOrder)
{
    VSIStatBufL sStat;
    if (IsStream(sOrder.pszFilename))
        return -1;
    if (!sOrder.aosAsked.FetchBool("APPEND_SUBDATASET", false) ||
        VSIStatExL(sOrder.pszFilename, &sStat, VSI_STAT_EXISTS_FLAG) != 0)
        return 0;
    return g_poApi->written_count(sOrder.pszFilename);
}

struct UnfinishedFree
{
    void operator()(gpugtiff::Unfinished *psUnfinished) const
    {
        g_poApi->unfinished_free(psUnfinished);
    }
};

// GTiff removes a file that it gives up, but not the masks beside it.
void RemoveMasksOfGTiff(const Order &sOrder, GDALDataset *poSrcDS)
{
    if (!sOrder.bAsGTiff && poSrcDS->GetRasterCount() > 0 &&
        !sOrder.aosAsked.FetchBool("APPEND_SUBDATASET", false))
        GPUGTiffCopy(sOrder.pszFilename, poSrcDS, false, GDALDummyProgress,
                     nullptr)
            .RemoveMasks();
}

// A file that GTiff wrote, opened for update as GTiff's CreateCopy() returns it.
GDALDataset *OpenWritten(const Order &sOrder)
{
    GDALOpenInfo oOpenInfo(sOrder.pszFilename, GDAL_OF_RASTER | GDAL_OF_UPDATE);
    CPLStringList aosOptions;
    // The user is told of that when it happens, and nothing is changed yet.
    aosOptions.SetNameValue("IGNORE_COG_LAYOUT_BREAK", "YES");
    if (sOrder.aosForGTiff.FetchBool("SPARSE_OK", false))
        aosOptions.SetNameValue("SPARSE_OK", "YES");
    oOpenInfo.papszOpenOptions = aosOptions.List();
    return GPUGTiffOpenInner(&oOpenInfo);
}

// A caller's progress function, and whether it wanted to go on.
struct Progress
{
    GDALProgressFunc pfnProgress;
    void *pProgressData;
    bool bGoOn = true;

    static int CPL_STDCALL Tell(double dfDone, const char *pszMessage,
                                void *pThis)
    {
        auto psThis = static_cast<Progress *>(pThis);
        psThis->bGoOn =
            psThis->pfnProgress(dfDone, pszMessage, psThis->pProgressData) &&
            psThis->bGoOn;
        return psThis->bGoOn;
    }
};

// CreateCopy() by GTiff into a file of the name that it is to have, or of one that
// stands for it: true if the file is complete. It is closed then.
bool WriteByGTiff(const Order &sOrder, const std::string &osName,
                  GDALDataset *poSrcDS, int bStrict,
                  GDALProgressFunc pfnProgress, void *pProgressData)
{
    GDALDataset *poInner = GPUGTiffInnerDriver()->pfnCreateCopy(
        osName.c_str(), poSrcDS, bStrict, GTiffOptions(sOrder).List(),
        pfnProgress, pProgressData);
    if (poInner == nullptr)
        return false;
    // What goes wrong when the file is closed is told by messages only.
    GPUGTiffMessages oMessages;
    CPLSetCurrentErrorHandlerCatchDebug(FALSE);
    GDALClose(GDALDataset::ToHandle(poInner));
    const bool bWritten = !oMessages.HasFailure();
    oMessages.Raise();
    return bWritten &&
           g_poApi->written_check(
               osName.c_str(), sOrder.pszFilename, 0,
               sOrder.aosForGTiff.FetchBool("SPARSE_OK", false) ? 0 : 2) == 0;
}

// What the file takes at least: GTiff refuses one that the disk has no room for,
// if it knows which disk that is.
int64_t LeastBytes(const Order &sOrder, GDALDataset *poSrcDS)
{
    if (!EQUAL(sOrder.aosForGTiff.FetchNameValueDef("COMPRESS", "NONE"), "NONE"))
        return 0;
    const double dfBytes = static_cast<double>(sOrder.nXSize) * sOrder.nYSize *
                           GDALGetDataTypeSizeBytes(sOrder.eType) *
                           poSrcDS->GetRasterCount();
    return static_cast<int64_t>(std::min(dfBytes, 1e18));
}

// CreateCopy() by GTiff, of a file that can be closed and opened again. It has no
// name before it is finished, where that can be had.
GDALDataset *CopyByGTiff(Order &sOrder, GDALDataset *poSrcDS, int bStrict,
                         GDALProgressFunc pfnProgress, void *pProgressData)
{
    CPLErrorReset();
    Progress sProgress{pfnProgress, pProgressData};
    const std::unique_ptr<gpugtiff::Unfinished, UnfinishedFree> poUnnamed(
        g_poApi->unfinished_begin(sOrder.pszFilename,
                                  LeastBytes(sOrder, poSrcDS)));
    bool bWritten = false;
    if (poUnnamed)
    {
        const std::string osName = g_poApi->unfinished_name(poUnnamed.get());
        GPUGTiffMessages oMessages;
        CPLSetCurrentErrorHandlerCatchDebug(FALSE);
        bWritten = WriteByGTiff(sOrder, osName, poSrcDS, bStrict,
                                Progress::Tell, &sProgress);
        oMessages.Raise(osName, sOrder.pszFilename);
        bWritten =
            bWritten && g_poApi->unfinished_publish(poUnnamed.get()) == 0;
    }
    else
    {
        bWritten = WriteByGTiff(sOrder, sOrder.pszFilename, poSrcDS, bStrict,
                                Progress::Tell, &sProgress);
        if (!bWritten)
        {
            VSIUnlink(sOrder.pszFilename);
            RemoveMasksOfGTiff(sOrder, poSrcDS);
        }
    }
    if (!bWritten)
    {
        // GTiff does not always say so.
        if (!sProgress.bGoOn)
            CPLError(CE_Failure, CPLE_UserInterrupt,
                     "GPUGTiff: interrupted by the caller");
        else if (CPLGetLastErrorType() != CE_Failure)
            CPLError(CE_Failure, CPLE_AppDefined,
                     "GPUGTiff: %s could not be written", sOrder.pszFilename);
        return nullptr;
    }
    GDALDataset *poInner = OpenWritten(sOrder);
    if (poInner == nullptr)
        CPLError(CE_Failure, CPLE_OpenFailed,
                 "GPUGTiff: %s was written but cannot be opened again",
                 sOrder.pszFilename);
    return Finished(sOrder, poInner);
}

// CreateCopy() by GTiff into a stream or as a further image of a file.
GDALDataset *CopyOntoByGTiff(Order &sOrder, GDALDataset *poSrcDS, int bStrict,
                             GDALProgressFunc pfnProgress, void *pProgressData)
{
    const int64_t nBefore = DirectoriesBefore(sOrder);
    GDALDataset *poInner = GPUGTiffInnerDriver()->pfnCreateCopy(
        sOrder.pszFilename, poSrcDS, bStrict, GTiffOptions(sOrder).List(),
        pfnProgress, pProgressData);
    if (poInner != nullptr && !sOrder.bAsGTiff)
    {
        CPLErrorReset();
        poInner->FlushCache(false);
        if (CPLGetLastErrorType() == CE_Failure)
        {
            GDALClose(GDALDataset::ToHandle(poInner));
            // The images that were there before stay.
            if (!sOrder.aosAsked.FetchBool("APPEND_SUBDATASET", false))
                VSIUnlink(sOrder.pszFilename);
            poInner = nullptr;
        }
    }
    if (poInner == nullptr)
        RemoveMasksOfGTiff(sOrder, poSrcDS);
    return Unclosed(sOrder, poInner, nBefore);
}
}  // namespace

GDALDataset *GPUGTiffCreate(const char *pszFilename, int nXSize, int nYSize,
                            int nBandsIn, GDALDataType eType,
                            CreationOptions papszOptions, bool bAsGTiff)
{
    Order sOrder{pszFilename, CPLStringList(CSLDuplicate(papszOptions)), {},
                 bAsGTiff,    nXSize, nYSize, eType};
    const int nPrepared = Prepare(sOrder);
    bool bLeft = nPrepared == 2;
    if (nPrepared == 1)
    {
        GDALDataset *poDS = CreateOurs(sOrder, nBandsIn, bLeft);
        if (poDS != nullptr)
            return poDS;
    }
    if (!bLeft)
        return nullptr;
    const int64_t nBefore = DirectoriesBefore(sOrder);
    return Unclosed(sOrder,
                    Named(GPUGTiffInnerDriver()->pfnCreate(
                              pszFilename, nXSize, nYSize, nBandsIn, eType,
                              GTiffOptions(sOrder).List()),
                          pszFilename),
                    nBefore);
}

// GTiff copies JPEG's coefficients, and JPEG XL's codestreams, as they are, also
// through a VRT that shows nothing else.
static bool HasCodestream(GDALDataset *poSrcDS, const CPLStringList &aosOptions)
{
    const char *pszCodec = aosOptions.FetchNameValueDef("COMPRESS", "");
    if (!EQUAL(pszCodec, "JPEG") && !EQUAL(pszCodec, "JXL"))
        return false;
    const auto IsOne = [](GDALDriver *poDriver)
    {
        return poDriver != nullptr &&
               (EQUAL(poDriver->GetDescription(), "JPEG") ||
                EQUAL(poDriver->GetDescription(), "JPEGXL"));
    };
    GDALDriver *poDriver = poSrcDS->GetDriver();
    if (poDriver == nullptr || !EQUAL(poDriver->GetDescription(), "VRT"))
        return IsOne(poDriver);
    const CPLStringList aosFiles(poSrcDS->GetFileList());
    for (int i = 0; i < aosFiles.Count(); ++i)
    {
        if (IsOne(GDALDriver::FromHandle(
                GDALIdentifyDriver(aosFiles[i], nullptr))))
            return true;
    }
    return false;
}

GDALDataset *GPUGTiffCreateCopy(const char *pszFilename, GDALDataset *poSrcDS,
                                int bStrict, CreationOptions papszOptions,
                                GDALProgressFunc pfnProgress,
                                void *pProgressData, bool bAsGTiff)
{
    if (pfnProgress == nullptr)
        pfnProgress = GDALDummyProgress;
    const int nSrcBands = poSrcDS->GetRasterCount();
    Order sOrder{pszFilename,
                 CPLStringList(CSLDuplicate(papszOptions)),
                 {},
                 bAsGTiff,
                 poSrcDS->GetRasterXSize(),
                 poSrcDS->GetRasterYSize(),
                 nSrcBands ? poSrcDS->GetRasterBand(1)->GetRasterDataType()
                           : GDT_Byte};
    const int nPrepared = Prepare(sOrder);
    bool bLeft =
        nPrepared == 2 ||
        (nPrepared == 1 &&
         (nSrcBands == 0 || HasCodestream(poSrcDS, sOrder.aosForGTiff)));
    if (nPrepared == 1 && !bLeft)
    {
        GDALDataset *poDS = CopyOurs(sOrder, poSrcDS, bStrict != FALSE,
                                     pfnProgress, pProgressData, bLeft);
        if (poDS != nullptr)
            return poDS;
    }
    if (!bLeft)
        return nullptr;
    const bool bOnto = IsStream(pszFilename) ||
                       g_poApi->file_is_foreign(sOrder.poFile.get()) ||
                       sOrder.aosAsked.FetchBool("APPEND_SUBDATASET", false);
    return (bOnto ? CopyOntoByGTiff : CopyByGTiff)(
        sOrder, poSrcDS, bStrict, pfnProgress, pProgressData);
}
