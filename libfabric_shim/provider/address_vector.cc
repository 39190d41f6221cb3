#include "libfabric_shim/provider/address_vector.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "libfabric_shim/provider/address.h"

namespace clustar::libfabric_shim::provider {
namespace {

AddressVector& vector_of(fid_av* av) { return *static_cast<AddressVector*>(av); }

int close_vector(fid* id) {
  delete &object_of<AddressVector, fid_av>(id);
  return 0;
}

// The length of what fi_getname gave, by which several lie in a row.
std::size_t length_at(const std::byte* at) {
  const auto address = address_from(at);
  return address ? address->length() : 0;
}

int insert(fid_av* av, const void* addresses, std::size_t count, fi_addr_t* made, std::uint64_t flags, void* context) {
  return guarded([&]() -> int {
    AddressVector& vector = vector_of(av);
    const std::lock_guard lock(vector.domain().mutex());
    const auto* at = static_cast<const std::byte*>(addresses);
    int good = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t length = length_at(at);
      const fi_addr_t number = length == 0 ? FI_ADDR_NOTAVAIL : vector.insert(*address_from(at));
      if (made != nullptr) made[i] = number;
      if ((flags & FI_SYNC_ERR) != 0) static_cast<int*>(context)[i] = length == 0 ? FI_EINVAL : 0;
      // Behind one of unknown length nothing can be read.
      if (length == 0) break;
      ++good;
      at += length;
    }
    return good;
  });
}

int insert_service(fid_av* av, const char* node, const char* service, fi_addr_t* made, std::uint64_t, void*) {
  return guarded([&]() -> int {
    const auto found = resolve(node, service, false);
    if (!found || found->empty()) return -FI_EINVAL;
    const std::lock_guard lock(vector_of(av).domain().mutex());
    const fi_addr_t number = vector_of(av).insert(found->front());
    if (made != nullptr) *made = number;
    return 1;
  });
}

int insert_symmetric(fid_av*, const char*, std::size_t, const char*, std::size_t, fi_addr_t*, std::uint64_t, void*) {
  return -FI_ENOSYS;
}

int remove(fid_av* av, fi_addr_t* addresses, std::size_t count, std::uint64_t) {
  const std::lock_guard lock(vector_of(av).domain().mutex());
  for (std::size_t i = 0; i < count; ++i) {
    if (!vector_of(av).remove(addresses[i])) return -FI_EINVAL;
  }
  return 0;
}

int lookup(fid_av* av, fi_addr_t number, void* address, std::size_t* length) {
  AddressVector& vector = vector_of(av);
  const std::lock_guard lock(vector.domain().mutex());
  const auto source = vector.source(number);
  if (!source) return -FI_EINVAL;
  const auto& found = vector.domain().book().address(*source);
  std::memcpy(address, found.raw(), std::min<std::size_t>(*length, found.length()));
  *length = found.length();
  return 0;
}

const char* text(fid_av*, const void* address, char* buffer, std::size_t* length) {
  const auto known = address_from(address);
  const std::string shown = known ? known->to_string() : "unknown address";
  if (buffer != nullptr && *length > 0) std::snprintf(buffer, *length, "%s", shown.c_str());
  *length = shown.size() + 1;
  return buffer;
}

}  // namespace

AddressVector::AddressVector(Domain& domain, void* context) : fid_av(), domain_(domain) {
  static fi_ops table = fid_table(close_vector);
  static fi_ops_av calls = [] {
    fi_ops_av made{};
    made.size = sizeof(made);
    made.insert = provider::insert;
    made.insertsvc = insert_service;
    made.insertsym = insert_symmetric;
    made.remove = provider::remove;
    made.lookup = lookup;
    made.straddr = text;
    return made;
  }();
  set_id(fid, FI_CLASS_AV, context, table);
  ops = &calls;
  ++domain_.children;
}

int AddressVector::open(fid_domain* domain, fi_av_attr* attr, fid_av** made, void* context) {
  return guarded([&]() -> int {
    if (attr != nullptr && ((attr->flags & FI_EVENT) != 0 || attr->name != nullptr)) return -FI_ENOSYS;
    *made = new AddressVector(*static_cast<Domain*>(domain), context);
    return 0;
  });
}

std::optional<Source> AddressVector::source(fi_addr_t address) const {
  return address < entries_.size() ? entries_[address] : std::nullopt;
}

fi_addr_t AddressVector::address_of(Source source) const {
  const auto found = back_.find(source);
  return found == back_.end() ? FI_ADDR_NOTAVAIL : found->second;
}

fi_addr_t AddressVector::insert(const transport::net::Address& address) {
  const Source source = domain_.book().source_of(address);
  entries_.push_back(source);
  back_.try_emplace(source, entries_.size() - 1);
  return entries_.size() - 1;
}

bool AddressVector::remove(fi_addr_t address) {
  const auto known = source(address);
  if (!known) return false;
  entries_[address].reset();
  if (back_.at(*known) != address) return true;
  back_.erase(*known);
  const auto other = std::find(entries_.begin(), entries_.end(), known);
  if (other != entries_.end()) back_[*known] = static_cast<fi_addr_t>(other - entries_.begin());
  return true;
}

}  // namespace clustar::libfabric_shim::provider
