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
  if (const auto known = known_.find(key); known != known_.end()) {
    ++known->second.uses;
    return known->second.number;
  }
  fi_addr_t inserted = FI_ADDR_UNSPEC;
  const int code = fi_av_insert(vector_.get(), key.data(), 1, &inserted, 0, nullptr);
  if (code != 1) return tl::unexpected(failure(where_, "fi_av_insert", code < 0 ? code : -FI_EADDRNOTAVAIL));
  by_number_[inserted] = known_.emplace(std::move(key), Known{inserted, 1}).first;
  return inserted;
}

void AddressVector::remove(fi_addr_t address) {
  const auto found = by_number_.find(address);
  if (found == by_number_.end() || --found->second->second.uses > 0) return;
  fi_av_remove(vector_.get(), &address, 1, 0);
  known_.erase(found->second);
  by_number_.erase(found);
}

}  // namespace clustar::transport::ofi
