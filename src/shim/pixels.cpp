// How a dataset of ours gets its pixels: requests, and what Rust may ask of GDAL
// while it serves one.

#include <algorithm>
#include <cstring>

#include "band.h"
#include "guard.h"
#include "hollow.h"
#include "messages.h"

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
    if (nXSize == 1 && nYSize == 1)
        return true;
    int nBlockX = 0;
    int nBlockY = 0;
    poBand->GetBlockSize(&nBlockX, &nBlockY);
    return nXOff / nBlockX == (nXOff + nXSize - 1) / nBlockX &&
           nYOff / nBlockY == (nYOff + nYSize - 1) / nBlockY;
}

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
    if (GDALRasterBlock *poHeld = HeldByGTiff(nBandIn, nBlockXOff, nBlockYOff))
    {
        GPUGTiffCopyBlock(poHeld, pImage);
        return true;
    }
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
    sRequest.pipelined = m_bPipelined;
    // Called by Rust, which no exception may cross.
    sRequest.callbacks = {&sCall,
                          GPUGTiffGuarded<FindBlock, 0>::Call,
                          GPUGTiffGuarded<MakeBlock, 0>::Call,
                          GPUGTiffGuarded<ReleaseBlock, 0>::Call,
                          GPUGTiffGuarded<FillSample, 0>::Call,
                          GPUGTiffGuarded<RedoByGTiff, 1>::Call,
                          GPUGTiffGuarded<ReportProgress, 0>::Call};
    const int nResult = g_poApi->image_read(m_poImage.get(), &sRequest);
    if (nResult == 2)
        m_poImage.reset();
    eErr = nResult == 0 ? CE_None : CE_Failure;
    return nResult != 2;
}

int GPUGTiffDataset::FindBlock(void *pCall, int nBandIn, int nColumn, int nRow,
                               gpugtiff::Block *psBlock)
{
    GPUGTiffDataset *poDS = static_cast<Call *>(pCall)->poDS;
    GDALRasterBlock *poBlock =
        poDS->GetRasterBand(nBandIn)->TryGetLockedBlockRef(nColumn, nRow);
    if (poBlock == nullptr)
        poBlock = poDS->HeldByGTiff(nBandIn, nColumn, nRow);
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

void GPUGTiffDataset::FillSample(void *pCall, int nBandIn, void *pSample)
{
    const GDALDataset *poInner = static_cast<Call *>(pCall)->poDS->m_poInner;
    GPUGTiffFillSample(const_cast<GDALDataset *>(poInner)->GetRasterBand(nBandIn),
                       pSample);
}

int GPUGTiffDataset::RedoByGTiff(void *pCall, const gpugtiff::Redo *psRedo)
{
    const Call *psCall = static_cast<Call *>(pCall);
    const gpugtiff::Request &sRequest = *psCall->psRequest;
    GDALDataset *poInner = psCall->poDS->m_poInner;
    GPUGTiffMessages oMessages;
    // libtiff takes the first tile it decodes for the kind of all (old-style LZW):
    // that must not be a damaged one.
    const char *pszCodec =
        poInner->GetMetadataItem("COMPRESSION", "IMAGE_STRUCTURE");
    if (!psCall->poDS->m_bInnerHasRead && pszCodec && EQUAL(pszCodec, "LZW"))
    {
        psCall->poDS->m_bInnerHasRead = true;
        GDALRasterBlock *poBlock =
            poInner->GetRasterBand(1)->GetLockedBlockRef(0, 0);
        if (poBlock != nullptr)
            poBlock->DropLock();
        oMessages.Clear();
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
    // Where GTiff fails, its first reason goes into our message; where it reads
    // on, the user hears what GTiff has to say.
    if (eErr != CE_None)
    {
        snprintf(psRedo->message, psRedo->message_size, "%s",
                 oMessages.First().c_str());
        return 1;
    }
    oMessages.Raise();
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
try
{
    const bool bPlain = GPUGTiffIsPlain(nXOff, nYOff, nXSize, nYSize, nBufXSize,
                                        nBufYSize, psExtraArg);
    if (!Serves(eRWFlag, bPlain))
    {
        return Pass([=](GDALDataset *poInner)
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
    if (bPlain && !GPUGTiffIsInOneBlock(papoBands[0], nXOff, nYOff, nXSize, nYSize))
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
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
}

#if GPUGTIFF_GDAL(3, 10)
CPLErr GPUGTiffDataset::BlockBasedRasterIO(
    GDALRWFlag eRWFlag, int nXOff, int nYOff, int nXSize, int nYSize,
    void *pData, int nBufXSize, int nBufYSize, GDALDataType eBufType,
    int nBandCount, const int *panBandMap, GSpacing nPixelSpace,
    GSpacing nLineSpace, GSpacing nBandSpace, GDALRasterIOExtraArg *psExtraArg)
try
{
    return GDALDataset::BlockBasedRasterIO(
        eRWFlag, nXOff, nYOff, nXSize, nYSize, pData, nBufXSize, nBufYSize,
        eBufType, nBandCount, panBandMap, nPixelSpace, nLineSpace, nBandSpace,
        psExtraArg);
}
catch (const std::exception &oException)
{
    return GPUGTiffRaise(oException);
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
