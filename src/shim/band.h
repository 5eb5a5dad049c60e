// A band of ours: GTiff's in everything but pixels.
#ifndef GPUGTIFF_BAND_H
#define GPUGTIFF_BAND_H

#include "computed.h"
#include "dataset.h"

class GPUGTiffBand final : public GPUGTiffComputed
{
  public:
    GPUGTiffBand(GPUGTiffDataset *poDS, int nBand, GDALRasterBand *poInner);

    const char *GetDescription() const override;
    void SetDescription(const char *pszDescription) override;
    int64_t GetNoDataValueAsInt64(int *pbSuccess) override;
    uint64_t GetNoDataValueAsUInt64(int *pbSuccess) override;
    CPLErr SetNoDataValueAsInt64(int64_t nNoData) override;
    CPLErr SetNoDataValueAsUInt64(uint64_t nNoData) override;
    MetadataList GetMetadata(const char *pszDomain) override;
    const char *GetMetadataItem(const char *pszName,
                                const char *pszDomain) override;
    GDALSuggestedBlockAccessPattern
    GetSuggestedBlockAccessPattern() const override;

    int GetOverviewCount() override;
    GDALRasterBand *GetOverview(int nOverview) override;
    GDALRasterBand *GetRasterSampleOverview(GUIntBig nSamples) override;
    GDALRasterBand *GetMaskBand() override;
    int GetMaskFlags() override;
    CPLErr BuildOverviews(const char *pszResampling, int nOverviews,
                          const int *panOverviewList, GDALProgressFunc,
                          void *pProgressData,
                          CSLConstList papszOptions) override;
    CPLErr CreateMaskBand(int nFlags) override;

    CPLErr GetHistogram(double dfMin, double dfMax, int nBuckets,
                        GUIntBig *panHistogram, int bIncludeOutOfRange,
                        int bApproxOK, GDALProgressFunc,
                        void *pProgressData) override;
    CPLVirtualMem *GetVirtualMemAuto(GDALRWFlag eRWFlag, int *pnPixelSpace,
                                     GIntBig *pnLineSpace,
                                     AdviseOptions papszOptions) override;
    CPLErr AdviseRead(int nXOff, int nYOff, int nXSize, int nYSize,
                      int nBufXSize, int nBufYSize, GDALDataType eDT,
                      AdviseOptions papszOptions) override;

  protected:
    bool HasOwnPixels() const override
    {
        return Owner()->DecodesHere();
    }

    CPLErr IReadBlock(int nBlockXOff, int nBlockYOff, void *pImage) override;
    CPLErr IWriteBlock(int nBlockXOff, int nBlockYOff, void *pImage) override;
    CPLErr IRasterIO(GDALRWFlag eRWFlag, int nXOff, int nYOff, int nXSize,
                     int nYSize, void *pData, int nBufXSize, int nBufYSize,
                     GDALDataType eBufType, GSpacing nPixelSpace,
                     GSpacing nLineSpace,
                     GDALRasterIOExtraArg *psExtraArg) override;
    int IGetDataCoverageStatus(int nXOff, int nYOff, int nXSize, int nYSize,
                               int nMaskFlagStop, double *pdfDataPct) override;

    GDALRasterBand *
        RefUnderlyingRasterBand(GPUGTIFF_REF_BAND_ARGS) const override
    {
        return m_poInner;
    }

  private:
    GPUGTiffDataset *Owner() const
    {
        return static_cast<GPUGTiffDataset *>(poDS);
    }

    GDALRasterBand *m_poInner;

    CPL_DISALLOW_COPY_ASSIGN(GPUGTiffBand)
};

#endif
