// What a receiver has to say on the control connection: clear-to-sends, and how many frames it took. A long message
// waits for it; small ones need no permission until the window is used up, so what they are likely to fill waits for
// company, for a bounded time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "libfabric_shim/rdm/wire.h"
#include "transport/base/time.h"
#include "transport/net/socket.h"

namespace clustar::transport::ofi {

class ClearBatch {
 public:
  explicit ClearBatch(const SharedSettings& sender) : sender_(sender) {}

  // `small_run`: so many messages in a row went ahead of their receives; `ahead`: so many long receives, these
  // included, have nothing of their messages.
  void add(std::span<const ClearToSend> clears, std::uint32_t small_run, std::size_t ahead, TimePoint now);
  // To be said at once: the sender may have no room for more.
  void add(const Note& note);
  // Writes what is due. kWouldBlock: nothing was, or the socket is full.
  net::IoResult flush(const net::Socket& socket, TimePoint now);
  bool empty() const { return out_.empty(); }

 private:
  static constexpr std::uint32_t kSmallRun = 16;
  static constexpr std::size_t kMost = 32;
  // Long receives of which the sender knows, so that it has no need of the next at once.
  static constexpr std::size_t kSupply = 4;
  static constexpr Duration kMaybeLong = std::chrono::microseconds(20);
  static constexpr Duration kSmall = std::chrono::microseconds(200);

  const SharedSettings sender_;
  std::vector<std::byte> out_;
  std::size_t held_ = 0;
  std::uint64_t held_bytes_ = 0;  // that the receives in out_ may take from the sender's window
  TimePoint due_{};               // min(): now
};

}  // namespace clustar::transport::ofi
