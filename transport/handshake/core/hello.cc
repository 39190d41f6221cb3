#include "transport/handshake/core/hello.h"

#include "transport/base/bytes.h"
#include "transport/base/constant_time.h"

namespace clustar::transport::handshake {

bool HelloFormat::shows(std::span<const std::byte, kFrontSize> front, const Token& token) const {
  const WireReader reader(front);
  return reader.load<std::uint32_t, 0>() == magic && reader.load<std::uint16_t, 4>() == version &&
         equal_in_constant_time(front.subspan<8>(), token);
}

}  // namespace clustar::transport::handshake
