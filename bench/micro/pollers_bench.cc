// What runs the engine when several threads poll one NIC, each for a communicator of its own, as NCCL's proxies of
// several communicators of one process do. Proxies of several GPUs in one communicator share an engine instead.
#include <benchmark/benchmark.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/micro/plugin_bench.h"
#include "bench/micro/plugin_loop.h"

namespace clustar::bench::micro {
namespace {

constexpr int kAhead = 4;    // messages that are under way on a connection, as NCCL keeps a few
constexpr int kRounds = 64;  // messages per connection and iteration

// A ring of threads: each sends to the next and receives from the one before, over connections of its own.
class Ring {
 public:
  Ring(const std::string& path, int threads, std::size_t bytes)
      : bytes_(bytes), members_(static_cast<std::size_t>(threads)), plugin_(path) {
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const std::size_t next = (i + 1) % members_.size();
      PluginLoop::Connection& made = plugin_.connect(i + 1, next + 1);
      Member &from = members_[i], &to = members_[next];
      from.to_next = to.from_previous = &made;
      from.out.resize(bytes * kAhead);
      to.in.resize(bytes * kAhead);
      plugin_.register_memory(made, from.out, to.in);
    }
  }

  // kRounds messages on each connection, each thread polling its own until they are done.
  void run() {
    std::vector<std::jthread> threads;
    for (Member& member : members_) threads.emplace_back([&] { work(member); });
    threads.clear();
    if (failed_) throw std::runtime_error("a call failed: " + plugin_.net().last_warning());
  }

 private:
  struct Slot {
    void* send = nullptr;
    void* recv = nullptr;
  };
  struct Member {
    PluginLoop::Connection* to_next = nullptr;
    PluginLoop::Connection* from_previous = nullptr;
    std::vector<std::byte> out, in;
    int sent = 0, received = 0, send_posts = 0, recv_posts = 0;
    std::array<Slot, kAhead> slots;
  };

  void step(Member& member) {
    for (int i = 0; i < kAhead; ++i) {
      Slot& slot = member.slots[static_cast<std::size_t>(i)];
      const std::size_t at = bytes_ * static_cast<std::size_t>(i);
      if (slot.recv == nullptr && member.recv_posts < kRounds) {
        slot.recv = plugin_.try_recv(*member.from_previous, member.in.data() + at, bytes_);
        if (slot.recv != nullptr) ++member.recv_posts;
      }
      if (slot.send == nullptr && member.send_posts < kRounds) {
        slot.send = plugin_.try_send(*member.to_next, member.out.data() + at, bytes_);
        if (slot.send != nullptr) ++member.send_posts;
      }
      if (slot.recv != nullptr && plugin_.done(slot.recv)) ++member.received;
      if (slot.send != nullptr && plugin_.done(slot.send)) ++member.sent;
    }
  }

  void work(Member& member) {
    try {
      member.sent = member.received = member.send_posts = member.recv_posts = 0;
      while ((member.sent < kRounds || member.received < kRounds) && !failed_) step(member);
    } catch (const std::exception&) {
      failed_ = true;
    }
  }

  const std::size_t bytes_;
  // Before the plugin, which has their memory registered.
  std::vector<Member> members_;
  PluginLoop plugin_;
  std::atomic<bool> failed_{false};
};

}  // namespace

void register_poller_benchmarks(const std::string& plugin, bool& failed) {
  benchmark::RegisterBenchmark(
      "pollers/ring",
      [plugin, &failed](benchmark::State& state) {
        try {
          Ring ring(plugin, static_cast<int>(state.range(0)), static_cast<std::size_t>(state.range(1)));
          for (auto _ : state) ring.run();
          state.SetBytesProcessed(state.iterations() * state.range(0) * state.range(1) * kRounds);
        } catch (const std::exception& error) {
          failed = true;
          state.SkipWithError(error.what());
        }
      })
      ->ArgNames({"threads", "bytes"})
      ->ArgsProduct({{1, 2, 4, 8, 16}, {8, 4096, 65536, 1 << 20}})
      ->UseRealTime();
}

}  // namespace clustar::bench::micro
