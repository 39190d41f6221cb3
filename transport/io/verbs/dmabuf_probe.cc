#include "transport/io/verbs/dmabuf_probe.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "transport/io/verbs/device.h"
#include "transport/io/verbs/memory.h"

namespace clustar::transport::io::verbs {

Result<DmaBufProbe> probe_dma_buf(const std::string& device) {
  const auto opened = Device::open(device);
  if (!opened) return tl::unexpected(opened.error());
  const auto domain = ProtectionDomain::make(*opened);
  if (!domain) return tl::unexpected(domain.error());
  return ask_for_dma_buf(*domain);
}

DmaBufProbe ask_for_dma_buf(const ProtectionDomain& domain) {
  errno = 0;
  const Handle<ibv_mr> region(ibv_reg_dmabuf_mr(domain.get(), 0, 0, 0, -1, 0));
  const int error = region ? 0 : errno;
  const char* const name = strerrorname_np(error);
  return DmaBufProbe{.supported = error != EOPNOTSUPP && error != EPROTONOSUPPORT,
                     .error = error,
                     .text = fmt::format("ibv_reg_dmabuf_mr of a bad descriptor on {}: errno {} ({})", domain.device(),
                                         error, name != nullptr ? name : "?")};
}

}  // namespace clustar::transport::io::verbs
