// A pcapng file (IETF draft-ietf-opsawg-pcapng) with one interface of raw IP packets and times in nanoseconds.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/base/time.h"

namespace clustar::transport::io {

struct PcapngOptions {
  static constexpr std::uint32_t kMinSnap = 64, kMaxSnap = 262144;
  std::string path;                      // is overwritten
  std::uint64_t max_bytes = 1ull << 30;  // of the file
  std::uint32_t snap_bytes = 65535;      // of one packet; kMinSnap to kMaxSnap count
};

// Failures end the writing, once and for all: stopped() tells why, and skipped() counts what is missing.
class PcapngWriter {
 public:
  enum class Direction : std::uint8_t { kInbound = 1, kOutbound = 2 };

  explicit PcapngWriter(const PcapngOptions& options);

  // A packet of `front`, then `back`, then bytes that are not known, `length` in all. `time` is since 1970.
  void write(Duration time, Direction direction, std::span<const std::byte> front, std::span<const std::byte> back,
             std::size_t length);
  void flush();

  bool open() const { return file_ != nullptr; }
  const std::string& stopped() const { return stopped_; }  // empty while it writes
  std::uint64_t written() const { return written_; }
  std::uint64_t skipped() const { return skipped_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  template <class T>
  void put(T value);
  void put_bytes(std::span<const std::byte> bytes);
  void write_prologue();
  void write_block();
  void stop(std::string reason);

  PcapngOptions options_;
  std::unique_ptr<std::FILE, Close> file_;
  std::uint64_t bytes_ = 0;
  std::vector<std::byte> block_;
  std::string stopped_;
  std::uint64_t written_ = 0;
  std::uint64_t skipped_ = 0;
};

}  // namespace clustar::transport::io
