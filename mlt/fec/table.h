// What libclustar-fec.so exports, as the data object `clustar_fec`: plain C, so that the module needs neither a C++
// library nor the same compiler as the plugin. Any thread; nothing is kept between calls.
//
// The code is systematic Reed-Solomon over GF(2^8) with the polynomial 0x11d: row r of the parity of k packets is the
// sum of packet j times the inverse of (k + r) xor j. Any k of all k + kMaxRows packets and rows determine the others,
// since every square part of that Cauchy matrix has an inverse.
#pragma once

#include <cstddef>
#include <cstdint>

namespace clustar::mlt::fec {

struct Table {
  static constexpr std::uint32_t kAbi = 1;
  static constexpr unsigned kMaxPackets = 64;  // k
  static constexpr unsigned kMaxRows = 16;
  std::uint32_t abi;
  std::uint32_t size;  // sizeof(Table)

  const char* (*version)();
  // One row of the parity of `packets`, all of them `bytes` long. Answers 1; 0: out of range.
  int (*encode)(unsigned packets, unsigned row, std::size_t bytes, const unsigned char* const* data,
                unsigned char* out);
  // `count` packets are missing, in `places`; where data[places[i]] would be, there is parity row rows[i]. They come to
  // out[i]. Answers 1; 0: out of range, or a place or row is named twice.
  int (*rebuild)(unsigned packets, unsigned count, const unsigned char* places, const unsigned char* rows,
                 std::size_t bytes, const unsigned char* const* data, unsigned char* const* out);
};

}  // namespace clustar::mlt::fec
