#include "transport/handshake/core/hello.h"

#include "transport/base/bytes.h"
#include "transport/base/constant_time.h"

namespace clustar::transport::handshake {

Front HelloFormat::judge(std::span<const std::byte, kFrontSize> front, const Token& token) const {
  if (WireReader(front).load<std::uint32_t, 0>() != magic) return Front::kOtherProtocol;
  if (version_of(front) != version) return Front::kOtherVersion;
  return equal_in_constant_time(front.subspan<8>(), token) ? Front::kShowsToken : Front::kOtherToken;
}

std::uint16_t HelloFormat::version_of(std::span<const std::byte, kFrontSize> front) {
  return WireReader(front).load<std::uint16_t, 4>();
}

}  // namespace clustar::transport::handshake
