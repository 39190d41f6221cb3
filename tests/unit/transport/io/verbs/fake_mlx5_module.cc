// Stands in for libmlx5.so.1: the domain's handle says what kind of device it is of.
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

ibv_mr made;

}  // namespace

// ibv_context::num_comp_vectors of the test: 0 another vendor's, 1 without the function, 2 with it, 3 an old driver.
EXPORT bool mlx5dv_is_supported(ibv_device* device) { return device != nullptr; }

EXPORT int mlx5dv_get_data_direct_sysfs_path(ibv_context* context, char* path, std::size_t size) {
  if (context->num_comp_vectors != 2) return ENODEV;
  std::strncpy(path, "/devices/pci0009:00/0009:01:00.1", size);
  return 0;
}

EXPORT ibv_mr* mlx5dv_reg_dmabuf_mr(ibv_pd* domain, std::uint64_t offset, std::size_t length, std::uint64_t address,
                                    int fd, int access, int mlx5_access) {
  const bool old = domain->context->num_comp_vectors == 3;
  errno = old ? EOPNOTSUPP : fd < 0 ? EBADF : domain->context->num_comp_vectors != 2 ? EINVAL : 0;
  if (errno != 0) return nullptr;
  // What it was asked for, for the test to see.
  made.pd = domain;
  made.addr = reinterpret_cast<void*>(address);
  made.length = length + offset;
  made.lkey = static_cast<std::uint32_t>(access);
  made.rkey = static_cast<std::uint32_t>(mlx5_access);
  return &made;
}
