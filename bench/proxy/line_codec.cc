#include "bench/proxy/line_codec.h"

#include <algorithm>
#include <cstring>

namespace clustar::bench::proxy {
namespace {

// Half of an LL line is 4 bytes of data below 4 bytes of flag, moved as one 8-byte word: that is why LL needs 8-byte
// atomicity and nothing more.
std::uint64_t ll_word(std::uint32_t data, std::uint32_t flag) {
  const std::uint32_t parts[2] = {data, flag};
  std::uint64_t word;
  std::memcpy(&word, parts, sizeof word);
  return word;
}

void pack_ll(const std::byte* payload, std::size_t bytes, std::uint32_t flag, std::uint64_t* wire) {
  const std::size_t words = wire_bytes(Protocol::kLL, bytes) / sizeof(std::uint64_t);
  for (std::size_t i = 0; i < words; ++i) {
    std::uint32_t data = 0;
    const std::size_t offset = i * sizeof data;
    if (offset < bytes) std::memcpy(&data, payload + offset, std::min(sizeof data, bytes - offset));
    wire[i] = ll_word(data, flag);
  }
}

bool unpack_ll(const std::uint64_t* wire, std::size_t bytes, std::uint32_t flag, std::byte* payload) {
  const std::size_t words = wire_bytes(Protocol::kLL, bytes) / sizeof(std::uint64_t);
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint64_t word = __atomic_load_n(wire + i, __ATOMIC_ACQUIRE);
    std::uint32_t parts[2];
    std::memcpy(parts, &word, sizeof word);
    if (parts[1] != flag) return false;
    const std::size_t offset = i * sizeof parts[0];
    if (offset < bytes) std::memcpy(payload + offset, parts, std::min(sizeof parts[0], bytes - offset));
  }
  return true;
}

constexpr std::size_t kFlagWord = kLl128LinePayload / sizeof(std::uint64_t);
constexpr std::size_t kLineWords = kLl128LineBytes / sizeof(std::uint64_t);

void pack_ll128(const std::byte* payload, std::size_t bytes, std::uint64_t flag, std::uint64_t* wire) {
  const std::size_t lines = wire_bytes(Protocol::kLL128, bytes) / kLl128LineBytes;
  for (std::size_t i = 0; i < lines; ++i, wire += kLineWords) {
    const std::size_t offset = std::min(bytes, i * kLl128LinePayload);
    const std::size_t data = std::min(kLl128LinePayload, bytes - offset);
    if (data < kLl128LinePayload) std::memset(wire, 0, kLl128LinePayload);
    if (data > 0) std::memcpy(wire, payload + offset, data);
    wire[kFlagWord] = flag;
  }
}

bool unpack_ll128(const std::uint64_t* wire, std::size_t bytes, std::uint64_t flag, std::byte* payload) {
  const std::size_t lines = wire_bytes(Protocol::kLL128, bytes) / kLl128LineBytes;
  for (std::size_t i = 0; i < lines; ++i, wire += kLineWords) {
    if (__atomic_load_n(wire + kFlagWord, __ATOMIC_ACQUIRE) != flag) return false;
    const std::size_t offset = std::min(bytes, i * kLl128LinePayload);
    const std::size_t data = std::min(kLl128LinePayload, bytes - offset);
    if (data > 0) std::memcpy(payload + offset, wire, data);
  }
  return true;
}

}  // namespace

void pack_lines(Protocol protocol, const void* payload, std::size_t bytes, std::uint64_t flag, void* wire) {
  const auto* from = static_cast<const std::byte*>(payload);
  auto* to = static_cast<std::uint64_t*>(wire);
  if (protocol == Protocol::kLL) {
    pack_ll(from, bytes, static_cast<std::uint32_t>(flag), to);
  } else {
    pack_ll128(from, bytes, flag, to);
  }
}

bool unpack_lines(Protocol protocol, const void* wire, std::size_t bytes, std::uint64_t flag, void* payload) {
  const auto* from = static_cast<const std::uint64_t*>(wire);
  auto* to = static_cast<std::byte*>(payload);
  if (protocol == Protocol::kLL) return unpack_ll(from, bytes, static_cast<std::uint32_t>(flag), to);
  return unpack_ll128(from, bytes, flag, to);
}

}  // namespace clustar::bench::proxy
