// An MltBed whose transports have a pre-shared key; the tests' parameter is psk_mode.
#pragma once

#include <atomic>

#include "tests/conformance/mlt_bed.h"
#include "transport/crypto/crypto.h"

namespace clustar::transport::conformance {

class CountingIo final : public io::ForwardingIo {
 public:
  CountingIo(std::unique_ptr<io::PacketIo> inner, std::atomic<std::uint64_t>& sent)
      : ForwardingIo(std::move(inner)), sent_(sent) {}
  Result<std::size_t> send(std::span<const io::TxPacket> packets) override {
    const auto sent = ForwardingIo::send(packets);
    if (sent) sent_ += *sent;
    return sent;
  }

 private:
  std::atomic<std::uint64_t>& sent_;
};

class MltPskBed : public MltBed, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    if (const auto opened = crypto::Crypto::open(); !opened) GTEST_SKIP() << opened.error().message;
  }
  // `mode`: empty for no pre-shared key.
  std::unique_ptr<Transport> create(const std::string& mode, const std::string& secret = "a secret of the tests",
                                    const Wrap& wrap = {}) {
    return MltBed::create({.wrap = wrap, .psk_mode = mode, .secret = secret});
  }
  Wrap counting() {
    return [this](auto inner) { return std::make_unique<CountingIo>(std::move(inner), sent_); };
  }

  std::atomic<std::uint64_t> sent_{0};
};

}  // namespace clustar::transport::conformance
