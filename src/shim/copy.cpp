#include "copy.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "messages.h"

namespace
{
class ScaledProgress
{
  public:
    ScaledProgress(double dfFrom, double dfTo, GDALProgressFunc pfnProgress,
                   void *pProgressData)
        : m_pData(GDALCreateScaledProgress(dfFrom, dfTo, pfnProgress,
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

// Our own source leaves it to us what is done while the last rows are encoded.
class Pipelined
{
  public:
    explicit Pipelined(GDALDataset *poSource)
        : m_poOurs(GPUGTiffOurs<GPUGTiffDataset>(poSource))
    {
        if (m_poOurs)
            m_poOurs->SetPipelined(true);
    }

    ~Pipelined()
    {
        if (m_poOurs)
            m_poOurs->SetPipelined(false);
    }

  private:
    GPUGTiffDataset *m_poOurs;

    CPL_DISALLOW_COPY_ASSIGN(Pipelined)
};

int ReportShare(void *pProgress, double dfDone)
{
    return GDALScaledProgress(dfDone, "", pProgress);
}

bool Report(double dfDone, GDALProgressFunc pfnProgress, void *pProgressData)
{
    if (pfnProgress(dfDone, "", pProgressData))
        return true;
    CPLError(CE_Failure, CPLE_UserInterrupt,
             "GPUGTiff: interrupted by the caller");
    return false;
}

// Tells of progress while a source that takes long is read: that the copy is
// where it was, a few times a second.
class Reading
{
  public:
    explicit Reading(void *pProgress) : m_pProgress(pProgress)
    {
        INIT_RASTERIO_EXTRA_ARG(m_sExtraArg);
        m_sExtraArg.pfnProgress = Progress;
        m_sExtraArg.pProgressData = this;
    }

    GDALRasterIOExtraArg *Begin(double dfDone)
    {
        m_dfDone = dfDone;
        return &m_sExtraArg;
    }

    // What was read; an error if the caller wanted to stop.
    CPLErr End(CPLErr eErr)
    {
        m_oTold = Clock::now();
        if (m_bGoOn)
            return eErr;
        CPLError(CE_Failure, CPLE_UserInterrupt,
                 "GPUGTiff: interrupted by the caller");
        return CE_Failure;
    }

  private:
    using Clock = std::chrono::steady_clock;

    static int CPL_STDCALL Progress(double, const char *, void *pThis)
    {
        auto poThis = static_cast<Reading *>(pThis);
        const auto oNow = Clock::now();
        if (poThis->m_bGoOn &&
            oNow - poThis->m_oTold > std::chrono::milliseconds(100))
        {
            poThis->m_oTold = oNow;
            poThis->m_bGoOn =
                GDALScaledProgress(poThis->m_dfDone, "", poThis->m_pProgress) !=
                FALSE;
        }
        return poThis->m_bGoOn;
    }

    GDALRasterIOExtraArg m_sExtraArg;
    void *m_pProgress;
    double m_dfDone = 0;
    bool m_bGoOn = true;
    Clock::time_point m_oTold = Clock::now();

    CPL_DISALLOW_COPY_ASSIGN(Reading)
};

// Whether the file of this name is the one that GTiff's dataset of that name has
// open: one that was put into its place since then is another file. This process
// must have it open, and none of that name that is gone. In memory nothing tells.
bool IsOpen(const std::string &osName)
{
    if (STARTS_WITH(osName.c_str(), "/vsi"))
        return !STARTS_WITH(osName.c_str(), "/vsimem/");
    VSIStatBufL sNamed;
    char szPath[PATH_MAX] = {};
    if (VSIStatL(osName.c_str(), &sNamed) != 0 ||
        realpath(osName.c_str(), szPath) == nullptr)
        return false;
    const std::string osGone = std::string(szPath) + " (deleted)";
    bool bOpen = false;
    const CPLStringList aosOpen(VSIReadDir("/proc/self/fd"));
    for (int i = 0; i < aosOpen.Count(); ++i)
    {
        struct stat sOpen;
        if (fstat(atoi(aosOpen[i]), &sOpen) == 0 &&
            sOpen.st_dev == sNamed.st_dev && sOpen.st_ino == sNamed.st_ino)
            bOpen = true;
        char szLink[PATH_MAX + 16] = {};
        const std::string osLink = std::string("/proc/self/fd/") + aosOpen[i];
        if (readlink(osLink.c_str(), szLink, sizeof(szLink) - 1) > 0 &&
            osGone == szLink)
            return false;
    }
    return bOpen;
}

// A TIFF whose tiles may be copied as they are: opened for reading under its own
// name by GTiff, or by another copy of this library.
std::unique_ptr<gpugtiff::Image, GPUGTiffImageFree>
SourceImage(const gpugtiff::File *psTarget, GDALDataset *poSrcDS,
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
    if (STARTS_WITH_CI(osName.c_str(), "GTIFF_DIR:") || !IsOpen(osName))
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
        if (poSrcDS->GetRasterBand(i)->GetRasterDataType() !=
            poFirst->GetRasterDataType())
            return poImage;
    }
    poFile.reset(g_poApi->file_beside(psTarget, osName.c_str()));
    if (poFile)
        poImage.reset(g_poApi->image_open(poFile.get(), &sFacts));
    return poImage;
}

bool HasOwnMask(GDALRasterBand *poBand)
{
    return !(poBand->GetMaskFlags() &
             (GMF_ALL_VALID | GMF_PER_DATASET | GMF_ALPHA | GMF_NODATA));
}

class MaskOwnerBand final : public GDALRasterBand
{
  public:
    MaskOwnerBand(GDALDataset *poDSIn, int nBandIn, GDALRasterBand *poHollow)
    {
        poDS = poDSIn;
        nBand = nBandIn;
        eDataType = poHollow->GetRasterDataType();
        nRasterXSize = poDSIn->GetRasterXSize();
        nRasterYSize = poDSIn->GetRasterYSize();
        poHollow->GetBlockSize(&nBlockXSize, &nBlockYSize);
    }

  protected:
    CPLErr IReadBlock(int, int, void *) override
    {
        return CE_Failure;
    }
};

// GDAL writes masks beside a dataset, and the target is none before it has its
// header. This stands for it until then.
class MaskOwner final : public GDALDataset
{
  public:
    MaskOwner(const std::string &osTarget, GDALDataset *poSource,
              GDALDataset *poHollowDS)
    {
        eAccess = GA_Update;
        nRasterXSize = poSource->GetRasterXSize();
        nRasterYSize = poSource->GetRasterYSize();
        SetDescription(osTarget.c_str());
        for (int i = 1; i <= poSource->GetRasterCount(); ++i)
            SetBand(i,
                    new MaskOwnerBand(this, i, poHollowDS->GetRasterBand(i)));
        oOvManager.Initialize(this, osTarget.c_str());
    }
};

}  // namespace

bool GPUGTiffHasOneFill(GDALDataset *poSrcDS)
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

GPUGTiffCopy::GPUGTiffCopy(const std::string &osTarget, GDALDataset *poSource,
                           bool bStrict, GDALProgressFunc pfnProgress,
                           void *pProgressData)
    : m_osTarget(osTarget), m_poSource(poSource), m_bStrict(bStrict),
      m_pfnProgress(pfnProgress), m_pProgressData(pProgressData),
      m_eType(poSource->GetRasterBand(1)->GetRasterDataType()),
      m_bInternal(CPLTestBool(CPLGetConfigOption(
          "GDAL_TIFF_INTERNAL_MASK", GPUGTIFF_INTERNAL_MASK_DEFAULT))),
      m_bBandMasks(false)
{
    // As GTiff's CreateCopy() sees it.
    const int nFlags = poSource->GetRasterBand(1)->GetMaskFlags();
    m_bMask = !(nFlags & (GMF_ALL_VALID | GMF_ALPHA | GMF_NODATA)) &&
              (nFlags & GMF_PER_DATASET);
    for (int i = 1; i <= poSource->GetRasterCount(); ++i)
        m_bBandMasks = m_bBandMasks || HasOwnMask(poSource->GetRasterBand(i));
    const double dfBands = poSource->GetRasterCount();
    m_dfShare = dfBands / (dfBands + (m_bMask ? 1 : 0));
}

bool GPUGTiffCopy::Begin() const
{
    return Report(0, m_pfnProgress, m_pProgressData);
}

// Has the writer ask for the pixels of one of its images, and gets them from the
// source: its bands, or its mask. What the writer can take from psTiles itself it
// does not ask for.
bool GPUGTiffCopy::Pixels(gpugtiff::Output *psOutput, int nImage,
                          GDALRasterBand *poMask, const gpugtiff::Image *psTiles,
                          double dfFrom, double dfTo) const
{
    ScaledProgress oProgress(dfFrom, dfTo, m_pfnProgress, m_pProgressData);
    const Pipelined oPipelined(m_poSource);
    GDALRasterBand *poFirst = poMask ? poMask : m_poSource->GetRasterBand(1);
    int nBlockX = 0;
    int nBlockY = 0;
    poFirst->GetBlockSize(&nBlockX, &nBlockY);
    const char *pszInterleave =
        m_poSource->GetMetadataItem("INTERLEAVE", "IMAGE_STRUCTURE");
    const bool bTogether = poMask == nullptr && pszInterleave != nullptr &&
                           EQUAL(pszInterleave, "PIXEL");
    g_poApi->output_copy(psOutput, nImage, nBlockY, bTogether, psTiles);
    gpugtiff::Swath sSwath = {};
    Reading oReading(oProgress.Data());
    int nMore;
    while ((nMore = g_poApi->output_swath(psOutput, &sSwath)) > 0)
    {
        CPLErr eErr = CE_None;
        const bool bToFill = nMore == 1;
        if (bToFill && poMask != nullptr)
            eErr = poMask->RasterIO(GF_Read, sSwath.x, sSwath.y, sSwath.width,
                                    sSwath.height, sSwath.data, sSwath.width,
                                    sSwath.height, GDT_Byte, sSwath.pixel_space,
                                    sSwath.line_space,
                                    oReading.Begin(sSwath.done));
        else if (bToFill)
        {
            std::vector<int> anBands;
            for (int i = 0; i < sSwath.band_count; ++i)
                anBands.push_back(sSwath.first_band + i);
            eErr = m_poSource->RasterIO(
                GF_Read, sSwath.x, sSwath.y, sSwath.width, sSwath.height,
                sSwath.data, sSwath.width, sSwath.height, m_eType,
                sSwath.band_count, anBands.data(), sSwath.pixel_space,
                sSwath.line_space, sSwath.band_space,
                oReading.Begin(sSwath.done));
        }
        if (bToFill)
            eErr = oReading.End(eErr);
        if (eErr != CE_None ||
            (bToFill && g_poApi->output_take(psOutput) != 0) ||
            !Report(sSwath.done, GDALScaledProgress, oProgress.Data()))
            return false;
    }
    return nMore == 0 && Report(1, GDALScaledProgress, oProgress.Data());
}

// The tiles of a TIFF as they are: 1 done, 0 source and target do not agree, -1
// after an error.
int GPUGTiffCopy::Tiles(gpugtiff::Output *psOutput,
                        const gpugtiff::Image *psTiles) const
{
    ScaledProgress oProgress(0, m_dfShare, m_pfnProgress, m_pProgressData);
    return g_poApi->output_copy_tiles(psOutput, psTiles, GPUGTiffHasOneFill(m_poSource),
                                      oProgress.Data(), ReportShare);
}

bool GPUGTiffCopy::ToFile(const gpugtiff::File *psFile,
                          gpugtiff::Output *psOutput,
                          const GPUGTiffHollow &oHollow,
                          GDALDataset *poHollowDS) const
{
    GPUGTiffDataset::FilePtr poSourceFile;
    std::unique_ptr<gpugtiff::Image, GPUGTiffImageFree> poOpened;
    // A dataset of ours has its file open, and decodes as its own options say.
    auto poOurs = GPUGTiffOurs<GPUGTiffDataset>(m_poSource);
    if (poOurs == nullptr)
        poOpened = SourceImage(psFile, m_poSource, poSourceFile);
    const gpugtiff::Image *psTiles = poOurs ? poOurs->Image() : poOpened.get();
    const int nCopied = psTiles ? Tiles(psOutput, psTiles) : 0;
    if (nCopied < 0)
        return false;
    if (nCopied == 0 && !Pixels(psOutput, 0, nullptr, psTiles, 0, m_dfShare))
        return false;
    if (!m_bMask || !m_bInternal)
        return MasksBeside(psOutput, poHollowDS);
    if (poHollowDS->CreateMaskBand(GMF_PER_DATASET) != CE_None)
        return false;
    poHollowDS->FlushCache(false);
    const int nMask =
        g_poApi->output_add_mask(psOutput, oHollow.Name().c_str(), 255);
    return nMask >= 0 &&
           Pixels(psOutput, nMask, m_poSource->GetRasterBand(1)->GetMaskBand(),
                  nullptr, m_dfShare, 1);
}

bool GPUGTiffCopy::Mask(GDALRasterBand *poFrom, GDALRasterBand *poTo) const
{
    ScaledProgress oProgress(m_dfShare, 1, m_pfnProgress, m_pProgressData);
    const char *const apszOptions[] = {"COMPRESSED=YES", nullptr};
    return GDALRasterBandCopyWholeRaster(poFrom, poTo, apszOptions,
                                         GDALScaledProgress,
                                         oProgress.Data()) == CE_None;
}

void GPUGTiffCopy::RemoveMasks() const
{
    if (!m_bInternal && (m_bMask || m_bBandMasks))
        VSIUnlink((m_osTarget + ".msk").c_str());
}

// While the target has no name or no header yet: it never opens without its
// masks.
bool GPUGTiffCopy::MasksBeside(const gpugtiff::Output *psOutput,
                               GDALDataset *poHollowDS) const
{
    if (!m_bMask && !m_bBandMasks)
        return true;
    // GTiff says why it does not put the mask of a band into the file.
    if (m_bInternal)
        return Masks(poHollowDS);
    const char *pszUnnamed = g_poApi->output_beside(psOutput);
    // GDAL would go on with one that a killed copy left.
    if (pszUnnamed == nullptr)
        RemoveMasks();
    std::unique_ptr<GDALDataset> poOwner(
        new MaskOwner(pszUnnamed ? std::string(pszUnnamed) : m_osTarget,
                      m_poSource, poHollowDS));
    if (!Masks(poOwner.get()))
        return false;
    // What goes wrong when the .msk file is closed is told by messages only.
    GPUGTiffMessages oMessages;
    poOwner.reset();
    const bool bWritten = !oMessages.HasFailure();
    oMessages.Raise();
    return bWritten;
}

// As GDALDriver::DefaultCopyMasks(), which is not for plugins to call.
bool GPUGTiffCopy::Masks(GDALDataset *poTarget) const
{
    // A target of CMYK has four bands, whatever the source has.
    const int nCount =
        std::min(m_poSource->GetRasterCount(), poTarget->GetRasterCount());
    for (int i = 1; i <= nCount; ++i)
    {
        GDALRasterBand *poFrom = m_poSource->GetRasterBand(i);
        GDALRasterBand *poTo = poTarget->GetRasterBand(i);
        if (!HasOwnMask(poFrom))
            continue;
        if (poTo->CreateMaskBand(poFrom->GetMaskFlags()) != CE_None)
        {
            // Only what GTiff has no place for may be left out.
            if (m_bStrict || !m_bInternal)
                return false;
        }
        else if (!Mask(poFrom->GetMaskBand(), poTo->GetMaskBand()))
            return false;
    }
    if (!m_bMask)
        return true;
    return poTarget->CreateMaskBand(GMF_PER_DATASET) == CE_None &&
           Mask(m_poSource->GetRasterBand(1)->GetMaskBand(),
                poTarget->GetRasterBand(1)->GetMaskBand());
}
