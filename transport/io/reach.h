// Which memory a device reads from and writes to by itself.
#pragma once

#include <cstdint>
#include <string>

#include "gdr/memory.h"

namespace clustar::transport::io {

struct Reach {
  std::uint32_t kinds = gdr::kHostOnly;  // a set of gdr::bit(kind); others than host need PacketIo::writer()
  std::string why{};                     // for people: by which ways, or why by none; empty: host memory is all it does
  // Received bytes are to be flushed, whatever the GPU: data and completions take different ways.
  bool force_flush = false;
};

}  // namespace clustar::transport::io
