// One of NVIDIA's libraries, found when the program runs: no part of CUDA is needed to build this.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::trainer::graph::cuda {

struct LibraryEntry {
  const char* name;
  void* slot;  // of a pointer to a function
};

// Which names a library goes by, and whether the device is the emulated one. That takes libraries that say by a symbol
// that they are emulated, and no others; a GPU takes none of those.
struct LibraryChoice {
  const char* what = "";           // "cuBLAS", for messages
  std::vector<std::string> names;  // the first that opens is taken
  bool emulated = false;
};
inline constexpr const char* kEmulatedLibrary = "clustar_emulated_library";

// Fills the slots; the library stays open for the life of the process, since it has threads and exit handlers. Returns
// the name that opened. kUnavailable: none opens, a function is missing (which is named), or it is not of this device.
Result<std::string> open_library(const LibraryChoice& choice, std::span<const LibraryEntry> entries);

}  // namespace clustar::bench::trainer::graph::cuda
