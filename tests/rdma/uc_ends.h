// Ends over verbs UC with UD below: two on rxe_a, one on rxe_b.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/packet_io_under_test.h"
#include "transport/io/verbs/uc/uc_io.h"
#include "transport/io/verbs/ud_io.h"

namespace clustar::tests {

namespace io = transport::io;
namespace net = transport::net;

struct UcEnd {
  io::verbs::UdIo* ud = nullptr;  // owned by uc
  std::unique_ptr<io::verbs::uc::UcIo> uc{};
  std::vector<std::string> warnings{};

  // Each stays where it is: uc warns into it.
  static Result<std::unique_ptr<UcEnd>> open(const std::string& device, io::verbs::uc::UcOptions options,
                                             std::uint8_t paths);
};

// Ends that know each other.
class UcBed final : public transport::conformance::PacketIoBed {
 public:
  static Result<std::unique_ptr<UcBed>> create(const io::verbs::uc::UcOptions& options, std::uint8_t paths);
  io::PacketIo& end(std::size_t index) override { return *ends[index]->uc; }
  net::Endpoint control(std::size_t end) override { return io::verbs::endpoint_of(ends[end]->ud->gid().gid); }
  void advance(Duration duration) override;

  io::verbs::uc::UcIo& uc(std::size_t index) { return *ends[index]->uc; }
  // Both go on, each in its turn, until `done` or 10 s have passed. False: they did.
  bool until(const std::function<bool()>& done, std::chrono::milliseconds limit = std::chrono::seconds(10));
  // What an end received that nobody has looked at, by end.
  std::vector<transport::conformance::Received> received[kEnds];

  std::unique_ptr<UcEnd> ends[kEnds];
};

std::vector<transport::conformance::PacketIoUnderTest> uc_under_test();

}  // namespace clustar::tests
