#include "tests/packet_io/pcapng_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace clustar::transport::io {
namespace {

// Integers are in the writer's byte order, which the byte-order magic tells.
constexpr std::uint32_t kSectionHeader = 0x0a0d0d0a, kByteOrderMagic = 0x1a2b3c4d, kInterface = 1, kEnhancedPacket = 6;
constexpr std::uint16_t kRawIp = 101;
constexpr std::uint16_t kEndOfOptions = 0, kPacketFlags = 2, kTimeResolution = 9;
constexpr std::uint8_t kNanoseconds = 9;  // 10^-9
constexpr std::size_t kPacketOverhead = 28 + 12 + 4;

constexpr std::size_t padded(std::size_t bytes) { return (bytes + 3) / 4 * 4; }

}  // namespace

PcapngWriter::PcapngWriter(const PcapngOptions& options) : options_(options) {
  file_.reset(std::fopen(options.path.c_str(), "wbe"));
  if (!file_) {
    stop(std::string("cannot be opened for writing: ") + std::strerror(errno));
    return;
  }
  options_.snap_bytes = std::clamp(options_.snap_bytes, PcapngOptions::kMinSnap, PcapngOptions::kMaxSnap);
  block_.reserve(kPacketOverhead + 65536);
  write_prologue();
}

template <class T>
void PcapngWriter::put(T value) {
  const std::size_t at = block_.size();
  block_.resize(at + sizeof(T));
  std::memcpy(block_.data() + at, &value, sizeof(T));
}

void PcapngWriter::put_bytes(std::span<const std::byte> bytes) {
  block_.insert(block_.end(), bytes.begin(), bytes.end());
}

void PcapngWriter::write_prologue() {
  block_.clear();
  put(kSectionHeader);
  put(std::uint32_t{28});
  put(kByteOrderMagic);
  put(std::uint16_t{1});  // version 1.0
  put(std::uint16_t{0});
  put(~std::uint64_t{0});  // length of the section: not known
  put(std::uint32_t{28});

  put(kInterface);
  put(std::uint32_t{32});
  put(kRawIp);
  put(std::uint16_t{0});
  put(options_.snap_bytes);
  put(kTimeResolution);
  put(std::uint16_t{1});
  put(std::uint32_t{kNanoseconds});  // padded to four bytes
  put(kEndOfOptions);
  put(std::uint16_t{0});
  put(std::uint32_t{32});
  write_block();
}

void PcapngWriter::write(Duration time, Direction direction, std::span<const std::byte> front,
                         std::span<const std::byte> back, std::size_t length) {
  if (!file_) {
    ++skipped_;
    return;
  }
  front = front.first(std::min<std::size_t>(front.size(), options_.snap_bytes));
  back = back.first(std::min<std::size_t>(back.size(), options_.snap_bytes - front.size()));
  const std::size_t captured = front.size() + back.size();
  const auto total = static_cast<std::uint32_t>(kPacketOverhead + padded(captured));
  if (bytes_ + total > options_.max_bytes) {
    stop("the limit of " + std::to_string(options_.max_bytes) + " bytes is reached");
    ++skipped_;
    return;
  }
  const auto nanoseconds = static_cast<std::uint64_t>(time.count());
  block_.clear();
  put(kEnhancedPacket);
  put(total);
  put(std::uint32_t{0});  // the interface
  put(static_cast<std::uint32_t>(nanoseconds >> 32));
  put(static_cast<std::uint32_t>(nanoseconds));
  put(static_cast<std::uint32_t>(captured));
  put(static_cast<std::uint32_t>(length));
  put_bytes(front);
  put_bytes(back);
  block_.resize(28 + padded(captured));
  put(kPacketFlags);
  put(std::uint16_t{4});
  put(std::uint32_t{static_cast<std::uint8_t>(direction)});
  put(kEndOfOptions);
  put(std::uint16_t{0});
  put(total);
  write_block();
  if (file_) {
    ++written_;
  } else {
    ++skipped_;
  }
}

void PcapngWriter::write_block() {
  if (std::fwrite(block_.data(), 1, block_.size(), file_.get()) != block_.size()) {
    return stop(std::string("cannot be written: ") + std::strerror(errno));
  }
  bytes_ += block_.size();
}

void PcapngWriter::flush() {
  if (file_ && std::fflush(file_.get()) != 0) stop(std::string("cannot be written: ") + std::strerror(errno));
}

void PcapngWriter::stop(std::string reason) {
  stopped_ = options_.path + ": " + std::move(reason);
  file_.reset();
}

}  // namespace clustar::transport::io
