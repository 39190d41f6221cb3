#include "transport/module.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <string_view>
#include <utility>

namespace clustar::transport {

Module::~Module() {
  if (library_ != nullptr) dlclose(library_);
}

Module::Module(Module&& other) noexcept
    : library_(std::exchange(other.library_, nullptr)), entry_(std::exchange(other.entry_, nullptr)) {}

Module& Module::operator=(Module&& other) noexcept {
  std::swap(library_, other.library_);
  std::swap(entry_, other.entry_);
  return *this;
}

Result<Module> Module::open(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/libclustar-" + name + ".so";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("libclustar-{}.so is not beside the plugin, in '{}'", name, folder));
  }
  Module module;
  module.library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module.library_ == nullptr) {
    const char* reason = dlerror();
    return fail(ErrorCode::kUnavailable, reason == nullptr ? path + " cannot be opened" : reason);
  }
  module.entry_ = static_cast<const ModuleEntry*>(dlsym(module.library_, "clustar_module"));
  if (module.entry_ == nullptr) return fail(ErrorCode::kUnavailable, path + " is not a module of clustar");
  const ModuleEntry& entry = *module.entry_;
  const auto is = [](const char* theirs, std::string_view ours) { return theirs != nullptr && theirs == ours; };
  const bool same_build =
      entry.abi == ModuleEntry::kAbi && is(entry.version, CLUSTAR_VERSION) && is(entry.build, CLUSTAR_MODULE_BUILD);
  if (!same_build) {
    return fail(ErrorCode::kUnavailable, path + " comes from another build; install plugin and modules together");
  }
  return module;
}

}  // namespace clustar::transport
