#include "overlay.h"

#include <algorithm>
#include <vector>

#include "cpl_vsi_virtual.h"

namespace
{
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
}  // namespace

VSILFILE *GPUGTiffOverlay(VSILFILE *fp, const gpugtiff::Patch *pasPatches,
                          size_t nPatches)
{
    // A type of its own before GDAL 3.10.
    return reinterpret_cast<VSILFILE *>(
        static_cast<VSIVirtualHandle *>(new Overlay(fp, pasPatches, nPatches)));
}
