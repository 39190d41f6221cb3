#include "libfabric_shim/provider/domain.h"

#include <algorithm>
#include <utility>

#include "libfabric_shim/provider/address_vector.h"
#include "libfabric_shim/provider/completion_queue.h"
#include "libfabric_shim/provider/endpoint.h"
#include "libfabric_shim/provider/event_queue.h"
#include "transport/api/settings.h"
#include "transport/net/settings.h"
#include "transport/tcp/settings.h"

namespace clustar::libfabric_shim::provider {
namespace {

int close_fabric(fid* id) {
  auto& fabric = object_of<Fabric, fid_fabric>(id);
  if (fabric.children > 0) return -FI_EBUSY;
  delete &fabric;
  return 0;
}

int close_domain(fid* id) {
  auto& domain = object_of<Domain, fid_domain>(id);
  if (domain.children > 0) return -FI_EBUSY;
  delete &domain;
  return 0;
}

// No memory needs to be registered; programs that do so anyway are given something to close.
struct Region final : fid_mr {
  explicit Region(Domain& where) : fid_mr(), domain(where) { ++domain.children; }
  ~Region() { --domain.children; }
  Domain& domain;
};

int close_region(fid* id) {
  delete &object_of<Region, fid_mr>(id);
  return 0;
}

int reg(fid* id, const void*, std::size_t, std::uint64_t, std::uint64_t, std::uint64_t key, std::uint64_t,
        fid_mr** made, void* context) {
  return guarded([&]() -> int {
    static fi_ops table = fid_table(close_region);
    auto* region = new Region(object_of<Domain, fid_domain>(id));
    set_id(region->fid, FI_CLASS_MR, context, table);
    region->key = key;
    *made = region;
    return 0;
  });
}

int reg_vector(fid* id, const iovec*, std::size_t count, std::uint64_t access, std::uint64_t offset, std::uint64_t key,
               std::uint64_t flags, fid_mr** made, void* context) {
  return count > 1 ? -FI_EINVAL : reg(id, nullptr, 0, access, offset, key, flags, made, context);
}

int reg_attr(fid* id, const fi_mr_attr* attr, std::uint64_t flags, fid_mr** made) {
  if (attr->iov_count > 1 || attr->iface != FI_HMEM_SYSTEM) return -FI_EINVAL;
  return reg(id, nullptr, 0, attr->access, attr->offset, attr->requested_key, flags, made, attr->context);
}

fi_ops_domain& domain_calls() {
  static fi_ops_domain table = [] {
    fi_ops_domain ops{};
    ops.size = sizeof(ops);
    ops.av_open = AddressVector::open;
    ops.cq_open = CompletionQueue::open;
    ops.endpoint = Endpoint::open;
    ops.scalable_ep = [](fid_domain*, fi_info*, fid_ep**, void*) { return -FI_ENOSYS; };
    ops.cntr_open = EventCounter::open;
    ops.poll_open = [](fid_domain*, fi_poll_attr*, fid_poll**) { return -FI_ENOSYS; };
    ops.stx_ctx = [](fid_domain*, fi_tx_attr*, fid_stx**, void*) { return -FI_ENOSYS; };
    ops.srx_ctx = [](fid_domain*, fi_rx_attr*, fid_ep**, void*) { return -FI_ENOSYS; };
    ops.query_atomic = [](fid_domain*, fi_datatype, fi_op, fi_atomic_attr*, std::uint64_t) { return -FI_EOPNOTSUPP; };
    return ops;
  }();
  return table;
}

fi_ops_mr& memory_calls() {
  static fi_ops_mr table = [] {
    fi_ops_mr ops{};
    ops.size = sizeof(ops);
    ops.reg = reg;
    ops.regv = reg_vector;
    ops.regattr = reg_attr;
    return ops;
  }();
  return table;
}

}  // namespace

Fabric::Fabric(void* context) : fid_fabric() {
  static fi_ops table = fid_table(close_fabric);
  static fi_ops_fabric calls = [] {
    fi_ops_fabric ops_of{};
    ops_of.size = sizeof(ops_of);
    ops_of.domain = Domain::open;
    ops_of.passive_ep = [](fid_fabric*, fi_info*, fid_pep**, void*) { return -FI_ENOSYS; };
    ops_of.eq_open = EventQueue::open;
    ops_of.wait_open = [](fid_fabric*, fi_wait_attr*, fid_wait**) { return -FI_ENOSYS; };
    ops_of.trywait = [](fid_fabric*, struct fid**, int) { return -FI_ENOSYS; };
    return ops_of;
  }();
  set_id(fid, FI_CLASS_FABRIC, context, table);
  ops = &calls;
}

int Fabric::open(fi_fabric_attr*, fid_fabric** made, void* context) {
  return guarded([&]() -> int {
    *made = new Fabric(context);
    return 0;
  });
}

Domain::Domain(Fabric& fabric, void* context) : fid_domain(), fabric_(fabric), log_(provider_log()) {
  static fi_ops table = fid_table(close_domain);
  set_id(fid, FI_CLASS_DOMAIN, context, table);
  ops = &domain_calls();
  mr = &memory_calls();
  ++fabric_.children;
}

Domain::~Domain() { --fabric_.children; }

int Domain::open(fid_fabric* fabric, fi_info* info, fid_domain** made, void* context) {
  return guarded([&]() -> int {
    if (info->domain_attr == nullptr || info->domain_attr->name == nullptr) return -FI_EINVAL;
    std::unique_ptr<Domain> domain(new Domain(*static_cast<Fabric*>(fabric), context));
    if (const auto chosen = domain->choose(info->domain_attr->name); !chosen) {
      tell_refusal(chosen.error().message);
      return -fi_error(chosen.error().code);
    }
    *made = domain.release();
    return 0;
  });
}

Result<void> Domain::choose(const std::string& interface) {
  auto config = load_settings();
  if (!config) return tl::unexpected(config.error());
  settings_ = config->get<ProviderSettings>();
  config->edit<NetworkSettings>()->interfaces = "=" + interface;
  // A receive that waits here is ours, not the program's: a peer that says nothing is no peer that hangs. What was
  // begun with it is for the connections to watch.
  settings_.stall_timeout = config->get<TransportSettings>().stall_timeout;
  config->edit<TransportSettings>()->stall_timeout = Duration::zero();
  // So that an offered payload stays where it is until its receive is there, and is not copied on its way.
  if (config->find("tcp_eager_bytes") == nullptr) {
    config->edit<TcpSettings>()->eager_bytes = std::min<std::uint32_t>(settings_.eager_bytes + Header::kSize, 1 << 20);
    auto tcp = config->edit<TcpSettings>();
    tcp->window_bytes = std::max(tcp->window_bytes, tcp->eager_bytes);
  }
  auto selection = transport::select_transport({.config = *config, .clock = clock_, .log = log_});
  if (!selection) return tl::unexpected(selection.error());
  if (selection->transport->devices().empty()) {
    return fail(ErrorCode::kUnavailable, std::string(selection->transport->name()) + " has no device on " + interface);
  }
  log_.info(std::string("clustar: ") + selection->transport->name() + " on " + interface);
  selection_ = std::move(*selection);
  return {};
}

}  // namespace clustar::libfabric_shim::provider
