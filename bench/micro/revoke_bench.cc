// What makes a UC receive safe to hand over: a memory window that is unbound, or a fence, a write of no bytes behind
// the last one on every queue pair (transport/io/verbs/uc/README.md says which we use and why). Both ends are on one
// thread: the first and the last active RDMA port of this machine.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "transport/io/verbs/device_list.h"
#include "transport/io/verbs/gid.h"
#include "transport/io/verbs/memory.h"
#include "transport/io/verbs/queue_pair.h"
#include "transport/io/verbs/uc/windows.h"

namespace clustar::bench::micro {
namespace {

using namespace transport::io::verbs;
using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kMemory = 1 << 20;
constexpr std::size_t kMostLanes = 8;
constexpr std::uint32_t kReceives = 64;
constexpr auto kPatience = std::chrono::seconds(5);

template <class T>
T must(clustar::Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

GidEntry gid_of(const Device& device, std::uint8_t port) {
  const auto choice = choose_gid(must(device.gids(port)), {});
  if (!choice.chosen) throw std::runtime_error(choice.summary());
  return *choice.chosen;
}

class End {
 public:
  explicit End(const PortInfo& port)
      : number(static_cast<std::uint8_t>(port.port)),
        memory(kMemory),
        device(must(Device::open(port.device))),
        domain(must(ProtectionDomain::make(device))),
        region(must(MemoryRegion::make(domain, gdr::MemoryRef::host(memory.data(), memory.size()),
                                       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND))),
        queue(must(CompletionQueue::make(device, 1024))),
        gid(gid_of(device, number)),
        mtu(must(device.port(number)).active_mtu) {
    for (std::size_t lane = 0; lane < kMostLanes; ++lane) {
      lanes.push_back(must(QueuePair::make(domain, {.type = IBV_QPT_UC,
                                                    .send_queue = &queue,
                                                    .recv_queue = &queue,
                                                    .send_requests = kReceives,
                                                    .recv_requests = kReceives})));
      must(lanes.back().to_init({.port = number, .access = IBV_ACCESS_REMOTE_WRITE}));
    }
  }
  void connect(const End& peer) {
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      must(lanes[lane].to_rtr({.path = {.peer = peer.gid.gid, .port = number, .gid_index = static_cast<int>(gid.index)},
                               .peer_queue_pair = peer.lanes[lane].number(),
                               .mtu = std::min(mtu, peer.mtu)}));
      must(lanes[lane].to_rts({}));
    }
  }
  // Takes `count` completions, all of which have to be good.
  void take(std::size_t count) {
    const auto begin = SteadyClock::now();
    std::array<ibv_wc, 64> done;
    while (count > 0) {
      const std::size_t got = must(queue.poll(std::span(done).first(std::min(count, done.size()))));
      for (const ibv_wc& one : std::span(done).first(got)) {
        if (one.status != IBV_WC_SUCCESS) throw std::runtime_error(lanes[0].explain(one).message);
      }
      count -= got;
      if (SteadyClock::now() - begin > kPatience) throw std::runtime_error("no completion within 5 s");
    }
  }

  const std::uint8_t number;
  std::vector<std::byte> memory;
  Device device;
  ProtectionDomain domain;
  MemoryRegion region;
  CompletionQueue queue;
  GidEntry gid;
  ibv_mtu mtu;
  std::vector<QueuePair> lanes{};
};

struct Ends {
  explicit Ends(const std::vector<PortInfo>& ports) : sender(ports.front()), receiver(ports.back()) {
    sender.connect(receiver);
    receiver.connect(sender);
    windows = must(uc::Windows::make(receiver.device, receiver.domain, receiver.gid, receiver.number, 4));
  }
  // One packet of `length` bytes on a lane; its immediate tells the receiver.
  void write(std::size_t lane, std::size_t length) {
    ibv_recv_wr into{};
    must(receiver.lanes[lane].post(into));
    ibv_sge from = sender.region.slice(0, length);
    ibv_send_wr request{};
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.send_flags = IBV_SEND_SIGNALED;
    request.sg_list = &from;
    request.num_sge = length == 0 ? 0 : 1;
    request.wr.rdma.remote_addr = receiver.region.address(0);
    request.wr.rdma.rkey = receiver.region.rkey();
    must(sender.lanes[lane].post(request));
  }
  std::uint32_t open_window() {
    const auto window = windows->bind(receiver.region, 0, kMemory / 2, 0);
    if (!window) throw std::runtime_error(windows->problem());
    while (!windows->poll()) {
      if (!windows->problem().empty()) throw std::runtime_error(windows->problem());
    }
    return *window;
  }
  void close_window(std::uint32_t window) {
    if (!windows->unbind(window, receiver.region)) throw std::runtime_error("a window could not be unbound");
  }

  End sender;
  End receiver;
  std::unique_ptr<uc::Windows> windows{};
};

std::vector<PortInfo> ports_here() {
  auto ports = list_ports({}).value_or(std::vector<PortInfo>());
  std::erase_if(ports, [](const PortInfo& port) { return !port.active || port.link_layer != LinkLayer::kEthernet; });
  return ports;
}

// The ends, or nothing, and the benchmark says why.
std::unique_ptr<Ends> ends_of(benchmark::State& state) {
  try {
    return std::make_unique<Ends>(ports_here());
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
    return nullptr;
  }
}

template <class Step>  // returns the seconds that count
void timed(benchmark::State& state, Step&& step) {
  try {
    for ([[maybe_unused]] auto iteration : state) state.SetIterationTime(step());
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}

void window(benchmark::State& state) {
  const auto ends = ends_of(state);
  if (!ends) return;
  timed(state, [&] {
    const auto begin = SteadyClock::now();
    ends->close_window(ends->open_window());
    return seconds_since(begin);
  });
}

// What a receive waits for at its end; binding happens while the network is under way.
void unbind(benchmark::State& state) {
  const auto ends = ends_of(state);
  if (!ends) return;
  timed(state, [&] {
    const std::uint32_t open = ends->open_window();
    const auto begin = SteadyClock::now();
    ends->close_window(open);
    return seconds_since(begin);
  });
}

// From the sender's posting to the last fence's arrival; what came before it has arrived.
void fence(benchmark::State& state) {
  const auto ends = ends_of(state);
  if (!ends) return;
  const auto lanes = static_cast<std::size_t>(state.range(0));
  timed(state, [&] {
    const auto begin = SteadyClock::now();
    for (std::size_t lane = 0; lane < lanes; ++lane) ends->write(lane, 0);
    ends->receiver.take(lanes);
    const double seconds = seconds_since(begin);
    ends->sender.take(lanes);
    return seconds;
  });
  state.counters["packets"] = static_cast<double>(lanes);
}

// For scale: one packet of payload.
void packet(benchmark::State& state) {
  const auto ends = ends_of(state);
  if (!ends) return;
  const std::size_t length = std::size_t{128} << std::min(ends->sender.mtu, ends->receiver.mtu);
  timed(state, [&] {
    const auto begin = SteadyClock::now();
    ends->write(0, length);
    ends->receiver.take(1);
    const double seconds = seconds_since(begin);
    ends->sender.take(1);
    return seconds;
  });
  state.counters["bytes"] = static_cast<double>(length);
}

// Registered only where a port is, so that a run elsewhere has no failures.
const bool registered = [] {
  const auto ports = ports_here();
  if (ports.empty()) return false;
  benchmark::RegisterBenchmark("revoke/window", window)->UseManualTime();
  benchmark::RegisterBenchmark("revoke/unbind", unbind)->UseManualTime();
  benchmark::RegisterBenchmark("revoke/fence", fence)->ArgName("lanes")->Arg(1)->Arg(4)->Arg(8)->UseManualTime();
  benchmark::RegisterBenchmark("revoke/packet", packet)->UseManualTime();
  return true;
}();

}  // namespace
}  // namespace clustar::bench::micro
