#include "nccl_plugin/profiler/chain_profiler.h"

#include <dlfcn.h>

#include <cstring>
#include <string_view>

namespace clustar::nccl_plugin {
namespace {

using namespace nccl_abi;

constexpr std::string_view kOwnName = "clustar";
// States of the API events that v4 lacks come after this one (ncclProfilerKernelChStop).
constexpr int kLastStateV4 = 22;

void* open_library(const std::string& path, std::string* reason) {
  const bool plain = path.find('/') == std::string::npos;
  for (const std::string& file : {path, plain ? "libnccl-profiler-" + path + ".so" : std::string()}) {
    if (file.empty()) continue;
    if (void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    const char* error = ::dlerror();
    if (!reason->empty()) *reason += "; ";
    *reason += error == nullptr ? file + ": no reason given" : error;
  }
  return nullptr;
}

bool same_object(const void* one, const void* other) {
  Dl_info first{}, second{};
  return ::dladdr(one, &first) != 0 && ::dladdr(other, &second) != 0 && first.dli_fbase == second.dli_fbase;
}

// Of v5 or v6, whose descriptors are alike. False: v4 has no such event.
bool translate(const EventV6& from, EventV4* to) {
  std::memset(static_cast<void*>(to), 0, sizeof *to);
  to->type = static_cast<std::uint8_t>(from.type);
  to->parent = from.parent;
  to->rank = from.rank;
  switch (from.type) {
    case kEventGroup:
    case kEventProxyCtrl: return true;
    case kEventColl:
      std::memcpy(&to->coll, &from.coll, sizeof to->coll);
      to->parent = from.coll.parent_group;
      return true;
    case kEventP2p:
      std::memcpy(&to->p2p, &from.p2p, sizeof to->p2p);
      to->parent = from.p2p.parent_group;
      return true;
    case kEventProxyOp: to->proxy_op = from.proxy_op; return true;
    case kEventProxyStep: to->proxy_step = from.proxy_step; return true;
    case kEventKernelCh: to->kernel_ch = from.kernel_ch; return true;
    case kEventNetPlugin: to->net_plugin = from.net_plugin; return true;
    default: return false;
  }
}
static_assert(offsetof(CollEventV5, parent_group) == sizeof(CollEventV4));
static_assert(offsetof(P2pEventV5, parent_group) == sizeof(P2pEventV4));
static_assert(sizeof(EventV5) == sizeof(EventV6));

}  // namespace

clustar::Result<std::unique_ptr<ChainProfiler>> ChainProfiler::open(const std::string& path) {
  std::string reason;
  void* const library = open_library(path, &reason);
  if (library == nullptr) {
    return fail(ErrorCode::kUnavailable, "chain_profiler: " + reason + "; give the path of a profiler plugin of NCCL");
  }
  std::unique_ptr<ChainProfiler> chain(new ChainProfiler());
  chain->library_ = library;
  chain->v6_ = static_cast<const ProfilerV6*>(::dlsym(library, "ncclProfiler_v6"));
  chain->v5_ = static_cast<const ProfilerV5*>(::dlsym(library, "ncclProfiler_v5"));
  chain->v4_ = static_cast<const ProfilerV4*>(::dlsym(library, "ncclProfiler_v4"));
  const void* table = chain->v6_;
  if (table == nullptr) table = chain->v5_;
  if (table == nullptr) table = chain->v4_;
  if (table == nullptr) {
    return fail(
        ErrorCode::kUnavailable,
        "chain_profiler: " + path + " exports none of ncclProfiler_v4, v5 and v6; give a profiler plugin of NCCL");
  }
  // A copy of the file is another object to the loader, but would chain to itself again.
  if (same_object(table, reinterpret_cast<const void*>(&ChainProfiler::open)) || chain->name() == kOwnName) {
    return fail(ErrorCode::kInvalidUsage,
                "chain_profiler: " + path + " is this plugin itself; give another profiler plugin, or none");
  }
  return chain;
}

ChainProfiler::~ChainProfiler() {
  if (library_ != nullptr) ::dlclose(library_);
}

int ChainProfiler::table_for(int version) const {
  if (version >= 6 && v6_ != nullptr) return 6;
  if (version >= 5 && v5_ != nullptr) return 5;
  return version >= 4 && v4_ != nullptr ? 4 : 0;
}

std::string ChainProfiler::name() const {
  const char* name = v6_ != nullptr ? v6_->name : v5_ != nullptr ? v5_->name : v4_ != nullptr ? v4_->name : nullptr;
  return name == nullptr ? "" : name;
}

int ChainProfiler::init(int version, void** context, std::uint64_t comm_id, int* mask, const char* comm_name, int nodes,
                        int ranks, int rank, DebugLogger logger) const {
  switch (table_for(version)) {
    case 6: return v6_->init(context, comm_id, mask, comm_name, nodes, ranks, rank, logger);
    case 5: return v5_->init(context, comm_id, mask, comm_name, nodes, ranks, rank, logger);
    case 4: return v4_->init(context, mask, comm_name, comm_id, nodes, ranks, rank, logger);
    default: return kSuccess;
  }
}

int ChainProfiler::start(int version, void* context, void** handle, const void* event) const {
  *handle = nullptr;
  const int table = table_for(version);
  if (table == 0) return kSuccess;
  if (version == 4) {
    EventV4 copy;
    std::memcpy(static_cast<void*>(&copy), event, sizeof copy);
    return v4_->startEvent(context, handle, &copy);
  }
  EventV6 copy;
  std::memcpy(static_cast<void*>(&copy), event, sizeof copy);
  if (table == 6) return v6_->startEvent(context, handle, &copy);
  if (table == 5) {
    if (copy.type >= kEventCeColl) return kSuccess;
    EventV5 older;
    std::memcpy(static_cast<void*>(&older), &copy, sizeof older);
    return v5_->startEvent(context, handle, &older);
  }
  EventV4 older;
  return translate(copy, &older) ? v4_->startEvent(context, handle, &older) : int{kSuccess};
}

int ChainProfiler::stop(int version, void* handle) const {
  switch (table_for(version)) {
    case 6: return v6_->stopEvent(handle);
    case 5: return v5_->stopEvent(handle);
    case 4: return v4_->stopEvent(handle);
    default: return kSuccess;
  }
}

int ChainProfiler::record(int version, void* handle, int state, const void* args) const {
  EventStateArgs copy{};
  if (args != nullptr) std::memcpy(&copy, args, sizeof copy);
  EventStateArgs* const passed = args == nullptr ? nullptr : &copy;
  switch (table_for(version)) {
    case 6: return v6_->recordEventState(handle, state, passed);
    case 5: return v5_->recordEventState(handle, state, passed);
    case 4: return state > kLastStateV4 ? int{kSuccess} : v4_->recordEventState(handle, state, passed);
    default: return kSuccess;
  }
}

int ChainProfiler::finalize(int version, void* context) const {
  switch (table_for(version)) {
    case 6: return v6_->finalize(context);
    case 5: return v5_->finalize(context);
    case 4: return v4_->finalize(context);
    default: return kSuccess;
  }
}

}  // namespace clustar::nccl_plugin
