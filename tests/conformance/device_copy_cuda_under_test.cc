// The CUDA module's DeviceCopy, over the fake driver: no GPU.
#include "tests/conformance/device_copy_under_test.h"
#include "tests/gdr/cuda_bed.h"

namespace clustar::gdr::conformance {
namespace {

class CudaBedOfCopies final : public DeviceCopyBed {
 public:
  CudaBedOfCopies(const tests::CudaBed& bed, std::unique_ptr<DeviceCopy> copy, unsigned most)
      : bed_(bed), copy_(std::move(copy)), most_(most) {}
  ~CudaBedOfCopies() override { bed_.driver->hold(false); }
  DeviceCopy& copy() override { return *copy_; }
  void end() override { copy_.reset(); }
  std::size_t most_outstanding() const override { return most_; }
  std::byte* device_memory(std::size_t bytes) override { return bed_.driver->allocate(bytes); }
  bool hold(bool on) override {
    bed_.driver->hold(on);
    return true;
  }
  bool next_copy_fails() override {
    bed_.driver->copies_fail("CUDA_ERROR_ILLEGAL_ADDRESS");
    return true;
  }
  bool next_begin_fails() override {
    bed_.driver->answer("cuMemcpyAsync", "CUDA_ERROR_OUT_OF_MEMORY");
    return true;
  }
  std::string misuse() override { return bed_.driver->misuse(); }

 private:
  tests::CudaBed bed_;
  std::unique_ptr<DeviceCopy> copy_;
  unsigned most_;
};

DeviceCopyUnderTest cuda(const std::string& name, unsigned most) {
  return {name, [=]() -> Result<std::unique_ptr<DeviceCopyBed>> {
            auto bed = tests::cuda_bed("open-modules");
            if (!bed) return tl::unexpected(bed.error());
            auto copy = bed->api.open_copy(0, {.most_outstanding = most});
            if (!copy) return tl::unexpected(copy.error());
            return std::make_unique<CudaBedOfCopies>(*bed, std::move(*copy), most);
          }};
}

}  // namespace

std::vector<DeviceCopyUnderTest> cuda_copies_under_test() { return {cuda("cuda", 256), cuda("cuda_one_at_a_time", 1)}; }

}  // namespace clustar::gdr::conformance
