#include "bench/proxy/net_plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "bench/proxy/table_adaptor.h"

namespace clustar::bench::proxy {
namespace {

constexpr int kNewest = 12;
constexpr int kOldest = 6;

// The names NCCL tries for one entry of NCCL_NET_PLUGIN.
std::vector<std::string> file_names(const std::string& path) {
  std::vector<std::string> names{path};
  const bool is_file = path.find('/') != std::string::npos || (path.starts_with("lib") && path.ends_with(".so"));
  if (!is_file) names.push_back(fmt::format("libnccl-net-{}.so", path));
  return names;
}

Result<Library> open_library(const std::string& path) {
  // dlopen("") is the program itself, and would look like a library without tables.
  if (path.empty()) return fail(ErrorCode::kInvalidArgument, "the path of the net plugin is empty; give a .so file");
  std::string reasons;
  for (const std::string& name : file_names(path)) {
    dlerror();
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return Library(library);
    const char* reason = dlerror();
    if (!reasons.empty()) reasons += "; ";
    reasons += reason != nullptr ? reason : "no reason given by dlopen";
  }
  return fail(ErrorCode::kUnavailable, fmt::format("cannot open net plugin '{}': {}", path, reasons));
}

void* find_table(const Library& library, int version) {
  return dlsym(library.get(), fmt::format("ncclNetPlugin_v{}", version).c_str());
}

template <int V>
std::unique_ptr<NetPlugin> adapt(Library& library, void* table) {
  return std::make_unique<TableAdaptor<V>>(std::move(library), static_cast<const typename Abi<V>::Table*>(table));
}

std::unique_ptr<NetPlugin> adapt(int version, Library& library, void* table) {
  switch (version) {
    case 6: return adapt<6>(library, table);
    case 7: return adapt<7>(library, table);
    case 8: return adapt<8>(library, table);
    case 9: return adapt<9>(library, table);
    case 10: return adapt<10>(library, table);
    case 11: return adapt<11>(library, table);
    default: return adapt<12>(library, table);
  }
}

}  // namespace

Result<std::unique_ptr<NetPlugin>> NetPlugin::open(const std::string& path, int version) {
  if (version != 0 && (version < kOldest || version > kNewest)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("net plugin version {} is not known; allowed are {} to {}, or 0 for the newest that the "
                            "library has",
                            version, kOldest, kNewest));
  }
  auto library = open_library(path);
  if (!library) return tl::unexpected(library.error());
  const int first = version == 0 ? kNewest : version;
  const int last = version == 0 ? kOldest : version;
  for (int v = first; v >= last; --v) {
    if (void* table = find_table(*library, v)) return adapt(v, *library, table);
  }
  const std::string wanted = version == 0 ? fmt::format("ncclNetPlugin_v{} .. ncclNetPlugin_v{}", kNewest, kOldest)
                                          : fmt::format("ncclNetPlugin_v{}", version);
  return fail(ErrorCode::kUnavailable,
              fmt::format("'{}' is no net plugin of a wanted version: it exports none of {}", path, wanted));
}

Result<std::vector<int>> NetPlugin::exported_versions(const std::string& path) {
  auto library = open_library(path);
  if (!library) return tl::unexpected(library.error());
  std::vector<int> versions;
  for (int v = kNewest; v >= kOldest; --v) {
    if (find_table(*library, v) != nullptr) versions.push_back(v);
  }
  return versions;
}

std::mutex& AdaptorBase::set_up_mutex() {
  static auto* mutex = new std::mutex;  // outlives every plugin
  return *mutex;
}

int AdaptorBase::bad_call(std::string text, int result) {
  log_.add(nccl_abi::kLogWarn, nccl_abi::kLogNet, std::move(text));
  return result;
}

int AdaptorBase::missing(const char* slot) {
  return bad_call(fmt::format("the function table ncclNetPlugin_v{} has no {} (NULL)", version(), slot),
                  nccl_abi::kInternalError);
}

int AdaptorBase::too_large(const char* call, std::size_t size, std::size_t limit) {
  return bad_call(
      fmt::format("{} of {} bytes: ncclNetPlugin_v{} carries at most {} bytes per call", call, size, version(), limit),
      nccl_abi::kInternalError);
}

int AdaptorBase::ignore_profiler_event(void** /*event_handle*/, int /*type*/, void* /*profiler_handle*/,
                                       std::int64_t /*plugin_id*/, void* /*extension_data*/) {
  return nccl_abi::kSuccess;
}

}  // namespace clustar::bench::proxy
