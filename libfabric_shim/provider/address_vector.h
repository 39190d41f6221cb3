// Address vector: an fi_addr_t is an index in it, for FI_AV_MAP as for FI_AV_TABLE.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "libfabric_shim/provider/domain.h"

namespace clustar::libfabric_shim::provider {

class AddressVector final : public fid_av {
 public:
  static int open(fid_domain* domain, fi_av_attr* attr, fid_av** made, void* context);
  AddressVector(Domain& domain, void* context);
  ~AddressVector() { --domain_.children; }

  // All with the domain's lock. Nothing: no such address, or it was removed.
  std::optional<Source> source(fi_addr_t address) const;
  // FI_ADDR_NOTAVAIL: it was not inserted.
  fi_addr_t address_of(Source source) const;
  fi_addr_t insert(const transport::net::Address& address);
  bool remove(fi_addr_t address);

  Domain& domain() { return domain_; }

 private:
  Domain& domain_;
  std::vector<std::optional<Source>> entries_;
  std::unordered_map<Source, fi_addr_t> back_;  // the first of several
};

}  // namespace clustar::libfabric_shim::provider
