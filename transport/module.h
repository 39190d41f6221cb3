// A backend with third-party libraries is a module: libclustar-<name>.so beside the plugin, so that the plugin itself
// needs only libc. A module that cannot be opened is a reason, never a failure to load the plugin.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transport/api/context.h"
#include "transport/api/transport.h"
#include "transport/base/result.h"
#include "transport/module_build.h"

namespace clustar::transport {

// What a module exports as the data object `clustar_module`. C++ objects cross, exceptions do not, so module and plugin
// are of one build: `version` and `build` are equal, or the module is refused.
struct ModuleEntry {
  static constexpr std::uint32_t kAbi = 4;  // of the fields up to `build`
  std::uint32_t abi = kAbi;
  const char* version = CLUSTAR_VERSION;
  const char* build = CLUSTAR_MODULE_BUILD;  // a digest of the headers by which they speak, and of the compiler
  Result<std::unique_ptr<Transport>> (*create)(const TransportContext&) = nullptr;
  // What else the module offers, by name. The caller knows the type behind the name (transport/io/packet_backend.h).
  // Null: it has nothing of that name. What these functions make ends before the module is closed, as the transport
  // does.
  using Function = void (*)();
  Function (*find)(const char* name) = nullptr;
};

class Module {
 public:
  Module() = default;
  ~Module();
  Module(Module&& other) noexcept;
  Module& operator=(Module&& other) noexcept;

  // Opens libclustar-<name>.so in `folder`, RTLD_NOW | RTLD_LOCAL. Errors: absent, cannot be opened (the loader's
  // reason), no entry, or of another build.
  static Result<Module> open(const std::string& folder, const std::string& name);

  const ModuleEntry& entry() const { return *entry_; }
  ModuleEntry::Function find(const char* name) const { return entry_->find == nullptr ? nullptr : entry_->find(name); }

 private:
  void* library_ = nullptr;
  const ModuleEntry* entry_ = nullptr;
};

}  // namespace clustar::transport
