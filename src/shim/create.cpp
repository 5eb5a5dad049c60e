// Create() and CreateCopy(): a hollow GTiff says what the file shall be like, our
// writer makes it; what it can't make GTiff makes.

#include "create.h"

#include <algorithm>
#include <cstring>

#include "messages.h"
#include "output.h"

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

void AddOption(void *pList, const char *pszName, const char *pszValue)
{
    static_cast<CPLStringList *>(pList)->SetNameValue(pszName, pszValue);
}

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
    sOrder.poFile.reset(
        g_poApi->file_open(sOrder.pszFilename, papszOptions, nullptr));
    if (!sOrder.poFile)
        return 0;
    gpugtiff::Creation sCreation = {};
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
    return g_poApi->creation_prepare(&sCreation, &sOrder.aosForGTiff, AddOption);
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
    const int nThreads = g_poApi->file_threads(sOrder.poFile.get());
    if (nThreads > 1)
        aosOptions.SetNameValue("NUM_THREADS", CPLSPrintf("%d", nThreads));
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

// The writer for a file like the hollow one; bLeft if it is GTiff's to write.
GPUGTiffOutputPtr MakeOutput(const Order &sOrder, const GPUGTiffHollow &oHollow,
                             bool &bLeft)
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

int ReportShare(void *pProgress, double dfDone)
{
    auto psProgress = static_cast<std::pair<GDALProgressFunc, void *> *>(pProgress);
    return psProgress->first(dfDone, "", psProgress->second);
}

bool Report(double dfDone, GDALProgressFunc pfnProgress, void *pProgressData)
{
    if (pfnProgress(dfDone, "", pProgressData))
        return true;
    CPLError(CE_Failure, CPLE_UserInterrupt,
             "GPUGTiff: interrupted by the caller");
    return false;
}

// A TIFF whose tiles may be copied as they are: opened for reading by GTiff or by
// us under its own name.
std::unique_ptr<gpugtiff::Image, GPUGTiffImageFree>
SourceImage(const Order &sOrder, GDALDataset *poSrcDS,
            GPUGTiffDataset::FilePtr &poFile)
{
    std::unique_ptr<gpugtiff::Image, GPUGTiffImageFree> poImage;
    GDALDriver *poDriver = poSrcDS->GetDriver();
    if (poDriver == nullptr || poSrcDS->GetAccess() != GA_ReadOnly ||
        (!EQUAL(poDriver->GetDescription(), "GTiff") &&
         !EQUAL(poDriver->GetDescription(), "GPUGTiff")) ||
        poSrcDS->GetRasterCount() == 0)
        return poImage;
    std::string osName = poSrcDS->GetDescription();
    if (STARTS_WITH_CI(osName.c_str(), "GPUGTIFF:"))
        osName = osName.substr(strlen("GPUGTIFF:"));
    if (STARTS_WITH_CI(osName.c_str(), "GTIFF_DIR:"))
        return poImage;
    GDALRasterBand *poFirst = poSrcDS->GetRasterBand(1);
    const char *pszOffset = poFirst->GetMetadataItem("IFD_OFFSET", "TIFF");
    const char *pszTile = poFirst->GetMetadataItem("BLOCK_OFFSET_0_0", "TIFF");
    if (pszOffset == nullptr || pszTile == nullptr)
        return poImage;
    gpugtiff::ImageFacts sFacts = {};
    sFacts.ifd_offset = std::strtoull(pszOffset, nullptr, 10);
    sFacts.first_tile = std::strtoull(pszTile, nullptr, 10);
    sFacts.converted = poSrcDS->GetMetadataItem("SOURCE_COLOR_SPACE",
                                                "IMAGE_STRUCTURE") != nullptr;
    sFacts.width = poSrcDS->GetRasterXSize();
    sFacts.height = poSrcDS->GetRasterYSize();
    sFacts.bands = poSrcDS->GetRasterCount();
    sFacts.kind = poFirst->GetRasterDataType();
    sFacts.sample_bytes = GDALGetDataTypeSizeBytes(poFirst->GetRasterDataType());
    poFirst->GetBlockSize(&sFacts.block_width, &sFacts.block_height);
    for (int i = 1; i <= sFacts.bands; ++i)
    {
        if (poSrcDS->GetRasterBand(i)->GetRasterDataType() != sOrder.eType)
            return poImage;
    }
    poFile.reset(g_poApi->file_beside(sOrder.poFile.get(), osName.c_str()));
    if (poFile)
        poImage.reset(g_poApi->image_open(poFile.get(), &sFacts));
    return poImage;
}

// Whether the same stands for missing data in all bands.
bool HasOneFill(GDALDataset *poSrcDS)
{
    GByte abyFirst[16] = {};
    GPUGTiffFillSample(poSrcDS->GetRasterBand(1), abyFirst);
    for (int i = 2; i <= poSrcDS->GetRasterCount(); ++i)
    {
        GByte abySample[16] = {};
        GPUGTiffFillSample(poSrcDS->GetRasterBand(i), abySample);
        if (memcmp(abyFirst, abySample, sizeof(abyFirst)) != 0)
            return false;
    }
    return true;
}

// Has the writer ask for the pixels of one of its images, and gets them from the
// source: its bands, or its mask.
bool CopyPixels(gpugtiff::Output *psOutput, int nImage, GDALDataset *poSrcDS,
                GDALRasterBand *poMask, GDALDataType eType,
                GDALProgressFunc pfnProgress, void *pProgressData)
{
    GDALRasterBand *poFirst = poMask ? poMask : poSrcDS->GetRasterBand(1);
    int nBlockX = 0;
    int nBlockY = 0;
    poFirst->GetBlockSize(&nBlockX, &nBlockY);
    const char *pszInterleave =
        poSrcDS->GetMetadataItem("INTERLEAVE", "IMAGE_STRUCTURE");
    const bool bTogether = poMask == nullptr && pszInterleave != nullptr &&
                           EQUAL(pszInterleave, "PIXEL");
    g_poApi->output_copy(psOutput, nImage, nBlockY, bTogether);
    gpugtiff::Swath sSwath = {};
    int nMore;
    while ((nMore = g_poApi->output_swath(psOutput, &sSwath)) > 0)
    {
        CPLErr eErr;
        if (poMask != nullptr)
            eErr = poMask->RasterIO(GF_Read, sSwath.x, sSwath.y, sSwath.width,
                                    sSwath.height, sSwath.data, sSwath.width,
                                    sSwath.height, eType, sSwath.pixel_space,
                                    sSwath.line_space, nullptr);
        else
        {
            std::vector<int> anBands;
            for (int i = 0; i < sSwath.band_count; ++i)
                anBands.push_back(sSwath.first_band + i);
            eErr = poSrcDS->RasterIO(
                GF_Read, sSwath.x, sSwath.y, sSwath.width, sSwath.height,
                sSwath.data, sSwath.width, sSwath.height, eType,
                sSwath.band_count, anBands.data(), sSwath.pixel_space,
                sSwath.line_space, sSwath.band_space, nullptr);
        }
        if (eErr != CE_None || g_poApi->output_take(psOutput) != 0)
            return false;
        if (!Report(sSwath.done, pfnProgress, pProgressData))
            return false;
    }
    return nMore == 0;
}

// A mask of its own, as GTiff's CreateCopy() sees it.
bool HasMask(GDALDataset *poSrcDS)
{
    const int nFlags = poSrcDS->GetRasterBand(1)->GetMaskFlags();
    return !(nFlags & (GMF_ALL_VALID | GMF_ALPHA | GMF_NODATA)) &&
           (nFlags & GMF_PER_DATASET);
}

class ScaledProgress
{
  public:
    ScaledProgress(double dfMin, double dfMax, GDALProgressFunc pfnProgress,
                   void *pProgressData)
        : m_pData(GDALCreateScaledProgress(dfMin, dfMax, pfnProgress,
                                           pProgressData))
    {
    }

    ~ScaledProgress()
    {
        GDALDestroyScaledProgress(m_pData);
    }

    void *Data() const
    {
        return m_pData;
    }

  private:
    void *m_pData;

    CPL_DISALLOW_COPY_ASSIGN(ScaledProgress)
};

// All pixels of the source, and its mask if that goes into the file; false after
// an error.
bool CopyAll(const Order &sOrder, gpugtiff::Output *psOutput,
             const GPUGTiffHollow &oHollow, GDALDataset *poHollowDS,
             GDALDataset *poSrcDS, bool bInternalMask, double dfImageShare,
             GDALProgressFunc pfnProgress, void *pProgressData)
{
    ScaledProgress oImage(0, dfImageShare, pfnProgress, pProgressData);
    GPUGTiffDataset::FilePtr poSourceFile;
    const auto poImage = SourceImage(sOrder, poSrcDS, poSourceFile);
    int nCopied = 0;
    if (poImage)
    {
        std::pair<GDALProgressFunc, void *> oReport(GDALScaledProgress,
                                                    oImage.Data());
        nCopied = g_poApi->output_copy_tiles(psOutput, poImage.get(),
                                             HasOneFill(poSrcDS), &oReport,
                                             ReportShare);
    }
    if (nCopied < 0 ||
        (nCopied == 0 &&
         !CopyPixels(psOutput, 0, poSrcDS, nullptr, sOrder.eType,
                     GDALScaledProgress, oImage.Data())))
        return false;
    if (!bInternalMask)
        return true;
    if (poHollowDS->CreateMaskBand(GMF_PER_DATASET) != CE_None)
        return false;
    poHollowDS->FlushCache(false);
    const int nMask =
        g_poApi->output_add_mask(psOutput, oHollow.Name().c_str(), 255);
    ScaledProgress oMask(dfImageShare, 1, pfnProgress, pProgressData);
    return nMask >= 0 &&
           CopyPixels(psOutput, nMask, poSrcDS,
                      poSrcDS->GetRasterBand(1)->GetMaskBand(), GDT_Byte,
                      GDALScaledProgress, oMask.Data());
}

bool CopyMask(GDALRasterBand *poSource, GDALRasterBand *poTarget,
              GDALProgressFunc pfnProgress, void *pProgressData)
{
    const char *const apszOptions[] = {"COMPRESSED=YES", nullptr};
    return GDALRasterBandCopyWholeRaster(poSource, poTarget, apszOptions,
                                         pfnProgress, pProgressData) == CE_None;
}

// Masks that are not in the file, which GTiff makes: bands' own, and the
// dataset's. As GDALDriver::DefaultCopyMasks(), which is not for plugins to call.
bool CopyMasksBeside(GDALDataset *poInner, GDALDataset *poSrcDS, bool bStrict,
                     bool bDataset, GDALProgressFunc pfnProgress,
                     void *pProgressData)
{
    for (int i = 1; i <= poSrcDS->GetRasterCount(); ++i)
    {
        GDALRasterBand *poSource = poSrcDS->GetRasterBand(i);
        GDALRasterBand *poTarget = poInner->GetRasterBand(i);
        const int nFlags = poSource->GetMaskFlags();
        if (nFlags & (GMF_ALL_VALID | GMF_PER_DATASET | GMF_ALPHA | GMF_NODATA))
            continue;
        if (poTarget->CreateMaskBand(nFlags) != CE_None)
        {
            if (bStrict)
                return false;
        }
        else if (!CopyMask(poSource->GetMaskBand(), poTarget->GetMaskBand(),
                           pfnProgress, pProgressData))
            return false;
    }
    if (!bDataset)
        return true;
    if (poInner->CreateMaskBand(GMF_PER_DATASET) != CE_None)
        return !bStrict;
    return CopyMask(poSrcDS->GetRasterBand(1)->GetMaskBand(),
                    poInner->GetRasterBand(1)->GetMaskBand(), pfnProgress,
                    pProgressData);
}
}  // namespace

GDALDataset *GPUGTiffCreate(const char *pszFilename, int nXSize, int nYSize,
                            int nBandsIn, GDALDataType eType,
                            CreationOptions papszOptions, bool bAsGTiff)
{
    Order sOrder{pszFilename, CPLStringList(CSLDuplicate(papszOptions)), {},
                 bAsGTiff,    nXSize, nYSize, eType};
    const int nPrepared = Prepare(sOrder);
    if (nPrepared == 0)
        return nullptr;
    GDALDriver *poGTiff = GPUGTiffInnerDriver();
    bool bLeft = nPrepared == 2;
    if (!bLeft)
    {
        std::unique_ptr<GPUGTiffHollow> poHollow(
            new GPUGTiffHollow(pszFilename));
        CPLStringList aosHollow(HollowOptions(sOrder));
        auto Make = [&]()
        {
            return Named(poGTiff->pfnCreate(poHollow->Name().c_str(), nXSize,
                                            sOrder.nHollowRows, nBandsIn, eType,
                                            aosHollow.List()),
                         poHollow->Name());
        };
        // One that is closed, for the writer to look at; and one that lives on.
        GPUGTiffMessages oMessages;
        std::unique_ptr<GDALDataset> poProbe(Make());
        oMessages.Raise(poHollow->Name(), pszFilename);
        if (!poProbe)
            return nullptr;
        bLeft = IsTooLow(sOrder, poProbe.get());
        poProbe.reset();
        if (!bLeft)
        {
            GPUGTiffOutputPtr poOutput(MakeOutput(sOrder, *poHollow, bLeft));
            if (!poOutput && !bLeft)
                return nullptr;
            if (poOutput)
            {
                CPLErrorHandlerPusher oQuiet(CPLQuietErrorHandler);
                GDALDataset *poInner = Make();
                if (poInner == nullptr)
                    return nullptr;
                auto poDS = new GPUGTiffOutput(
                    std::move(poHollow), poInner, std::move(sOrder.poFile),
                    std::move(poOutput), nYSize);
                poDS->SetDescription(pszFilename);
                return poDS;
            }
        }
    }
    return Finished(sOrder,
                    Named(poGTiff->pfnCreate(pszFilename, nXSize, nYSize,
                                             nBandsIn, eType,
                                             GTiffOptions(sOrder).List()),
                          pszFilename));
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
    if (nPrepared == 0)
        return nullptr;
    GDALDriver *poGTiff = GPUGTiffInnerDriver();
    bool bLeft = nPrepared == 2 || nSrcBands == 0;
    GPUGTiffHollow oHollow(pszFilename);
    std::unique_ptr<GDALDataset> poHollowDS;
    GPUGTiffOutputPtr poOutput;
    if (!bLeft)
    {
        CPLStringList aosHollow(HollowOptions(sOrder));
        const auto poHollowSource =
            GPUGTiffHollowSource(poSrcDS, sOrder.nHollowRows);
        GPUGTiffMessages oMessages;
        poHollowDS.reset(poGTiff->pfnCreateCopy(
            oHollow.Name().c_str(), poHollowSource.get(), bStrict,
            aosHollow.List(), GDALDummyProgress, nullptr));
        oMessages.Raise(oHollow.Name(), pszFilename);
        if (!poHollowDS)
            return nullptr;
        poHollowDS->FlushCache(false);
        bLeft = IsTooLow(sOrder, poHollowDS.get()) ||
                poHollowDS->GetRasterCount() != nSrcBands;
        if (!bLeft)
            poOutput = MakeOutput(sOrder, oHollow, bLeft);
        if (!poOutput && !bLeft)
            return nullptr;
    }
    if (bLeft)
    {
        poHollowDS.reset();
        return Finished(sOrder,
                        poGTiff->pfnCreateCopy(
                            pszFilename, poSrcDS, bStrict,
                            GTiffOptions(sOrder).List(), pfnProgress,
                            pProgressData));
    }
    GByte abySample[16] = {};
    GPUGTiffFillSample(poHollowDS->GetRasterBand(1), abySample);
    g_poApi->output_set_fill(poOutput.get(), abySample);

    const bool bMask = HasMask(poSrcDS);
    const bool bInternal =
        bMask &&
        CPLTestBool(CPLGetConfigOption("GDAL_TIFF_INTERNAL_MASK",
                                       GPUGTIFF_INTERNAL_MASK_DEFAULT));
    const double dfImageShare =
        static_cast<double>(nSrcBands) / (nSrcBands + (bMask ? 1 : 0));
    bool bOK = Report(0, pfnProgress, pProgressData) &&
               CopyAll(sOrder, poOutput.get(), oHollow, poHollowDS.get(),
                       poSrcDS, bInternal, dfImageShare, pfnProgress,
                       pProgressData);
    // GTiff's last word on the tags.
    poHollowDS.reset();
    bOK = bOK && g_poApi->output_finish(poOutput.get(),
                                        oHollow.Name().c_str()) == 0;
    bOK = bOK && oHollow.MoveSidecars();
    GDALDataset *poInner = nullptr;
    if (bOK)
    {
        GDALOpenInfo oOpenInfo(pszFilename, GDAL_OF_RASTER | GDAL_OF_UPDATE);
        poInner = GPUGTiffOpenInner(&oOpenInfo, 0);
        bOK = poInner != nullptr && poInner->GetRasterXSize() == sOrder.nXSize &&
              poInner->GetRasterYSize() == sOrder.nYSize &&
              poInner->GetRasterCount() == nSrcBands;
        if (bOK && !bInternal)
        {
            ScaledProgress oMask(dfImageShare, 1, pfnProgress, pProgressData);
            bOK = CopyMasksBeside(poInner, poSrcDS, bStrict, bMask,
                                  GDALScaledProgress, oMask.Data());
        }
        if (!bOK)
            GDALClose(GDALDataset::ToHandle(poInner));
    }
    g_poApi->output_free(poOutput.release(), !bOK);
    if (!bOK)
    {
        if (CPLGetLastErrorType() != CE_Failure)
            CPLError(CE_Failure, CPLE_AppDefined,
                     "GPUGTiff: %s could not be written", pszFilename);
        return nullptr;
    }
    return Finished(sOrder, poInner);
}
