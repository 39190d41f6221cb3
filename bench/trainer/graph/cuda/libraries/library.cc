#include "bench/trainer/graph/cuda/libraries/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace clustar::bench::trainer::graph::cuda {
namespace {

struct Opened {
  void* handle = nullptr;
  std::string name;
};

Result<Opened> open_first(const LibraryChoice& choice) {
  std::string why;
  for (const std::string& name : choice.names) {
    if (void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr)
      return Opened{handle, name};
    const char* const error = dlerror();
    // Of several names the first one's reason: it is the newest library's.
    if (why.empty()) why = error == nullptr ? "no reason given" : error;
  }
  return fail(ErrorCode::kUnavailable, fmt::format("cannot open {}: {}", choice.what, why));
}

}  // namespace

Result<std::string> open_library(const LibraryChoice& choice, std::span<const LibraryEntry> entries) {
  const auto opened = open_first(choice);
  if (!opened) return tl::unexpected(opened.error());
  for (const LibraryEntry& entry : entries) {
    void* const found = dlsym(opened->handle, entry.name);
    if (found == nullptr) {
      return fail(ErrorCode::kUnavailable,
                  fmt::format("'{}' has no {}: it is no {} that can be used", opened->name, entry.name, choice.what));
    }
    *static_cast<void**>(entry.slot) = found;
  }
  const bool emulated = dlsym(opened->handle, kEmulatedLibrary) != nullptr;
  if (emulated == choice.emulated) return opened->name;
  const char* const why = emulated ? "is emulated, and the device is a GPU" : "is not emulated, and the device is";
  return fail(ErrorCode::kUnavailable, fmt::format("'{}' {}", opened->name, why));
}

}  // namespace clustar::bench::trainer::graph::cuda
