#include "bench/trainer/ps_frames.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace clustar::bench::trainer::ps {

void serialise(const Header& header, std::span<const std::byte> body, Message& into) {
  into.resize(sizeof header + body.size());
  std::memcpy(into.data(), &header, sizeof header);
  if (!body.empty()) std::memcpy(into.data() + sizeof header, body.data(), body.size());
}

Message error_message(const Error& error) {
  Message body(1 + std::min<std::size_t>(error.message.size(), kMostErrorText - 1));
  body[0] = static_cast<std::byte>(error.code);
  std::memcpy(body.data() + 1, error.message.data(), body.size() - 1);
  Message whole;
  serialise({.kind = kError, .length = body.size()}, body, whole);
  return whole;
}

Error parse_error(std::span<const std::byte> body) {
  if (body.empty()) return {ErrorCode::kRemote, "the parameter server reported an error without a text"};
  const auto code = std::min(static_cast<std::uint8_t>(body[0]), static_cast<std::uint8_t>(ErrorCode::kInternal));
  return {static_cast<ErrorCode>(code), std::string(reinterpret_cast<const char*>(body.data()) + 1, body.size() - 1)};
}

}  // namespace clustar::bench::trainer::ps
