// The addresses of peers, by which a domain's endpoints reach them.
#pragma once

#include <rdma/fi_domain.h>

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "libfabric_shim/domain.h"
#include "libfabric_shim/handle.h"

namespace clustar::transport::ofi {

class AddressVector {
 public:
  // Error: libfabric's.
  static Result<AddressVector> open(const Domain& domain);

  fid_av* raw() const { return vector_.get(); }
  // Once per peer: it stays, because a provider ends what is between both ends when an address goes. `own_length`: of
  // the endpoint's own address, bytes. Errors: kRemote: of another length; libfabric's.
  Result<fi_addr_t> insert(std::span<const std::byte> address, std::size_t own_length);

 private:
  explicit AddressVector(std::string where) : where_(std::move(where)) {}

  std::string where_;
  bool is_text_ = false;
  Fid<fid_av> vector_;
  std::map<std::vector<std::byte>, fi_addr_t> known_;
};

}  // namespace clustar::transport::ofi
