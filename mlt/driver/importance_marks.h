// Which packets of a message that may lose may not be missing: what the program marked, or those with the largest
// gradients, as CLUSTAR_LOSS_IMPORTANT asks for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "mlt/core/bitmap.h"
#include "mlt/core/importance.h"
#include "transport/api/importance_table.h"
#include "transport/base/time.h"

namespace clustar::mlt::driver {

// The floats that gradients consist of, by NCCL's number (ncclDataType_t). nullopt: another type, or unknown.
std::optional<FloatType> float_type_of(std::uint8_t datatype);

// Of the messages of one connection. Its messages are gradients of one model, so one sampler ranks them all. Guarded by
// the engine's lock.
class ImportanceMarks {
 public:
  // `fraction_ppm`: of packets, 0 .. 1,000,000; 0: none. `table`: null, or outlives this.
  ImportanceMarks(std::uint32_t fraction_ppm, transport::ImportanceTable* table);

  // What the program said of this memory, which is not read. Null: nothing.
  const PacketBitmap* told(const std::byte* begin, std::size_t bytes, std::uint16_t segment, TimePoint now);

  // `message` lies in host memory. `segment`: payload bytes of a packet. Valid until the next call. Null: no packet of
  // it is marked, because none is wanted or its values are not known to be floats.
  const PacketBitmap* of(std::span<const std::byte> message, std::uint8_t datatype, std::uint16_t segment);

  bool wanted() const { return wanted_; }

 private:
  const bool wanted_;
  transport::ImportanceTable* const table_;
  MagnitudeSampler sampler_;
  PacketBitmap marks_;
};

}  // namespace clustar::mlt::driver
