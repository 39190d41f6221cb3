#include "transport/base/own_folder.h"

#include <dlfcn.h>

#include <filesystem>

namespace clustar {

std::string own_folder() {
  static const char anchor = 0;
  Dl_info info{};
  if (dladdr(&anchor, &info) == 0 || info.dli_fname == nullptr) return ".";
  std::error_code ignored;
  const auto path = std::filesystem::canonical(info.dli_fname, ignored);
  return path.empty() ? "." : path.parent_path().string();
}

}  // namespace clustar
