#include "bench/doctor/ofi_probe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "libfabric_shim/providers_probe.h"
#include "transport/base/own_folder.h"
#include "transport/module.h"

namespace clustar::bench::doctor {

namespace ofi = transport::ofi;

std::string ask_libfabric(const std::string& forced) {
  // Modules are beside the plugin.
  const std::string library = installed_library("libclustar-ofi.so");
  if (library.empty()) return {};
  const auto module = transport::Module::open(std::filesystem::path(library).parent_path().string(), "ofi");
  if (!module) return {};
  const auto ask = reinterpret_cast<ofi::AskProviders>(module->find(ofi::kAskProviders));
  if (ask == nullptr) return {};
  const auto answer = ask(forced);
  if (!answer) return answer.error().message;
  const std::string there = fmt::format("libfabric {} has {}", answer->version, fmt::join(answer->there, ", "));
  if (answer->taken.empty()) return there + "; " + answer->why;
  return fmt::format("{}; CLUSTAR_TRANSPORT=ofi would take {} ({})", there, answer->taken, answer->why);
}

}  // namespace clustar::bench::doctor
