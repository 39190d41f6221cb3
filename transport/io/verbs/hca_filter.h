// Which RDMA devices and ports may be used, in the syntax of NCCL_IB_HCA.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.h"

namespace clustar::transport::io::verbs {

// "mlx5_0,mlx5_1" prefixes of names; "mlx5_0:1" port 1 of it only; "=mlx5_1" exact names (mlx5_1 alone is a prefix of
// mlx5_10, too); "^mlx5_3" all but these; "^=mlx5_3:1" both. An empty list matches everything.
class HcaFilter {
 public:
  HcaFilter() = default;
  // Error: a port that is not a number from 1 to 255, an entry without a name.
  static Result<HcaFilter> parse(std::string_view text);
  // Port 0: a device whose ports are not known. It matches when one of its ports might.
  bool matches(std::string_view device, int port) const;

 private:
  struct Entry {
    std::string device{};
    int port = 0;  // 0 = every port
  };
  bool exclude_ = false;
  bool exact_ = false;
  std::vector<Entry> entries_;
};

}  // namespace clustar::transport::io::verbs
