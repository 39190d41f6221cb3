// Which receive takes which offered message: the first posted that fits takes the first offered. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "paraexpress/communicator/core/note.h"
#include "paraexpress/core/forest.h"

namespace clustar::paraexpress {

struct Offer {
  Member from = 0;
  MessageKey key{};
  std::uint64_t bytes = 0;
  std::uint32_t id = 0;
  bool carries = false;
  std::vector<std::byte> carried{};
};

struct Want {
  Member from = 0;  // or kAnyMember, of a Use::kMessage
  MessageKey key{};
  std::uint64_t id = 0;  // the caller's
};

class Matching {
 public:
  // The offer that it takes, if one waits. Otherwise the want waits.
  std::optional<Offer> want(const Want& want);
  // The want that takes it, if one waits. Otherwise the offer waits.
  std::optional<Want> offer(Offer& offer);
  // A collective's want that this offer shows to be in vain: its sender is in another collective, or past this one, and
  // a rank offers in the order of its collectives.
  std::optional<Want> contradicted(const Offer& offer) const;
  // The same for a new want: the offer that contradicts it.
  const Offer* contradicts(const Want& want) const;
  // Of a collective up to `number` an offer that waits: all its wants have been told, so nobody will take it.
  const Offer* stray(std::uint64_t number) const;
  // False: it does not wait (any more).
  bool withdraw(std::uint64_t id);
  // Wants that only this member can fulfil, and with `any` those that it could.
  std::vector<Want> take_wants_of(Member from, bool any);

 private:
  std::list<Want> wants_{};
  std::list<Offer> offers_{};
};

}  // namespace clustar::paraexpress
