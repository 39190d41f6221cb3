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

void ask_datagrams(const transport::Module& module, const std::string& forced, const std::string& progress,
                   const std::string& no_rdma, OfiFacts& facts) {
  const auto ask = reinterpret_cast<ofi::AskDatagrams>(module.find(ofi::kAskDatagrams));
  if (ask == nullptr) return;
  const auto answer = ask(forced, progress, no_rdma);
  if (answer) facts.datagrams = answer->taken;
  facts.why_datagrams = answer ? answer->why : answer.error().message;
}

}  // namespace

OfiFacts ask_libfabric(const std::string& forced, const std::string& progress, const std::string& no_rdma) {
  // Modules are beside the plugin.
  const std::string library = installed_library("libclustar-ofi.so");
  std::error_code error;
  OfiFacts facts{.module = !library.empty() && std::filesystem::exists(library, error)};
  if (!facts.module) return facts;
  const auto module = transport::Module::open(std::filesystem::path(library).parent_path().string(), "ofi");
  const auto ask = module ? reinterpret_cast<ofi::AskProviders>(module->find(ofi::kAskProviders)) : nullptr;
  if (ask == nullptr) {
    facts.why = module ? library + " names no providers" : module.error().message;
    facts.why_datagrams = facts.why;
    return facts;
  }
  ask_datagrams(*module, forced, progress, no_rdma, facts);
  const auto answer = ask(forced, progress);
  if (!answer) {
    facts.why = answer.error().message;
    return facts;
  }
  facts.there = fmt::format("libfabric {} has {}", answer->version, fmt::join(answer->there, ", "));
  facts.taken = answer->taken;
  facts.why = answer->why;
  return facts;
}

}  // namespace clustar::bench::doctor
