#include "transport/base/table_module.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

namespace clustar {
namespace {

std::string find(const char* file, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    std::string path = folder + "/" + file;
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path;
  }
  return {};
}

}  // namespace

Result<OpenedTable> open_table(const TableModule& wanted, const std::vector<std::string>& folders) {
  const std::string path = find(wanted.file, folders);
  if (path.empty()) {
    return fail(
        ErrorCode::kUnavailable,
        fmt::format("the {} {} is not beside the plugin; copy it there with the plugin, or build again where {}",
                    wanted.kind, wanted.file, wanted.built_where));
  }
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    const char* reason = dlerror();
    return fail(ErrorCode::kUnavailable, (reason == nullptr ? path + " cannot be opened" : reason) + wanted.unopened);
  }
  const auto* table = static_cast<const TableStart*>(dlsym(module, wanted.symbol));
  if (table != nullptr && table->abi == wanted.abi && table->size == wanted.size)
    return OpenedTable{module, table, path};
  const std::string why =
      table == nullptr ? fmt::format(" is not clustar's {}; install the one that came with the plugin", wanted.kind)
                       : " comes from another build; install plugin and modules together";
  dlclose(module);
  return fail(ErrorCode::kUnavailable, path + why);
}

}  // namespace clustar
