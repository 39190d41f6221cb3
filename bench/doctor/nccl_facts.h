// What `clustar doctor nccl` knows of a machine and an environment before it judges.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/doctor/glibc_need.h"
#include "bench/doctor/nccl_variables.h"

namespace clustar::bench::doctor {

// One name that NCCL would give to dlopen.
struct Tried {
  std::string name{};
  std::string error{};  // dlerror's text; empty: it was opened
};

// What became of one entry of NCCL_NET_PLUGIN, or of NCCL's search for a profiler or a tuner.
struct Search {
  std::string entry{};  // "" where the variable is not set
  std::vector<Tried> tried{};
  std::string path{};           // of what was opened; empty: nothing was
  std::string file{};           // otherwise a file of one of the names that is there and could not be opened
  std::vector<int> versions{};  // of the role's tables that it exports, newest first; none: NCCL cannot use it
  std::string name{};           // as the newest table says, which NCCL_NET is compared with
  bool clustar = false;         // it has our C API
  std::string build_id{};       // of the library; empty: it has none
  std::string died{};           // how the process that opened it ended, if it did

  bool usable() const { return !path.empty() && !versions.empty() && died.empty(); }
};

struct BannerLine {
  bool warning = false;
  std::string text{};
};

// What the plugin says at init, and what it offers.
struct Banner {
  std::string path{};  // of the plugin that was asked; empty: none
  std::vector<BannerLine> lines{};
  std::string failure{};  // of init or devices, or how it ended; empty: it came up
  std::vector<std::string> devices{};
};

// Of libfabric, by libclustar-ofi.so.
struct OfiFacts {
  bool module = false;          // it is there
  std::string there{};          // libfabric and its providers, as a sentence; empty: no libfabric, or none in it
  std::string taken{};          // the provider that CLUSTAR_TRANSPORT=ofi takes; empty: none
  std::string why{};            // it is taken, or none is
  std::string datagrams{};      // the provider that CLUSTAR_IO=ofi takes; empty: none
  std::string why_datagrams{};  // it is taken, or none is
};

struct NcclFacts {
  std::string host{};
  NcclVariables variables{};
  std::vector<Search> net{};  // in the order in which NCCL tries them
  Search profiler{};
  Search tuner{};
  std::string beside{};               // our plugin in ../lib of this executable; empty: it is not there
  Search fallback{};                  // of libnccl-net.so, which NCCL takes where NCCL_NET_PLUGIN is not set
  std::vector<std::string> strays{};  // other libnccl-net*.so in folders of LD_LIBRARY_PATH
  Banner banner{};
  GlibcVersion glibc{};
  std::optional<GlibcVersion> needed{};  // by the plugin that NCCL would take, or would if it could
  std::string needed_unknown{};          // why its file does not tell; empty: it does, or there is none
  std::vector<std::string> rdma_devices{};
  std::optional<std::uint64_t> memlock_bytes{};  // nothing: unlimited, or the process may lock what it wants

  OfiFacts ofi{};

  // The first that NCCL could use, and whose name NCCL_NET allows; null: none.
  const Search* chosen() const;
};

// Of this process and machine. Plugins are opened and initialized in processes of their own.
NcclFacts nccl_facts_here();

}  // namespace clustar::bench::doctor
