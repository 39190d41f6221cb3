#include "tests/rdma/uc_ends.h"

#include <array>
#include <thread>
#include <utility>

#include "tests/rdma/link.h"
#include "tests/rdma/ud_under_test.h"

namespace clustar::tests {

using io::verbs::UdIo;
using io::verbs::uc::UcIo;
using io::verbs::uc::UcOptions;

Result<std::unique_ptr<UcEnd>> UcEnd::open(const std::string& device, UcOptions options, std::uint8_t paths) {
  io::verbs::UdOptions below;
  below.device = device;
  below.paths = paths;
  below.access = UcIo::kAccess;
  auto opened = UdIo::open(below);
  if (!opened) return tl::unexpected(opened.error());
  auto end = std::make_unique<UcEnd>();
  end->ud = opened->get();
  options.warn = [&warnings = end->warnings](const std::string& text) { warnings.push_back(text); };
  auto uc = UcIo::open(std::move(*opened), end->ud->device(), end->ud->domain(), end->ud->gid(), options);
  if (!uc) return tl::unexpected(uc.error());
  end->uc = std::move(*uc);
  return end;
}

Result<std::unique_ptr<UcBed>> UcBed::create(const UcOptions& options, std::uint8_t paths) {
  if (const std::string reason = why_no_devices(); !reason.empty()) return fail(ErrorCode::kUnavailable, reason);
  auto bed = std::make_unique<UcBed>();
  for (std::size_t i = 0; i < kEnds; ++i) {
    auto end = UcEnd::open(i == 1 ? "rxe_b" : "rxe_a", options, paths);
    if (!end) return tl::unexpected(end.error());
    bed->ends[i] = std::move(*end);
  }
  if (auto added = bed->add_all_peers(); !added) return tl::unexpected(added.error());
  for (std::size_t from = 0; from < kEnds; ++from) {
    for (std::size_t to = 0; to < kEnds; ++to) {
      if (from == to) continue;
      if (auto ready = await_ready(*bed->ends[from]->ud, bed->peer(from, to)); !ready) {
        return tl::unexpected(ready.error());
      }
    }
  }
  return bed;
}

void UcBed::advance(Duration duration) { std::this_thread::sleep_for(duration); }

bool UcBed::until(const std::function<bool()>& done, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    for (std::size_t i = 0; i < kEnds; ++i) {
      std::array<io::RxPacket, 64> burst;
      const std::size_t count = uc(i).receive(burst).value();
      for (const io::RxPacket& packet : std::span(burst).first(count)) {
        received[i].push_back(
            {packet, {packet.header.begin(), packet.header.end()}, {packet.payload.begin(), packet.payload.end()}});
      }
      uc(i).release(std::span(burst).first(count));
    }
  }
  return true;
}

std::vector<transport::conformance::PacketIoUnderTest> uc_under_test() {
  return {{"uc",
           [] {
             return UcBed::create({}, 4).map(
                 [](auto bed) { return std::unique_ptr<transport::conformance::PacketIoBed>(std::move(bed)); });
           }},
          {"uc_one_path", [] {
             return UcBed::create({}, 1).map(
                 [](auto bed) { return std::unique_ptr<transport::conformance::PacketIoBed>(std::move(bed)); });
           }}};
}

}  // namespace clustar::tests
