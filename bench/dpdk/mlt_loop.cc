#include "bench/dpdk/mlt_loop.h"

#include <string>
#include <utility>

#include "bench/dpdk/ports.h"
#include "mlt/driver/mlt_transport.h"
#include "mlt/driver/settings.h"
#include "transport/base/config.h"
#include "transport/io/dpdk/dpdk_backend.h"
#include "transport/io/dpdk/settings.h"
#include "transport/net/settings.h"

namespace clustar::bench::dpdk {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBuffers = 64 << 20;  // more than caches hold
constexpr auto kPatience = std::chrono::seconds(10);

}  // namespace

Result<std::unique_ptr<MltLoop>> MltLoop::open(const PortPair& ports) {
  std::unique_ptr<MltLoop> loop(new MltLoop);
  if (const auto started = loop->start(ports); !started) return tl::unexpected(started.error());
  return loop;
}

Result<std::unique_ptr<transport::Transport>> MltLoop::make_transport(const std::string& device) {
  Config config;
  config.edit<DpdkSettings>()->devices = device;
  config.edit<DpdkSettings>()->huge_pages = "no";
  config.edit<NetworkSettings>()->control_interfaces = "=lo";
  config.edit<MltSettings>()->engine = "inline";
  auto backend = transport::io::dpdk::DpdkBackend::create(config, {});
  if (!backend) return tl::unexpected(backend.error());
  return mlt::driver::MltTransport::create({config, clock_, {}}, std::move(*backend));
}

Result<void> MltLoop::start(const PortPair& ports) {
  auto from = make_transport(ports.from);
  if (!from) return tl::unexpected(from.error());
  auto to = make_transport(ports.to);
  if (!to) return tl::unexpected(to.error());
  from_ = std::move(*from);
  to_ = std::move(*to);
  if (const auto connected = connect(); !connected) return connected;
  for (End* end : {&sends_, &receives_}) end->bytes.resize(kBuffers, std::byte{1});
  auto source = send_->reg_mr(gdr::MemoryRef::host(sends_.bytes.data(), kBuffers));
  if (!source) return tl::unexpected(source.error());
  auto target = recv_->reg_mr(gdr::MemoryRef::host(receives_.bytes.data(), kBuffers));
  if (!target) return tl::unexpected(target.error());
  sends_.memory = std::move(*source);
  receives_.memory = std::move(*target);
  const auto port = port_of(ports.to);
  if (!port) return tl::unexpected(port.error());
  to_port_ = *port;
  return {};
}

Result<void> MltLoop::connect() {
  auto listener = to_->listen(0, {});
  if (!listener) return tl::unexpected(listener.error());
  auto pending = from_->connect(0, (*listener)->handle(), {});
  if (!pending) return tl::unexpected(pending.error());
  for (const auto end = Clock::now() + kPatience; send_ == nullptr || recv_ == nullptr;) {
    if (send_ == nullptr) {
      auto polled = (*pending)->poll();
      if (!polled) return tl::unexpected(polled.error());
      send_ = std::move(*polled);
    }
    if (recv_ == nullptr) {
      auto polled = (*listener)->poll_accept();
      if (!polled) return tl::unexpected(polled.error());
      recv_ = std::move(*polled);
    }
    if (Clock::now() > end) return fail(ErrorCode::kUnavailable, "mlt: no connection after 10 s");
  }
  return {};
}

Result<void> MltLoop::look(End& end) {
  if (end.done == end.posted) return {};
  const auto progress = end.oldest()->test();
  if (!progress) return tl::unexpected(progress.error());
  end.done += progress->done ? 1u : 0u;
  return {};
}

Result<void> MltLoop::step() {
  if (receives_.has_room()) {
    const transport::RecvPart part{receives_.memory.get(), receives_.offset(), kMessage, 0};
    const auto posted = recv_->recv(std::span(&part, 1));
    if (!posted) return tl::unexpected(posted.error());
    receives_.newest() = *posted;
    receives_.posted += *posted != nullptr ? 1u : 0u;
  }
  if (sends_.has_room()) {
    const auto posted = send_->send(*sends_.memory, sends_.offset(), kMessage, 0, {});
    if (!posted) return tl::unexpected(posted.error());
    sends_.newest() = *posted;
    sends_.posted += *posted != nullptr ? 1u : 0u;
  }
  if (const auto looked = look(sends_); !looked) return looked;
  return look(receives_);
}

Result<Sample> MltLoop::run(std::chrono::nanoseconds time) {
  const std::uint64_t messages = receives_.done;
  const std::uint64_t packets = received_by(to_port_);
  std::uint64_t seen = messages;
  const auto begin = Clock::now();
  auto moved = begin;
  auto now = begin;
  for (; now - begin < time; now = Clock::now()) {
    for (int i = 0; i < 16; ++i) {
      if (const auto stepped = step(); !stepped) return tl::unexpected(stepped.error());
    }
    if (receives_.done != seen) {
      seen = receives_.done;
      moved = now;
    }
    if (now - moved > kPatience) return fail(ErrorCode::kUnavailable, "mlt: nothing passes the wire");
  }
  return Sample{std::chrono::duration<double>(now - begin).count(), received_by(to_port_) - packets,
                (receives_.done - messages) * kMessage};
}

}  // namespace clustar::bench::dpdk
