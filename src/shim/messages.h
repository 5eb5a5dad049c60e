// Messages of GTiff's that are held back until it is known what becomes of them.
#ifndef GPUGTIFF_MESSAGES_H
#define GPUGTIFF_MESSAGES_H

#include <string>
#include <vector>

#include "compat.h"

class GPUGTiffMessages
{
  public:
    GPUGTiffMessages()
    {
        CPLPushErrorHandlerEx(Hold, this);
    }

    ~GPUGTiffMessages()
    {
        Release();
    }

    // From now on messages go where they went before.
    void Release()
    {
        if (m_bHolding)
            CPLPopErrorHandler();
        m_bHolding = false;
    }

    void Clear()
    {
        m_aoHeld.clear();
    }

    bool HasFailure() const
    {
        for (const Message &sMessage : m_aoHeld)
        {
            if (sMessage.eClass == CE_Failure)
                return true;
        }
        return false;
    }

    std::string First() const
    {
        return m_aoHeld.empty() ? std::string() : m_aoHeld.front().osText;
    }

    // Raises them, with one name in place of another.
    void Raise(const std::string &osName = std::string(),
               const std::string &osInstead = std::string())
    {
        Release();
        for (const Message &sMessage : m_aoHeld)
        {
            std::string osText = sMessage.osText;
            for (size_t nAt = 0; !osName.empty() &&
                                 (nAt = osText.find(osName, nAt)) !=
                                     std::string::npos;
                 nAt += osInstead.size())
                osText.replace(nAt, osName.size(), osInstead);
            CPLError(sMessage.eClass, sMessage.nNumber, "%s", osText.c_str());
        }
        m_aoHeld.clear();
    }

  private:
    struct Message
    {
        CPLErr eClass;
        CPLErrorNum nNumber;
        std::string osText;
    };

    static void CPL_STDCALL Hold(CPLErr eClass, CPLErrorNum nNumber,
                                 const char *pszText)
    {
        static_cast<GPUGTiffMessages *>(CPLGetErrorHandlerUserData())
            ->m_aoHeld.push_back({eClass, nNumber, pszText});
    }

    std::vector<Message> m_aoHeld{};
    bool m_bHolding = true;

    CPL_DISALLOW_COPY_ASSIGN(GPUGTiffMessages)
};

#endif
