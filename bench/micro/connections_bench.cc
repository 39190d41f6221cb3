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
#include "bench/proxy/net_plugin.h"

namespace clustar::bench::micro {
namespace {

using proxy::NetPlugin;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kBytes = 4096;
constexpr auto kPatience = std::chrono::seconds(60);

void must(int result, const char* call, const NetPlugin& net) {
  if (result == nccl_abi::kSuccess) return;
  throw std::runtime_error(std::string(call) + " failed: " + net.last_warning());
}

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
    auto opened = NetPlugin::open(path);
    if (!opened) throw std::runtime_error(opened.error().message);
    net_ = std::move(*opened);
    must(net_->init(1, nccl_abi::kTrafficClassUndefined, &context_), "init", *net_);
    const double before = allocated();
    const auto begin = Clock::now();
    for (Ends& ends : ends_) connect(ends);
    setup_us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / static_cast<double>(count);
    bytes_each = (allocated() - before) / static_cast<double>(count);
    for (Ends& ends : ends_) {
      must(net_->reg_mr(ends.send, out_.data(), out_.size(), nccl_abi::kPtrHost, &ends.out_mr), "regMr", *net_);
      must(net_->reg_mr(ends.recv, in_.data(), in_.size(), nccl_abi::kPtrHost, &ends.in_mr), "regMr", *net_);
    }
  }
  ~Connections() {
    for (Ends& ends : ends_) {
      if (ends.out_mr != nullptr) net_->dereg_mr(ends.send, ends.out_mr);
      if (ends.in_mr != nullptr) net_->dereg_mr(ends.recv, ends.in_mr);
      if (ends.send != nullptr) net_->close_send(ends.send);
      if (ends.recv != nullptr) net_->close_recv(ends.recv);
    }
    if (context_ != nullptr) net_->finalize(context_);
  }
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  // A message on each of the first `active`, all at once.
  void exchange(std::size_t active) {
    for (std::size_t i = 0; i < active; ++i) post(ends_[i]);
    const auto deadline = Clock::now() + kPatience;
    for (std::size_t left = 2 * active; left > 0;) {
      for (std::size_t i = 0; i < active; ++i) {
        left -= done(ends_[i].receiving);
        left -= done(ends_[i].sending);
      }
      if (Clock::now() > deadline) throw std::runtime_error("messages did not arrive within 60 s");
    }
  }

  double setup_us = 0;    // of a connection
  double bytes_each = 0;  // of memory, both ends

 private:
  struct Ends {
    void* send = nullptr;
    void* recv = nullptr;
    void* out_mr = nullptr;
    void* in_mr = nullptr;
    void* sending = nullptr;
    void* receiving = nullptr;
  };

  void connect(Ends& ends) {
    proxy::Handle handle{};
    void* listening = nullptr;
    must(net_->listen(context_, 0, &handle, &listening), "listen", *net_);
    const auto deadline = Clock::now() + kPatience;
    while (ends.send == nullptr || ends.recv == nullptr) {
      if (ends.send == nullptr) must(net_->connect(context_, 0, &handle, &ends.send), "connect", *net_);
      if (ends.recv == nullptr) must(net_->accept(listening, &ends.recv), "accept", *net_);
      if (Clock::now() > deadline) throw std::runtime_error("no connection within 60 s");
    }
    must(net_->close_listen(listening), "closeListen", *net_);
  }

  void post(Ends& ends) {
    void* data = in_.data();
    std::size_t bytes = kBytes;
    int tag = 1;
    while (ends.receiving == nullptr) {
      must(net_->irecv(ends.recv, 1, &data, &bytes, &tag, &ends.in_mr, nullptr, &ends.receiving), "irecv", *net_);
    }
    while (ends.sending == nullptr) {
      must(net_->isend(ends.send, out_.data(), kBytes, 1, ends.out_mr, nullptr, &ends.sending), "isend", *net_);
    }
  }

  // 1: it was outstanding and is done now.
  std::size_t done(void*& request) {
    if (request == nullptr) return 0;
    int done = 0, size = 0;
    must(net_->test(request, &done, &size), "test", *net_);
    if (done != 0) request = nullptr;
    return done != 0 ? 1 : 0;
  }

  std::unique_ptr<NetPlugin> net_;
  void* context_ = nullptr;
  std::vector<Ends> ends_;
  // All connections use the same memory: what is measured is the connections.
  std::vector<std::byte> out_ = std::vector<std::byte>(kBytes), in_ = std::vector<std::byte>(kBytes);
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
