// The packets of a datagram lie in it one behind the other, are written as the same bytes again, and need all of them.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "transport/io/udp/frame.h"

namespace {

using namespace clustar::transport::io::udp;

void require(bool holds) {
  if (!holds) std::abort();
}

std::vector<std::byte> written(const Frame& frame, bool packed) {
  std::vector<std::byte> bytes;
  if (packed) bytes.push_back(std::byte{0});
  bytes.push_back(static_cast<std::byte>(frame.header.size()));
  if (packed) {
    bytes.push_back(static_cast<std::byte>(frame.payload.size() >> 8));
    bytes.push_back(static_cast<std::byte>(frame.payload.size() & 0xff));
  }
  bytes.insert(bytes.end(), frame.header.begin(), frame.header.end());
  bytes.insert(bytes.end(), frame.payload.begin(), frame.payload.end());
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of exactly this size, so that a sanitizer sees a read behind it.
  const std::vector<std::byte> datagram(reinterpret_cast<const std::byte*>(data),
                                        reinterpret_cast<const std::byte*>(data) + size);
  std::span<const std::byte> rest(datagram);
  while (const auto frame = parse_frame(rest)) {
    const bool packed = rest[0] == std::byte{0};
    require(frame->length <= rest.size() && (packed || frame->length == rest.size()));
    require(!frame->header.empty() && frame->header.size() <= clustar::transport::io::Header::kMax);
    require(frame->header.data() == rest.data() + (packed ? kPackedFrameBytes : kFrameBytes));
    require(frame->payload.data() == frame->header.data() + frame->header.size());
    require(std::ranges::equal(written(*frame, packed), rest.first(frame->length)));
    // Cut, a packet that tells its length is none; the other one is, with less payload.
    const auto cut = parse_frame(rest.first(frame->length - 1));
    require(cut.has_value() == (!packed && !frame->payload.empty()));
    rest = rest.subspan(frame->length);
  }
  return 0;
}
