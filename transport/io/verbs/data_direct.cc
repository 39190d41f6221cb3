#include "transport/io/verbs/data_direct.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

namespace clustar::transport::io::verbs {
namespace {

// mlx5dv_reg_dmabuf_mr's flag for it (its manual page).
constexpr int kThroughDataDirect = 1;

std::string errno_text(int error) {
  const char* const name = strerrorname_np(error);
  return fmt::format("errno {} ({})", error, name != nullptr ? name : "?");
}

}  // namespace

const DataDirect& DataDirect::library() {
  static const DataDirect opened("libmlx5.so.1");
  return opened;
}

// The library stays open: libibverbs has it as a driver anyway, and registrations need it until they end.
DataDirect::DataDirect(const std::string& file) {
  void* const library = dlopen(file.c_str(), RTLD_NOW);
  if (library == nullptr) {
    missing_ = dlerror();
    return;
  }
  const auto find = [&](const char* name, const char* version) {
    void* const found = dlvsym(library, name, version);
    if (found == nullptr && missing_.empty()) missing_ = fmt::format("{} has no {} of {}", file, name, version);
    return found;
  };
  is_supported_ = reinterpret_cast<IsSupported>(find("mlx5dv_is_supported", "MLX5_1.8"));
  get_path_ = reinterpret_cast<GetPath>(find("mlx5dv_get_data_direct_sysfs_path", "MLX5_1.25"));
  register_ = reinterpret_cast<Register>(find("mlx5dv_reg_dmabuf_mr", "MLX5_1.25"));
}

DataDirectProbe DataDirect::probe(ibv_pd* domain, const std::string& device) const {
  if (!missing_.empty()) return {.text = missing_};
  if (!is_supported_(domain->context->device)) return {.text = device + " is no mlx5 device"};
  errno = 0;
  // Never succeeds: there is no such descriptor.
  (void)register_(domain, 0, 0, 0, -1, 0, 0);
  if (errno == EOPNOTSUPP || errno == EPROTONOSUPPORT) {
    return {.text = fmt::format("mlx5dv_reg_dmabuf_mr of a bad descriptor on {}: {}", device, errno_text(errno))};
  }
  std::array<char, PATH_MAX> path{};
  const int error = get_path_(domain->context, path.data(), path.size());
  if (error != 0) {
    return {.text = fmt::format("mlx5dv_get_data_direct_sysfs_path on {}: {}", device, errno_text(error))};
  }
  const std::string at = std::string("/sys") + path.data();
  return {.supported = true, .text = at, .pci_path = at};
}

ibv_mr* DataDirect::register_dma_buf(ibv_pd* domain, const gdr::MemoryRef& memory, std::uint64_t address,
                                     int access) const {
  if (register_ == nullptr) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  return register_(domain, memory.offset, memory.length, address, memory.fd, access, kThroughDataDirect);
}

}  // namespace clustar::transport::io::verbs
