#include "libfabric_shim/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "libfabric_shim/signals.h"

namespace clustar::transport::ofi {
namespace {

constexpr const char* kFile = "libfabric.so.1";

Result<Library> open() {
  const KeptSignals signals;
  void* const library = ::dlopen(kFile, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("{}: {}; install libfabric (package libfabric1), or add its folder to LD_LIBRARY_PATH",
                            kFile, ::dlerror()));
  }
  Library found;
  bool all = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    all = all && function != nullptr;
  };
  find(found.get_info, "fi_getinfo");
  find(found.free_info, "fi_freeinfo");
  find(found.duplicate_info, "fi_dupinfo");
  find(found.open_fabric, "fi_fabric");
  find(found.error_text, "fi_strerror");
  find(found.version, "fi_version");
  find(found.get_params, "fi_getparams");
  find(found.free_params, "fi_freeparams");
  if (!all) return fail(ErrorCode::kUnavailable, fmt::format("{} is no libfabric: it lacks fi_ functions", kFile));
  return found;
}

}  // namespace

const Result<Library>& Library::get() {
  static const Result<Library> library = open();
  return library;
}

}  // namespace clustar::transport::ofi
