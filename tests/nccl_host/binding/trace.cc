#include "tests/nccl_host/binding/trace.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

namespace nccl_host {
namespace {

std::string Name() {
  const char* const given = std::getenv("NCCL_HOST_TRACE");
  std::string name = given ? given : "";
  if (const size_t at = name.find("%p"); at != std::string::npos) name.replace(at, 2, std::to_string(getpid()));
  return name;
}

// Opened by the first kernel: ranks are forked before that.
std::FILE* File() {
  static std::FILE* const file = [] {
    std::FILE* const opened = std::fopen(Name().c_str(), "ae");
    if (!opened) std::perror(("NCCL_HOST_TRACE '" + Name() + "' cannot be written; name a file in a folder").c_str());
    if (!opened) std::_Exit(1);
    return opened;
  }();
  return file;
}

}  // namespace

bool Traces() {
  static const bool traces = !Name().empty();
  return traces;
}

void Trace(int collective, int protocol, int channel, const std::vector<int64_t>& sizes) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  std::fprintf(File(), "%d %d %d", collective, protocol, channel);
  for (const int64_t size : sizes) std::fprintf(File(), " %lld", static_cast<long long>(size));
  std::fputc('\n', File());
  std::fflush(File());
}

}  // namespace nccl_host
