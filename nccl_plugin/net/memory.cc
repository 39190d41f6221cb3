#include "nccl_plugin/net/memory.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>

#include "nccl_plugin/abi/types.h"

namespace clustar::nccl_plugin {
namespace {

struct PointerType {
  gdr::MemoryKind kind;
  int bit;
  const char* name;
};
constexpr std::array kTypes = {PointerType{gdr::MemoryKind::kHost, nccl_abi::kPtrHost, "NCCL_PTR_HOST"},
                               PointerType{gdr::MemoryKind::kCuda, nccl_abi::kPtrCuda, "NCCL_PTR_CUDA"},
                               PointerType{gdr::MemoryKind::kDmaBuf, nccl_abi::kPtrDmaBuf, "NCCL_PTR_DMABUF"}};

std::string names_of(std::uint32_t memory_kinds) {
  std::string names;
  for (const PointerType& type : kTypes) {
    if ((memory_kinds & gdr::bit(type.kind)) != 0) names += std::string(names.empty() ? "" : ", ") + type.name;
  }
  return names.empty() ? "none" : names;
}

Result<void> check_offered(const transport::DeviceProperties& device, gdr::MemoryKind kind) {
  if ((device.memory_kinds & gdr::bit(kind)) != 0) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} memory is not offered by {}; what its ptrSupport names is: {}{}", gdr::to_string(kind),
                          device.name, names_of(device.memory_kinds),
                          device.gdr.empty() ? "" : fmt::format(" (GPUDirect RDMA: {})", device.gdr)));
}

Result<void> check_range(const void* data, std::size_t size, bool may_be_null) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (size > std::numeric_limits<std::uintptr_t>::max() - address) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} bytes at {} end behind all addresses", size, data));
  }
  if (data == nullptr && size > 0 && !may_be_null) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} bytes of device memory at a null pointer", size));
  }
  return {};
}

}  // namespace

int ptr_support(std::uint32_t memory_kinds) {
  int support = 0;
  for (const PointerType& type : kTypes) {
    if ((memory_kinds & gdr::bit(type.kind)) != 0) support |= type.bit;
  }
  return support;
}

Result<gdr::MemoryRef> memory_of(const transport::DeviceProperties& device, void* data, std::size_t size, int type) {
  if (type == nccl_abi::kPtrDmaBuf) {
    return fail(ErrorCode::kInvalidArgument, "a dma-buf is registered by regMrDmaBuf, with its descriptor");
  }
  if (type != nccl_abi::kPtrHost && type != nccl_abi::kPtrCuda) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("memory of type {}; NCCL_PTR_HOST ({}) and NCCL_PTR_CUDA ({}) are allowed", type,
                            nccl_abi::kPtrHost, nccl_abi::kPtrCuda));
  }
  const bool host = type == nccl_abi::kPtrHost;
  const auto kind = host ? gdr::MemoryKind::kHost : gdr::MemoryKind::kCuda;
  if (const auto offered = check_offered(device, kind); !offered) return tl::unexpected(offered.error());
  if (const auto range = check_range(data, size, host); !range) return tl::unexpected(range.error());
  return gdr::MemoryRef{kind, static_cast<std::byte*>(data), size, -1, 0};
}

Result<gdr::MemoryRef> dma_buf_of(const transport::DeviceProperties& device, void* data, std::size_t size, int type,
                                  std::uint64_t offset, int fd) {
  if (type != nccl_abi::kPtrCuda) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a dma-buf of memory of type {}; NCCL_PTR_CUDA ({}) is allowed", type, nccl_abi::kPtrCuda));
  }
  if (const auto offered = check_offered(device, gdr::MemoryKind::kDmaBuf); !offered) {
    return tl::unexpected(offered.error());
  }
  if (const auto range = check_range(data, size, false); !range) return tl::unexpected(range.error());
  if (size > std::numeric_limits<std::uint64_t>::max() - offset) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} bytes from offset {} end behind 2^64: no dma-buf is that long", size, offset));
  }
  // A number that another thread may have opened meanwhile is the transport's to judge.
  if (fd < 0 || fcntl(fd, F_GETFD) < 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("descriptor {} is not open{}; an open dma-buf is needed until the call returns", fd,
                            fd < 0 ? "" : fmt::format(" ({})", std::strerror(errno))));
  }
  return gdr::MemoryRef{gdr::MemoryKind::kDmaBuf, static_cast<std::byte*>(data), size, fd, offset};
}

}  // namespace clustar::nccl_plugin
