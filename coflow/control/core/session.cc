#include "coflow/control/core/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "transport/base/bytes.h"
#include "transport/base/constant_time.h"

namespace clustar::coflow::control {
namespace {

// The opening: magic, version, keyed, nonce; of the coordinator a proof behind it.
constexpr std::uint32_t kMagic = 0x434c4354;  // "CLCT"
constexpr std::size_t kOpening = 4 + 2 + 2 + 16;
constexpr std::size_t kProof = 32;
constexpr std::size_t kLength = 4;

}  // namespace

Session::Session(Side side, SessionKey key, const Nonce16& nonce) : side_(side), key_(std::move(key)), mine_(nonce) {
  if (side_ != Side::kAgent) return;
  out_.resize(kOpening);
  const std::span<std::byte, kOpening> opening(out_);
  WireWriter<kOpening> wire(opening);
  wire.store<0>(kMagic);
  wire.store<4>(kControlVersion);
  wire.store<6>(static_cast<std::uint16_t>(key_ ? 1 : 0));
  wire.copy_from<8>(std::span<const std::byte, 16>(mine_));
}

bool Session::fail(std::string why, bool key) {
  if (failure_.empty()) {
    failure_ = std::move(why);
    wrong_key_ = key;
  }
  in_.clear();
  came_.clear();
  return false;
}

bool Session::on_bytes(std::span<const std::byte> bytes) {
  if (failed()) return false;
  while (!bytes.empty()) {
    // Before it is known who sends, no more than an opening and a Hello is kept.
    const std::size_t most = kLength + kMostFrame + kTag;
    const std::size_t take = std::min(bytes.size(), most > in_.size() ? most - in_.size() : 0);
    in_.insert(in_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(take));
    bytes = bytes.subspan(take);
    if (!opened_ && !read_opening()) return false;
    while (opened_ && read_frame()) {
    }
    in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(std::min(in_begin_, in_.size())));
    in_begin_ = 0;
    if (failed()) return false;
  }
  return true;
}

bool Session::read_opening() {
  const std::size_t size = side_ == Side::kAgent ? kOpening + (key_ ? kProof : 0) : kOpening;
  if (in_.size() < 4) return true;
  if (in_.size() < kOpening) {
    const WireReader<4> start(std::span<const std::byte, 4>(in_.data(), 4));
    return start.load<std::uint32_t, 0>() == kMagic || fail("it does not speak clustar's control protocol");
  }
  const WireReader<kOpening> wire(std::span<const std::byte, kOpening>(in_.data(), kOpening));
  if (wire.load<std::uint32_t, 0>() != kMagic) return fail("it does not speak clustar's control protocol");
  const auto version = wire.load<std::uint16_t, 4>();
  if (version != kControlVersion) {
    answer_opening();
    return fail(fmt::format("it speaks version {} of the control protocol, this one {}: run the same release on both",
                            version, kControlVersion));
  }
  const bool keyed = wire.load<std::uint16_t, 6>() == 1;
  if (keyed != static_cast<bool>(key_)) {
    answer_opening();
    return fail(keyed ? "it has a key and this side has none: set CLUSTAR_COORDINATOR_KEY_FILE, or --key-file"
                      : "it has no key and this side has one: set CLUSTAR_COORDINATOR_KEY_FILE, or --key-file, there",
                true);
  }
  if (in_.size() < size) return true;
  wire.copy_to<8>(std::span<std::byte, 16>(theirs_));
  begin_keys();
  if (side_ == Side::kAgent) {
    if (key_) {
      const auto proof = labelled("coordinator");
      if (!proof || !equal_in_constant_time(*proof, std::span(in_).subspan(kOpening, kProof))) {
        return fail("it does not know the key", true);
      }
    }
    open_ = true;
  } else {
    answer_opening();
    if (key_) {
      const auto proof = labelled("coordinator");
      if (!proof) return fail("HMAC failed");
      out_.insert(out_.end(), proof->begin(), proof->end());
    }
  }
  in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(size));
  opened_ = true;
  for (const Message& message : std::exchange(held_, {})) send(message);
  return !failed();
}

// Also where it does not fit: then the agent can tell its user what does not.
void Session::answer_opening() {
  if (side_ == Side::kAgent) return;
  std::array<std::byte, kOpening> opening;
  WireWriter<kOpening> wire(opening);
  wire.store<0>(kMagic);
  wire.store<4>(kControlVersion);
  wire.store<6>(static_cast<std::uint16_t>(key_ ? 1 : 0));
  wire.copy_from<8>(std::span<const std::byte, 16>(mine_));
  out_.insert(out_.end(), opening.begin(), opening.end());
}

void Session::begin_keys() {
  if (!key_) return;
  const auto to_coordinator = labelled("to coordinator"), to_agent = labelled("to agent");
  if (!to_coordinator || !to_agent) {
    (void)fail("HMAC failed");
    return;
  }
  key_out_ = side_ == Side::kAgent ? *to_coordinator : *to_agent;
  key_in_ = side_ == Side::kAgent ? *to_agent : *to_coordinator;
}

std::optional<Digest32> Session::labelled(std::string_view label) const {
  const Nonce16& agent = side_ == Side::kAgent ? mine_ : theirs_;
  const Nonce16& coordinator = side_ == Side::kAgent ? theirs_ : mine_;
  std::vector<std::byte> data;
  for (const char c : label) data.push_back(static_cast<std::byte>(c));
  data.insert(data.end(), agent.begin(), agent.end());
  data.insert(data.end(), coordinator.begin(), coordinator.end());
  return key_.hmac(key_.key, data);
}

std::optional<Digest32> Session::tag_of(const Digest32& key, std::uint64_t counter,
                                        std::span<const std::byte> frame) const {
  std::vector<std::byte> data(8 + frame.size());
  WireWriter<8>(std::span<std::byte, 8>(data.data(), 8)).store<0>(counter);
  std::copy(frame.begin(), frame.end(), data.begin() + 8);
  return key_.hmac(key, data);
}

// Whether there was one.
bool Session::read_frame() {
  const std::span<const std::byte> in = std::span(in_).subspan(in_begin_);
  if (in.size() < kLength) return false;
  const WireReader<kLength> wire(in.first<kLength>());
  const std::size_t length = wire.load<std::uint32_t, 0>();
  const std::size_t most = side_ == Side::kCoordinator && !open_ ? kMostHello : kMostFrame;
  if (length == 0 || length > most) {
    return fail(fmt::format("a message of {} bytes; allowed: 1 to {}", length, most));
  }
  const std::size_t tag = key_ ? kTag : 0;
  if (in.size() < kLength + length + tag) return false;
  const std::span<const std::byte> frame = in.subspan(kLength, length);
  if (key_) {
    const auto expected = tag_of(key_in_, count_in_, frame);
    if (!expected) return fail("HMAC failed");
    const std::span<const std::byte> told = in.subspan(kLength + length, kTag);
    if (!equal_in_constant_time(std::span(*expected).first(kTag), told)) {
      return fail(open_ ? "a message that was changed on its way" : "it does not know the key", !open_);
    }
  }
  ++count_in_;
  auto message = parse(frame);
  if (!message) return fail("a message that makes no sense");
  if (side_ == Side::kCoordinator && !open_ && !std::holds_alternative<Hello>(*message)) {
    return fail("its first message is no hello");
  }
  open_ = true;
  came_.push_back(std::move(*message));
  in_begin_ += kLength + length + tag;
  return true;
}

std::optional<Message> Session::next() {
  if (came_.empty()) return std::nullopt;
  Message message = std::move(came_.front());
  came_.pop_front();
  return message;
}

void Session::send(const Message& message) {
  if (failed()) return;
  if (!opened_) {
    held_.push_back(message);
    return;
  }
  const std::vector<std::byte> frame = serialize(message);
  std::array<std::byte, kLength> length;
  WireWriter<kLength>(length).store<0>(static_cast<std::uint32_t>(frame.size()));
  out_.insert(out_.end(), length.begin(), length.end());
  out_.insert(out_.end(), frame.begin(), frame.end());
  if (key_) {
    const auto tag = tag_of(key_out_, count_out_, frame);
    if (!tag) {
      (void)fail("HMAC failed");
      return;
    }
    out_.insert(out_.end(), tag->begin(), tag->begin() + kTag);
  }
  ++count_out_;
}

void Session::sent(std::size_t bytes) {
  out_begin_ += std::min(bytes, out_.size() - out_begin_);
  // A reader that always leaves something must not make it grow.
  if (2 * out_begin_ < out_.size()) return;
  out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(out_begin_));
  out_begin_ = 0;
}

}  // namespace clustar::coflow::control
