// A dataset of ours: GTiff's in everything but pixels.
#ifndef GPUGTIFF_DATASET_H
#define GPUGTIFF_DATASET_H

#include <map>
#include <memory>
#include <string>

#include "bridge.h"
#include "compat.h"

class GPUGTiffBand;

// Set once, when the driver is registered.
extern const gpugtiff::Api *g_poApi;

// Opens with GTiff: the driver kept at registration, never one looked up by name.
// It gets one thread, whatever GDAL_NUM_THREADS says: its own threads lose errors
// and do not survive a fork.
GDALDataset *GPUGTiffOpenInner(GDALOpenInfo *poOpenInfo);

// The driver of this copy of the library, registered if its name is free; nullptr
// where GDAL has no GTiff.
GDALDriver *GPUGTiffReady(const gpugtiff::Api *api);

// Opens with our driver, whoever is registered under its name.
GDALDataset *GPUGTiffOpenByUs(GDALOpenInfo *poOpenInfo);

// The name of an internal handle that only datasets of this copy of the library
// answer, each with itself. Types can't tell: another copy's have the same names.
std::string GPUGTiffHandleName();

// A dataset of this copy of the library, as what it is; else nullptr.
template <class T> T *GPUGTiffOurs(GDALDataset *poDS)
{
    // GTiff answers every name (3.6), a proxy with what it stands for.
    if (poDS->GetInternalHandle(GPUGTiffHandleName().c_str()) != poDS)
        return nullptr;
    return dynamic_cast<T *>(poDS);
}

// Whether a request wants the pixels of its window as they are.
bool GPUGTiffIsPlain(int nXOff, int nYOff, int nXSize, int nYSize,
                     int nBufXSize, int nBufYSize,
                     const GDALRasterIOExtraArg *psExtraArg);

// An Emit for a CPLStringList.
void GPUGTiffAddPair(void *pList, const char *pszName, const char *pszValue);

// GDAL's own path through its block cache is the shortest for these.
bool GPUGTiffIsInOneBlock(GDALRasterBand *poBand, int nXOff, int nYOff,
                          int nXSize, int nYSize);

struct GPUGTiffFileFree
{
    void operator()(gpugtiff::File *psFile) const
    {
        g_poApi->file_free(psFile);
    }
};

struct GPUGTiffImageFree
{
    void operator()(gpugtiff::Image *psImage) const
    {
        g_poApi->image_free(psImage);
    }
};

// The file a dataset was opened from, or a directory of it: an overview level or
// a mask has a dataset too, which belongs to the one it was reached through.
class GPUGTiffDataset final : public GDALProxyDataset
{
  public:
    using FilePtr = std::unique_ptr<gpugtiff::File, GPUGTiffFileFree>;

    // Takes over poInner and poFile. osInnerName is what GTiff opened.
    GPUGTiffDataset(GDALDataset *poInner, FilePtr poFile,
                    const std::string &osInnerName);
    ~GPUGTiffDataset() override;

    // Wraps a band that GTiff shows as the nOverview-th overview (or, with -1, the
    // mask) of one of our bands; nullptr if it is no TIFF image of its own.
    // poFirst is the first overview: an external file's name is known there only.
    GDALRasterBand *Wrap(GDALRasterBand *poInnerBand, GDALRasterBand *poFirst,
                         int nOverview, int nBit);
    void DropLevels(bool bAll);

    bool DecodesHere();
    void LeaveToGTiff();

    // Whether GTiff has no codec for the tiles, so that nobody else reads them.
    bool IsOursAlone()
    {
        if (m_bOverlaid)
            DecodesHere();
        return m_bOursAlone;
    }

    // GTiff sees an overlay of the file.
    void SetOverlaid()
    {
        m_bOverlaid = true;
    }

    // Raises the error for what is neither ours nor GTiff's.
    CPLErr Refuse(const char *pszWhat) const;

    // The mask that GDAL's core knows for an overview file: a part of the mask of
    // the file it belongs to. nullptr if there is none.
    GDALRasterBand *BorrowedMask(int nBandIn);

    // Both return false if GTiff must be asked after all; DecodesHere() is then
    // false from now on.
    bool ReadWindow(int nXOff, int nYOff, int nXSize, int nYSize, void *pData,
                    GDALDataType eBufType, int nBandCount,
                    const int *panBandMap, GSpacing nPixelSpace,
                    GSpacing nLineSpace, GSpacing nBandSpace,
                    GDALRasterIOExtraArg *psExtraArg, CPLErr &eErr);
    bool ReadBlock(int nBandIn, int nBlockXOff, int nBlockYOff, void *pImage,
                   CPLErr &eErr);

    GDALDataset *Inner() const
    {
        return m_poInner;
    }

    const gpugtiff::File *File() const
    {
        return m_poFile;
    }

    // The image, if our engines decode it.
    const gpugtiff::Image *Image()
    {
        return DecodesHere() ? m_poImage.get() : nullptr;
    }

    // The caller does something else with each window while it asks for the next.
    void SetPipelined(bool bPipelined)
    {
        m_bPipelined = bPipelined;
    }

    // An overview or a mask, which goes when the dataset it belongs to goes.
    bool IsLevel() const
    {
        return m_poParent != nullptr;
    }

    // What GDALOpenEx() tells the datasets that it opens.
    void SetOpened(GDALDriver *poDriverIn, const GDALOpenInfo &oOpenInfo);

    // Says GTiff as its driver from now on.
    void SetClaimed();

    // GTiff is writing the file: when it is closed, all tiles of the image must
    // be there, unless bSparse; nSkip directories were there before.
    void CheckAtClose(int64_t nSkip, bool bSparse)
    {
        m_nCheckFrom = nSkip;
        m_bSparse = bSparse;
    }

    // For a 1-bit mask and its overviews: what a set bit is shown as.
    int Bit() const
    {
        return m_nBit;
    }

    // Has GTiff serve a whole request, which is counted. oRead gets the inner
    // dataset to read from.
    template <class Read> CPLErr Pass(Read oRead)
    {
        if (IsOursAlone())
            return Refuse("a window");
        CountPassed(false);
        // With OVERVIEW_LEVEL=NONE we are told, and GTiff by us.
        m_poInner->SetEnableOverviews(AreOverviewsEnabled());
        return oRead(m_poInner);
    }

    // Whether our engines serve a request; GTiff serves it otherwise.
    bool Serves(GDALRWFlag eRWFlag, bool bPlain);
    void CountPassed(bool bBlock) const;
    GDALRasterBlock *HeldByGTiff(int nBandIn, int nColumn, int nRow) const;
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
    CPLErr AdviseRead(int nXOff, int nYOff, int nXSize, int nYSize,
                      int nBufXSize, int nBufYSize, GDALDataType eDT,
                      int nBandCount, int *panBandList,
                      AdviseOptions papszOptions) override;

    MetadataList GetMetadata(const char *pszDomain) override;
    const char *GetMetadataItem(const char *pszName,
                                const char *pszDomain) override;
    void *GetInternalHandle(const char *pszHandle) override;
    GDALDriver *GetDriver() GPUGTIFF_DRIVER_CONST override;
    FlushResult FlushCache(bool bAtClosing) override;
    int TestCapability(const char *pszCap) GPUGTIFF_CAPABILITY_CONST override;
    bool GetRawBinaryLayout(RawBinaryLayout &sLayout) override;
    void ClearStatistics() override;
    int CloseDependentDatasets() override;

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
#if GPUGTIFF_GDAL(3, 10)
    std::unique_ptr<GDALDataset> Clone(int nScopeFlags,
                                       bool bCanShareState) const override;
#endif

    GDALDataset *RefUnderlyingDataset() const override
    {
        return m_poInner;
    }

    void UnrefUnderlyingDataset(GDALDataset *) const override
    {
    }

  private:
    // A level: the inner dataset belongs to poParent's.
    GPUGTiffDataset(GDALDataset *poInner, GPUGTiffDataset *poParent,
                    const std::string &osInnerName, int nOverview, int nBit);

    void AddBands();
    CPLErr CloseInner();
    bool IsInRemoteCOG() const;
    bool OpenImage();
    bool ReadWindow(gpugtiff::Request &sRequest,
                    GDALRasterIOExtraArg *psExtraArg, CPLErr &eErr);

    struct Call;

    static int FindBlock(void *, int, int, int, gpugtiff::Block *);
    static int MakeBlock(void *, int, int, int, gpugtiff::Block *);
    static void ReleaseBlock(void *, const gpugtiff::Block *, int);
    static void FillSample(void *, int, void *);
    static int RedoByGTiff(void *, const gpugtiff::Redo *);
    static int ReportProgress(void *, double);

    GDALDataset *m_poInner;
    GPUGTiffDataset *m_poParent = nullptr;
    int m_nOverview = -1;
    int m_nBit = 0;
    std::string m_osInnerName{};
    FilePtr m_poOwnFile{};
    const gpugtiff::File *m_poFile = nullptr;
    std::unique_ptr<gpugtiff::Image, GPUGTiffImageFree> m_poImage{};
    bool m_bImageTried = false;
    bool m_bClaimed = false;
    bool m_bOverlaid = false;
    bool m_bOursAlone = false;
    bool m_bReadByGTiffToo = false;
    uint64_t m_nDirectory = 0;
    bool m_bInnerHasRead = false;
    bool m_bPipelined = false;
    // -1: not checked.
    int64_t m_nCheckFrom = -1;
    bool m_bSparse = false;
    std::map<GDALDataset *, std::unique_ptr<GPUGTiffDataset>> m_oLevels{};
    CPLStringList m_aosCounters{};
    CPLStringList m_aosStructure{};

    CPL_DISALLOW_COPY_ASSIGN(GPUGTiffDataset)
};

#endif
