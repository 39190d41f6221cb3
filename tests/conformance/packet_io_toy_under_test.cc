// What a new kind of packets adds to this folder: a bed of about 20 lines, and its name in packet_io_list.cc.
#include <thread>

#include "tests/conformance/packet_io_under_test.h"
#include "tests/conformance/toy_io.h"

namespace clustar::transport::conformance {
namespace {

class ToyBed final : public PacketIoBed {
 public:
  io::PacketIo& end(std::size_t index) override { return ends_[index]; }
  void advance(Duration duration) override { std::this_thread::sleep_for(duration); }

 private:
  ToyIo ends_[kEnds];
};

}  // namespace

std::vector<PacketIoUnderTest> toy_under_test() {
  return {{"toy", []() -> Result<std::unique_ptr<PacketIoBed>> {
             auto bed = std::make_unique<ToyBed>();
             if (auto added = bed->add_all_peers(); !added) return tl::unexpected(added.error());
             return bed;
           }}};
}

}  // namespace clustar::transport::conformance
