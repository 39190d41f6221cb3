// Both matchers against a hostile peer: the input chooses API calls and what arrives. Nothing may crash, grow without
// bound, or place a byte outside posted memory.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <span>
#include <vector>

#include "tests/fuzz/input.h"
#include "transport/tcp/core/recv_matcher.h"
#include "transport/tcp/core/send_matcher.h"

namespace {

using namespace clustar::transport;
using namespace clustar::transport::tcp;

using clustar::fuzz::Input;
using clustar::fuzz::require;

std::uint64_t size(Input& input) {
  const std::uint64_t high = input.byte() << 4;
  return high + input.byte() % 16;
}

constexpr SharedSettings kSettings{1000, 4000};

class Receiver {
 public:
  void step(Input& input) {
    switch (input.byte() % 4) {
      case 0: post(input); break;
      case 1:
      case 2: header(input); break;
      default: payload(input); break;
    }
  }

 private:
  struct Arriving {
    RecvMatcher::Placement placement;
    ChunkHeader header;
  };

  void post(Input& input) {
    std::vector<RecvMatcher::Part> parts;
    for (std::uint32_t n = 1 + input.byte() % kMaxRecvParts; n > 0; --n) {
      parts.push_back({static_cast<int>(input.byte() % 3), size(input)});
    }
    const auto posted = matcher_.post(parts);
    if (!posted) return;
    lengths_[posted->group].clear();
    for (const auto& part : parts) lengths_[posted->group].push_back(part.length);
    for (const auto& clear : *posted->clears) slots_.push_back(clear);
    for (const auto& match : *posted->early) take_early(posted->group, match);
    settle(posted->group);
  }

  // Half of the headers answer a real clear-to-send, so that the deeper states are reached.
  void header(Input& input) {
    ChunkHeader header;
    header.has_slot = input.byte() % 2 == 0;
    if (header.has_slot && !slots_.empty() && input.byte() % 4 != 0) {
      const ClearToSend& clear = slots_[input.byte() % slots_.size()];
      header.tag = clear.tag;
      header.seq = clear.seq;
      header.slot = clear.slot;
    } else {
      header.tag = static_cast<int>(input.byte() % 3);
      header.seq = input.byte() % 8;
      header.slot = input.byte();
      header.slot |= input.byte() << 16;
    }
    header.total = size(input);
    header.offset = header.has_slot ? std::min<std::uint64_t>(size(input), header.total) : 0;
    header.length = static_cast<std::uint32_t>(header.total - header.offset);
    if (header.length == 0 && header.total > 0) return;  // the parser refuses it
    const auto placement = matcher_.on_header(header);
    switch (placement.kind) {
      case RecvMatcher::Placement::Kind::kWait:
      case RecvMatcher::Placement::Kind::kProtocolError: return;
      case RecvMatcher::Placement::Kind::kPart:
        require(placement.offset + placement.keep <= lengths_.at(placement.group).at(placement.part));
        break;
      case RecvMatcher::Placement::Kind::kEarly:
        early_bytes_[placement.early] = header.total;
        require(placement.keep <= kSettings.eager_bytes && early_bytes_.size() <= 1024);
        break;
    }
    // One chunk at a time per socket, as on a byte stream; the wire has few sockets.
    if (arriving_.size() < 4) {
      arriving_.push_back({placement, header});
    } else {
      finish({placement, header});
    }
  }

  void payload(Input& input) {
    if (arriving_.empty()) return;
    const std::size_t which = input.byte() % arriving_.size();
    const Arriving arrived = arriving_[which];
    arriving_.erase(arriving_.begin() + static_cast<std::ptrdiff_t>(which));
    finish(arrived);
  }

  void finish(const Arriving& arrived) {
    matcher_.on_payload(arrived.placement, arrived.header);
    std::uint32_t group = 0;
    while (const auto match = matcher_.take_late_match(&group)) {
      take_early(group, *match);
      settle(group);
    }
    if (arrived.placement.kind == RecvMatcher::Placement::Kind::kPart) settle(arrived.placement.group);
  }

  void take_early(std::uint32_t group, const RecvMatcher::EarlyMatch& match) {
    require(match.bytes <= lengths_.at(group).at(match.part) && match.bytes <= early_bytes_.at(match.early));
    early_bytes_.erase(match.early);
    matcher_.release_early(match.early);
  }

  void settle(std::uint32_t group) {
    if (!lengths_.contains(group) || !matcher_.complete(group)) return;
    const auto sizes = matcher_.sizes(group);
    for (std::size_t i = 0; i < sizes.size(); ++i) require(sizes[i] <= lengths_.at(group)[i]);
    lengths_.erase(group);
    matcher_.release(group);
  }

  RecvMatcher matcher_{kSettings};
  std::map<std::uint32_t, std::vector<std::uint64_t>> lengths_;
  std::vector<ClearToSend> slots_;
  std::vector<Arriving> arriving_;
  std::map<std::uint32_t, std::uint64_t> early_bytes_;
};

class Sender {
 public:
  void step(Input& input) {
    if (input.byte() % 2 == 0) {
      if (outstanding_ == kMaxSlots) return;
      const std::uint64_t bytes = size(input);
      ++outstanding_;
      const auto departure = matcher_.submit(next_++, static_cast<int>(input.byte() % 3), bytes);
      if (departure) {
        --outstanding_;
        require(departure->header.total <= bytes);
      }
      return;
    }
    const ClearToSend clear{static_cast<int>(input.byte() % 4), input.byte() % 8, input.byte(), size(input)};
    const auto result = matcher_.on_clear_to_send(clear);
    if (result.verdict != SendMatcher::Verdict::kDeparture) return;
    --outstanding_;
    require(result.departure.header.total <= clear.length && result.departure.cookie < next_);
  }

 private:
  SendMatcher matcher_{kSettings};
  std::uint32_t next_ = 0;
  std::size_t outstanding_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(data, size);
  Receiver receiver;
  Sender sender;
  while (!input.empty()) {
    if (input.byte() % 4 == 0) {
      sender.step(input);
    } else {
      receiver.step(input);
    }
  }
  return 0;
}
