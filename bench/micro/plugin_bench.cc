#include "bench/micro/plugin_bench.h"

#include <benchmark/benchmark.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/micro/plugin_loop.h"

namespace clustar::bench::micro {
namespace {

// Both ends of one connection, on this thread.
class Loop {
 public:
  explicit Loop(const std::string& path) : plugin_(path), connection_(plugin_.connect()) {
    plugin_.register_memory(connection_, out_, in_);
  }

  void* post_recv(std::size_t bytes) { return plugin_.recv(connection_, in_.data(), bytes); }
  void* post_send(std::size_t bytes) { return plugin_.send(connection_, out_.data(), bytes); }
  bool done(void*& request) { return plugin_.done(request); }
  void register_memory() {
    void* mr = nullptr;
    plugin_.must(plugin_.net().reg_mr(connection_.send, out_.data(), out_.size(), nccl_abi::kPtrHost, &mr), "regMr");
    plugin_.must(plugin_.net().dereg_mr(connection_.send, mr), "deregMr");
  }
  void finish(void* first, void* second) {
    while (first != nullptr || second != nullptr) {
      if (first != nullptr) done(first);
      if (second != nullptr) done(second);
    }
  }

 private:
  // Before the loop, which gives them back to the plugin.
  std::vector<std::byte> out_ = std::vector<std::byte>(1 << 16), in_ = std::vector<std::byte>(1 << 16);
  PluginLoop plugin_;
  PluginLoop::Connection& connection_;
};

using Body = void (*)(benchmark::State&, Loop&);

// A receive to which nothing is sent: what NCCL's proxy pays each time it looks and nothing happened.
void test_idle(benchmark::State& state, Loop& loop) {
  void* recv = loop.post_recv(4096);
  for (auto _ : state) {
    if (loop.done(recv)) throw std::runtime_error("a receive was done without a message");
  }
  loop.finish(loop.post_send(4096), recv);
}

// A request from the pool and back, with the message between: both ends and the kernel's loopback on one core.
void message(benchmark::State& state, Loop& loop) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) {
    void* recv = loop.post_recv(bytes);
    loop.finish(loop.post_send(bytes), recv);
  }
  // A rate of 0 has no coefficient of variation: the library would write NaN, which is no JSON.
  if (bytes > 0) state.SetBytesProcessed(state.iterations() * state.range(0));
}

void register_memory(benchmark::State& state, Loop& loop) {
  for (auto _ : state) loop.register_memory();
}

}  // namespace

void register_plugin_benchmarks(const std::string& plugin, bool& failed) {
  const auto add = [&](const char* name, Body body) {
    return benchmark::RegisterBenchmark(name, [plugin, body, &failed](benchmark::State& state) {
      try {
        Loop loop(plugin);
        body(state, loop);
      } catch (const std::exception& error) {
        failed = true;
        state.SkipWithError(error.what());
      }
    });
  };
  add("plugin/test_idle_request", test_idle);
  add("plugin/message_one_thread", message)->ArgName("bytes")->Arg(0)->Arg(8)->Arg(4096)->Arg(65536);
  add("plugin/reg_dereg_mr", register_memory);
}

}  // namespace clustar::bench::micro
