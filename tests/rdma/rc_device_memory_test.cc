// Memory of GPUs over the verbs transport, emulated: host memory that this process may not touch while it is registered
// (mprotect), so a copy by the CPU ends the test with a fault, where a GPU's would have been a fault or nonsense.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <random>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/conformance/transport_under_test.h"
#include "tests/own_process.h"
#include "tests/rdma/cable.h"
#include "tests/rdma/link.h"
#include "transport/base/copies.h"
#include "transport/base/file_descriptor.h"
#include "transport/io/verbs/handle.h"

namespace clustar::transport::conformance {
namespace {

using gdr::MemoryKind;
using ::testing::HasSubstr;
using tests::Cable;
using tests::open_descriptors;
using verbs::Settings;

constexpr std::size_t kPageBytes = 4096;

// A memfd that is mapped twice: where the transport is told it is, and where the test looks.
class PlayedGpu {
 public:
  explicit PlayedGpu(std::size_t bytes)
      : bytes_((bytes + kPageBytes - 1) / kPageBytes * kPageBytes), fd_(memfd_create("gpu", MFD_CLOEXEC)) {
    if (!fd_ || ftruncate(fd_.fd(), static_cast<off_t>(bytes_)) != 0) throw std::runtime_error("memfd");
    device_ = map();
    view_ = map();
  }
  ~PlayedGpu() {
    munmap(device_, bytes_);
    munmap(view_, bytes_);
  }
  PlayedGpu(const PlayedGpu&) = delete;
  PlayedGpu& operator=(const PlayedGpu&) = delete;

  // The descriptor is the caller's during registration only.
  gdr::MemoryRef ref(MemoryKind kind, std::size_t offset, std::size_t length) const {
    if (kind != MemoryKind::kDmaBuf) return {kind, device_ + offset, length, -1, 0};
    return {kind, device_ + offset, length, fd_.fd(), offset};
  }
  void forbid_cpu() { protect(PROT_NONE); }
  void allow_cpu() { protect(PROT_READ | PROT_WRITE); }
  std::byte* view(std::size_t offset = 0) const { return view_ + offset; }
  std::size_t size() const { return bytes_; }

 private:
  std::byte* map() const {
    void* const at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.fd(), 0);
    if (at == MAP_FAILED) throw std::runtime_error("mmap");
    return static_cast<std::byte*>(at);
  }
  void protect(int how) {
    if (mprotect(device_, bytes_, how) != 0) throw std::runtime_error("mprotect");
  }

  std::size_t bytes_;
  FileDescriptor fd_;
  std::byte* device_ = nullptr;
  std::byte* view_ = nullptr;
};

class RcDeviceMemory : public ::testing::TestWithParam<MemoryKind> {
 protected:
  static constexpr std::size_t kBytes = 512 * 1024;

  void SetUp() override {
    ASSERT_EQ(tests::why_no_devices(), "");
    open([](Settings&) {});
  }
  void TearDown() override {
    from_mr_.reset();
    to_mr_.reset();
    both_ = {};
    EXPECT_EQ(io::verbs::refused_destructions(), 0u);
  }
  void open(const Cable::Change& change) {
    from_mr_.reset();
    to_mr_.reset();
    both_ = {};
    from_.allow_cpu();
    to_.allow_cpu();
    auto made = Cable::make(
        [&](Settings& settings) {
          settings.emulate_gpu = true;
          change(settings);
        },
        Log([this](LogLevel level, const std::string& text) {
          if (level == LogLevel::kWarn) warned_.push_back(text);
        }));
    if (!made) throw std::runtime_error(made.error().message);
    cable_ = std::move(*made);
    both_ = connect(*cable_, *cable_);
    from_mr_ = std::move(both_.send->reg_mr(from_.ref(GetParam(), 0, from_.size())).value());
    to_mr_ = std::move(both_.recv->reg_mr(to_.ref(GetParam(), 0, to_.size())).value());
    from_.forbid_cpu();
    to_.forbid_cpu();
  }
  void fill(unsigned seed) {
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < from_.size(); ++i) from_.view()[i] = static_cast<std::byte>(random());
    std::fill_n(to_.view(), to_.size(), std::byte{0xee});
  }
  // [at, at + length) of the sender's memory is at `to` of the receiver's, and nothing else was written.
  void expect_only(std::size_t at, std::size_t length, std::size_t to) const {
    EXPECT_TRUE(std::equal(from_.view(at), from_.view(at + length), to_.view(to)));
    EXPECT_EQ(std::count(to_.view(), to_.view(to), std::byte{0xee}), static_cast<long>(to));
    EXPECT_EQ(std::count(to_.view(to + length), to_.view(to_.size()), std::byte{0xee}),
              static_cast<long>(to_.size() - to - length));
  }
  std::uint64_t count(const std::string& of) const {
    const std::string all = cable_->summary();
    std::smatch found;
    if (!std::regex_search(all, found, std::regex("rxe_b [^;]* (\\d+) " + of))) throw std::runtime_error(all);
    return std::stoull(found[1]);
  }
  void flush(const std::vector<RecvPart>& parts) {
    const auto flushed = both_.recv->flush(parts);
    ASSERT_TRUE(flushed) << flushed.error().message;
    ASSERT_NE(*flushed, nullptr);
    finish({*flushed});
  }

  PlayedGpu from_{kBytes};
  PlayedGpu to_{kBytes};
  std::vector<std::string> warned_;
  std::unique_ptr<Cable> cable_;
  Connection both_;
  std::unique_ptr<Mr> from_mr_;
  std::unique_ptr<Mr> to_mr_;
};

TEST_P(RcDeviceMemory, IsOfferedAsWhatItIs) {
  const DeviceProperties& device = cable_->devices().front();
  EXPECT_EQ(device.memory_kinds, gdr::kAnyKind);
  EXPECT_TRUE(device.force_flush);
  EXPECT_THAT(device.gdr, HasSubstr("CLUSTAR_GDR_EMULATE"));
  EXPECT_EQ(std::count_if(warned_.begin(), warned_.end(),
                          [](const std::string& text) { return text.find("CLUSTAR_GDR_EMULATE") != text.npos; }),
            1);
}

TEST_P(RcDeviceMemory, MessagesOfEverySizeArriveUntouchedByTheCpu) {
  for (const std::size_t size : {1u, 8u, 64u, 150u, 4096u, 8192u, 8193u, 100'001u, 400'000u}) {
    fill(static_cast<unsigned>(size));
    const std::vector<RecvPart> parts{{to_mr_.get(), 77, size + 100, 3}};
    finish({must_recv(*both_.recv, parts), must_send(*both_.send, *from_mr_, 5, size, 3)});
    expect_only(5, size, 77);
    flush(parts);
  }
}

TEST_P(RcDeviceMemory, AnEagerMessageIsWrittenByTheNic) {
  const std::uint64_t eager = count("of them eager");
  const std::uint64_t copied = copied_bytes(Copy::kEager);
  for (const std::size_t size : {0u, 1u, 100u, 8192u}) {
    fill(static_cast<unsigned>(size) + 1);
    // It goes ahead, because no receive is known.
    finish({must_send(*both_.send, *from_mr_, 0, size, 1)});
    const std::vector<RecvPart> parts{{to_mr_.get(), 4096, 10'000, 1}};
    const auto sizes = finish({must_recv(*both_.recv, parts)});
    EXPECT_EQ(sizes[0][0], size);
    expect_only(0, size, 4096);
  }
  EXPECT_EQ(count("of them eager") - eager, 4u);
  EXPECT_EQ(copied_bytes(Copy::kEager), copied);
  // Into host memory by the same channel it is copied, as before.
  RecvBuffer host(*both_.recv, 8192);
  finish({must_send(*both_.send, *from_mr_, 0, 8192, 1)});
  finish({must_recv(*both_.recv, {{host.mr.get(), 0, 8192, 1}})});
  EXPECT_TRUE(std::equal(from_.view(), from_.view(8192), host.bytes.data()));
  EXPECT_EQ(copied_bytes(Copy::kEager), copied + 8192);
}

// More than there are places, so that each is used again and again.
TEST_P(RcDeviceMemory, PlacesOfEagerMessagesComeBack) {
  constexpr std::size_t kEach = 64;
  for (unsigned round = 0; round < 10; ++round) {
    fill(round + 1);
    std::vector<Request*> sends;
    for (std::size_t i = 0; i < 30; ++i) sends.push_back(must_send(*both_.send, *from_mr_, i * kEach, kEach, 1));
    finish(sends);
    std::vector<Request*> receives;
    for (std::size_t i = 0; i < 30; ++i) {
      receives.push_back(must_recv(*both_.recv, {{to_mr_.get(), i * kEach, kEach, 1}}));
    }
    finish(receives);
    expect_only(0, 30 * kEach, 0);
  }
}

TEST_P(RcDeviceMemory, PartsOfOneReceiveMayBeOfBothKinds) {
  fill(3);
  RecvBuffer host(*both_.recv, 3000);
  finish({must_send(*both_.send, *from_mr_, 0, 3000, 1), must_send(*both_.send, *from_mr_, 3000, 2000, 2)});
  const std::vector<RecvPart> parts{
      {host.mr.get(), 0, 3000, 1}, {to_mr_.get(), 0, 2000, 2}, {to_mr_.get(), 8000, 50'000, 3}};
  Request* const received = must_recv(*both_.recv, parts);
  finish({received, must_send(*both_.send, *from_mr_, 100'000, 50'000, 3)});
  EXPECT_TRUE(std::equal(from_.view(), from_.view(3000), host.bytes.data()));
  EXPECT_TRUE(std::equal(from_.view(3000), from_.view(5000), to_.view()));
  EXPECT_TRUE(std::equal(from_.view(100'000), from_.view(150'000), to_.view(8000)));
  flush(parts);
}

TEST_P(RcDeviceMemory, WithoutOfferingItIsRefusedWithTheReason) {
  from_mr_.reset();
  to_mr_.reset();
  both_ = {};
  auto made = Cable::make([](Settings& settings) { settings.offer_gpu_memory = false; }, Log());
  ASSERT_TRUE(made);
  cable_ = std::move(*made);
  EXPECT_EQ(cable_->devices().front().memory_kinds, gdr::kHostOnly);
  both_ = connect(*cable_, *cable_);
  const auto refused = both_.recv->reg_mr(to_.ref(GetParam(), 0, to_.size()));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr(gdr::to_string(GetParam())));
  EXPECT_THAT(refused.error().message, HasSubstr("CLUSTAR_GDR=off"));
}

TEST_P(RcDeviceMemory, TwoHundredRegistrationsLeaveNothingBehind) {
  to_.allow_cpu();
  to_mr_.reset();
  const std::size_t descriptors = open_descriptors();
  const auto regions = [] { return tests::output_of("rdma resource show"); };
  const std::string before = regions();
  std::vector<std::unique_ptr<Mr>> live;
  for (std::size_t cycle = 0; cycle < 200; ++cycle) {
    PlayedGpu gpu(8 * kPageBytes);
    const std::size_t offset = cycle % 7 * 1000;
    live.clear();
    for (const std::size_t length : {8 * kPageBytes - offset, kPageBytes}) {
      auto mr = both_.recv->reg_mr(gpu.ref(GetParam(), offset, length));
      ASSERT_TRUE(mr) << mr.error().message;
      live.push_back(std::move(*mr));
    }
    if (cycle % 50 == 0) {
      gpu.forbid_cpu();
      finish(
          {must_recv(*both_.recv, {{live.back().get(), 0, 1000, 1}}), must_send(*both_.send, *from_mr_, 0, 1000, 1)});
      EXPECT_TRUE(std::equal(from_.view(), from_.view(1000), gpu.view(offset)));
    }
    live.clear();
  }
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(regions(), before);
}

INSTANTIATE_TEST_SUITE_P(Kinds, RcDeviceMemory, ::testing::Values(MemoryKind::kCuda, MemoryKind::kDmaBuf),
                         [](const auto& tested) { return tested.param == MemoryKind::kCuda ? "cuda" : "dma_buf"; });

}  // namespace
}  // namespace clustar::transport::conformance
