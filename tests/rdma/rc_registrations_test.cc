// What the verbs transport registers of the memory that it is given: the kernel counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <regex>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/conformance/transport_under_test.h"
#include "tests/rdma/cable.h"
#include "tests/rdma/link.h"
#include "transport/base/file_descriptor.h"
#include "transport/io/verbs/device_list.h"
#include "transport/io/verbs/hca_filter.h"
#include "transport/verbs/memory.h"

namespace clustar::transport::conformance {
namespace {

using ::testing::HasSubstr;
using tests::Cable;

constexpr std::size_t kPage = 4096;

std::vector<std::size_t> numbers_of(const std::string& text, const std::string& pattern) {
  std::smatch found;
  if (!std::regex_search(text, found, std::regex(pattern))) throw std::runtime_error("no " + pattern + " in " + text);
  std::vector<std::size_t> numbers;
  for (std::size_t i = 1; i < found.size(); ++i) numbers.push_back(std::stoull(found[i]));
  return numbers;
}

class RcRegistrations : public ::testing::Test {
 protected:
  struct Counts {
    std::size_t live;
    std::size_t made;
    std::size_t shared;
  };

  void SetUp() override {
    ASSERT_EQ(tests::why_no_devices(), "");
    auto made = Cable::make([](verbs::Settings&) {}, Log());
    ASSERT_TRUE(made) << made.error().message;
    cable_ = std::move(*made);
    both_ = connect(*cable_, *cable_);
    regions_before_ = regions();
  }
  // What the kernel has registered with the receiver's device since both were connected.
  std::size_t more_regions() const { return regions() - regions_before_; }
  Counts counts() const {
    const transport::Counters all = cable_->counters();
    const auto device = std::find_if(all.devices.begin(), all.devices.end(),
                                     [](const transport::DeviceCounters& one) { return one.device == "rxe_b"; });
    return {device->number("registrations_live"), device->number("registrations_made"),
            device->number("registrations_shared")};
  }
  std::unique_ptr<Mr> receiving(std::size_t offset, std::size_t length) {
    auto mr = both_.recv->reg_mr(gdr::MemoryRef::host(memory() + offset, length));
    EXPECT_TRUE(mr) << mr.error().message;
    return mr ? std::move(*mr) : nullptr;
  }
  // Page-aligned, of 16 pages.
  std::byte* memory() {
    const auto at = reinterpret_cast<std::uintptr_t>(bytes_.data());
    return bytes_.data() + (kPage - at % kPage) % kPage;
  }
  // A message into the first bytes of `to`, which begins at `offset`; nothing around it changes.
  void send_into(const Mr& to, std::size_t offset, std::size_t length) {
    std::fill(bytes_.begin(), bytes_.end(), std::byte{0xee});
    SendBuffer from(*both_.send, length, 5);
    finish({must_recv(*both_.recv, {{&to, 0, length, 0}}), must_send(*both_.send, *from.mr, 0, length)});
    const std::span all(memory(), 16 * kPage);
    EXPECT_TRUE(std::equal(from.bytes.begin(), from.bytes.end(), all.begin() + static_cast<long>(offset)));
    EXPECT_EQ(
        std::count(all.begin(), all.end(), std::byte{0xee}),
        static_cast<long>(all.size() - length) + std::count(from.bytes.begin(), from.bytes.end(), std::byte{0xee}));
  }

  std::unique_ptr<Cable> cable_;
  Connection both_;

 private:
  static std::size_t regions() { return numbers_of(tests::output_of("rdma resource show"), "rxe_b:.* mr (\\d+)")[0]; }

  std::vector<std::byte> bytes_ = std::vector<std::byte>(17 * kPage);
  std::size_t regions_before_ = 0;
};

TEST_F(RcRegistrations, WhatLiesWithinSharesAndWhatOverlapsDoesNot) {
  auto whole = receiving(0, 8 * kPage);
  auto part = receiving(2 * kPage + 100, 20'000 - 100);
  EXPECT_EQ(more_regions(), 1u);
  auto beyond = receiving(4 * kPage, 8 * kPage);
  EXPECT_EQ(more_regions(), 2u);
  EXPECT_EQ(counts().live, 2u);
  EXPECT_EQ(counts().made, 2u);
  EXPECT_EQ(counts().shared, 1u);
  send_into(*whole, 0, 8 * kPage);
  send_into(*part, 2 * kPage + 100, 15'000);
  send_into(*beyond, 4 * kPage, 8 * kPage);
  // The part goes on without what registered it.
  whole.reset();
  EXPECT_EQ(more_regions(), 2u);
  send_into(*part, 2 * kPage + 100, 15'000);
  part.reset();
  EXPECT_EQ(more_regions(), 1u);
  beyond.reset();
  EXPECT_EQ(more_regions(), 0u);
  EXPECT_EQ(counts().live, 0u);
}

TEST_F(RcRegistrations, NeighboursOnAPageAreOne) {
  const auto one = receiving(300, 1000);
  const auto other = receiving(1300, 2000);
  EXPECT_EQ(more_regions(), 1u);
  send_into(*one, 300, 1000);
  send_into(*other, 1300, 2000);
}

TEST_F(RcRegistrations, NothingIsRegisteredOfNoBytes) {
  const auto none = receiving(0, 0);
  EXPECT_EQ(more_regions(), 0u);
  SendBuffer from(*both_.send, 10, 1);
  const auto sizes = finish({must_recv(*both_.recv, {{none.get(), 0, 0, 0}}), must_send(*both_.send, *from.mr, 0, 0)});
  EXPECT_EQ(sizes[0][0], 0u);
}

// rdma_rxe takes no dma-bufs, and reaches nothing by DMA: so none is offered, and the line says why, with the errno.
TEST_F(RcRegistrations, WhatTheDriverRefusesIsNotOfferedAndTheReasonIsGiven) {
  const DeviceProperties& device = cable_->devices().front();
  EXPECT_EQ(device.memory_kinds, gdr::kHostOnly);
  EXPECT_FALSE(device.force_flush);
  EXPECT_THAT(device.gdr, HasSubstr("off: ibv_reg_dmabuf_mr of a bad descriptor on rxe_"));
  EXPECT_THAT(device.gdr, HasSubstr("errno 95 (EOPNOTSUPP)"));
  EXPECT_THAT(device.gdr, HasSubstr("no PCI device"));
  const FileDescriptor buffer(memfd_create("buffer", MFD_CLOEXEC));
  const auto refused = both_.recv->reg_mr({gdr::MemoryKind::kDmaBuf, memory(), kPage, buffer.fd(), 0});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("does not register dma-buf memory (off: "));
  EXPECT_EQ(more_regions(), 0u);
}

// The cache and the registrar below it with a driver that is asked all the same: what nobody probed before.
TEST_F(RcRegistrations, ARefusalByTheDriverIsExplainedThroughTheCache) {
  auto info = io::verbs::list_ports(io::verbs::HcaFilter::parse("=rxe_a").value());
  ASSERT_TRUE(info) << info.error().message;
  Config config;
  std::vector<verbs::Port> ports;
  ports.push_back(verbs::Port::open(info->front(), verbs::Settings(config)).value());
  verbs::DeviceMemory unknown;
  unknown.facts.nic = "rxe_a";
  unknown.facts.data_direct_evidence = "not asked";
  std::vector<std::string> said;
  const Log log([&](LogLevel, const std::string& text) { said.push_back(text); });
  verbs::PortRegistrar registrar(ports, unknown, log);
  gdr::RegistrationCache cache(registrar);
  const FileDescriptor buffer(memfd_create("buffer", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(buffer.fd(), kPage), 0);
  for (int time = 0; time < 2; ++time) {
    const auto lease =
        cache.acquire({gdr::MemoryKind::kDmaBuf, memory(), kPage, buffer.fd(), 0}, IBV_ACCESS_LOCAL_WRITE);
    ASSERT_FALSE(lease);
    EXPECT_THAT(lease.error().message, HasSubstr("ibv_reg_dmabuf_mr: errno 95 (EOPNOTSUPP)"));
    EXPECT_THAT(lease.error().message, HasSubstr("nvidia_peermem is not loaded (fix: modprobe nvidia_peermem"));
  }
  EXPECT_EQ(said.size(), 1u) << "once for each kind and way";
  EXPECT_EQ(registrar.describe(), "nothing; refused: dma-buf 2");
  const auto host = cache.acquire(gdr::MemoryRef::host(memory(), kPage), IBV_ACCESS_LOCAL_WRITE);
  ASSERT_TRUE(host) << host.error().message;
  EXPECT_EQ(registrar.describe(), "host 1; refused: dma-buf 2");
  EXPECT_EQ(cache.counts().refused, 2u);
}

TEST_F(RcRegistrations, AThousandLeaveNothingBehind) {
  std::unique_ptr<Mr> last;
  for (std::size_t cycle = 0; cycle < 1000; ++cycle) {
    // Within, overlapping and apart, by turns; the one before ends after this one began.
    last = receiving(cycle * 7 % 13 * kPage / 2, (cycle % 5 + 1) * kPage);
    ASSERT_NE(last, nullptr);
    if (cycle % 250 == 0) {
      ASSERT_EQ(more_regions(), 1u) << "after " << cycle;
    }
  }
  last.reset();
  EXPECT_EQ(more_regions(), 0u);
  const Counts all = counts();
  EXPECT_EQ(all.live, 0u);
  EXPECT_EQ(all.made + all.shared, 1000u);
  EXPECT_GT(all.shared, 0u);
}

}  // namespace
}  // namespace clustar::transport::conformance
