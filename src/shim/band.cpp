#include "band.h"

#include "guard.h"

GPUGTiffBand::GPUGTiffBand(GPUGTiffDataset *poDSIn, int nBandIn,
                           GDALRasterBand *poInner)
    : m_poInner(poInner)
{
    poDS = poDSIn;
    nBand = nBandIn;
    eDataType = poInner->GetRasterDataType();
    eAccess = poInner->GetAccess();
    nRasterXSize = poInner->GetXSize();
    nRasterYSize = poInner->GetYSize();
    poInner->GetBlockSize(&nBlockXSize, &nBlockYSize);
}

// What the proxy does not forward.

const char *GPUGTiffBand::GetDescription() const
{
    return m_poInner->GetDescription();
}

void GPUGTiffBand::SetDescription(const char *pszDescription)
{
    m_poInner->SetDescription(pszDescription);
}

int64_t GPUGTiffBand::GetNoDataValueAsInt64(int *pbSuccess)
{
    return m_poInner->GetNoDataValueAsInt64(pbSuccess);
}

uint64_t GPUGTiffBand::GetNoDataValueAsUInt64(int *pbSuccess)
{
    return m_poInner->GetNoDataValueAsUInt64(pbSuccess);
}

CPLErr GPUGTiffBand::SetNoDataValueAsInt64(int64_t nNoData)
{
    return m_poInner->SetNoDataValueAsInt64(nNoData);
}

CPLErr GPUGTiffBand::SetNoDataValueAsUInt64(uint64_t nNoData)
{
    return m_poInner->SetNoDataValueAsUInt64(nNoData);
}

GDALSuggestedBlockAccessPattern
GPUGTiffBand::GetSuggestedBlockAccessPattern() const
{
    return m_poInner->GetSuggestedBlockAccessPattern();
}

int GPUGTiffBand::IGetDataCoverageStatus(int nXOff, int nYOff, int nXSize,
                                         int nYSize, int nMaskFlagStop,
                                         double *pdfDataPct)
{
    return m_poInner->GetDataCoverageStatus(nXOff, nYOff, nXSize, nYSize,
                                            nMaskFlagStop, pdfDataPct);
}

// The counters are answered on bands too, and listed nowhere.

MetadataList GPUGTiffBand::GetMetadata(const char *pszDomain)
{
    if (pszDomain != nullptr && EQUAL(pszDomain, "GPUGTIFF"))
        return Owner()->Counters();
    return GDALProxyRasterBand::GetMetadata(pszDomain);
}

const char *GPUGTiffBand::GetMetadataItem(const char *pszName,
                                          const char *pszDomain)
{
    if (pszDomain != nullptr && EQUAL(pszDomain, "GPUGTIFF"))
        return CSLFetchNameValue(Owner()->Counters(), pszName);
    return GDALProxyRasterBand::GetMetadataItem(pszName, pszDomain);
}

// Overviews and masks are wrapped, so that their pixels are ours as well.

int GPUGTiffBand::GetOverviewCount()
{
    return Owner()->AreOverviewsEnabled() ? m_poInner->GetOverviewCount() : 0;
}

GDALRasterBand *GPUGTiffBand::GetOverview(int nOverview)
{
    GDALRasterBand *poOverview = m_poInner->GetOverview(nOverview);
    if (poOverview == nullptr)
        return nullptr;
    GDALRasterBand *poFirst =
        nOverview > 0 ? m_poInner->GetOverview(0) : nullptr;
    GDALRasterBand *poOurs =
        Owner()->Wrap(poOverview, poFirst, nOverview, Owner()->Bit());
    return poOurs ? poOurs : poOverview;
}

GDALRasterBand *GPUGTiffBand::GetRasterSampleOverview(GUIntBig nSamples)
{
    return GDALRasterBand::GetRasterSampleOverview(nSamples);
}

GDALRasterBand *GPUGTiffBand::GetMaskBand()
{
    GDALRasterBand *poMask = m_poInner->GetMaskBand();
    if (poMask == nullptr)
        return nullptr;
    GDALDataset *poMaskDS = poMask->GetDataset();
    if (poMaskDS != nullptr && poMaskDS != Owner()->Inner())
    {
        // GTiff shows the set bits of its own 1-bit masks as 255 if asked to; of
        // masks with interleaved bands it says so too, and shows 1.
        const char *pszInterleave =
            poMaskDS->GetMetadataItem("INTERLEAVE", "IMAGE_STRUCTURE");
        const bool bInterleaved =
            pszInterleave != nullptr && EQUAL(pszInterleave, "PIXEL");
        const int nBit = !bInterleaved && poMask->GetMaskValueRange() ==
                                              GMVR_0_AND_255_ONLY
                             ? 255
                             : 1;
        GDALRasterBand *poOurs = Owner()->Wrap(poMask, nullptr, -1, nBit);
        return poOurs ? poOurs : poMask;
    }
    if (GDALRasterBand *poBorrowed = Owner()->BorrowedMask(nBand))
        return poBorrowed;
    // Nodata, alpha or nothing: made from our own pixels, if they are ours.
    return Owner()->DecodesHere() ? GDALRasterBand::GetMaskBand() : poMask;
}

int GPUGTiffBand::GetMaskFlags()
{
    GDALRasterBand *poMask = m_poInner->GetMaskBand();
    GDALDataset *poMaskDS = poMask ? poMask->GetDataset() : nullptr;
    if ((poMaskDS == nullptr || poMaskDS == Owner()->Inner()) &&
        Owner()->BorrowedMask(nBand) != nullptr)
        return GMF_PER_DATASET;
    return m_poInner->GetMaskFlags();
}

CPLErr GPUGTiffBand::BuildOverviews(const char *pszResampling, int nOverviews,
                                    const int *panOverviewList,
                                    GDALProgressFunc pfnProgress,
                                    void *pProgressData,
                                    CSLConstList papszOptions)
{
    if (nOverviews > 0 && Owner()->IsOursAlone())
        return Owner()->Refuse("building overviews");
    Owner()->DropLevels(nOverviews == 0);
    return m_poInner->BuildOverviews(pszResampling, nOverviews, panOverviewList,
                                     pfnProgress, pProgressData, papszOptions);
}

CPLErr GPUGTiffBand::CreateMaskBand(int nFlags)
{
    Owner()->DropLevels(false);
    return m_poInner->CreateMaskBand(nFlags);
}

CPLErr GPUGTiffBand::GetHistogram(double dfMin, double dfMax, int nBuckets,
                                  GUIntBig *panHistogram,
                                  int bIncludeOutOfRange, int bApproxOK,
                                  GDALProgressFunc pfnProgress,
                                  void *pProgressData)
try
{
    if (Owner()->IsOursAlone())
        return GDALRasterBand::GetHistogram(dfMin, dfMax, nBuckets, panHistogram,
                                            bIncludeOutOfRange, bApproxOK,
                                            pfnProgress, pProgressData);
    // GTiff remembers histograms (.aux.xml). One of the kind that can be handed
    // to it is computed here, if there is none yet; others are left to it.
    double dfSavedMin = 0;
    double dfSavedMax = 0;
    int nSaved = 0;
    GUIntBig *panSaved = nullptr;
    const bool bSaved =
        m_poInner->GetDefaultHistogram(&dfSavedMin, &dfSavedMax, &nSaved,
                                       &panSaved, FALSE, nullptr,
                                       nullptr) == CE_None;
    CPLFree(panSaved);
    if (bSaved || !bIncludeOutOfRange || bApproxOK || !Owner()->DecodesHere())
        return m_poInner->GetHistogram(dfMin, dfMax, nBuckets, panHistogram,
                                       bIncludeOutOfRange, bApproxOK,
                                       pfnProgress, pProgressData);
    const CPLErr eErr = GDALRasterBand::GetHistogram(
        dfMin, dfMax, nBuckets, panHistogram, bIncludeOutOfRange, bApproxOK,
        pfnProgress, pProgressData);
    if (eErr == CE_None)
        m_poInner->SetDefaultHistogram(dfMin, dfMax, nBuckets, panHistogram);
    return eErr;
}
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
}

CPLVirtualMem *GPUGTiffBand::GetVirtualMemAuto(GDALRWFlag eRWFlag,
                                               int *pnPixelSpace,
                                               GIntBig *pnLineSpace,
                                               AdviseOptions papszOptions)
{
    return Owner()->IsOursAlone()
               ? GDALRasterBand::GetVirtualMemAuto(eRWFlag, pnPixelSpace,
                                                   pnLineSpace, papszOptions)
               : GDALProxyRasterBand::GetVirtualMemAuto(
                     eRWFlag, pnPixelSpace, pnLineSpace, papszOptions);
}

CPLErr GPUGTiffBand::AdviseRead(int nXOff, int nYOff, int nXSize, int nYSize,
                                int nBufXSize, int nBufYSize, GDALDataType eDT,
                                AdviseOptions papszOptions)
{
    if (Owner()->DecodesHere())
        return CE_None;
    return GDALProxyRasterBand::AdviseRead(nXOff, nYOff, nXSize, nYSize,
                                           nBufXSize, nBufYSize, eDT,
                                           papszOptions);
}

// Pixels.

CPLErr GPUGTiffBand::IReadBlock(int nBlockXOff, int nBlockYOff, void *pImage)
try
{
    CPLErr eErr = CE_None;
    if (Owner()->DecodesHere() &&
        Owner()->ReadBlock(nBand, nBlockXOff, nBlockYOff, pImage, eErr))
        return eErr;
    if (Owner()->IsOursAlone())
        return Owner()->Refuse("a block");
    Owner()->CountPassed(true);
    return GPUGTiffReadBlock(m_poInner, nBlockXOff, nBlockYOff, pImage);
}
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
}

CPLErr GPUGTiffBand::IWriteBlock(int nBlockXOff, int nBlockYOff, void *pImage)
try
{
    return m_poInner->WriteBlock(nBlockXOff, nBlockYOff, pImage);
}
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
}

CPLErr GPUGTiffBand::IRasterIO(GDALRWFlag eRWFlag, int nXOff, int nYOff,
                               int nXSize, int nYSize, void *pData,
                               int nBufXSize, int nBufYSize,
                               GDALDataType eBufType, GSpacing nPixelSpace,
                               GSpacing nLineSpace,
                               GDALRasterIOExtraArg *psExtraArg)
try
{
    GPUGTiffDataset *poOwner = Owner();
    const bool bPlain = GPUGTiffIsPlain(nXOff, nYOff, nXSize, nYSize, nBufXSize,
                                        nBufYSize, psExtraArg);
    if (!poOwner->Serves(eRWFlag, bPlain))
    {
        const int nBandIn = nBand;
        return poOwner->Pass([=](GDALDataset *poInner)
                             {
                                 return poInner->GetRasterBand(nBandIn)->RasterIO(
                                     eRWFlag, nXOff, nYOff, nXSize, nYSize,
                                     pData, nBufXSize, nBufYSize, eBufType,
                                     nPixelSpace, nLineSpace, psExtraArg);
                             });
    }
    if (bPlain && !GPUGTiffIsInOneBlock(this, nXOff, nYOff, nXSize, nYSize))
    {
        CPLErr eErr = CE_None;
        if (poOwner->ReadWindow(nXOff, nYOff, nXSize, nYSize, pData, eBufType,
                                1, &nBand, nPixelSpace, nLineSpace, 0,
                                psExtraArg, eErr))
            return eErr;
        return IRasterIO(eRWFlag, nXOff, nYOff, nXSize, nYSize, pData,
                         nBufXSize, nBufYSize, eBufType, nPixelSpace,
                         nLineSpace, psExtraArg);
    }
    return GDALRasterBand::IRasterIO(eRWFlag, nXOff, nYOff, nXSize, nYSize,
                                     pData, nBufXSize, nBufYSize, eBufType,
                                     nPixelSpace, nLineSpace, psExtraArg);
}
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
}
