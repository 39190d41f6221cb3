#include "libfabric_shim/address_vector.h"

#include <fmt/format.h>
#include <rdma/fi_errno.h>

#include <utility>

#include "libfabric_shim/failure.h"

namespace clustar::transport::ofi {

Result<AddressVector> AddressVector::open(const Domain& domain) {
  AddressVector made(domain.name());
  made.is_text_ = domain.info().addr_format == FI_ADDR_STR;
  fi_av_attr attributes{};
  attributes.type = domain.info().domain_attr->av_type;
  fid_av* vector = nullptr;
  if (const int code = fi_av_open(domain.raw(), &attributes, &vector, nullptr); code != 0) {
    return tl::unexpected(failure(domain.name(), "fi_av_open", code));
  }
  made.vector_.reset(vector);
  return made;
}

Result<fi_addr_t> AddressVector::insert(std::span<const std::byte> address, std::size_t own_length) {
  // libfabric is told no length: it reads as many bytes as all its addresses have, or, where they are text, up to a
  // zero.
  if (is_text_ ? address.empty() || address.back() != std::byte{0} : address.size() != own_length) {
    return fail(ErrorCode::kRemote, fmt::format("{}: a peer's address has {} bytes and is none; ours have {}", where_,
                                                address.size(), own_length));
  }
  std::vector<std::byte> key(address.begin(), address.end());
  if (const auto known = known_.find(key); known != known_.end()) return known->second;
  fi_addr_t inserted = FI_ADDR_UNSPEC;
  const int code = fi_av_insert(vector_.get(), key.data(), 1, &inserted, 0, nullptr);
  if (code != 1) return tl::unexpected(failure(where_, "fi_av_insert", code < 0 ? code : -FI_EADDRNOTAVAIL));
  known_.emplace(std::move(key), inserted);
  return inserted;
}

}  // namespace clustar::transport::ofi
