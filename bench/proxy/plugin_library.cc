#include "bench/proxy/plugin_library.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace clustar::bench::proxy {
namespace {

// The names NCCL tries for one entry of NCCL_NET_PLUGIN.
std::vector<std::string> file_names(const std::string& path) {
  std::vector<std::string> names{path};
  const bool is_file = path.find('/') != std::string::npos || (path.starts_with("lib") && path.ends_with(".so"));
  if (!is_file) names.push_back(fmt::format("libnccl-net-{}.so", path));
  return names;
}

}  // namespace

Result<OpenedLibrary> open_library(const std::string& path) {
  // dlopen("") is the program itself, and would look like a library without tables.
  if (path.empty()) return fail(ErrorCode::kInvalidArgument, "the path of the net plugin is empty; give a .so file");
  std::string reasons;
  for (std::string& name : file_names(path)) {
    dlerror();
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      return OpenedLibrary{Library(library), std::move(name)};
    }
    const char* reason = dlerror();
    if (!reasons.empty()) reasons += "; ";
    reasons += reason != nullptr ? reason : "no reason given by dlopen";
  }
  const bool is_bare = path.find('/') == std::string::npos;
  return fail(
      ErrorCode::kUnavailable,
      fmt::format("cannot open net plugin '{}': {}{}", path, reasons,
                  is_bare ? "; the loader looks for a bare name in LD_LIBRARY_PATH and in the system's folders, "
                            "so add the plugin's folder there or give its path"
                          : ""));
}

void* find_symbol(void* library, const std::string& name) { return dlsym(library, name.c_str()); }

}  // namespace clustar::bench::proxy
