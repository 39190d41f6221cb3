// What workers and the parameter server of PsCollective say to each other over TCP.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::trainer::ps {

inline constexpr std::uint64_t kMagic = 0x31303273'70756c63;
inline constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;  // of the body of a message
inline constexpr std::uint64_t kMostErrorText = 4096;

enum Kind : std::uint32_t {
  kHello = 1,  // a worker's first; no body
  kWelcome,    // to all workers once they are there; no body
  kSum,        // a worker's float32s
  kGather,     // a worker's bytes
  kAnswer,     // the sum, or the bytes of all workers in rank order
  kError,      // a code and a text: the run is over
};

// In host byte order: all ranks are of one build, and the magic differs where the order does.
struct Header {
  std::uint64_t magic = kMagic;
  std::uint32_t kind = 0;
  std::uint32_t rank = 0;      // of the worker; 0 in what the server says
  std::uint64_t sequence = 0;  // of the collective, from 1; in a hello, the run's token
  std::uint64_t length = 0;    // of the body
};
static_assert(sizeof(Header) == 32);

using Message = std::vector<std::byte>;

// Header and body in one piece of memory: the copy that RPC libraries made of a tensor.
void serialise(const Header& header, std::span<const std::byte> body, Message& into);

Message error_message(const Error& error);
Error parse_error(std::span<const std::byte> body);

}  // namespace clustar::bench::trainer::ps
