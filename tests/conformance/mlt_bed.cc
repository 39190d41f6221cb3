#include "tests/conformance/mlt_bed.h"

#include <sys/socket.h>

#include <cctype>
#include <optional>
#include <utility>

#include "mlt/driver/handshake.h"
#include "mlt/driver/settings.h"
#include "tests/conformance/test_backends.h"
#include "tests/psk_file.h"
#include "transport/io/udp/address.h"
#include "transport/io/udp/udp_backend.h"
#include "transport/net/settings.h"

namespace clustar::transport::conformance {

std::unique_ptr<Transport> MltBed::create(const Setup& setup) {
  Config config;
  config.edit<NetworkSettings>()->interfaces = setup.interfaces;
  config.edit<NetworkSettings>()->family_name = setup.family;
  config.edit<MltSettings>()->engine = setup.engine;
  config.edit<MltSettings>()->parity = setup.parity;
  config.edit<MltSettings>()->loss_important_ppm = setup.loss_important_ppm;
  config.edit<MltSettings>()->engines = setup.engines;
  std::optional<tests::PskFile> psk;  // is read once, by create
  if (!setup.psk_mode.empty()) {
    config.edit<MltSettings>()->psk_file = psk.emplace(setup.secret).path();
    config.edit<MltSettings>()->psk_mode = setup.psk_mode;
  }
  Log log([this](LogLevel level, const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (level == LogLevel::kWarn) warnings_ += text + "\n";
  });
  auto backend = setup.backend ? setup.backend(config) : io::udp::UdpBackend::create(config);
  EXPECT_TRUE(backend) << backend.error().message;
  if (!backend) return nullptr;
  const auto around = [this, wrap = setup.wrap, reach = setup.reach](std::unique_ptr<io::PacketIo> io) -> OpenedIo {
    const auto address = io::udp::UdpBlob::parse(io->local_address());
    if (wrap) io = wrap(std::move(io));
    if (reach) io = std::make_unique<ReachingIo>(std::move(io), *reach);
    const std::lock_guard lock(mutex_);
    if (address) ports_.push_back(address->ports);
    return io;
  };
  auto made = driver::MltTransport::create({config, clock_, log, {}, setup.importance},
                                           std::make_unique<WrappedBackend>(std::move(*backend), around, setup.reach),
                                           setup.adjust);
  EXPECT_TRUE(made) << made.error().message;
  return made ? std::move(*made) : nullptr;
}

std::vector<std::vector<std::uint16_t>> MltBed::ports() {
  const std::lock_guard lock(mutex_);
  return ports_;
}

std::string MltBed::take_warnings() {
  const std::lock_guard lock(mutex_);
  return std::exchange(warnings_, {});
}

bool transfer(Connection& connection, std::size_t size, unsigned seed, int tag) {
  SendBuffer from(*connection.send, size, seed);
  RecvBuffer to(*connection.recv, size);
  finish({must_recv(*connection.recv, {{to.mr.get(), 0, size, tag}}),
          must_send(*connection.send, *from.mr, 0, size, tag)});
  EXPECT_TRUE(from.bytes == to.bytes) << "a message of " << size << " bytes, seed " << seed;
  return !::testing::Test::HasFailure();
}

net::Socket dial(const Handle& handle) {
  const net::Address address(driver::HandleInfo::parse(handle)->endpoint);
  net::Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(socket.fd(), address.raw(), address.length()), 0);
  const timeval limit{10, 0};
  setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  return socket;
}

std::uint64_t count(const std::string& text, const std::string& words) {
  const std::size_t end = text.find(words);
  EXPECT_NE(end, std::string::npos) << words << " is not in: " << text;
  if (end == std::string::npos) return 0;
  std::size_t begin = end;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(text[begin - 1])) != 0) --begin;
  return std::stoull(text.substr(begin, end - begin));
}

}  // namespace clustar::transport::conformance
