// The list of the suite that runs everywhere: the writer that stands for a NIC's in other tests, which ends operations
// late and one by one.
#include "tests/conformance/device_memory.h"
#include "tests/conformance/memory_writer_under_test.h"
#include "tests/conformance/toy_io.h"

namespace clustar::transport::conformance {
namespace {

class LateBed final : public MemoryWriterBed {
 public:
  explicit LateBed(std::size_t room) {
    knobs_.room = room;
    for (std::size_t i = 0; i < 2; ++i) mrs_[i] = std::move(io_.reg_mr(memory_[i].ref()).value());
  }
  io::MemoryWriter& writer() override { return *io_.writer(); }
  const io::Mr& mr(std::size_t index) override { return *mrs_[index]; }
  std::span<std::byte> view(std::size_t index) override { return memory_[index].bytes(); }

 private:
  DeviceKnobs knobs_;
  DeviceMemory memory_[2] = {DeviceMemory(kBytes), DeviceMemory(kBytes)};
  DeviceIo io_{std::make_unique<ToyIo>(), knobs_};
  std::unique_ptr<io::Mr> mrs_[2];
};

}  // namespace

std::vector<MemoryWriterUnderTest> memory_writers_under_test() {
  return {{"late", [] { return std::make_unique<LateBed>(8); }},
          {"one_at_a_time", [] { return std::make_unique<LateBed>(1); }}};
}

}  // namespace clustar::transport::conformance
