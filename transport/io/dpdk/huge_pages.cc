#include "transport/io/dpdk/huge_pages.h"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace clustar::transport::io::dpdk {

std::uint64_t free_huge_pages_mb(const std::string& sysfs) {
  constexpr std::string_view kPrefix = "hugepages-";
  std::uint64_t sum = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(sysfs + "/kernel/mm/hugepages", ignored)) {
    const std::string name = entry.path().filename().string();
    std::uint64_t kilobytes = 0;
    std::uint64_t pages = 0;
    if (!name.starts_with(kPrefix)) continue;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), kilobytes);
    std::ifstream(entry.path() / "free_hugepages") >> pages;
    sum += kilobytes * pages / 1024;
  }
  return sum;
}

}  // namespace clustar::transport::io::dpdk
