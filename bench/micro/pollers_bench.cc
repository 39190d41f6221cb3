// What runs the engine when several threads poll one NIC, as NCCL's proxies of the GPUs of one process do.
#include <benchmark/benchmark.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/micro/plugin_bench.h"
#include "bench/proxy/net_plugin.h"

namespace clustar::bench::micro {
namespace {

using proxy::NetPlugin;

constexpr int kAhead = 4;    // messages that are under way on a connection, as NCCL keeps a few
constexpr int kRounds = 64;  // messages per connection and iteration

void must(int result, const char* call, const NetPlugin& net) {
  if (result == nccl_abi::kSuccess) return;
  throw std::runtime_error(std::string(call) + " failed: " + net.last_warning());
}

// A ring of threads: each sends to the next and receives from the one before, over connections of its own.
class Ring {
 public:
  Ring(const std::string& path, int threads, std::size_t bytes)
      : bytes_(bytes), members_(static_cast<std::size_t>(threads)) {
    auto opened = NetPlugin::open(path);
    if (!opened) throw std::runtime_error(opened.error().message);
    net_ = std::move(*opened);
    must(net_->init(1, nccl_abi::kTrafficClassUndefined, &context_), "init", *net_);
    for (std::size_t i = 0; i < members_.size(); ++i) connect(members_[i], members_[(i + 1) % members_.size()]);
    for (Member& member : members_) {
      member.out.resize(bytes * kAhead);
      member.in.resize(bytes * kAhead);
      must(net_->reg_mr(member.send, member.out.data(), member.out.size(), nccl_abi::kPtrHost, &member.out_mr), "regMr",
           *net_);
      must(net_->reg_mr(member.recv, member.in.data(), member.in.size(), nccl_abi::kPtrHost, &member.in_mr), "regMr",
           *net_);
    }
  }
  ~Ring() {
    for (Member& member : members_) {
      if (member.out_mr != nullptr) net_->dereg_mr(member.send, member.out_mr);
      if (member.in_mr != nullptr) net_->dereg_mr(member.recv, member.in_mr);
      if (member.send != nullptr) net_->close_send(member.send);
      if (member.recv != nullptr) net_->close_recv(member.recv);
    }
    if (context_ != nullptr) net_->finalize(context_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // kRounds messages on each connection, each thread polling its own until they are done.
  void run() {
    std::vector<std::jthread> threads;
    for (Member& member : members_) threads.emplace_back([&] { work(member); });
    threads.clear();
    if (failed_) throw std::runtime_error("a call failed: " + net_->last_warning());
  }

 private:
  struct Slot {
    void* send = nullptr;
    void* recv = nullptr;
  };
  struct Member {
    void* send = nullptr;
    void* recv = nullptr;
    void* out_mr = nullptr;
    void* in_mr = nullptr;
    std::vector<std::byte> out, in;
    int sent = 0, received = 0, send_posts = 0, recv_posts = 0;
    std::array<Slot, kAhead> slots;
  };

  void connect(Member& from, Member& to) {
    proxy::Handle handle{};
    void* listening = nullptr;
    must(net_->listen(context_, 0, &handle, &listening), "listen", *net_);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (from.send == nullptr || to.recv == nullptr) {
      if (from.send == nullptr) must(net_->connect(context_, 0, &handle, &from.send), "connect", *net_);
      if (to.recv == nullptr) must(net_->accept(listening, &to.recv), "accept", *net_);
      if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("no connection within 5 s");
    }
    must(net_->close_listen(listening), "closeListen", *net_);
  }

  bool done(void*& request) {
    int done = 0, size = 0;
    must(net_->test(request, &done, &size), "test", *net_);
    if (done != 0) request = nullptr;
    return done != 0;
  }

  void step(Member& member) {
    for (int i = 0; i < kAhead; ++i) {
      Slot& slot = member.slots[static_cast<std::size_t>(i)];
      std::size_t bytes = bytes_;
      if (slot.recv == nullptr && member.recv_posts < kRounds) {
        void* data = member.in.data() + bytes_ * static_cast<std::size_t>(i);
        int tag = 1;
        must(net_->irecv(member.recv, 1, &data, &bytes, &tag, &member.in_mr, nullptr, &slot.recv), "irecv", *net_);
        if (slot.recv != nullptr) ++member.recv_posts;
      }
      if (slot.send == nullptr && member.send_posts < kRounds) {
        void* data = member.out.data() + bytes_ * static_cast<std::size_t>(i);
        must(net_->isend(member.send, data, bytes, 1, member.out_mr, nullptr, &slot.send), "isend", *net_);
        if (slot.send != nullptr) ++member.send_posts;
      }
      if (slot.recv != nullptr && done(slot.recv)) ++member.received;
      if (slot.send != nullptr && done(slot.send)) ++member.sent;
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

  std::unique_ptr<NetPlugin> net_;
  void* context_ = nullptr;
  const std::size_t bytes_;
  std::vector<Member> members_;
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
