// What a rank of a tolerant group needs of the network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "paraexpress/tolerant/core/note.h"

namespace clustar::paraexpress::tolerant {

// Memory that messages go from and come to.
using Block = std::shared_ptr<std::byte>;

// Which message it was, when it has ended.
struct Ticket {
  NoteKind kind = NoteKind::kContribution;
  std::uint32_t bucket = 0;
  std::uint64_t round = 0;
};

inline Fault no_memory(Member self, std::size_t bytes) {
  return {self, ErrorCode::kSystem, "there is no memory for a message of " + std::to_string(bytes) + " bytes"};
}

// Each pair's notes arrive in the order of say(), and the elements of a kind in the order of send(), which comes right
// after the note that announces them. Nothing blocks; what ends is told to the Party later.
class Wire {
 public:
  virtual ~Wire() = default;
  virtual Block take(std::size_t bytes) = 0;  // null: there is no more
  virtual void say(Member to, const Note& note) = 0;
  // Contributions may lose bytes, results never.
  virtual void send(Member to, Block block, std::size_t bytes, const Ticket& ticket) = 0;
  virtual void receive(Member from, Block block, std::size_t bytes, const Ticket& ticket) = 0;
};

}  // namespace clustar::paraexpress::tolerant
