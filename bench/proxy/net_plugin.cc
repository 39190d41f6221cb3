#include "bench/proxy/net_plugin.h"

#include <fmt/format.h>

#include "bench/proxy/table_adaptor.h"

namespace clustar::bench::proxy {
namespace {

constexpr int kNewest = 12;
constexpr int kOldest = 6;

void* find_table(const OpenedLibrary& opened, int version) {
  return find_symbol(opened.library.get(), fmt::format("ncclNetPlugin_v{}", version));
}

template <int V>
std::unique_ptr<NetPlugin> adapt(OpenedLibrary& library, void* table) {
  return std::make_unique<TableAdaptor<V>>(std::move(library), static_cast<const typename Abi<V>::Table*>(table));
}

std::unique_ptr<NetPlugin> adapt(int version, OpenedLibrary& library, void* table) {
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

}  // namespace clustar::bench::proxy
