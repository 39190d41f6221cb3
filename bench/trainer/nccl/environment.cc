#include <fmt/format.h>

#include <cstdlib>

#include "bench/trainer/nccl/collective.h"

namespace clustar::bench::trainer {
namespace {

constexpr int kReplace = 1;
constexpr int kKeep = 0;

}  // namespace

void set_nccl_environment(int rank, const std::string& root, const std::string& plugin, const std::string& plugin_name,
                          bool emulated, bool direct) {
  // By this path and no other name, so that what the plugin tells of its losses is asked of the same library.
  setenv("NCCL_NET_PLUGIN", plugin.c_str(), kReplace);
  setenv("NCCL_NET", plugin_name.c_str(), kReplace);
  setenv("NCCL_PROFILER_PLUGIN", plugin.c_str(), kKeep);
  setenv("NCCL_TUNER_PLUGIN", plugin.c_str(), kKeep);
  setenv("NCCL_HOSTID", fmt::format("clustar-train-{}", rank).c_str(), kKeep);
  if (root.starts_with("127.")) setenv("NCCL_SOCKET_IFNAME", "lo", kKeep);
  if (direct) {
    setenv("NCCL_NCHANNELS_PER_NET_PEER", "1", kReplace);
    setenv("NCCL_MAX_P2P_NCHANNELS", "1", kReplace);
    // As NCCL has them by itself: where a send's transfers begin (bench/proxy/direct_blocks.h) follows from them.
    setenv("NCCL_P2P_NET_CHUNKSIZE", "131072", kReplace);
    setenv("NCCL_CHUNK_SIZE", "0", kReplace);
    setenv("NCCL_BUFFSIZE", "4194304", kReplace);
  }
  if (!emulated) return;
  // What the emulated device can do; NCCL would choose other ways on what it takes for a GPU.
  setenv("NCCL_ALGO", "Ring", kKeep);
  setenv("NCCL_PROTO", "^LL128", kKeep);
  setenv("NCCL_CUMEM_ENABLE", "0", kKeep);
}

}  // namespace clustar::bench::trainer
