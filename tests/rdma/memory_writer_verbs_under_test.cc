// The list of the suite over verbs: a NIC's own writes, here into host memory that plays a GPU's.
#include "tests/conformance/device_memory.h"
#include "tests/conformance/memory_writer_under_test.h"
#include "tests/rdma/link.h"
#include "transport/io/verbs/device_memory.h"
#include "transport/io/verbs/ud_io.h"

namespace clustar::transport::conformance {
namespace {

namespace verbs = io::verbs;

class VerbsBed final : public MemoryWriterBed {
 public:
  static Result<std::unique_ptr<MemoryWriterBed>> create() {
    if (const std::string reason = tests::why_no_devices(); !reason.empty()) {
      return fail(ErrorCode::kUnavailable, reason);
    }
    auto bed = std::make_unique<VerbsBed>();
    const auto device = verbs::Device::open("rxe_a");
    if (!device) return tl::unexpected(device.error());
    const auto domain = verbs::ProtectionDomain::make(*device);
    if (!domain) return tl::unexpected(domain.error());
    const verbs::ProtectionDomain* const one = &*domain;
    auto opened =
        verbs::UdIo::open({.device = "rxe_a",
                           .memory = verbs::find_device_memory(std::span(&one, 1), "rxe_a", true, {.emulated = true})});
    if (!opened) return tl::unexpected(opened.error());
    bed->io_ = std::move(*opened);
    if (bed->io_->writer() == nullptr) return fail(ErrorCode::kUnavailable, bed->io_->reach().why);
    for (std::size_t i = 0; i < 2; ++i) {
      bed->memory_[i].touchable(true);  // for the kernel, which keeps its pages
      auto mr = bed->io_->reg_mr(bed->memory_[i].ref());
      bed->memory_[i].touchable(false);
      if (!mr) return tl::unexpected(mr.error());
      bed->mrs_[i] = std::move(*mr);
    }
    return bed;
  }
  io::MemoryWriter& writer() override { return *io_->writer(); }
  const io::Mr& mr(std::size_t index) override { return *mrs_[index]; }
  std::span<std::byte> view(std::size_t index) override { return memory_[index].bytes(); }

 private:
  DeviceMemory memory_[2] = {DeviceMemory(kBytes), DeviceMemory(kBytes)};
  std::unique_ptr<verbs::UdIo> io_;
  std::unique_ptr<io::Mr> mrs_[2];
};

}  // namespace

std::vector<MemoryWriterUnderTest> memory_writers_under_test() { return {{"verbs", VerbsBed::create}}; }

}  // namespace clustar::transport::conformance
