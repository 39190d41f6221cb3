// One rank of a live measurement, or a helper, a process on its host.
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
  bool has_helpers = false;
};
std::vector<Contender> all_contenders(const px::Group& group);
std::vector<Contender> contenders(const LiveOptions& options);

// From a rank or a helper to the one that started it, whole: shorter than what a pipe takes at once.
struct Word {
  enum class Kind : std::uint8_t { kTime, kChosen, kFound, kFailed };
  Kind kind = Kind::kTime;
  std::uint32_t rank = 0, size = 0, contender = 0;
  double seconds = 0;
  std::array<char, 1500> text{};
};

// Returns the exit status. `address`: of rank 0's host, where all meet; `words`: where it writes.
int be_member(const LiveOptions& options, px::Member member, const std::string& address, int words);

}  // namespace clustar::bench::paraexpress::live
