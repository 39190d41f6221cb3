// Somebody else's plugin: begins as every table of NCCL's does, with a name, and is never called.
#include <csignal>

namespace {

struct Table {
  const char* name;
  void* slots[31];
};

#if defined(FOREIGN_CRASH)
struct AtStart {
  AtStart() { std::raise(SIGSEGV); }
} at_start;
#endif

}  // namespace

#if defined(FOREIGN_PROFILER)
extern "C" [[gnu::visibility("default")]] Table ncclProfiler_v5;
Table ncclProfiler_v5{"Foreign", {}};
#else
extern "C" [[gnu::visibility("default")]] Table ncclNetPlugin_v8;
Table ncclNetPlugin_v8{"Foreign", {}};
#endif
