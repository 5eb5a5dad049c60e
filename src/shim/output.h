// A dataset that is being created: the tags are a hollow GTiff's, the pixels go to
// our writer. What the hollow one can't do first finishes the file, and is then
// done by GTiff on that.
#ifndef GPUGTIFF_OUTPUT_H
#define GPUGTIFF_OUTPUT_H

#include <memory>
#include <string>

#include "computed.h"
#include "dataset.h"
#include "hollow.h"

struct GPUGTiffOutputFree
{
    void operator()(gpugtiff::Output *psOutput) const
    {
        g_poApi->output_free(psOutput, false);
    }
};

using GPUGTiffOutputPtr =
    std::unique_ptr<gpugtiff::Output, GPUGTiffOutputFree>;

class GPUGTiffOutputBand;

class GPUGTiffOutput final : public GDALProxyDataset
{
  public:
    GPUGTiffOutput(std::unique_ptr<GPUGTiffHollow> poHollow,
                   GDALDataset *poInner, GPUGTiffDataset::FilePtr poFile,
                   GPUGTiffOutputPtr poOutput, int nRows, bool bSparse);
    ~GPUGTiffOutput() override;

    // Nullptr once the file is finished.
    gpugtiff::Output *Output() const
    {
        return m_poOutput.get();
    }

    GDALDataset *Inner() const
    {
        return m_poInner;
    }

    const gpugtiff::File *File() const
    {
        return m_poFile.get();
    }

    // Finishes the file and goes on with GTiff.
    bool Realise();
    // Gives the file up, unless it is finished.
    void Discard();

    CPLErr Write(int nImage, gpugtiff::Request &sRequest);
    void UpdateFill(int nBandIn);
    // To be called before the first pixel is written, as GTiff does.
    bool SettleTags();
    GDALRasterBand *Mask() const;
    MetadataList Counters();

    CPLErr IRasterIO(GDALRWFlag eRWFlag, int nXOff, int nYOff, int nXSize,
                     int nYSize, void *pData, int nBufXSize, int nBufYSize,
                     GDALDataType eBufType, int nBandCount, BandMap panBandMap,
                     GSpacing nPixelSpace, GSpacing nLineSpace,
                     GSpacing nBandSpace,
                     GDALRasterIOExtraArg *psExtraArg) override;
    CPLErr IBuildOverviews(const char *, int, const int *, int, const int *,
                           GDALProgressFunc, void *,
                           CSLConstList papszOptions) override;
    CPLErr CreateMaskBand(int nFlags) override;
    // Whether masks go into the file; else GDAL makes files beside it, and is
    // told where.
    bool MakesMasksInside();
    CPLErr AdviseRead(int nXOff, int nYOff, int nXSize, int nYSize,
                      int nBufXSize, int nBufYSize, GDALDataType eDT,
                      int nBandCount, int *panBandList,
                      AdviseOptions papszOptions) override;
    MetadataList GetMetadata(const char *pszDomain) override;
    const char *GetMetadataItem(const char *pszName,
                                const char *pszDomain) override;
    char **GetFileList() override;
    void *GetInternalHandle(const char *pszHandle) override;
    GDALDriver *GetDriver() GPUGTIFF_DRIVER_CONST override;
    FlushResult FlushCache(bool bAtClosing) override;
    int TestCapability(const char *pszCap) GPUGTIFF_CAPABILITY_CONST override;
    void ClearStatistics() override;

#if GPUGTIFF_GDAL(3, 13)
    CPLErr Close(GDALProgressFunc, void *) override;
    bool GetCloseReportsProgress() const override;
#elif GPUGTIFF_GDAL(3, 7)
    CPLErr Close() override;
#endif
#if GPUGTIFF_GDAL(3, 10)
    CPLErr BlockBasedRasterIO(GDALRWFlag eRWFlag, int nXOff, int nYOff,
                              int nXSize, int nYSize, void *pData,
                              int nBufXSize, int nBufYSize,
                              GDALDataType eBufType, int nBandCount,
                              const int *panBandMap, GSpacing nPixelSpace,
                              GSpacing nLineSpace, GSpacing nBandSpace,
                              GDALRasterIOExtraArg *psExtraArg) override;
#endif

  protected:
    GDALDataset *RefUnderlyingDataset() const override
    {
        return m_poInner;
    }

    void UnrefUnderlyingDataset(GDALDataset *) const override
    {
    }

  private:
    CPLErr FlushBands();
    CPLErr Flush(bool bAtClosing);
    bool WriteMaskBeside(bool bClose);
    CPLErr Finish(bool bClosing);
    CPLErr CloseInner();

    std::unique_ptr<GPUGTiffHollow> m_poHollow;
    GDALDataset *m_poInner;
    GPUGTiffDataset::FilePtr m_poFile;
    GPUGTiffOutputPtr m_poOutput;
    std::unique_ptr<GPUGTiffOutputBand> m_poMask{};
    CPLStringList m_aosCounters{};
    bool m_bSettled = false;
    bool m_bSparse;
    int m_nPid;

    CPL_DISALLOW_COPY_ASSIGN(GPUGTiffOutput)
};

class GPUGTiffOutputBand final : public GPUGTiffComputed
{
  public:
    // nImage 0: a band; else the mask, the writer's nImage-th image.
    GPUGTiffOutputBand(GPUGTiffOutput *poDS, int nBand, int nImage, int nRows);

    CPLErr FlushCache(bool bAtClosing) override;
    const char *GetDescription() const override;
    void SetDescription(const char *pszDescription) override;
    CPLErr SetNoDataValue(double dfNoData) override;
    CPLErr DeleteNoDataValue() override;
    int64_t GetNoDataValueAsInt64(int *pbSuccess) override;
    uint64_t GetNoDataValueAsUInt64(int *pbSuccess) override;
    CPLErr SetNoDataValueAsInt64(int64_t nNoData) override;
    CPLErr SetNoDataValueAsUInt64(uint64_t nNoData) override;
    MetadataList GetMetadata(const char *pszDomain) override;
    const char *GetMetadataItem(const char *pszName,
                                const char *pszDomain) override;

    GDALRasterBand *GetMaskBand() override;
    int GetMaskFlags() override;
    CPLErr CreateMaskBand(int nFlags) override;
    GDALRasterBand *GetRasterSampleOverview(GUIntBig nSamples) override;
    CPLErr BuildOverviews(const char *pszResampling, int nOverviews,
                          const int *panOverviewList, GDALProgressFunc,
                          void *pProgressData,
                          CSLConstList papszOptions) override;
    CPLErr Fill(double dfReal, double dfImaginary) override;
    CPLVirtualMem *GetVirtualMemAuto(GDALRWFlag eRWFlag, int *pnPixelSpace,
                                     GIntBig *pnLineSpace,
                                     AdviseOptions papszOptions) override;

    CPLErr GetHistogram(double dfMin, double dfMax, int nBuckets,
                        GUIntBig *panHistogram, int bIncludeOutOfRange,
                        int bApproxOK, GDALProgressFunc,
                        void *pProgressData) override;
    CPLErr AdviseRead(int nXOff, int nYOff, int nXSize, int nYSize,
                      int nBufXSize, int nBufYSize, GDALDataType eDT,
                      AdviseOptions papszOptions) override;

  protected:
    bool HasOwnPixels() const override
    {
        return Owner()->Output() != nullptr;
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
        return Inner();
    }

  private:
    GPUGTiffOutput *Owner() const
    {
        return static_cast<GPUGTiffOutput *>(poDS);
    }

    GDALRasterBand *Inner() const;
    CPLErr WriteWindow(int nXOff, int nYOff, int nXSize, int nYSize,
                       const void *pData, GDALDataType eBufType,
                       GSpacing nPixelSpace, GSpacing nLineSpace);

    int m_nImage;

    CPL_DISALLOW_COPY_ASSIGN(GPUGTiffOutputBand)
};

#endif
