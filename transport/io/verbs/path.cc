#include "transport/io/verbs/path.h"

#include <algorithm>
#include <cerrno>

namespace clustar::transport::io::verbs {

ibv_ah_attr Path::attributes() const {
  ibv_ah_attr attributes{};
  attributes.port_num = port;
  attributes.dlid = lid;
  attributes.sl = service_level;
  if (gid_index >= 0) {
    attributes.is_global = 1;
    std::copy(peer.bytes.begin(), peer.bytes.end(), attributes.grh.dgid.raw);
    attributes.grh.sgid_index = static_cast<std::uint8_t>(gid_index);
    attributes.grh.traffic_class = traffic_class;
    attributes.grh.flow_label = flow_label;
    attributes.grh.hop_limit = hop_limit;
  }
  return attributes;
}

Result<AddressHandle> AddressHandle::make(const ProtectionDomain& domain, const Path& path) {
  AddressHandle made;
  ibv_ah_attr attributes = path.attributes();
  made.handle_.reset(ibv_create_ah(domain.get(), &attributes));
  if (!made.handle_) {
    const int error = errno;
    const Place place{
        .device = domain.device(), .port = path.port, .gid_index = path.gid_index, .peer = path.peer.to_string()};
    return tl::unexpected(call_failed(Call::kCreateAh, error, place));
  }
  return made;
}

}  // namespace clustar::transport::io::verbs
