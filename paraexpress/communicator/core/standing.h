// Ranks whose collective does not end tell each other which it is: a rank that takes it for another is to blame, and
// only late otherwise. Pure.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "paraexpress/core/forest.h"

namespace clustar::paraexpress {

struct Standing {
  std::uint64_t number = 0;  // of the collective
  std::uint32_t what = 0;    // pack()
  std::uint64_t count = 0;   // as the operation counts

  bool operator==(const Standing&) const = default;
};

// `kind` a TaskKind, `use` a Use, or of the engine's collectives a DataType and a Reduction below it.
std::uint32_t pack(std::uint8_t kind, std::uint8_t type_or_use, std::uint8_t reduction, Member root);
std::string describe(const Standing& standing);

class Standings {
 public:
  // A text: another rank takes it for something else.
  std::optional<std::string> begun(const Standing& mine);
  std::optional<std::string> heard(Member from, const Standing& theirs);

 private:
  struct Heard {
    Member from = 0;
    Standing theirs{};
  };
  static constexpr std::size_t kRemembered = 64;
  std::deque<Standing> mine_{};
  std::deque<Heard> heard_{};  // of collectives that this rank has not begun
};

}  // namespace clustar::paraexpress
