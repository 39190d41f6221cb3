#include "bench/doctor/ofi_probe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "libfabric_shim/providers_probe.h"
#include "transport/base/own_folder.h"
#include "transport/module.h"

namespace clustar::bench::doctor {

namespace ofi = transport::ofi;

namespace {

// What CLUSTAR_TRANSPORT=mlt CLUSTAR_IO=ofi would take, as the rest of a sentence.
std::string ask_datagrams(const transport::Module& module, const std::string& forced) {
  const auto ask = reinterpret_cast<ofi::AskProviders>(module.find(ofi::kAskDatagrams));
  if (ask == nullptr) return {};
  const auto answer = ask(forced);
  if (!answer) return "; CLUSTAR_IO=ofi: " + answer.error().message;
  if (answer->taken.empty()) return "; CLUSTAR_IO=ofi: " + answer->why;
  return fmt::format("; CLUSTAR_IO=ofi would take datagrams of {} ({})", answer->taken, answer->why);
}

}  // namespace

std::string ask_libfabric(const std::string& forced) {
  // Modules are beside the plugin.
  const std::string library = installed_library("libclustar-ofi.so");
  if (library.empty()) return {};
  const auto module = transport::Module::open(std::filesystem::path(library).parent_path().string(), "ofi");
  if (!module) return {};
  const auto ask = reinterpret_cast<ofi::AskProviders>(module->find(ofi::kAskProviders));
  if (ask == nullptr) return {};
  const auto answer = ask(forced);
  const std::string datagrams = ask_datagrams(*module, forced);
  if (!answer) return answer.error().message + datagrams;
  const std::string there = fmt::format("libfabric {} has {}", answer->version, fmt::join(answer->there, ", "));
  if (answer->taken.empty()) return there + "; " + answer->why + datagrams;
  return fmt::format("{}; CLUSTAR_TRANSPORT=ofi would take {} ({}){}", there, answer->taken, answer->why, datagrams);
}

}  // namespace clustar::bench::doctor
