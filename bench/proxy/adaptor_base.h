// What the adaptors of all ABI versions share.
#pragma once

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bench/proxy/log_capture.h"
#include "bench/proxy/net_plugin.h"
#include "bench/proxy/plugin_library.h"
#include "bench/proxy/profiler_callback.h"

namespace clustar::bench::proxy {

class AdaptorBase : public NetPlugin {
 public:
  std::vector<LogLine> take_log() final { return log_.take(); }
  std::string last_warning() const final { return log_.last_warning(); }
  std::string transport() const final { return log_.transport(); }
  nccl_abi::DebugLogger logger() const final { return log_.logger(); }
  const std::string& path() const final { return path_; }

 protected:
  static constexpr int kMaxSubs = 64;  // NCCL_PROXY_MAX_SUBS

  explicit AdaptorBase(OpenedLibrary opened)
      : path_(std::move(opened.name)), callback_(opened.library.get()), library_(std::move(opened.library)) {}

  // Plays NCCL's netPluginMutex: init, devices, getProperties, makeVDevice and finalize run one at a time in a process.
  static std::mutex& set_up_mutex();

  int missing(const char* slot);
  int too_large(const char* call, std::size_t size, std::size_t limit);
  int bad_call(std::string text, int result);

  // Order matters: the library is closed before its log slot and its callback are freed.
  LogCapture log_;
  std::string path_;
  ProfilerCallbackSlot callback_;
  Library library_;
};

}  // namespace clustar::bench::proxy
