// What the sender's caller says of a message.
#pragma once

#include <cstdint>

#include "mlt/core/bitmap.h"
#include "mlt/core/classes.h"
#include "mlt/core/send/agenda.h"
#include "mlt/core/wire.h"

namespace clustar::mlt {

struct SendTerms {
  bool tolerant =
      false;  // loss within the collective's terms; otherwise the following, but for the identity, is ignored
  PacketKind bulk = PacketKind::kBackLayerBulk;  // of what is not important: Classes::bulk()
  std::uint16_t stage = 0;
  std::uint64_t communicator = 0;
  std::uint32_t collective = 0;
  std::uint16_t ranks = 0, edges = 0;
  std::uint64_t collective_bytes = 0;
  std::uint32_t tolerance_ppm = 0;
  bool exchange = false;                    // CollectiveId::exchange
  const PacketBitmap* important = nullptr;  // packets that may not be missing (mark_important()); copied; null: none
  Turn turn;
  bool parity = true;      // where Options::parity allows it
  std::uint8_t level = 0;  // what the receiver gives credit by: 0 first
  Identity identity;       // where it is known, `communicator` and `collective_bytes` are its own, too
};

}  // namespace clustar::mlt
