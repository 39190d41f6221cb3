// A connection between an agent, or a standby, and a coordinator: bytes in, messages out, and back. Pure. Both sides
// show that they know the key, if they have one, and each message says that it is of this connection, and the next one.
//
//   agent                                         coordinator
//     opening: magic, version, keyed, nonce a  ->
//     <- opening: magic, version, keyed, nonce c, proof HMAC(key, "coordinator" a c)
//     frames, each with a tag of HMAC(key of this way, counter frame)  <->
//
// The key of a way is HMAC(key, "to coordinator" or "to agent", a, c). The agent's first tag is its proof. Nothing is
// secret but the key: who listens on the wire can read who sends how much.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coflow/control/core/messages.h"

namespace clustar::coflow::control {

inline constexpr std::uint16_t kControlVersion = 2;

using Digest32 = std::array<std::byte, 32>;
using Nonce16 = std::array<std::byte, 16>;
// HMAC-SHA256; nothing: it failed.
using Hmac = std::function<std::optional<Digest32>(std::span<const std::byte> key, std::span<const std::byte> data)>;

struct SessionKey {
  Hmac hmac{};                       // empty: no key, nothing is authenticated
  std::span<const std::byte> key{};  // outlives the session
  explicit operator bool() const { return static_cast<bool>(hmac); }
};

class Session {
 public:
  enum class Side : std::uint8_t { kAgent, kCoordinator };
  static constexpr std::size_t kTag = 16;
  // A Hello is shorter; of a stranger no more is kept.
  static constexpr std::size_t kMostHello = 512;

  // `nonce`: random, of this session alone.
  Session(Side side, SessionKey key, const Nonce16& nonce);

  // Bytes that came. The first error is the last: the connection is to be closed, and failure() is for the log.
  bool on_bytes(std::span<const std::byte> bytes);
  std::optional<Message> next();  // a message that came
  void send(const Message& message);
  // Bytes to go, and that so many of them went.
  std::span<const std::byte> to_send() const { return std::span(out_).subspan(out_begin_); }
  void sent(std::size_t bytes);
  std::size_t kept() const { return out_.size(); }  // bytes of memory, for what is to go

  // Both sides know each other: for the coordinator with the first message.
  bool open() const { return open_; }
  bool failed() const { return !failure_.empty(); }
  const std::string& failure() const { return failure_; }
  // It failed since the other one has no key, or another one.
  bool wrong_key() const { return wrong_key_; }

 private:
  bool fail(std::string why, bool key = false);
  bool read_opening();
  void answer_opening();
  bool read_frame();
  void begin_keys();
  std::optional<Digest32> labelled(std::string_view label) const;
  std::optional<Digest32> tag_of(const Digest32& key, std::uint64_t counter, std::span<const std::byte> frame) const;

  const Side side_;
  const SessionKey key_;
  const Nonce16 mine_;
  Nonce16 theirs_{};
  Digest32 key_in_{}, key_out_{};
  std::uint64_t count_in_ = 0, count_out_ = 0;
  bool opened_ = false;  // the other's opening came
  bool open_ = false;
  bool wrong_key_ = false;
  std::string failure_;
  std::vector<std::byte> in_;
  std::size_t in_begin_ = 0;
  std::vector<std::byte> out_;
  std::size_t out_begin_ = 0;
  std::vector<Message> held_;  // to be sent when the keys are known
  std::deque<Message> came_;
};

}  // namespace clustar::coflow::control
