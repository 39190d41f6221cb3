#include "libfabric_shim/provider/info.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libfabric_shim/provider/address.h"
#include "libfabric_shim/provider/core/wire.h"
#include "libfabric_shim/provider/engine.h"
#include "libfabric_shim/provider/provider.h"
#include "libfabric_shim/provider/settings.h"

namespace clustar::libfabric_shim::provider {
namespace {

namespace net = transport::net;

constexpr const char* kFabric = "clustar";
constexpr std::uint64_t kAnyTag = 0xaaaaaaaaaaaaaaaa;  // all 64 bits are one field

struct FreeInfo {
  void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

// What a hint asks for and is not here, for the log; empty: it can be had.
std::string refused_attributes(const fi_info& hints) {
  const auto other_name = [](const char* asked, std::string_view ours) { return asked != nullptr && asked != ours; };
  if (const fi_ep_attr* ep = hints.ep_attr) {
    if (ep->type != FI_EP_UNSPEC && ep->type != FI_EP_RDM) return "an endpoint other than FI_EP_RDM";
    if (ep->protocol != FI_PROTO_UNSPEC && ep->protocol != FI_PROV_SPECIFIC + kMagic % 0x10000) return "a protocol";
    if (ep->max_msg_size > kMaxMessageBytes) return "longer messages";
    if (ep->tx_ctx_cnt > 1 || ep->rx_ctx_cnt > 1) return "several contexts";
    if (ep->auth_key_size > 0) return "keys";
  }
  if (const fi_tx_attr* tx = hints.tx_attr) {
    if ((tx->caps & ~kCaps) != 0) return "capabilities for sending";
    if ((tx->op_flags & ~kSendFlags) != 0) return "flags for sending";
    if ((tx->msg_order & ~FI_ORDER_SAS) != 0) return "an order of messages beyond FI_ORDER_SAS";
    if (tx->comp_order != FI_ORDER_NONE) return "an order of completions";
    if (tx->inject_size > kInjectBytes || tx->size > Engine::kSends || tx->iov_limit > 1) return "sizes of sends";
  }
  if (const fi_rx_attr* rx = hints.rx_attr) {
    if ((rx->caps & ~kCaps) != 0) return "capabilities for receiving";
    if ((rx->op_flags & ~FI_COMPLETION) != 0) return "flags for receiving";
    if ((rx->msg_order & ~FI_ORDER_SAS) != 0) return "an order of messages beyond FI_ORDER_SAS";
    if (rx->comp_order != FI_ORDER_NONE) return "an order of completions";
    if (rx->size > Engine::kReceives || rx->iov_limit > 1) return "sizes of receives";
  }
  if (const fi_domain_attr* domain = hints.domain_attr) {
    if (domain->data_progress == FI_PROGRESS_AUTO || domain->control_progress == FI_PROGRESS_AUTO) {
      return "automatic progress";
    }
    if (domain->cq_data_size > 8) return "more data in completions";
    if (domain->auth_key_size > 0) return "keys";
    if ((domain->caps & ~kDomainCaps) != 0) return "capabilities of a domain, as shared address vectors";
  }
  if (hints.fabric_attr != nullptr && other_name(hints.fabric_attr->name, kFabric)) return "another fabric";
  return {};
}

std::string refused(const fi_info& hints) {
  if ((hints.caps & ~kCaps) != 0) return "capabilities beyond messages, with tags or without";
  switch (hints.addr_format) {
    case FI_FORMAT_UNSPEC:
    case FI_SOCKADDR:
    case FI_SOCKADDR_IN:
    case FI_SOCKADDR_IN6: break;
    default: return "a format of addresses other than sockets'";
  }
  return refused_attributes(hints);
}

std::uint64_t caps_for(const fi_info* hints) {
  if (hints == nullptr || hints->caps == 0) return kCaps;
  std::uint64_t caps = hints->caps;
  if ((caps & (FI_MSG | FI_TAGGED)) == 0) caps |= FI_MSG | FI_TAGGED;
  if ((caps & (FI_SEND | FI_RECV)) == 0) caps |= FI_SEND | FI_RECV;
  return caps | kDomainCaps;
}

void set_address(void*& address, std::size_t& length, const net::Address& from) {
  address = std::calloc(1, from.length());
  if (address == nullptr) throw std::bad_alloc();
  std::memcpy(address, from.raw(), from.length());
  length = from.length();
}

void set_domain(fi_domain_attr& domain, const fi_info* hints, const std::string& name, std::uint32_t version) {
  domain.name = strdup(name.c_str());
  const fi_domain_attr* asked = hints == nullptr ? nullptr : hints->domain_attr;
  domain.threading = asked != nullptr && asked->threading != FI_THREAD_UNSPEC ? asked->threading : FI_THREAD_SAFE;
  domain.control_progress = domain.data_progress = FI_PROGRESS_MANUAL;
  domain.resource_mgmt = FI_RM_ENABLED;
  // Both are the same here. Programs that are told of a table take their first peer's number to be 0.
  domain.av_type = asked != nullptr ? asked->av_type : FI_AV_UNSPEC;
  // Programs of before 1.5 know two modes only, and no memory needs to be registered in either.
  domain.mr_mode = FI_VERSION_LT(version, FI_VERSION(1, 5)) ? FI_MR_SCALABLE : 0;
  domain.mr_key_size = 8;
  domain.cq_data_size = 8;
  domain.cq_cnt = domain.ep_cnt = domain.tx_ctx_cnt = domain.rx_ctx_cnt = domain.cntr_cnt = 1024;
  domain.max_ep_tx_ctx = domain.max_ep_rx_ctx = 1;
  domain.mr_iov_limit = 1;
  domain.mr_cnt = 65536;
  domain.caps = kDomainCaps;
}

Info make(std::uint32_t version, const fi_info* hints, const Place& place, const std::optional<net::Address>& to) {
  Info info(fi_allocinfo());
  if (info == nullptr) throw std::bad_alloc();
  info->caps = caps_for(hints);
  info->addr_format = format_of(place.address);
  set_address(info->src_addr, info->src_addrlen, place.address);
  if (to) set_address(info->dest_addr, info->dest_addrlen, *to);
  fi_tx_attr& tx = *info->tx_attr;
  tx.caps = info->caps & (FI_MSG | FI_TAGGED | FI_SEND);
  tx.op_flags = hints != nullptr && hints->tx_attr != nullptr ? hints->tx_attr->op_flags : 0;
  tx.msg_order = FI_ORDER_SAS;
  tx.inject_size = kInjectBytes;
  tx.size = Engine::kSends;
  tx.iov_limit = 1;
  fi_rx_attr& rx = *info->rx_attr;
  rx.caps = info->caps & (FI_MSG | FI_TAGGED | FI_RECV | FI_DIRECTED_RECV | FI_SOURCE);
  rx.op_flags = hints != nullptr && hints->rx_attr != nullptr ? hints->rx_attr->op_flags : 0;
  rx.msg_order = FI_ORDER_SAS;
  rx.size = Engine::kReceives;
  rx.iov_limit = 1;
  fi_ep_attr& ep = *info->ep_attr;
  ep.type = FI_EP_RDM;
  ep.protocol = FI_PROV_SPECIFIC + kMagic % 0x10000;
  ep.protocol_version = kWireVersion;
  ep.max_msg_size = kMaxMessageBytes;
  ep.mem_tag_format = kAnyTag;
  ep.tx_ctx_cnt = ep.rx_ctx_cnt = 1;
  set_domain(*info->domain_attr, hints, place.interface, version);
  info->fabric_attr->name = strdup(kFabric);
  info->fabric_attr->prov_version = provider().version;
  return info;
}

// Where the endpoint is to be, and whom it is to talk to, as far as the program says so.
struct Wish {
  std::optional<net::Address> from{};
  std::optional<net::Address> to{};
};

// Nothing: there is no such address.
std::optional<Wish> wish_of(const char* node, const char* service, std::uint64_t flags, const fi_info* hints) {
  Wish wish;
  if (hints != nullptr && hints->src_addr != nullptr) wish.from = address_from(hints->src_addr);
  if (hints != nullptr && hints->dest_addr != nullptr) wish.to = address_from(hints->dest_addr);
  if (node == nullptr && (service == nullptr || (flags & FI_SOURCE) == 0)) return wish;
  const auto found = resolve(node, service, (flags & FI_NUMERICHOST) != 0);
  if (!found || found->empty()) {
    provider_log().warn("clustar: " + (found ? "no usable address" : found.error().message));
    return std::nullopt;
  }
  ((flags & FI_SOURCE) != 0 ? wish.from : wish.to) = found->front();
  return wish;
}

bool fits(const Wish& wish, const Place& place, const fi_info* hints) {
  const std::uint32_t format = hints == nullptr ? std::uint32_t{FI_FORMAT_UNSPEC} : hints->addr_format;
  if (format == FI_SOCKADDR_IN && place.address.ipv6()) return false;
  if (format == FI_SOCKADDR_IN6 && !place.address.ipv6()) return false;
  const char* domain = hints != nullptr && hints->domain_attr != nullptr ? hints->domain_attr->name : nullptr;
  if (domain != nullptr && domain != place.interface) return false;
  if (wish.to && (wish.to->ipv6() != place.address.ipv6() || is_loopback(*wish.to) != is_loopback(place.address))) {
    return false;
  }
  return !wish.from || is_any(*wish.from) || wish.from->host() == place.address.host();
}

}  // namespace

int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags, const fi_info* hints,
             fi_info** info) {
  return guarded([&]() -> int {
    if (hints != nullptr) {
      if (const std::string why = refused(*hints); !why.empty()) {
        provider_log().info("clustar: not offered: " + why);
        return -FI_ENODATA;
      }
    }
    const auto config = load_settings();
    const auto all = config ? places(*config) : tl::unexpected(config.error());
    if (!all) {
      tell_refusal(all.error().message);
      return -FI_ENODATA;
    }
    const auto wish = wish_of(node, service, flags, hints);
    if (!wish) return -FI_ENODATA;
    Info first;
    fi_info** last = nullptr;
    for (const Place& place : *all) {
      if (!fits(*wish, place, hints)) continue;
      const std::uint16_t port = wish->from ? wish->from->endpoint().port : 0;
      Info made = make(version, hints, {place.interface, place.address.with_port(port)}, wish->to);
      fi_info* raw = made.release();
      if (last == nullptr) {
        first.reset(raw);
      } else {
        *last = raw;
      }
      last = &raw->next;
    }
    if (first == nullptr) return -FI_ENODATA;
    *info = first.release();
    return 0;
  });
}

}  // namespace clustar::libfabric_shim::provider
