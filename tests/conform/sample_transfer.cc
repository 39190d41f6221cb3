// The sample plugin's requests and bytes.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "tests/conform/sample_state.h"

namespace clustar::sample {
namespace {

constexpr std::size_t kUnexpectedLimit = 256u << 20;
constexpr std::size_t kBytesPerCall = 4u << 20;  // a call moves at most about this much, so that none takes long

// Used by defects only.
std::array<std::byte, 65536> g_staging;
std::atomic<bool> g_someone_died{false};

// Is its failure an error to the caller?
bool tells_failure(Comm& comm) {
  if (!comm.failed || defect("death_hang")) return false;
  if (!defect("death_late")) return true;
  const auto now = Clock::now();
  if (comm.asked_of_failure == Clock::time_point{}) comm.asked_of_failure = now;
  return now - comm.asked_of_failure > std::chrono::seconds(8);
}

}  // namespace

namespace {

// True while there is more to do now; false when the socket would block, failed, or the message is through.
bool send_some(Comm& comm, Part& part, std::size_t* budget) {
  std::array<std::byte, sizeof(MessageHeader)> wire;
  std::memcpy(wire.data(), &comm.header, wire.size());
  const std::size_t in_header = std::min(comm.offset, wire.size());
  const std::size_t in_payload = comm.offset - in_header;
  std::byte* payload = part.data + in_payload;
  std::size_t length = std::min(part.size - in_payload, *budget);
  if (defect("shared_staging")) {
    length = std::min(length, g_staging.size());
    std::memcpy(g_staging.data(), payload, length);
    sched_yield();
    payload = g_staging.data();
  }
  // The byte behind `limit` is sent wrong.
  const std::size_t limit = defect("corrupt_large") ? 65536 : defect("corrupt_huge") ? 32u << 20 : SIZE_MAX;
  const bool corrupt = part.size > limit && in_payload <= limit && in_payload + length > limit;
  if (corrupt) part.data[limit] = ~part.data[limit];
  iovec pieces[2] = {{wire.data() + in_header, wire.size() - in_header}, {payload, length}};
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = 2;
  const ssize_t n = sendmsg(
      comm.fd, &message, (defect("raises_sigpipe") ? 0 : MSG_NOSIGNAL) | (defect("isend_blocks") ? 0 : MSG_DONTWAIT));
  if (corrupt) part.data[limit] = ~part.data[limit];
  if (n < 0) {
    comm.failed = errno != EAGAIN && errno != EINTR;
    if (comm.failed) g_someone_died = true;
    return false;
  }
  comm.offset += static_cast<std::size_t>(n);
  *budget -= std::min(*budget, static_cast<std::size_t>(n));
  part.complete = comm.offset == wire.size() + part.size;
  return !part.complete && *budget > 0;
}

void progress_sends(Comm& comm) {
  std::size_t budget = kBytesPerCall;
  while (!comm.queue.empty() && !comm.failed && budget > 0) {
    Part& part = comm.queue.front()->parts[0];
    comm.header = {static_cast<std::uint32_t>(kMagic), part.tag, part.size};
    while (send_some(comm, part, &budget)) {
    }
    if (!part.complete) return;
    comm.offset = 0;
    comm.queue.pop_front();
  }
}

Part* find_posted(Comm& comm, int tag) {
  Part* last = nullptr;
  for (Request* request : comm.queue) {
    for (int i = 0; i < request->n; ++i) {
      Part& part = request->parts[static_cast<std::size_t>(i)];
      if (part.claimed || (part.tag != tag && !defect("tags_ignored"))) continue;
      last = &part;
      if (!defect("out_of_order")) return last;
    }
  }
  return last;
}

// Bytes received (0 = would block or failed, see comm.failed).
std::size_t receive(Comm& comm, void* data, std::size_t size) {
  const ssize_t n = recv(comm.fd, data, size, MSG_DONTWAIT);
  if (n > 0) return static_cast<std::size_t>(n);
  comm.failed = n == 0 || (errno != EAGAIN && errno != EINTR);
  if (comm.failed) g_someone_died = true;
  return 0;
}

bool receive_header(Comm& comm) {
  comm.offset += receive(comm, reinterpret_cast<char*>(&comm.header) + comm.offset, sizeof(comm.header) - comm.offset);
  if (comm.offset < sizeof(comm.header)) return false;
  if (comm.header.magic != static_cast<std::uint32_t>(kMagic)) return comm.failed = true, false;
  comm.target = find_posted(comm, comm.header.tag);
  if (comm.target != nullptr) {
    comm.target->claimed = true;
    comm.target->total = comm.header.size;
    return true;
  }
  if (comm.header.size > kUnexpectedLimit) return comm.failed = true, false;
  comm.spill = &comm.unexpected.emplace_back(Unexpected{comm.header.tag, std::vector<std::byte>(comm.header.size)});
  return true;
}

// False when the socket has no more for now.
bool receive_payload(Comm& comm, std::size_t* budget) {
  std::byte scratch[4096];
  const std::size_t done = comm.offset - sizeof(comm.header);
  std::size_t room = comm.header.size;
  if (comm.target != nullptr && !defect("overflow")) room = std::min(room, comm.target->size);
  std::byte* into = comm.target != nullptr ? comm.target->data : comm.spill->data.data();
  std::size_t length = std::min<std::size_t>(comm.header.size - done, sizeof(scratch));
  if (done < room) length = std::min({room - done, *budget, kBytesPerCall});
  const std::size_t n = length == 0 ? 0 : receive(comm, done < room ? into + done : scratch, length);
  comm.offset += n;
  *budget -= std::min(*budget, n);
  if (done + n < comm.header.size) return n > 0;
  if (comm.target != nullptr) comm.target->complete = true;
  if (comm.target != nullptr && defect("fills_buffer") && room < comm.target->size) into[comm.target->size - 1] = {};
  if (comm.spill != nullptr) comm.spill->complete = true;
  comm.target = nullptr;
  comm.spill = nullptr;
  comm.offset = 0;
  return true;
}

void progress_receives(Comm& comm) {
  std::size_t budget = kBytesPerCall;
  while (!comm.failed && budget > 0) {
    comm.queue.remove_if([](Request* request) { return request->complete(); });
    if (comm.queue.empty() && comm.offset == 0) return;
    if (comm.offset < sizeof(comm.header) && !receive_header(comm)) return;
    if (!receive_payload(comm, &budget)) return;
  }
}

void progress(Comm& comm) { comm.sender ? progress_sends(comm) : progress_receives(comm); }

Request* take_request(Comm& comm) {
  for (Request& request : comm.pool) {
    if (request.used) continue;
    request = Request{};
    request.comm = &comm;
    request.used = true;
    request.posted = Clock::now();
    return &request;
  }
  return nullptr;
}

// Errors that defects make of a sound call.
bool refuses(const Comm& comm) {
  return (defect("thread_bound") && comm.owner != syscall(SYS_gettid)) || (defect("death_spreads") && g_someone_died) ||
         (defect("limit_16") && comm.queue.size() >= 16);
}

// Where the bytes at NCCL's `data` lie for this plugin; null: there is no such registration.
std::byte* reach(void* data, std::size_t size, void* mhandle) {
  const auto* mr = static_cast<const Mr*>(mhandle);
  auto* const at = static_cast<std::byte*>(data);
  if (mr == nullptr || mr->invalid || at < mr->data || size > mr->size) return nullptr;
  if (mr->fd >= 0 && defect("dma_buf_fd_kept") && fcntl(mr->fd, F_GETFD) < 0) return nullptr;
  return static_cast<std::size_t>(at - mr->data) <= mr->size - size ? mr->reached + (at - mr->data) : nullptr;
}

}  // namespace

int isend(void* send_comm, void* data, std::size_t size, int tag, void* mhandle, void** out) {
  auto& comm = *static_cast<Comm*>(send_comm);
  *out = nullptr;
  if (defect("busy_forever")) return abi::kSuccess;
  if (defect("reg_race")) {
    comm.registered.assign(64, 1);
    sched_yield();
    if (comm.registered.size() != 64) std::abort();
  }
  if (tells_failure(comm) && !defect("death_success")) return abi::kRemoteError;
  if (refuses(comm)) return abi::kInternalError;
  Request* request = take_request(comm);
  if (request == nullptr) return abi::kSuccess;
  std::byte* const from = reach(data, size, mhandle);
  if (from == nullptr && size > 0) return request->used = false, abi::kInternalError;
  request->n = 1;
  request->parts[0] = {from, size, tag, size, true, false};
  if (size == 0 && defect("drops_empty"))
    request->parts[0].complete = true;
  else
    comm.queue.push_back(request);
  progress(comm);
  *out = request;
  return abi::kSuccess;
}

int irecv(void* recv_comm, int n, void** data, const std::size_t* sizes, const int* tags, void** mhandles, void** out) {
  auto& comm = *static_cast<Comm*>(recv_comm);
  const bool marked = *out == reinterpret_cast<void*>(abi::kOptionalRecvCompletion);
  if (!(marked && defect("marker_kept"))) *out = nullptr;
  if (n < 1 || n > kMaxRecvs) return abi::kInvalidArgument;
  if (refuses(comm)) return abi::kInternalError;
  if (defect("busy_is_error") && comm.queue.size() >= 64) return abi::kInternalError;
  Request* request = take_request(comm);
  if (request == nullptr) return abi::kSuccess;
  request->n = n;
  for (int i = 0; i < n; ++i) {
    Part& part = request->parts[static_cast<std::size_t>(i)];
    part = {reach(data[i], sizes[i], mhandles[i]), sizes[i], tags[i], 0, false, false};
    if (part.data == nullptr && part.size > 0) return request->used = false, abi::kInternalError;
    auto early = std::find_if(comm.unexpected.begin(), comm.unexpected.end(),
                              [&](const Unexpected& other) { return other.complete && other.tag == part.tag; });
    if (early == comm.unexpected.end()) continue;
    part.total = early->data.size();
    if (part.total > 0) std::memcpy(part.data, early->data.data(), std::min(part.size, part.total));
    part.claimed = part.complete = true;
    comm.unexpected.erase(early);
  }
  comm.queue.push_back(request);
  if (!(marked && defect("marker_kept"))) *out = request;
  return abi::kSuccess;
}

int iflush(void* recv_comm, int n, void** /*data*/, int* sizes, void** /*mhandles*/, void** out) {
  *out = nullptr;
  if (defect("flush_at_once")) return abi::kSuccess;
  if (defect("flush_size_zero") && std::count(sizes, sizes + n, 0) > 0) return abi::kInvalidArgument;
  Request* request = take_request(*static_cast<Comm*>(recv_comm));
  if (request != nullptr) request->flush = true;
  *out = request;
  return abi::kSuccess;
}

int test(void* opaque, int* done, int* sizes) {
  auto* request = static_cast<Request*>(opaque);
  Comm& comm = *request->comm;
  *done = 0;
  progress(comm);
  if (defect("oldest_only") && !request->flush && !request->complete()) {
    const auto same_tag = [&](const Request* other) { return other->parts[0].tag == request->parts[0].tag; };
    if (*std::find_if(comm.queue.begin(), comm.queue.end(), same_tag) != request) return abi::kInternalError;
  }
  const bool dead_ok = comm.failed && defect("death_success");
  const bool early = defect("early_done") && !comm.sender && !request->flush;
  if (!request->complete() && !dead_ok && !early) {
    if (defect("freeze_error") && Clock::now() - request->posted > std::chrono::seconds(1)) return abi::kRemoteError;
    return tells_failure(comm) ? abi::kRemoteError : abi::kSuccess;
  }
  *done = 1;
  comm.queue.remove(request);
  if (!comm.sender && (sizes != nullptr || defect("null_sizes_crash"))) {
    for (int i = 0; i < std::max(request->n, defect("null_sizes_crash") ? 1 : 0); ++i) {
      const Part& part = request->parts[static_cast<std::size_t>(i)];
      sizes[i] = static_cast<int>(defect("wrong_sizes") ? part.size + 1 : std::min(part.size, part.total));
    }
  }
  if (!defect("request_leak")) request->used = false;
  return abi::kSuccess;
}

}  // namespace clustar::sample
