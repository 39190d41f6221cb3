// Somebody else's plugin: begins as every table of NCCL's does, with a name, and is never called. It needs something of
// glibc.
#include <csignal>

namespace {

struct Table {
  const char* name;
  int (*slots[31])(int);
};

#if defined(FOREIGN_CRASH)
struct AtStart {
  AtStart() { std::raise(SIGSEGV); }
} at_start;
#endif

}  // namespace

#if defined(FOREIGN_PROFILER)
extern "C" [[gnu::visibility("default")]] Table ncclProfiler_v5;
Table ncclProfiler_v5{"Foreign", {&std::raise}};
#else
extern "C" [[gnu::visibility("default")]] Table ncclNetPlugin_v8;
Table ncclNetPlugin_v8{"Foreign", {&std::raise}};
#endif
