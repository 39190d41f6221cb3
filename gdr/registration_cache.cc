#include "gdr/registration_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "transport/base/file_descriptor.h"

namespace clustar::gdr {
namespace {

// What every registration of this cache is: the registrar's, and the descriptor that it was made with.
class Kept final : public Registration {
 public:
  Kept(FileDescriptor descriptor, std::unique_ptr<Registration> registration)
      : descriptor_(std::move(descriptor)), registration_(std::move(registration)) {}
  Registration& registration() const { return *registration_; }

 private:
  FileDescriptor descriptor_;  // first: open until the registration has ended
  std::unique_ptr<Registration> registration_;
};

// Only what MrCache would ask for: its errors are the clearer ones for other memory.
Result<std::optional<BufferId>> find_id(const MemoryRef& memory, std::optional<BufferId> given) {
  if (given || memory.kind != MemoryKind::kDmaBuf || memory.fd < 0 || memory.length == 0) return given;
  const auto found = buffer_id(memory.fd);
  if (!found) return tl::unexpected(found.error());
  return *found;
}

}  // namespace

Result<BufferId> buffer_id(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("registration: fstat of descriptor {} of a dma-buf: {}", fd, describe_errno(errno)));
  }
  return BufferId{status.st_dev, status.st_ino};
}

PageSizes page_sizes() { return {.host = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)), .device = 65536}; }

RegistrationCache::Lease& RegistrationCache::Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    end();
    cache_ = other.cache_;
    share_ = std::move(other.share_);
  }
  return *this;
}

Registration& RegistrationCache::Lease::registration() const {
  return static_cast<const Kept&>(share_.registration()).registration();
}

void RegistrationCache::Lease::end() {
  if (share_.empty()) return;
  const std::lock_guard lock(cache_->mutex_);
  share_.end();
}

RegistrationCache::RegistrationCache(Registrar& registrar, PageSizes pages)
    : keeper_(registrar), cache_(keeper_, pages) {}

Result<RegistrationCache::Lease> RegistrationCache::acquire(const MemoryRef& memory, std::uint32_t access,
                                                            std::optional<BufferId> buffer) {
  const auto id = find_id(memory, buffer);
  if (!id) return tl::unexpected(id.error());
  const std::lock_guard lock(mutex_);
  auto share = cache_.acquire(memory, access, *id);
  if (!share) return tl::unexpected(share.error());
  return Lease(*this, std::move(*share));
}

MrCache::Counts RegistrationCache::counts() const {
  const std::lock_guard lock(mutex_);
  return cache_.counts();
}

Result<std::unique_ptr<Registration>> RegistrationCache::Keeper::register_pages(const MemoryRef& pages,
                                                                                std::uint32_t access) {
  MemoryRef own = pages;
  FileDescriptor descriptor;
  if (pages.kind == MemoryKind::kDmaBuf) {
    descriptor = FileDescriptor(fcntl(pages.fd, F_DUPFD_CLOEXEC, 0));
    if (!descriptor) {
      const int error = errno;
      return fail(ErrorCode::kSystem, fmt::format("registration: no duplicate of descriptor {} of a dma-buf: {}",
                                                  pages.fd, describe_errno(error)));
    }
    own.fd = descriptor.fd();
  }
  auto registration = registrar_.register_pages(own, access);
  if (!registration) return tl::unexpected(registration.error());
  return std::make_unique<Kept>(std::move(descriptor), std::move(*registration));
}

}  // namespace clustar::gdr
