// The sample plugin's registrations.
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "tests/conform/sample_state.h"

namespace clustar::sample {
namespace {

constexpr std::uint64_t kPage = 4096;

// Maps the dma-buf's bytes from `offset` on, which become `mr.reached`.
bool map(Mr& mr, int fd, std::uint64_t offset) {
  if (defect("dma_buf_offset_ignored")) offset = 0;
  const std::uint64_t begin = offset / kPage * kPage;
  mr.mapping_bytes = mr.size + (offset - begin);
  void* const mapping =
      mmap(nullptr, mr.mapping_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(begin));
  if (mapping == MAP_FAILED) return false;
  mr.mapping = static_cast<std::byte*>(mapping);
  mr.reached = mr.mapping + (offset - begin);
  return true;
}

void keep(Comm& comm, Mr* mr, void** mhandle) {
  if (defect("dereg_takes_neighbours")) comm.mrs.push_back(mr);
  *mhandle = mr;
}

bool overlap(const Mr& a, const Mr& b) { return a.data < b.data + b.size && b.data < a.data + a.size; }

}  // namespace

int reg_mr(void* comm, void* data, std::size_t size, int type, void** mhandle) {
  const bool known = type == abi::kPtrHost || (type == abi::kPtrCuda && !defect("cuda_refused"));
  if (!known || (data == nullptr && size > 0)) return abi::kInvalidArgument;
  if ((ptr_support() & type) == 0 && !defect("takes_anything")) return abi::kInvalidArgument;
  if (defect("reg_unaligned") && reinterpret_cast<std::uintptr_t>(data) % kPage != 0) return abi::kSystemError;
  auto& owner = *static_cast<Comm*>(comm);
  if (defect("reg_race")) owner.registered = {};
  auto* mr = new Mr;
  mr->type = type;
  mr->data = mr->reached = static_cast<std::byte*>(data);
  mr->size = size;
  if (defect("reg_whole_pages")) mr->reached -= reinterpret_cast<std::uintptr_t>(data) % kPage;
  keep(owner, mr, mhandle);
  return abi::kSuccess;
}

int reg_mr_dma_buf(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd, void** mhandle) {
  if (type != abi::kPtrCuda || data == nullptr || (ptr_support() & abi::kPtrDmaBuf) == 0) return abi::kInvalidArgument;
  auto* mr = new Mr;
  mr->type = abi::kPtrDmaBuf;
  mr->data = static_cast<std::byte*>(data);
  mr->size = size;
  if (defect("dma_buf_fd_kept")) mr->fd = fd;
  if (defect("dma_buf_fd_leaked")) mr->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (!map(*mr, fd, offset)) return delete mr, abi::kSystemError;
  keep(*static_cast<Comm*>(comm), mr, mhandle);
  return abi::kSuccess;
}

int dereg_mr(void* comm, void* mhandle) {
  auto* mr = static_cast<Mr*>(mhandle);
  auto& owner = *static_cast<Comm*>(comm);
  if (defect("dereg_waits")) {
    while (!owner.queue.empty()) usleep(1000);
  }
  if (defect("dereg_takes_neighbours")) {
    owner.mrs.erase(std::find(owner.mrs.begin(), owner.mrs.end(), mr));
    for (Mr* other : owner.mrs) other->invalid = other->invalid || overlap(*mr, *other);
  }
  if (mr->mapping != nullptr) munmap(mr->mapping, mr->mapping_bytes);
  delete mr;
  return abi::kSuccess;
}

}  // namespace clustar::sample
