// Messages of GPU memory by way of an arena, emulated: host memory plays the GPU's and memcpy its copy engines, so what
// is measured is our own work and two copies by the CPU, never a GPU.
#include <benchmark/benchmark.h>
#include <sched.h>

#include <array>
#include <memory>
#include <vector>

#include "gdr/emulated_copy.h"
#include "transport/base/system_clock.h"
#include "transport/net/settings.h"
#include "transport/staged/staged_transport.h"
#include "transport/tcp/tcp_transport.h"

namespace clustar::bench::micro {
namespace {

using transport::Request;

std::unique_ptr<transport::Transport> make(const Clock& clock, bool staged) {
  Config config;
  config.edit<NetworkSettings>()->interfaces = "=lo";
  auto plain = transport::tcp::TcpTransport::create({config, clock});
  if (!plain || !staged) return plain ? std::move(*plain) : nullptr;
  transport::staged::Options options;
  options.emulated = true;
  options.make_copy = [](const gdr::MemoryRef&) -> Result<std::unique_ptr<gdr::DeviceCopy>> {
    return std::make_unique<gdr::EmulatedCopy>(gdr::EmulatedCopy::Options{});
  };
  return std::make_unique<transport::staged::StagedTransport>(std::move(*plain), std::move(options), clock, Log());
}

// Both ends on loopback, by one thread, four messages at a time.
void messages(benchmark::State& state, bool staged) {
  constexpr std::size_t kDepth = 4;
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const SystemClock clock;
  const auto nic = make(clock, staged);
  if (nic == nullptr) return state.SkipWithError("no loopback");
  const auto listener = std::move(nic->listen(0, {}).value());
  const auto pending = std::move(nic->connect(0, listener->handle(), {}).value());
  std::unique_ptr<transport::SendChannel> send;
  std::unique_ptr<transport::RecvChannel> recv;
  while (send == nullptr || recv == nullptr) {
    if (send == nullptr) send = std::move(pending->poll().value());
    if (recv == nullptr) recv = std::move(listener->poll_accept().value());
    sched_yield();
  }
  std::vector<std::byte> from(bytes * kDepth, std::byte{1});
  std::vector<std::byte> to(bytes * kDepth);
  const gdr::MemoryKind kind = staged ? gdr::MemoryKind::kCuda : gdr::MemoryKind::kHost;
  const auto from_mr = std::move(send->reg_mr({kind, from.data(), from.size()}).value());
  const auto to_mr = std::move(recv->reg_mr({kind, to.data(), to.size()}).value());
  for (auto _ : state) {
    std::vector<Request*> open;
    for (std::size_t i = 0; i < kDepth; ++i) {
      const std::array<transport::RecvPart, 1> part{{{to_mr.get(), i * bytes, bytes, 0}}};
      for (const std::size_t want = open.size() + 1; open.size() < want;) {
        if (Request* const request = recv->recv(part).value()) open.push_back(request);
      }
      for (const std::size_t want = open.size() + 1; open.size() < want;) {
        if (Request* const request = send->send(*from_mr, i * bytes, bytes, 0, {}).value()) open.push_back(request);
      }
    }
    while (!open.empty()) {
      std::erase_if(open, [](Request* request) { return request->test().value().done; });
    }
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kDepth * bytes));
}

BENCHMARK_CAPTURE(messages, plain, false)->Name("staged/plain_tcp")->Arg(64 << 10)->Arg(512 << 10)->Arg(4 << 20);
BENCHMARK_CAPTURE(messages, emulated, true)->Name("staged/emulated_tcp")->Arg(64 << 10)->Arg(512 << 10)->Arg(4 << 20);

}  // namespace
}  // namespace clustar::bench::micro
