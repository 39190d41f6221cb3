#include "mlt/driver/importance_marks.h"

#include "mlt/core/packets.h"

namespace clustar::mlt::driver {

std::optional<FloatType> float_type_of(std::uint8_t datatype) {
  constexpr std::uint8_t kNcclFloat16 = 6, kNcclFloat32 = 7, kNcclBfloat16 = 9;
  switch (datatype) {
    case kNcclFloat16: return FloatType::kF16;
    case kNcclFloat32: return FloatType::kF32;
    case kNcclBfloat16: return FloatType::kBf16;
    default: return std::nullopt;
  }
}

ImportanceMarks::ImportanceMarks(std::uint32_t fraction_ppm, transport::ImportanceTable* table)
    : wanted_(fraction_ppm > 0), table_(table), sampler_({.fraction_ppm = fraction_ppm}) {}

const PacketBitmap* ImportanceMarks::told(const std::byte* begin, std::size_t bytes, std::uint16_t segment,
                                          TimePoint now) {
  if (table_ == nullptr) return nullptr;
  const auto parts = table_->find(begin, bytes, now);
  if (!parts || !marks_.reset(packet_count(static_cast<std::uint32_t>(bytes), segment))) return nullptr;
  for (const auto& part : *parts) {
    const std::size_t last = (part.offset + part.bytes - 1) / segment;
    for (std::size_t packet = part.offset / segment; packet <= last; ++packet) {
      marks_.set(static_cast<std::uint32_t>(packet));
    }
  }
  return &marks_;
}

const PacketBitmap* ImportanceMarks::of(std::span<const std::byte> message, std::uint8_t datatype,
                                        std::uint16_t segment) {
  const auto type = float_type_of(datatype);
  if (!wanted_ || !type || !mark_important(sampler_, message, *type, segment, marks_)) return nullptr;
  return &marks_;
}

}  // namespace clustar::mlt::driver
