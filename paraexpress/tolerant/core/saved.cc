#include "paraexpress/tolerant/core/saved.h"

#include <cstring>

#include "paraexpress/tolerant/core/terms.h"
#include "transport/base/bytes.h"

namespace clustar::paraexpress::tolerant {
namespace {

constexpr std::uint8_t kSavedVersion = 1;
constexpr std::size_t kHead = 4, kOwed = 4, kCount = 8;

}  // namespace

std::size_t saved_bytes(const Residual& residual) {
  return kHead + residual.owed.size() * kOwed + kCount + residual.elements.size();
}

void save(const Residual& residual, std::span<std::byte> out) {
  WireWriter<kHead> head(out.first<kHead>());
  head.store<0>(kSavedVersion);
  head.store<1>(static_cast<std::uint8_t>(residual.type));
  head.store<2>(static_cast<std::uint16_t>(residual.owed.size()));
  out = out.subspan(kHead);
  for (const std::uint32_t owed : residual.owed) {
    WireWriter<kOwed>(out.first<kOwed>()).store<0>(owed);
    out = out.subspan(kOwed);
  }
  WireWriter<kCount>(out.first<kCount>()).store<0>(residual.count);
  if (!residual.elements.empty()) std::memcpy(out.data() + kCount, residual.elements.data(), residual.elements.size());
}

std::optional<Residual> parse_saved(std::span<const std::byte> bytes) {
  if (bytes.size() < kHead) return std::nullopt;
  const WireReader<kHead> head(bytes.first<kHead>());
  const std::size_t parts = head.load<std::uint16_t, 2>();
  Residual residual;
  residual.type = static_cast<DataType>(head.load<std::uint8_t, 1>());
  if (head.load<std::uint8_t, 0>() != kSavedVersion || parts > kMostGroup ||
      (residual.type != DataType::kFloat32 && residual.type != DataType::kFloat64) ||
      bytes.size() < kHead + parts * kOwed + kCount) {
    return std::nullopt;
  }
  bytes = bytes.subspan(kHead);
  for (std::size_t part = 0; part < parts; ++part) {
    residual.owed.push_back(WireReader<kOwed>(bytes.first<kOwed>()).load<std::uint32_t, 0>());
    if (residual.owed.back() >= kMostWeight) return std::nullopt;
    bytes = bytes.subspan(kOwed);
  }
  residual.count = WireReader<kCount>(bytes.first<kCount>()).load<std::uint64_t, 0>();
  bytes = bytes.subspan(kCount);
  const bool whole = residual.count <= kMostElements &&
                     (bytes.empty() || bytes.size() == residual.count * element_bytes(residual.type));
  if (!whole || (parts == 0) != (residual.count == 0)) return std::nullopt;
  residual.elements.assign(bytes.begin(), bytes.end());
  return residual;
}

}  // namespace clustar::paraexpress::tolerant
