#include "libfabric_shim/gpu_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rdma/fi_errno.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace clustar::transport::ofi {
namespace {

using ::testing::HasSubstr;

// What a provider is asked for. The newer headers' attributes are as long as the older ones'.
struct Heard {
  fi_mr_attr attributes{};
  iovec range{};
#ifdef FI_MR_DMABUF
  fi_mr_dmabuf buffer{};
#endif
  std::uint64_t flags = 0;
  int closed = 0;
  int option = -1;
  std::vector<std::byte> value{};
  int answer = 0;
};
Heard heard;

struct Provider {
  fi_ops region_ops{};
  fid_mr region{};
  fi_ops_mr registering{};
  fid_domain domain{};
  fi_ops_ep endpoint_ops{};
  fid_ep endpoint{};

  Provider() {
    heard = {};
    region_ops.close = [](fid*) { return ++heard.closed, 0; };
    region.fid.ops = &region_ops;
    registering.regattr = [](fid* asked, const auto* attributes, std::uint64_t flags, fid_mr** made) {
      std::memcpy(&heard.attributes, attributes, sizeof(heard.attributes));
      heard.flags = flags;
#ifdef FI_MR_DMABUF
      if ((flags & FI_MR_DMABUF) != 0) heard.buffer = *heard.attributes.dmabuf;
#endif
      if (flags == 0) heard.range = *heard.attributes.mr_iov;
      *made = static_cast<fid_mr*>(asked->context);
      return heard.answer;
    };
    domain.fid.context = &region;
    domain.mr = &registering;
    endpoint_ops.setopt = [](fid*, int, int option, const void* value, std::size_t bytes) {
      heard.option = option;
      const auto* const first = static_cast<const std::byte*>(value);
      heard.value.assign(first, first + bytes);
      return heard.answer;
    };
    endpoint.ops = &endpoint_ops;
  }
};

struct Described {
  fi_info info{};
  fi_domain_attr domain{};
  fi_fabric_attr fabric{};

  explicit Described(int modes, std::uint32_t api = FI_VERSION(1, 20)) {
    info.caps = FI_HMEM;
    domain.mr_mode = modes;
    fabric.api_version = api;
    info.domain_attr = &domain;
    info.fabric_attr = &fabric;
  }
};

constexpr std::uint32_t kCuda = gdr::bit(gdr::MemoryKind::kCuda);
#ifdef FI_MR_DMABUF
constexpr std::uint32_t kBoth = kCuda | gdr::bit(gdr::MemoryKind::kDmaBuf);
#else
constexpr std::uint32_t kBoth = kCuda;
#endif

TEST(OfiGpuMemory, DmaBufsAreOfferedFromInterface120On) {
  std::string why;
  const Described new_one(FI_MR_LOCAL | FI_MR_HMEM);
  EXPECT_EQ(gpu_kinds(new_one.info, why), kBoth);
  const Described old_one(FI_MR_LOCAL | FI_MR_HMEM, FI_VERSION(1, 19));
  EXPECT_EQ(gpu_kinds(old_one.info, why), kCuda);
  EXPECT_EQ(why, "");
  EXPECT_EQ(gpu_api(FI_VERSION(1, 15)), FI_VERSION(1, 15));
  EXPECT_LE(gpu_api(FI_VERSION(2, 5)), FI_VERSION(1, 20));
}

TEST(OfiGpuMemory, ADomainThatIsNotForItSaysWhy) {
  std::string why;
  Described without(FI_MR_LOCAL);
  without.info.caps = FI_TAGGED;
  EXPECT_EQ(gpu_kinds(without.info, why), 0u);
  EXPECT_THAT(why, HasSubstr("no FI_HMEM"));
  const Described per_endpoint(FI_MR_HMEM | FI_MR_ENDPOINT);
  EXPECT_EQ(gpu_kinds(per_endpoint.info, why), 0u);
  EXPECT_THAT(why, HasSubstr("FI_MR_ENDPOINT"));
  const Described unregistered(FI_MR_ENDPOINT);
  EXPECT_EQ(gpu_kinds(unregistered.info, why), kBoth);
}

TEST(OfiGpuMemory, CudaMemoryIsRegisteredWithItsDevice) {
  Provider provider;
  std::array<std::byte, 64> memory;
  {
    const auto region = register_gpu_memory({&provider.domain, "efa (a)", 7},
                                            {gdr::MemoryKind::kCuda, memory.data(), memory.size(), -1, 0}, 3);
    ASSERT_TRUE(region) << region.error().message;
    EXPECT_EQ(heard.range.iov_base, memory.data());
    EXPECT_EQ(heard.range.iov_len, memory.size());
    EXPECT_EQ(heard.attributes.iov_count, 1u);
    EXPECT_EQ(heard.attributes.access, FI_SEND | FI_RECV);
    EXPECT_EQ(heard.attributes.requested_key, 7u);
    EXPECT_EQ(heard.attributes.iface, FI_HMEM_CUDA);
    EXPECT_EQ(heard.attributes.device.cuda, 3);
    EXPECT_EQ(heard.closed, 0);
  }
  EXPECT_EQ(heard.closed, 1);
  heard.answer = -FI_ENOSYS;
  const auto refused = register_gpu_memory({&provider.domain, "efa (a)", 7},
                                           {gdr::MemoryKind::kCuda, memory.data(), memory.size(), -1, 0}, 3);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("efa (a): fi_mr_regattr (GPU memory)"));
  EXPECT_EQ(heard.closed, 1);
}

TEST(OfiGpuMemory, ADmaBufIsRegisteredByItsDescriptorOrRefused) {
  Provider provider;
  std::array<std::byte, 256> memory;
  const gdr::MemoryRef exported{gdr::MemoryKind::kDmaBuf, memory.data() + 64, 128, 11, 64};
  const auto region = register_gpu_memory({&provider.domain, "efa (a)", 7}, exported, 2);
#ifdef FI_MR_DMABUF
  ASSERT_TRUE(region) << region.error().message;
  EXPECT_EQ(heard.flags, FI_MR_DMABUF);
  EXPECT_EQ(heard.buffer.fd, 11);
  EXPECT_EQ(heard.buffer.offset, 64u);
  EXPECT_EQ(heard.buffer.len, 128u);
  EXPECT_EQ(heard.buffer.base_addr, memory.data());  // with the offset, the address
  EXPECT_EQ(heard.attributes.iface, FI_HMEM_CUDA);
  EXPECT_EQ(heard.attributes.device.cuda, 2);
#else
  ASSERT_FALSE(region);
  EXPECT_EQ(region.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(region.error().message, HasSubstr("dma-bufs need libfabric 1.20 or later"));
#endif
}

TEST(OfiGpuMemory, AnEndpointThatMayCallCudaIsRefused) {
  Provider provider;
  EXPECT_TRUE(forbid_cuda_calls(provider.endpoint, "efa (a)"));
#if FI_MAJOR_VERSION > 1 || FI_MINOR_VERSION >= 18
  EXPECT_EQ(heard.option, FI_OPT_CUDA_API_PERMITTED);
  EXPECT_EQ(heard.value, std::vector<std::byte>(sizeof(bool)));
#else
  EXPECT_EQ(heard.option, FI_OPT_FI_HMEM_P2P);
  int demand = 0;
  ASSERT_EQ(heard.value.size(), sizeof(demand));
  std::memcpy(&demand, heard.value.data(), sizeof(demand));
  EXPECT_EQ(demand, FI_HMEM_P2P_REQUIRED);
#endif
  heard.answer = -FI_EOPNOTSUPP;
  const auto refused = forbid_cuda_calls(provider.endpoint, "efa (a)");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("efa (a): fi_setopt"));
}

}  // namespace
}  // namespace clustar::transport::ofi
