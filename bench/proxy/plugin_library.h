// The .so of a plugin. NCCL takes net, profiler and tuner from one library that it opens by the same name each time, so
// that all of them share its statics; opening a path here again gives that same library.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>

#include "transport/base/result.h"

namespace clustar::bench::proxy {

struct LibraryCloser {
  void operator()(void* library) const { dlclose(library); }
};
using Library = std::unique_ptr<void, LibraryCloser>;

struct OpenedLibrary {
  Library library;
  std::string name;  // under which the loader found it
};

// Opens `path`; a bare word is also tried as libnccl-net-<word>.so, as NCCL_NET_PLUGIN is.
// Errors: an empty path, a file that cannot be opened (dlerror's text).
Result<OpenedLibrary> open_library(const std::string& path);

// Null when the library has no such object.
void* find_symbol(void* library, const std::string& name);

}  // namespace clustar::bench::proxy
