#include "overlay.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "cpl_vsi_virtual.h"
#include "gdal_pam.h"

namespace
{
constexpr const char *RAW = "GTIFF_RAW:";
constexpr const char *DIRECTORY = "GTIFF_DIR:";

// The one handle of the file, and what is read through it changed in the caller's
// buffer. There is no descriptor and no PRead() for those who would go around.
class Overlay final : public VSIVirtualHandle
{
  public:
    Overlay(VSILFILE *fp, const gpugtiff::Patch *pasPatches, size_t nPatches)
        : m_fp(fp), m_asPatches(pasPatches, pasPatches + nPatches)
    {
    }

    ~Overlay() override
    {
        Overlay::Close();
    }

    int Seek(vsi_l_offset nOffset, int nWhence) override
    {
        return VSIFSeekL(m_fp, nOffset, nWhence);
    }

    vsi_l_offset Tell() override
    {
        return VSIFTellL(m_fp);
    }

    size_t Read(void *pBuffer, GPUGTIFF_IO_ARGS) override
    {
        const vsi_l_offset nStart = VSIFTellL(m_fp);
        const size_t nRead =
            VSIFReadL(pBuffer, GPUGTIFF_IO_UNIT, GPUGTIFF_IO_COUNT, m_fp);
        Change(static_cast<GByte *>(pBuffer), nStart, nRead * GPUGTIFF_IO_UNIT);
        return nRead;
    }

    size_t Write(const void *, GPUGTIFF_IO_UNUSED_ARGS) override
    {
        return 0;
    }

    int Eof() override
    {
        return VSIFEofL(m_fp);
    }

#if GPUGTIFF_GDAL(3, 10)
    void ClearErr() override
    {
        VSIFClearErrL(m_fp);
    }

    int Error() override
    {
        return VSIFErrorL(m_fp);
    }
#endif

    int Close() override
    {
        VSILFILE *fp = m_fp;
        m_fp = nullptr;
        return fp ? VSIFCloseL(fp) : 0;
    }

    VSIRangeStatus GetRangeStatus(vsi_l_offset nOffset,
                                  vsi_l_offset nLength) override
    {
        return VSIFGetRangeStatusL(m_fp, nOffset, nLength);
    }

  private:
    void Change(GByte *pabyBytes, vsi_l_offset nStart, size_t nBytes) const
    {
        auto oPatch = std::lower_bound(
            m_asPatches.begin(), m_asPatches.end(), nStart,
            [](const gpugtiff::Patch &sPatch, vsi_l_offset nOffset)
            { return sPatch.offset < nOffset; });
        for (; oPatch != m_asPatches.end() && oPatch->offset - nStart < nBytes;
             ++oPatch)
            pabyBytes[oPatch->offset - nStart] = oPatch->byte;
    }

    VSILFILE *m_fp;
    const std::vector<gpugtiff::Patch> m_asPatches;

    CPL_DISALLOW_COPY_ASSIGN(Overlay)
};

// What a name says between GTIFF_DIR: and the file.
std::string DirectoryOf(const char *pszName)
{
    const char *pszFile = GPUGTiffFileOf(pszName);
    if (STARTS_WITH_CI(pszName, RAW))
        pszName += strlen(RAW);
    if (!STARTS_WITH_CI(pszName, DIRECTORY))
        return std::string();
    pszName += strlen(DIRECTORY);
    return pszFile > pszName ? std::string(pszName, pszFile - 1)
                             : std::string();
}

// What a dataset of GTiff's has when opened as GTIFF_DIR, and one opened as a file
// has not: the members are protected.
class PageAccess : public GDALPamDataset
{
  public:
    static void Set(GDALDataset *poDS, const char *pszFile,
                    const char *pszName)
    {
        poDS->SetDescription(pszName);
        // An .ovr or .msk beside the file belongs to its first image.
        auto poOverviews = &PageAccess::oOvManager;
        (poDS->*poOverviews).Initialize(nullptr);
        auto poPam = dynamic_cast<GDALPamDataset *>(poDS);
        if (poPam == nullptr)
            return;
        auto pfnFile = &PageAccess::SetPhysicalFilename;
        auto pfnName = &PageAccess::SetSubdatasetName;
        (poPam->*pfnFile)(pszFile);
        (poPam->*pfnName)(pszName);
    }
};
}  // namespace

const char *GPUGTiffFileOf(const char *pszName)
{
    if (STARTS_WITH_CI(pszName, RAW))
        pszName += strlen(RAW);
    if (!STARTS_WITH_CI(pszName, DIRECTORY))
        return pszName;
    pszName += strlen(DIRECTORY);
    if (STARTS_WITH_CI(pszName, "off:"))
        pszName += strlen("off:");
    const char *pszColon = strchr(pszName, ':');
    return pszColon ? pszColon + 1 : pszName;
}

GDALDataset *GPUGTiffOpenOverlaid(GDALOpenInfo *poOpenInfo,
                                  gpugtiff::File *psFile)
{
    const char *pszName = poOpenInfo->pszFilename;
    const char *pszFile = GPUGTiffFileOf(pszName);
    const std::string osDirectory = DirectoryOf(pszName);
    size_t nPatches = 0;
    const gpugtiff::Patch *pasPatches =
        g_poApi->file_overlay(psFile, osDirectory.c_str(), &nPatches);
    if (pasPatches == nullptr)
        return nullptr;
    const auto OpenFile = [&](GDALOpenInfo *poInfo) -> GDALDataset *
    {
        if (poInfo->fpL == nullptr)
            poInfo->fpL = VSIFOpenL(pszFile, "rb");
        if (poInfo->fpL == nullptr)
            return nullptr;
        // GTiff takes what is not at its start for a stream.
        VSIRewindL(poInfo->fpL);
        VSIVirtualHandle *poOverlay =
            new Overlay(poInfo->fpL, pasPatches, nPatches);
        // A type of its own before GDAL 3.10.
        poInfo->fpL = reinterpret_cast<VSILFILE *>(poOverlay);
        return GPUGTiffOpenInner(poInfo);
    };
    if (osDirectory.empty())
        return OpenFile(poOpenInfo);
    // GTiff would open the file itself, were it told the directory.
    const std::string osAlone =
        (STARTS_WITH_CI(pszName, RAW) ? RAW : "") + std::string(pszFile);
    GDALOpenInfo oAlone(osAlone.c_str(), poOpenInfo->nOpenFlags);
    oAlone.papszOpenOptions = poOpenInfo->papszOpenOptions;
    GDALDataset *poInner = OpenFile(&oAlone);
    if (poInner != nullptr)
        PageAccess::Set(poInner, pszFile, pszName);
    return poInner;
}
