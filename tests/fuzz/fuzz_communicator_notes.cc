// Notes of other ranks, honest and made up, and what a rank makes of them (as paraexpress/communicator's Lines does):
// each receive takes the first offer that fits, as a plain list of both says, and no offer is taken twice or lost.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "paraexpress/communicator/core/matching.h"
#include "paraexpress/communicator/core/note.h"
#include "paraexpress/communicator/core/standing.h"
#include "tests/fuzz/input.h"

namespace {

using namespace clustar::paraexpress;
using clustar::fuzz::Input;
using clustar::fuzz::require;

constexpr Member kRanks = 3;

MessageKey key_of(Input& input) {
  const auto use = static_cast<Use>(input.byte() % kUses);
  return {use, input.byte() % 4};
}

bool fits(const Want& want, const MessageKey& key, Member from) {
  return want.key == key && (want.from == from || want.from == kAnyMember);
}

class Rank {
 public:
  // What came, as it came.
  void hear(Member from, std::span<const std::byte> message) {
    const auto note = parse_note(message);
    if (!note) return;
    std::array<std::byte, kNoteBytes> again{};
    encode_note(*note, again);
    require(std::memcmp(again.data(), message.data(), kNoteBytes) == 0);
    const auto carried = message.subspan(kNoteBytes);
    switch (note->kind) {
      case NoteKind::kOffer: offered(from, *note, carried); break;
      case NoteKind::kStanding:
        (void)describe({note->key.number, note->id, note->bytes});
        (void)standings_.heard(from, {note->key.number, note->id, note->bytes});
        break;
      case NoteKind::kBye: left(from, true); break;
      case NoteKind::kGo:
      case NoteKind::kRefusal: break;
    }
  }

  void want(const Want& want) {
    const auto first = std::ranges::find_if(offers_, [&](const Offer& one) { return fits(want, one.key, one.from); });
    const Offer* const other = matching_.contradicts(want);
    require(other == nullptr || first == offers_.end());
    if (other != nullptr) return;
    const auto taken = matching_.want(want);
    require(taken.has_value() == (first != offers_.end()));
    if (!taken) return wants_.push_back(want);
    require(taken->from == first->from && taken->id == first->id && taken->carried == first->carried);
    offers_.erase(first);
  }

  void withdraw(std::uint64_t id) {
    const bool waits = std::erase_if(wants_, [&](const Want& one) { return one.id == id; }) != 0;
    require(matching_.withdraw(id) == waits);
  }

  void left(Member from, bool any) {
    for (const Want& one : matching_.take_wants_of(from, any)) {
      require(one.from == from || (any && one.from == kAnyMember));
      require(std::erase_if(wants_, [&](const Want& mine) { return mine.id == one.id; }) == 1);
    }
    require(std::ranges::none_of(wants_, [&](const Want& one) { return one.from == from; }));
  }

  void begins(const Standing& standing) {
    (void)standings_.begun(standing);
    const Offer* const stray = matching_.stray(standing.number);
    require(stray == nullptr || (stray->key.use != Use::kMessage && stray->key.number <= standing.number));
  }

 private:
  void offered(Member from, const Note& note, std::span<const std::byte> carried) {
    // A receive of so many bytes needs no registered memory, or has as much as comes.
    require(note.carries == (note.bytes <= kMostCarried));
    require(carried.size() == (note.carries ? note.bytes : 0));
    Offer offer{from, note.key, note.bytes, note.id, note.carries, {carried.begin(), carried.end()}};
    while (const auto vain = matching_.contradicted(offer)) {
      require(!fits(*vain, note.key, from));
      withdraw(vain->id);
    }
    const auto first = std::ranges::find_if(wants_, [&](const Want& one) { return fits(one, note.key, from); });
    const Offer kept = offer;
    const auto taken = matching_.offer(offer);
    require(taken.has_value() == (first != wants_.end()));
    if (!taken) return offers_.push_back(kept);
    require(taken->id == first->id && offer.id == kept.id && offer.carried == kept.carried);
    wants_.erase(first);
  }

  Matching matching_{};
  Standings standings_{};
  std::vector<Want> wants_{};
  std::vector<Offer> offers_{};
};

// An honest note, but for what the input says.
std::vector<std::byte> note_of(Input& input) {
  Note note;
  note.kind = static_cast<NoteKind>(input.byte() % 5);
  note.key = key_of(input);
  note.id = input.byte();
  note.bytes = input.byte() % 2 == 0 ? input.byte() : kMostCarried + input.byte();
  note.carries = note.kind == NoteKind::kOffer && note.bytes <= kMostCarried;
  std::vector<std::byte> message(kNoteBytes + (note.carries ? note.bytes : 0), std::byte{7});
  encode_note(note, std::span<std::byte, kNoteBytes>(message.data(), kNoteBytes));
  const std::uint32_t lie = input.byte();
  if (lie < kNoteBytes) message[lie] = static_cast<std::byte>(input.byte());
  return message;
}

}  // namespace

// Again and again: what happens, to or from which rank, and its details.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  Rank rank;
  std::uint64_t wants = 0;
  while (!input.empty()) {
    const std::uint32_t what = input.byte() % 8;
    const Member peer = input.byte() % (kRanks + 1);
    const Member from = peer % kRanks;
    if (what < 3) {
      rank.hear(from, note_of(input));
    } else if (what == 3) {
      std::vector<std::byte> bytes(input.byte());
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(input.byte());
      rank.hear(from, bytes);
    } else if (what < 6) {
      const MessageKey key = key_of(input);
      rank.want({peer == kRanks && key.use == Use::kMessage ? kAnyMember : from, key, ++wants});
    } else if (what == 6) {
      rank.withdraw(input.byte());
    } else {
      rank.begins({input.byte() % 4u, input.byte() << 24 | input.byte() << 16, input.byte()});
    }
  }
  return 0;
}
