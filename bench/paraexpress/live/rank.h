// One rank of a live measurement, a process on its host.
#pragma once

#include <array>
#include <cstdint>

#include "bench/paraexpress/live/live.h"

namespace clustar::bench::paraexpress::live {

// The plans that are measured, in their order: by name, and what an engine is told.
struct Contender {
  std::string name{};
  std::string plan{};  // "": auto
  bool knows_regions = true;
};
std::vector<Contender> all_contenders(const px::Group& group);
std::vector<Contender> contenders(const LiveOptions& options);

// From a rank to the one that started it, whole: shorter than what a pipe takes at once.
struct Word {
  enum class Kind : std::uint8_t { kTime, kChosen, kFound, kFailed };
  Kind kind = Kind::kTime;
  std::uint32_t rank = 0, size = 0, contender = 0;
  double seconds = 0;
  std::array<char, 1500> text{};
};

// Returns the exit status. `root`: of the rendezvous; `words`: where it writes.
int be_rank(const LiveOptions& options, std::uint32_t rank, const std::string& root, int words);

}  // namespace clustar::bench::paraexpress::live
