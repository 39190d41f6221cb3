#include "bench/micro/plugin_bench.h"

#include <benchmark/benchmark.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/proxy/net_plugin.h"

namespace clustar::bench::micro {
namespace {

using proxy::NetPlugin;

void must(int result, const char* call, const NetPlugin& net) {
  if (result == nccl_abi::kSuccess) return;
  throw std::runtime_error(std::string(call) + " failed: " + net.last_warning());
}

// Both ends of one connection in this process, on this thread.
class Loop {
 public:
  explicit Loop(const std::string& path) {
    auto opened = NetPlugin::open(path);
    if (!opened) throw std::runtime_error(opened.error().message);
    net_ = std::move(*opened);
    must(net_->init(1, nccl_abi::kTrafficClassUndefined, &context_), "init", *net_);
    proxy::Handle handle{};
    void* listening = nullptr;
    must(net_->listen(context_, 0, &handle, &listening), "listen", *net_);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (send_ == nullptr || recv_ == nullptr) {
      if (send_ == nullptr) must(net_->connect(context_, 0, &handle, &send_), "connect", *net_);
      if (recv_ == nullptr) must(net_->accept(listening, &recv_), "accept", *net_);
      if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("no connection within 5 s");
    }
    must(net_->close_listen(listening), "closeListen", *net_);
    must(net_->reg_mr(send_, out_.data(), out_.size(), nccl_abi::kPtrHost, &out_mr_), "regMr", *net_);
    must(net_->reg_mr(recv_, in_.data(), in_.size(), nccl_abi::kPtrHost, &in_mr_), "regMr", *net_);
  }
  ~Loop() {
    if (out_mr_ != nullptr) net_->dereg_mr(send_, out_mr_);
    if (in_mr_ != nullptr) net_->dereg_mr(recv_, in_mr_);
    if (send_ != nullptr) net_->close_send(send_);
    if (recv_ != nullptr) net_->close_recv(recv_);
    if (context_ != nullptr) net_->finalize(context_);
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void* post_recv(std::size_t bytes) {
    void *request = nullptr, *data = in_.data();
    int tag = 1;
    while (request == nullptr)
      must(net_->irecv(recv_, 1, &data, &bytes, &tag, &in_mr_, nullptr, &request), "irecv", *net_);
    return request;
  }
  void* post_send(std::size_t bytes) {
    void* request = nullptr;
    while (request == nullptr)
      must(net_->isend(send_, out_.data(), bytes, 1, out_mr_, nullptr, &request), "isend", *net_);
    return request;
  }
  bool test(void* request) {
    int done = 0, size = 0;
    must(net_->test(request, &done, &size), "test", *net_);
    return done != 0;
  }
  void register_memory() {
    void* mr = nullptr;
    must(net_->reg_mr(send_, out_.data(), out_.size(), nccl_abi::kPtrHost, &mr), "regMr", *net_);
    must(net_->dereg_mr(send_, mr), "deregMr", *net_);
  }
  void finish(void* first, void* second) {
    for (bool first_done = false, second_done = false; !first_done || !second_done;) {
      first_done = first_done || test(first);
      second_done = second_done || test(second);
    }
  }

 private:
  std::unique_ptr<NetPlugin> net_;
  void* context_ = nullptr;
  void* send_ = nullptr;
  void* recv_ = nullptr;
  std::vector<std::byte> out_ = std::vector<std::byte>(1 << 16), in_ = std::vector<std::byte>(1 << 16);
  void* out_mr_ = nullptr;
  void* in_mr_ = nullptr;
};

using Body = void (*)(benchmark::State&, Loop&);

// A receive to which nothing is sent: what NCCL's proxy pays each time it looks and nothing happened.
void test_idle(benchmark::State& state, Loop& loop) {
  void* recv = loop.post_recv(4096);
  for (auto _ : state) {
    if (loop.test(recv)) throw std::runtime_error("a receive was done without a message");
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
