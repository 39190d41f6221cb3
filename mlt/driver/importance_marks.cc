#include "mlt/driver/importance_marks.h"

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

ImportanceMarks::ImportanceMarks(std::uint32_t fraction_ppm)
    : wanted_(fraction_ppm > 0), sampler_({.fraction_ppm = fraction_ppm}) {}

const PacketBitmap* ImportanceMarks::of(std::span<const std::byte> message, std::uint8_t datatype,
                                        std::uint16_t segment) {
  const auto type = float_type_of(datatype);
  if (!wanted_ || !type || !mark_important(sampler_, message, *type, segment, marks_)) return nullptr;
  return &marks_;
}

}  // namespace clustar::mlt::driver
