// EmulatedCopy: no device, and copies that end in any order.
#include "gdr/emulated_copy.h"
#include "tests/conformance/device_copy_under_test.h"

namespace clustar::gdr::conformance {
namespace {

class EmulatedBed final : public DeviceCopyBed {
 public:
  explicit EmulatedBed(const EmulatedCopy::Options& options)
      : most_(options.most_outstanding), copy_(std::make_unique<EmulatedCopy>(options)) {}
  DeviceCopy& copy() override { return *copy_; }
  void end() override { copy_.reset(); }
  std::size_t most_outstanding() const override { return most_; }
  std::byte* device_memory(std::size_t bytes) override {
    memory_.push_back(std::make_unique<std::byte[]>(bytes));
    return memory_.back().get();
  }
  bool in_order() const override { return false; }

 private:
  const std::size_t most_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::unique_ptr<EmulatedCopy> copy_;
};

DeviceCopyUnderTest emulated(const std::string& name, const EmulatedCopy::Options& options) {
  return {name, [=]() -> Result<std::unique_ptr<DeviceCopyBed>> { return std::make_unique<EmulatedBed>(options); }};
}

}  // namespace

std::vector<DeviceCopyUnderTest> emulated_copies_under_test() {
  return {emulated("emulated", {}), emulated("emulated_slow", {.seed = 7, .most_polls = 200, .most_outstanding = 2})};
}

}  // namespace clustar::gdr::conformance
