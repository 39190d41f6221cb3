// A rank of a tolerant group whose peers say and send anything, in any order: it ends with a fault that names one of
// them, or goes on; and all that it sends makes sense.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "paraexpress/tolerant/core/party.h"
#include "tests/fuzz/input.h"

namespace {

using namespace clustar::paraexpress;
using namespace clustar::paraexpress::tolerant;
using clustar::Duration;
using clustar::TimePoint;
using clustar::fuzz::Input;
using clustar::fuzz::require;

constexpr std::size_t kMostBytes = 1 << 16;

class AnyWire final : public Wire {
 public:
  struct Message {
    Member peer = 0;
    Block block{};
    std::size_t bytes = 0;
    Ticket ticket{};
  };
  explicit AnyWire(const Terms& terms) : terms_(terms) {}
  Block take(std::size_t bytes) override {
    if (bytes > kMostBytes) return nullptr;
    return {new std::byte[bytes](), std::default_delete<std::byte[]>()};
  }
  void say(Member to, const Note& note) override {
    require(to < terms_.ranks && to != terms_.self);
    std::array<std::byte, kNoteBytes> bytes{};
    encode_note(note, bytes);
    require(parse_note(bytes, terms_) == note);
  }
  void send(Member to, Block block, std::size_t bytes, const Ticket& ticket) override {
    sent.push_back({to, std::move(block), bytes, ticket});
  }
  void receive(Member from, Block block, std::size_t bytes, const Ticket& ticket) override {
    expected.push_back({from, std::move(block), bytes, ticket});
  }

  std::deque<Message> sent{}, expected{};

 private:
  const Terms terms_;
};

Note any_note(Input& input, const Terms& terms) {
  Note note;
  note.kind = input.byte() % 2 == 0 ? NoteKind::kContribution : NoteKind::kResult;
  note.type = input.byte() % 8 == 0 ? DataType::kFloat64 : DataType::kFloat32;
  note.bucket = input.byte() % (terms.buckets + 1);
  note.round = input.byte() % 8;
  note.count = 1 + input.byte() % 64;
  if (input.byte() % 16 == 0) note.count <<= input.byte() % 40;
  note.weight = input.byte() % 4;
  note.fresh = note.kind == NoteKind::kContribution && input.byte() % 2 == 0;
  if (note.kind == NoteKind::kResult) {
    note.left_out = input.byte() % 3;
    note.counted = Members(input.byte());
  }
  return note;
}

std::vector<ElementRange> holes(Input& input, std::size_t bytes) {
  std::vector<ElementRange> ranges;
  for (unsigned more = input.byte() % 3; more > 0; --more) {
    const std::uint64_t begin = input.byte() % bytes;
    ranges.push_back({begin, begin + 1 + input.byte() % (bytes - begin)});
  }
  return ranges;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  Terms terms;
  terms.ranks = 1 + input.byte() % 5;
  terms.self = input.byte() % terms.ranks;
  terms.buckets = 1 + input.byte() % 3;
  terms.quorum = 1 + input.byte() % terms.ranks;
  terms.staleness = input.byte() % 4;
  terms.deadline = Duration(input.byte());
  terms.scales = input.byte() % 2 == 0;
  AnyWire wire(terms);
  Party party(terms, wire);
  TimePoint now{};
  std::vector<std::vector<float>> buffers(terms.buckets, std::vector<float>(1 + input.byte() % 64));
  std::vector<bool> open(terms.buckets);
  const auto other = [&] { return (terms.self + 1 + input.byte() % (terms.ranks - 1)) % terms.ranks; };
  const auto survives = [&](const std::optional<Fault>& fault) {
    require(!fault || (fault->guilty < terms.ranks && !fault->what.empty()));
    return !fault;
  };
  while (!input.empty()) {
    now += Duration(input.byte());
    const std::uint32_t bucket = input.byte() % terms.buckets;
    bool good = true;
    switch (input.byte() % 5) {
      case 0:
        if (open[bucket]) break;
        open[bucket] = true;
        good = survives(party.begin(bucket, reinterpret_cast<std::byte*>(buffers[bucket].data()),
                                    buffers[bucket].size(), DataType::kFloat32, input.byte() % 4 != 0, now));
        break;
      case 1: {
        if (terms.ranks == 1) break;
        std::array<std::byte, kNoteBytes> bytes{};
        encode_note(any_note(input, terms), bytes);
        if (input.byte() % 8 == 0) bytes[input.byte() % kNoteBytes] = static_cast<std::byte>(input.byte());
        const Member from = other();
        if (const auto note = parse_note(bytes, terms)) good = survives(party.heard(from, *note, now));
        break;
      }
      case 2:
      case 3: {
        if (wire.expected.empty()) break;
        const auto message = std::move(wire.expected.front());
        wire.expected.pop_front();
        const auto lost = message.ticket.kind == NoteKind::kContribution && message.bytes > 0
                              ? holes(input, message.bytes)
                              : std::vector<ElementRange>{};
        for (std::size_t i = 0; i < message.bytes; i += 7)
          message.block.get()[i] = static_cast<std::byte>(input.byte());
        good = survives(party.came(message.peer, message.ticket, lost, now));
        break;
      }
      default: {
        if (wire.sent.empty()) break;
        const auto message = std::move(wire.sent.front());
        wire.sent.pop_front();
        party.sent(
            message.peer, message.ticket,
            message.ticket.kind == NoteKind::kContribution ? holes(input, message.bytes) : std::vector<ElementRange>{});
      }
    }
    good = good && survives(party.advance(now));
    for (std::uint32_t i = 0; good && i < terms.buckets; ++i) {
      const auto outcome = party.settle(i);
      if (!outcome) continue;
      require(open[i] && outcome->kept <= outcome->given && outcome->given <= buffers[i].size());
      open[i] = false;
    }
    if (!good) return 0;
  }
  return 0;
}
