// FI_UNIVERSE_SIZE, which libfabric reads once, when it loads its providers.
#pragma once

namespace clustar::transport::ofi {

// verbs;ofi_rxm makes its completion queue for all of the universe, 1024 peers by default, which is more than many NICs
// allow: "Unable to create verbs CQ". While this lives a smaller number counts, where there is an RDMA device and the
// user has said nothing. Afterwards the environment is as it was, so nothing that the process starts sees it.
class SmallUniverse {
 public:
  SmallUniverse();
  ~SmallUniverse();
  SmallUniverse(const SmallUniverse&) = delete;
  SmallUniverse& operator=(const SmallUniverse&) = delete;

 private:
  bool set_ = false;
};

}  // namespace clustar::transport::ofi
