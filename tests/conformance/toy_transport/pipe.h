// What the two ends of a toy channel share: chunks one way, permissions to send the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "transport/api/flow_tag.h"

namespace clustar::transport::toy {

struct Pipe {
  static constexpr std::uint64_t kRoom = 256 * 1024;  // bytes of chunks; one always fits

  struct Clear {  // a receive was posted
    int tag = 0;
    std::uint32_t slot = 0;
    std::uint64_t length = 0;
  };
  struct Chunk {
    std::uint32_t slot = 0;
    std::uint64_t offset = 0;
    std::uint64_t total = 0;  // of the message, cut to its receive
    MessageIdentity identity{};
    std::vector<std::byte> bytes{};
  };

  int dialled_by = -1;  // rank

  // Taken after a NIC's lock, never before it. Guards all below.
  std::mutex mutex;
  std::deque<Clear> clears;
  std::deque<Chunk> chunks;
  std::uint64_t bytes = 0;  // in `chunks`
  bool sender_gone = false;
  bool receiver_gone = false;
};

}  // namespace clustar::transport::toy
