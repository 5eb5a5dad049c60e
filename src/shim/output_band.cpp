// The bands of a dataset that is being created.

#include "output.h"

#include <algorithm>

#include "guard.h"

GPUGTiffOutputBand::GPUGTiffOutputBand(GPUGTiffOutput *poDSIn, int nBandIn,
                                       int nImage, int nRows)
    : m_nImage(nImage)
{
    poDS = poDSIn;
    nBand = nBandIn;
    eAccess = GA_Update;
    GDALRasterBand *poInner = Inner();
    eDataType = poInner->GetRasterDataType();
    nRasterXSize = poInner->GetXSize();
    nRasterYSize = nRows;
    poInner->GetBlockSize(&nBlockXSize, &nBlockYSize);
}

GDALRasterBand *GPUGTiffOutputBand::Inner() const
{
    GDALDataset *poInner = Owner()->Inner();
    if (poInner == nullptr)
        return nullptr;
    if (m_nImage == 0)
        return poInner->GetRasterBand(nBand);
    return poInner->GetRasterBand(1)->GetMaskBand();
}

CPLErr GPUGTiffOutputBand::FlushCache(bool bAtClosing)
try
{
    return GDALRasterBand::FlushCache(bAtClosing);
}
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
}

CPLErr GPUGTiffOutputBand::WriteWindow(int nXOff, int nYOff, int nXSize,
                                       int nYSize, const void *pData,
                                       GDALDataType eBufType,
                                       GSpacing nPixelSpace,
                                       GSpacing nLineSpace)
{
    gpugtiff::Request sRequest = {};
    sRequest.x = nXOff;
    sRequest.y = nYOff;
    sRequest.width = nXSize;
    sRequest.height = nYSize;
    sRequest.bands = &nBand;
    sRequest.band_count = 1;
    sRequest.kind = eBufType;
    sRequest.data = const_cast<void *>(pData);
    sRequest.pixel_space = nPixelSpace;
    sRequest.line_space = nLineSpace;
    return Owner()->Write(m_nImage, sRequest);
}

CPLErr GPUGTiffOutputBand::IReadBlock(int nBlockXOff, int nBlockYOff,
                                      void *pImage)
try
{
    if (Owner()->Output() == nullptr)
    {
        GDALRasterBand *poInner = Inner();
        return poInner ? GPUGTiffReadBlock(poInner, nBlockXOff, nBlockYOff,
                                           pImage)
                       : CE_Failure;
    }
    // GTiff writes the tags when pixels are asked for, too.
    if (!Owner()->SettleTags())
        return CE_Failure;
    return g_poApi->output_read(Owner()->Output(), m_nImage, nBand, nBlockXOff,
                                nBlockYOff, pImage) == 0
               ? CE_None
               : CE_Failure;
}
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
}

CPLErr GPUGTiffOutputBand::IWriteBlock(int nBlockXOff, int nBlockYOff,
                                       void *pImage)
try
{
    if (Owner()->Output() == nullptr)
    {
        GDALRasterBand *poInner = Inner();
        return poInner ? poInner->WriteBlock(nBlockXOff, nBlockYOff, pImage)
                       : CE_Failure;
    }
    if (!Owner()->SettleTags())
        return CE_Failure;
    gpugtiff::Request sRequest = {};
    sRequest.x = nBlockXOff * nBlockXSize;
    sRequest.y = nBlockYOff * nBlockYSize;
    sRequest.width = std::min(nBlockXSize, nRasterXSize - sRequest.x);
    sRequest.height = std::min(nBlockYSize, nRasterYSize - sRequest.y);
    sRequest.bands = &nBand;
    sRequest.band_count = 1;
    sRequest.kind = eDataType;
    sRequest.data = pImage;
    sRequest.pixel_space = GDALGetDataTypeSizeBytes(eDataType);
    sRequest.line_space = sRequest.pixel_space * nBlockXSize;
    // Straight to the writer: this block is on its way out of GDAL's cache.
    return g_poApi->output_write(Owner()->Output(), m_nImage, &sRequest) == 0
               ? CE_None
               : CE_Failure;
}
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
}

CPLErr GPUGTiffOutputBand::IRasterIO(GDALRWFlag eRWFlag, int nXOff, int nYOff,
                                     int nXSize, int nYSize, void *pData,
                                     int nBufXSize, int nBufYSize,
                                     GDALDataType eBufType,
                                     GSpacing nPixelSpace, GSpacing nLineSpace,
                                     GDALRasterIOExtraArg *psExtraArg)
try
{
    if (Owner()->Output() == nullptr)
        return GDALProxyRasterBand::IRasterIO(
            eRWFlag, nXOff, nYOff, nXSize, nYSize, pData, nBufXSize, nBufYSize,
            eBufType, nPixelSpace, nLineSpace, psExtraArg);
    if (eRWFlag == GF_Write &&
        GPUGTiffIsPlain(nXOff, nYOff, nXSize, nYSize, nBufXSize, nBufYSize,
                        psExtraArg))
    {
        const CPLErr eErr = WriteWindow(nXOff, nYOff, nXSize, nYSize, pData,
                                        eBufType, nPixelSpace, nLineSpace);
        if (eErr == CE_None && psExtraArg && psExtraArg->pfnProgress &&
            !psExtraArg->pfnProgress(1, "", psExtraArg->pProgressData))
            return CE_Failure;
        return eErr;
    }
    return GDALRasterBand::IRasterIO(eRWFlag, nXOff, nYOff, nXSize, nYSize,
                                     pData, nBufXSize, nBufYSize, eBufType,
                                     nPixelSpace, nLineSpace, psExtraArg);
}
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
}

// A view of the file, which must be there.
CPLVirtualMem *GPUGTiffOutputBand::GetVirtualMemAuto(GDALRWFlag eRWFlag,
                                                     int *pnPixelSpace,
                                                     GIntBig *pnLineSpace,
                                                     AdviseOptions papszOptions)
{
    if (!Owner()->Realise())
        return nullptr;
    return GDALProxyRasterBand::GetVirtualMemAuto(eRWFlag, pnPixelSpace,
                                                  pnLineSpace, papszOptions);
}

CPLErr GPUGTiffOutputBand::Fill(double dfReal, double dfImaginary)
try
{
    return Owner()->Output() ? GDALRasterBand::Fill(dfReal, dfImaginary)
                             : GDALProxyRasterBand::Fill(dfReal, dfImaginary);
}
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
}

int GPUGTiffOutputBand::IGetDataCoverageStatus(int nXOff, int nYOff, int nXSize,
                                               int nYSize, int nMaskFlagStop,
                                               double *pdfDataPct)
{
    if (Owner()->Output() == nullptr)
    {
        GDALRasterBand *poInner = Inner();
        return poInner ? poInner->GetDataCoverageStatus(nXOff, nYOff, nXSize,
                                                        nYSize, nMaskFlagStop,
                                                        pdfDataPct)
                       : GDAL_DATA_COVERAGE_STATUS_UNIMPLEMENTED;
    }
    // GDAL's cache may hold what the writer does not know of yet.
    FlushCache(false);
    const int anWindow[] = {nXOff, nYOff, nXSize, nYSize};
    const int64_t nWritten = g_poApi->output_written(Owner()->Output(), m_nImage,
                                                     nBand, anWindow);
    const int64_t nAll = static_cast<int64_t>(nXSize) * nYSize;
    if (pdfDataPct)
        *pdfDataPct = 100.0 * nWritten / nAll;
    return (nWritten > 0 ? GDAL_DATA_COVERAGE_STATUS_DATA : 0) |
           (nWritten < nAll ? GDAL_DATA_COVERAGE_STATUS_EMPTY : 0);
}

// Nodata is also what the writer fills with.

CPLErr GPUGTiffOutputBand::SetNoDataValue(double dfNoData)
{
    const CPLErr eErr = GDALProxyRasterBand::SetNoDataValue(dfNoData);
    Owner()->UpdateFill(nBand);
    return eErr;
}

CPLErr GPUGTiffOutputBand::DeleteNoDataValue()
{
    const CPLErr eErr = GDALProxyRasterBand::DeleteNoDataValue();
    Owner()->UpdateFill(nBand);
    return eErr;
}

// There is no inner band where finishing the file failed.

int64_t GPUGTiffOutputBand::GetNoDataValueAsInt64(int *pbSuccess)
{
    GDALRasterBand *poInner = Inner();
    return poInner ? poInner->GetNoDataValueAsInt64(pbSuccess)
                   : GDALRasterBand::GetNoDataValueAsInt64(pbSuccess);
}

uint64_t GPUGTiffOutputBand::GetNoDataValueAsUInt64(int *pbSuccess)
{
    GDALRasterBand *poInner = Inner();
    return poInner ? poInner->GetNoDataValueAsUInt64(pbSuccess)
                   : GDALRasterBand::GetNoDataValueAsUInt64(pbSuccess);
}

CPLErr GPUGTiffOutputBand::SetNoDataValueAsInt64(int64_t nNoData)
{
    GDALRasterBand *poInner = Inner();
    const CPLErr eErr =
        poInner ? poInner->SetNoDataValueAsInt64(nNoData) : CE_Failure;
    Owner()->UpdateFill(nBand);
    return eErr;
}

CPLErr GPUGTiffOutputBand::SetNoDataValueAsUInt64(uint64_t nNoData)
{
    GDALRasterBand *poInner = Inner();
    const CPLErr eErr =
        poInner ? poInner->SetNoDataValueAsUInt64(nNoData) : CE_Failure;
    Owner()->UpdateFill(nBand);
    return eErr;
}

const char *GPUGTiffOutputBand::GetDescription() const
{
    GDALRasterBand *poInner = Inner();
    return poInner ? poInner->GetDescription() : "";
}

void GPUGTiffOutputBand::SetDescription(const char *pszDescription)
{
    if (GDALRasterBand *poInner = Inner())
        poInner->SetDescription(pszDescription);
}

MetadataList GPUGTiffOutputBand::GetMetadata(const char *pszDomain)
{
    if (pszDomain != nullptr && EQUAL(pszDomain, "GPUGTIFF"))
        return Owner()->Counters();
    return GDALProxyRasterBand::GetMetadata(pszDomain);
}

const char *GPUGTiffOutputBand::GetMetadataItem(const char *pszName,
                                                const char *pszDomain)
{
    if (pszDomain != nullptr && EQUAL(pszDomain, "GPUGTIFF"))
        return CSLFetchNameValue(Owner()->Counters(), pszName);
    // Where tiles are is only known of a finished file.
    if (pszDomain != nullptr && EQUAL(pszDomain, "TIFF"))
        Owner()->Realise();
    return GDALProxyRasterBand::GetMetadataItem(pszName, pszDomain);
}

// Masks and overviews.

GDALRasterBand *GPUGTiffOutputBand::GetMaskBand()
{
    if (Owner()->Output() == nullptr)
        return GDALProxyRasterBand::GetMaskBand();
    if (Owner()->Mask() != nullptr && m_nImage == 0)
        return Owner()->Mask();
    return GDALRasterBand::GetMaskBand();
}

int GPUGTiffOutputBand::GetMaskFlags()
{
    if (Owner()->Output() == nullptr)
        return GDALProxyRasterBand::GetMaskFlags();
    if (Owner()->Mask() != nullptr && m_nImage == 0)
        return GMF_PER_DATASET;
    return GDALRasterBand::GetMaskFlags();
}

CPLErr GPUGTiffOutputBand::CreateMaskBand(int nFlagsIn)
{
    if (Owner()->Output() == nullptr)
        return GDALProxyRasterBand::CreateMaskBand(nFlagsIn);
    return Owner()->MakesMasksInside()
               ? Owner()->CreateMaskBand(nFlagsIn)
               : GDALRasterBand::CreateMaskBand(nFlagsIn);
}

GDALRasterBand *GPUGTiffOutputBand::GetRasterSampleOverview(GUIntBig nSamples)
{
    return Owner()->Output()
               ? GDALRasterBand::GetRasterSampleOverview(nSamples)
               : GDALProxyRasterBand::GetRasterSampleOverview(nSamples);
}

CPLErr GPUGTiffOutputBand::BuildOverviews(
    const char *pszResampling, int nOverviews, const int *panOverviewList,
    GDALProgressFunc pfnProgress, void *pProgressData,
    CSLConstList papszOptions)
{
    if (!Owner()->Realise())
        return CE_Failure;
    return GDALProxyRasterBand::BuildOverviews(pszResampling, nOverviews,
                                               panOverviewList, pfnProgress,
                                               pProgressData, papszOptions);
}

CPLErr GPUGTiffOutputBand::GetHistogram(double dfMin, double dfMax,
                                        int nBuckets, GUIntBig *panHistogram,
                                        int bIncludeOutOfRange, int bApproxOK,
                                        GDALProgressFunc pfnProgress,
                                        void *pProgressData)
try
{
    // GTiff remembers histograms (.aux.xml), and can be handed one of this kind
    // only.
    if (!bIncludeOutOfRange || bApproxOK)
        Owner()->Realise();
    if (Owner()->Output() == nullptr)
        return GDALProxyRasterBand::GetHistogram(
            dfMin, dfMax, nBuckets, panHistogram, bIncludeOutOfRange, bApproxOK,
            pfnProgress, pProgressData);
    const CPLErr eErr = GDALRasterBand::GetHistogram(
        dfMin, dfMax, nBuckets, panHistogram, bIncludeOutOfRange, bApproxOK,
        pfnProgress, pProgressData);
    if (eErr == CE_None)
        GDALProxyRasterBand::SetDefaultHistogram(dfMin, dfMax, nBuckets,
                                                 panHistogram);
    return eErr;
}
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
}

CPLErr GPUGTiffOutputBand::AdviseRead(int, int, int, int, int, int,
                                      GDALDataType, AdviseOptions)
{
    return CE_None;
}
