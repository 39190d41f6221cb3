// Whether a rank should compute, or first give what it has kept. The gradients of one that is late come too late again
// and again, as it begins each step when it has ended the one before: only a step that it leaves out brings it back.
#pragma once

#include <cstdint>

namespace clustar::paraexpress::tolerant {

class Pace {
 public:
  // Before each step. `late`: the others have ended it already. `owed`: gradients that this rank keeps.
  bool should_compute(bool late, std::uint32_t owed) {
    // One late gradient may be given with the next, where the rank was late by chance.
    const bool gives_first = owed > (was_late_ ? 0U : 1U);
    was_late_ = late;
    return !late && !gives_first;
  }

 private:
  bool was_late_ = false;
};

}  // namespace clustar::paraexpress::tolerant
