#include "claim.h"

#include <atomic>

#include "dataset.h"

namespace
{
bool g_bReplacing = false;

bool IsNamed(const GDALOpenInfo *poOpenInfo)
{
    if (GPUGTiffHasPrefix(poOpenInfo))
        return true;
    auto papszDrivers = const_cast<char **>(poOpenInfo->papszAllowedDrivers);
    // A list of most drivers says who is left out, and names nobody.
    return CSLFindString(papszDrivers, GPUGTIFF_NAME) >= 0 &&
           CSLCount(papszDrivers) <= 1 + GDALGetDriverCount() / 2;
}

// A configuration option's value where that is a word for yes or no or the one
// more that is allowed, else its default, and a warning when first asked.
const char *ConfigWord(const char *pszName, const char *pszDefault,
                       const char *pszAllowed, std::atomic<bool> &bWarned)
{
    const char *pszValue = CPLGetConfigOption(pszName, pszDefault);
    for (const char *pszWord :
         {"YES", "TRUE", "ON", "1", "NO", "FALSE", "OFF", "0", pszDefault})
    {
        if (EQUAL(pszValue, pszWord))
            return pszValue;
    }
    if (!bWarned.exchange(true))
        CPLError(CE_Warning, CPLE_IllegalArg,
                 "GPUGTiff: %s=%s is not valid: expected one of %s. "
                 "%s is taken",
                 pszName, pszValue, pszAllowed, pszDefault);
    return pszDefault;
}

// Whether plain files are opened by us although nobody named us.
bool Claims()
{
    // They are, under GTiff's name.
    if (g_bReplacing)
        return false;
    static std::atomic<bool> bWarned{false};
    const char *pszClaim =
        ConfigWord("GPUGTIFF_CLAIM", "AUTO", "AUTO, YES, NO", bWarned);
    if (EQUAL(pszClaim, "AUTO"))
        return g_poApi->gpu_looks_usable() != 0;
    return CPLTestBool(pszClaim);
}

// Whether GDAL would ask GTiff for the file: a claim stands in for it, so it must
// be registered and allowed, and no driver that goes before it may take the file.
bool GTiffIsAsked(GDALOpenInfo *poOpenInfo)
{
    GDALDriverManager *poManager = GetGDALDriverManager();
    if (poManager->GetDriverByName("GTiff") == nullptr)
        return false;
    auto papszDrivers = const_cast<char **>(poOpenInfo->papszAllowedDrivers);
    if (papszDrivers != nullptr && CSLFindString(papszDrivers, "GTiff") < 0)
    {
        // From 3.13 on a list may say who is excluded.
        for (int i = 0; papszDrivers[i] != nullptr; ++i)
        {
            if (papszDrivers[i][0] != '-' || EQUAL(papszDrivers[i], "-GTiff"))
                return false;
        }
    }
    // From 3.10 on; a plugin such as ours goes before it.
    GDALDriver *poSnap = poManager->GetDriverByName("SNAP_TIFF");
    return poSnap == nullptr || poSnap->pfnIdentify == nullptr ||
           poSnap->pfnIdentify(poOpenInfo) == FALSE;
}
}  // namespace

bool GPUGTiffHasPrefix(const GDALOpenInfo *poOpenInfo)
{
    return STARTS_WITH_CI(poOpenInfo->pszFilename, GPUGTIFF_PREFIX);
}

GPUGTiffReason GPUGTiffReasonFor(GDALOpenInfo *poOpenInfo)
{
    if (IsNamed(poOpenInfo))
        return GPUGTiffReason::NAMED;
    if (poOpenInfo->eAccess == GA_Update || !Claims() ||
        !GTiffIsAsked(poOpenInfo))
        return GPUGTiffReason::NONE;
    return GPUGTiffReason::CLAIMED;
}

bool GPUGTiffReplaces()
{
    static std::atomic<bool> bWarned{false};
    return CPLTestBool(
        ConfigWord("GPUGTIFF_REPLACE_GTIFF", "NO", "YES, NO", bWarned));
}

void GPUGTiffStopClaiming()
{
    g_bReplacing = true;
}
