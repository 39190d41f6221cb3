// Which providers there are, and which one would be taken: for programs that do not need libfabric otherwise.
#pragma once

#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::transport::ofi {

struct Providers {
  std::string version;             // of libfabric: "1.17"
  std::vector<std::string> there;  // with what was asked for, in libfabric's order
  std::string taken;               // empty: none
  std::string why;                 // it is taken, or none is
};

// Those with reliable tagged messages. `forced`, `progress`: as in OfiSettings. Error: there is no libfabric, or it has
// no such provider at all.
Result<Providers> ask_providers(const std::string& forced, const std::string& progress);

// The same of those with datagrams, which CLUSTAR_IO=ofi takes.
// `no_rdma`: as in choose_datagrams().
Result<Providers> ask_datagrams(const std::string& forced, const std::string& progress, const std::string& no_rdma);

// How libclustar-ofi.so offers them (ModuleEntry::find).
inline constexpr const char* kAskProviders = "ask_providers";
inline constexpr const char* kAskDatagrams = "ask_datagrams";
using AskProviders = Result<Providers> (*)(const std::string& forced, const std::string& progress);
using AskDatagrams = Result<Providers> (*)(const std::string& forced, const std::string& progress,
                                           const std::string& no_rdma);

}  // namespace clustar::transport::ofi
