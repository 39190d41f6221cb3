#include "bench/proxy/profiler_plugin.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "bench/proxy/profiler_callback.h"

namespace clustar::bench::proxy {
namespace {

using namespace nccl_abi;  // NOLINT: this file speaks the ABI

constexpr int kNewest = 6;
constexpr int kOldest = 4;

// Never destroyed: NCCL's mask is a global that the plugin may write to as long as it is loaded.
int* mask_of(const void* table) {
  static auto* mutex = new std::mutex;
  static auto* masks = new std::map<const void*, int>;
  const std::lock_guard lock(*mutex);
  return &(*masks)[table];
}

// False: v4 has no such event.
bool to_v4(const EventV6& from, EventV4& to) {
  std::memset(&to, 0, sizeof to);
  to.type = static_cast<std::uint8_t>(from.type);
  to.parent = from.parent;
  to.rank = from.rank;
  switch (from.type) {
    case kEventGroup:
    case kEventProxyCtrl: return true;
    case kEventColl: {
      const CollEventV5& coll = from.coll;
      to.parent = coll.parent_group;
      to.coll = {coll.seq_number, coll.func,     coll.send_buffer, coll.recv_buffer, coll.count, coll.root,
                 coll.datatype,   coll.channels, coll.warps,       coll.algo,        coll.proto};
      return true;
    }
    case kEventP2p: {
      const P2pEventV5& p2p = from.p2p;
      to.parent = p2p.parent_group;
      to.p2p = {p2p.func, p2p.buffer, p2p.datatype, p2p.count, p2p.peer, p2p.channels};
      return true;
    }
    case kEventProxyOp: to.proxy_op = from.proxy_op; return true;
    case kEventProxyStep: to.proxy_step = from.proxy_step; return true;
    case kEventKernelCh: to.kernel_ch = from.kernel_ch; return true;
    case kEventNetPlugin: to.net_plugin = from.net_plugin; return true;
    default: return false;
  }
}

template <int V>
struct Abi;
template <>
struct Abi<4> {
  using Table = ProfilerV4;
};
template <>
struct Abi<5> {
  using Table = ProfilerV5;
  using Event = EventV5;
};
template <>
struct Abi<6> {
  using Table = ProfilerV6;
  using Event = EventV6;
};

template <int V>
class Adaptor final : public ProfilerPlugin {
  using Table = typename Abi<V>::Table;

 public:
  Adaptor(Library library, const void* table)
      : ProfilerPlugin(std::move(library), table), table_(static_cast<const Table*>(table)) {}

  int version() const override { return V; }
  const char* name() const override { return table_->name != nullptr ? table_->name : ""; }

  int init(const ProfiledComm& comm, DebugLogger logger, void** context) override {
    if (!is_whole()) return kInternalError;
    ProfilerCallbackSlot::bind(library_.get(), table_->stopEvent, table_->recordEventState);
    if constexpr (V == 4) {
      return table_->init(context, mask_, comm.name.c_str(), comm.comm_id, comm.nodes, comm.ranks, comm.rank, logger);
    } else {
      return table_->init(context, comm.comm_id, mask_, comm.name.c_str(), comm.nodes, comm.ranks, comm.rank, logger);
    }
  }

  int start(void* context, void** handle, const EventV6& event) override {
    if constexpr (V == 4) {
      EventV4 old;
      return to_v4(event, old) ? table_->startEvent(context, handle, &old) : kSuccess;
    } else {
      // v5 is v6 without the copy engine's events, at the same places.
      typename Abi<V>::Event copy;
      static_assert(sizeof copy == sizeof event);
      std::memcpy(static_cast<void*>(&copy), &event, sizeof copy);
      return table_->startEvent(context, handle, &copy);
    }
  }

  int stop(void* handle) override { return table_->stopEvent(handle); }

  int record(void* handle, int state, EventStateArgs* args) override {
    if (V == 4 && (state == kStateGroupStartApiStop || state == kStateGroupEndApiStart)) return kSuccess;
    return table_->recordEventState(handle, state, args);
  }

  int finalize(void* context) override { return table_->finalize(context); }

 private:
  bool is_whole() const {
    return table_->init != nullptr && table_->startEvent != nullptr && table_->stopEvent != nullptr &&
           table_->recordEventState != nullptr && table_->finalize != nullptr;
  }

  const Table* table_;
};

std::unique_ptr<ProfilerPlugin> adapt(Library library, const void* table, int version) {
  switch (version) {
    case 4: return std::make_unique<Adaptor<4>>(std::move(library), table);
    case 5: return std::make_unique<Adaptor<5>>(std::move(library), table);
    default: return std::make_unique<Adaptor<6>>(std::move(library), table);
  }
}

}  // namespace

int paired_version(int net_version) { return net_version >= 10 ? std::min(net_version, 12) - 6 : 0; }

ProfilerPlugin::ProfilerPlugin(Library library, const void* table)
    : library_(std::move(library)), mask_(mask_of(table)) {}

clustar::Result<std::unique_ptr<ProfilerPlugin>> ProfilerPlugin::open(const std::string& path, int newest) {
  if (newest < kOldest || newest > kNewest) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("profiler version {} is not known; allowed are {} to {}", newest, kOldest, kNewest));
  }
  auto opened = open_library(path);
  if (!opened) return tl::unexpected(opened.error());
  for (int v = newest; v >= kOldest; --v) {
    const void* table = find_symbol(opened->library.get(), fmt::format("ncclProfiler_v{}", v));
    if (table != nullptr) return adapt(std::move(opened->library), table, v);
  }
  return nullptr;
}

}  // namespace clustar::bench::proxy
