#include "tests/rdma/ud_under_test.h"

#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "tests/rdma/link.h"

namespace clustar::tests {
namespace {

namespace conformance = transport::conformance;
namespace io = transport::io;
namespace net = transport::net;
using transport::io::verbs::UdIo;
using transport::io::verbs::UdOptions;

class UdBed final : public conformance::PacketIoBed {
 public:
  static Result<std::unique_ptr<UdBed>> create(const UdOptions& options) {
    if (const std::string reason = why_no_devices(); !reason.empty()) return fail(ErrorCode::kUnavailable, reason);
    auto bed = std::make_unique<UdBed>();
    for (std::size_t i = 0; i < kEnds; ++i) {
      UdOptions own = options;
      own.device = i == 1 ? "rxe_b" : "rxe_a";
      auto opened = UdIo::open(own);
      if (!opened) return tl::unexpected(opened.error());
      bed->ends_[i] = std::move(*opened);
    }
    if (auto added = bed->add_all_peers(); !added) return tl::unexpected(added.error());
    for (std::size_t from = 0; from < kEnds; ++from) {
      for (std::size_t to = 0; to < kEnds; ++to) {
        if (from == to) continue;
        if (auto ready = await_ready(*bed->ends_[from], bed->peer(from, to)); !ready) {
          return tl::unexpected(ready.error());
        }
      }
    }
    return bed;
  }
  io::PacketIo& end(std::size_t index) override { return *ends_[index]; }
  net::Endpoint control(std::size_t end) override { return io::verbs::endpoint_of(ends_[end]->gid().gid); }
  void advance(Duration duration) override { std::this_thread::sleep_for(duration); }
  // What the test before left.
  void drain() {
    for (const auto& end : ends_) end->quiesce();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    io::RxPacket burst[32];
    for (const auto& end : ends_) {
      for (std::size_t count = 1; count > 0;) {
        count = end->receive(burst).value_or(0);
        end->release(std::span(burst).first(count));
      }
    }
  }

 private:
  std::unique_ptr<UdIo> ends_[kEnds];
};

// The tests of one configuration share its ends: making them takes an emulated processor a second.
class SharedBed final : public conformance::PacketIoBed {
 public:
  static Result<std::unique_ptr<conformance::PacketIoBed>> create(const std::string& name, const UdOptions& options) {
    static std::map<std::string, std::unique_ptr<UdBed>> beds;
    std::unique_ptr<UdBed>& bed = beds[name];
    if (bed == nullptr) {
      auto made = UdBed::create(options);
      if (!made) return tl::unexpected(made.error());
      bed = std::move(*made);
    }
    bed->drain();
    return std::make_unique<SharedBed>(*bed);
  }
  explicit SharedBed(UdBed& bed) : bed_(bed) {}
  io::PacketIo& end(std::size_t index) override { return bed_.end(index); }
  io::PeerId peer(std::size_t from, std::size_t to) override { return bed_.peer(from, to); }
  Result<void> add_peer(std::size_t from, std::size_t to) override { return bed_.add_peer(from, to); }
  net::Endpoint control(std::size_t end) override { return bed_.control(end); }
  void advance(Duration duration) override { bed_.advance(duration); }

 private:
  UdBed& bed_;
};

conformance::PacketIoUnderTest bed(const std::string& name, const UdOptions& options) {
  return {name, [name, options] { return SharedBed::create(name, options); }};
}

}  // namespace

Result<void> await_ready(const UdIo& io, io::PeerId peer) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (;;) {
    const auto ready = io.ready(peer);
    if (ready && *ready) return {};
    if (std::chrono::steady_clock::now() > limit) {
      return ready ? fail(ErrorCode::kRemote, "no address handles after 10 s") : tl::unexpected(ready.error());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::vector<conformance::PacketIoUnderTest> ud_under_test() {
  const UdOptions usual;
  UdOptions least;
  least.paths = 1;
  least.send_requests = least.window = 16;
  least.inline_bytes = 0;
  UdOptions most;
  most.paths = UdIo::kMostPaths;
  return {bed("ud", usual), bed("ud_one_path_of_16_packets", least), bed("ud_16_paths", most)};
}

}  // namespace clustar::tests
