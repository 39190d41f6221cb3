// A NIC that registers nothing, and memory that is not there, for tests of what registers with NICs.
#pragma once

#include <cstdint>
#include <memory>

#include "gdr/core/mr_cache.h"

namespace clustar::gdr {

constexpr std::uint32_t kRead = 0;
constexpr std::uint32_t kWrite = 3;

class FakeRegistration;

// A NIC that refuses when it is told to.
class FakeRegistrar final : public Registrar {
 public:
  Result<std::unique_ptr<Registration>> register_pages(const MemoryRef& pages, std::uint32_t access) override;

  bool refuse = false;
  int live = 0;
  int made = 0;
  MemoryRef last{};
};

class FakeRegistration final : public Registration {
 public:
  FakeRegistration(FakeRegistrar& registrar, const MemoryRef& its_pages, std::uint32_t its_access)
      : pages(its_pages), access(its_access), registrar_(registrar) {
    ++registrar_.live;
    ++registrar_.made;
    registrar_.last = pages;
  }
  ~FakeRegistration() override { --registrar_.live; }
  std::uint64_t first() const {
    return pages.kind == MemoryKind::kDmaBuf ? pages.offset : reinterpret_cast<std::uintptr_t>(pages.address);
  }

  const MemoryRef pages;
  const std::uint32_t access;

 private:
  FakeRegistrar& registrar_;
};

inline Result<std::unique_ptr<Registration>> FakeRegistrar::register_pages(const MemoryRef& pages,
                                                                           std::uint32_t access) {
  if (refuse) return fail(ErrorCode::kSystem, "the NIC refuses");
  return std::make_unique<FakeRegistration>(*this, pages, access);
}

inline MemoryRef at(std::uint64_t address, std::size_t length, MemoryKind kind = MemoryKind::kHost) {
  MemoryRef memory = MemoryRef::host(reinterpret_cast<void*>(address), length);
  memory.kind = kind;
  return memory;
}
inline MemoryRef dma_buf(std::uint64_t offset, std::size_t length, int fd = 9) {
  return {MemoryKind::kDmaBuf, nullptr, length, fd, offset};
}

template <class Lease>
const FakeRegistration& registration_of(const Lease& lease) {
  return static_cast<const FakeRegistration&>(lease.registration());
}

}  // namespace clustar::gdr
