// An MltTransport on loopback whose devices a test can wrap, count and talk to.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "mlt/driver/mlt_transport.h"
#include "tests/conformance/transport_under_test.h"
#include "transport/base/system_clock.h"
#include "transport/io/decorators/forwarding_io.h"
#include "transport/io/packet_backend.h"
#include "transport/net/socket.h"

namespace clustar::transport::conformance {

namespace driver = mlt::driver;

// The real time, and what a test has added.
class TurnedClock final : public Clock {
 public:
  TimePoint now() const override { return system_.now() + Duration(ahead_.load()); }
  void advance(Duration by) { ahead_ += by.count(); }

 private:
  SystemClock system_;
  std::atomic<std::int64_t> ahead_{0};
};

// Says that it sent what it threw away, while `mute` is set.
class MuteIo final : public io::ForwardingIo {
 public:
  MuteIo(std::unique_ptr<io::PacketIo> inner, const std::atomic<bool>& mute)
      : ForwardingIo(std::move(inner)), mute_(mute) {}
  Result<std::size_t> send(std::span<const io::TxPacket> packets) override {
    return mute_ ? Result<std::size_t>(packets.size()) : ForwardingIo::send(packets);
  }

 private:
  const std::atomic<bool>& mute_;
};

class MltBed : public ::testing::Test {
 protected:
  using Wrap = std::function<std::unique_ptr<io::PacketIo>(std::unique_ptr<io::PacketIo>)>;
  struct Setup {
    std::string engine = "auto";
    Wrap wrap = {};
    std::string interfaces = "=lo";
    std::string family = "ipv4";
    std::function<Result<std::unique_ptr<io::PacketBackend>>(const Config&)> backend = {};  // default: kernel UDP
    std::string psk_mode = {};                                                              // empty: no pre-shared key
    std::string secret = {};
    driver::MltTransport::Adjust adjust = {};
    std::optional<io::Reach> reach = {};  // of all devices
    std::string parity = "auto";
    std::uint32_t loss_important_ppm = 0;
    std::shared_ptr<ImportanceTable> importance = {};  // what the program marks
    std::uint32_t engines = 1;                         // CLUSTAR_ENGINES; 0: as many as it takes by itself
  };

  std::unique_ptr<Transport> create(const Setup& setup);
  // UDP's, of the devices that were opened, in order.
  std::vector<std::vector<std::uint16_t>> ports();
  std::string take_warnings();

  TurnedClock clock_;

 private:
  std::mutex mutex_;
  std::vector<std::vector<std::uint16_t>> ports_;
  std::string warnings_;
};

// One message of `size` bytes, compared byte for byte; false, with the test failed, when it did not arrive so.
bool transfer(Connection& connection, std::size_t size, unsigned seed = 1, int tag = 0);
// A TCP connection to where a listener waits, whose reads give up after 10 s.
net::Socket dial(const Handle& handle);
// The number in front of `words` in a summary: count(text, " strangers dropped").
std::uint64_t count(const std::string& text, const std::string& words);

}  // namespace clustar::transport::conformance
