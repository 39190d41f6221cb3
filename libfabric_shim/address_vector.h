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
  // The same address again is the same number. `own_length`: of the endpoint's own address, bytes. Errors: kRemote: of
  // another length; libfabric's.
  Result<fi_addr_t> insert(std::span<const std::byte> address, std::size_t own_length);
  // As often as it was inserted; then it is forgotten. Not for endpoints with reliable messages: their providers end
  // what is between both ends when an address goes.
  void remove(fi_addr_t address);
  std::size_t size() const { return known_.size(); }

 private:
  explicit AddressVector(std::string where) : where_(std::move(where)) {}

  std::string where_;
  bool is_text_ = false;
  Fid<fid_av> vector_;
  struct Known {
    fi_addr_t number = FI_ADDR_UNSPEC;
    std::size_t uses = 0;
  };
  using ByAddress = std::map<std::vector<std::byte>, Known>;
  ByAddress known_;
  std::map<fi_addr_t, ByAddress::iterator> by_number_;
};

}  // namespace clustar::transport::ofi
