// Many connections of one process over one NIC: what each costs to make, to keep, and the others when messages pass.
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/micro/plugin_bench.h"
#include "bench/micro/plugin_loop.h"

namespace clustar::bench::micro {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kBytes = 4096;
constexpr auto kPatience = std::chrono::seconds(60);

// Bytes that this process has allocated. Its resident memory would not do: a benchmark runs several times, and what an
// earlier run gave back is taken again.
double allocated() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks) + static_cast<double>(info.hblkhd);
}

// Both ends of all of them.
class Connections {
 public:
  Connections(const std::string& path, std::size_t count) : ends_(count) {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    plugin_ = std::make_unique<PluginLoop>(path);
    const double before = allocated();
    const auto begin = SteadyClock::now();
    for (Ends& ends : ends_) ends.connection = &plugin_->connect();
    setup_us =
        std::chrono::duration<double, std::micro>(SteadyClock::now() - begin).count() / static_cast<double>(count);
    bytes_each = (allocated() - before) / static_cast<double>(count);
    for (const Ends& ends : ends_) plugin_->register_memory(*ends.connection, out_, in_);
  }

  // A message on each of the first `active`, all at once.
  void exchange(std::size_t active) {
    for (std::size_t i = 0; i < active; ++i) post(ends_[i]);
    const auto deadline = SteadyClock::now() + kPatience;
    for (std::size_t left = 2 * active; left > 0;) {
      for (std::size_t i = 0; i < active; ++i) {
        left -= done(ends_[i].receiving);
        left -= done(ends_[i].sending);
      }
      if (SteadyClock::now() > deadline) throw std::runtime_error("messages did not arrive within 60 s");
    }
  }

  double setup_us = 0;    // of a connection
  double bytes_each = 0;  // of memory, both ends

 private:
  struct Ends {
    PluginLoop::Connection* connection = nullptr;
    void* sending = nullptr;
    void* receiving = nullptr;
  };

  void post(Ends& ends) {
    ends.receiving = plugin_->recv(*ends.connection, in_.data(), kBytes);
    ends.sending = plugin_->send(*ends.connection, out_.data(), kBytes);
  }

  // 1: it was outstanding and is done now.
  std::size_t done(void*& request) { return request != nullptr && plugin_->done(request) ? 1 : 0; }

  // All connections use the same memory: what is measured is the connections.
  std::vector<std::byte> out_ = std::vector<std::byte>(kBytes), in_ = std::vector<std::byte>(kBytes);
  std::vector<Ends> ends_;
  std::unique_ptr<PluginLoop> plugin_;  // after the memory, which it has registered
};

}  // namespace

void register_connection_benchmarks(const std::string& plugin, bool& failed) {
  benchmark::RegisterBenchmark("connections/message",
                               [plugin, &failed](benchmark::State& state) {
                                 try {
                                   const auto count = static_cast<std::size_t>(state.range(0));
                                   const auto active = std::min(count, static_cast<std::size_t>(state.range(1)));
                                   Connections connections(plugin, count);
                                   for (auto _ : state) connections.exchange(active);
                                   state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(active));
                                   state.counters["setup_us"] = connections.setup_us;
                                   state.counters["bytes_each"] = connections.bytes_each;
                                 } catch (const std::exception& error) {
                                   failed = true;
                                   state.SkipWithError(error.what());
                                 }
                               })
      ->ArgNames({"connections", "active"})
      ->ArgsProduct({{64, 1024, 4096}, {1, 4096}})
      ->UseRealTime();
}

}  // namespace clustar::bench::micro
