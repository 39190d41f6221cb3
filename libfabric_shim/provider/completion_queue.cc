#include "libfabric_shim/provider/completion_queue.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "libfabric_shim/provider/endpoint.h"

namespace clustar::libfabric_shim::provider {
namespace {

CompletionQueue& queue_of(fid_cq* cq) { return *static_cast<CompletionQueue*>(cq); }
EventCounter& counter_of(fid_cntr* counter) { return *static_cast<EventCounter*>(counter); }

// `again` until it gives something other than -FI_EAGAIN, at most for the time that the caller gave (below 0: for
// ever). It spins at first, since an answer is often near, and then leaves the core to others.
template <class Again>
auto wait_for(int timeout_ms, Again again) {
  constexpr int kSpins = 1000;
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0;; ++round) {
    const auto got = again();
    if (got != -FI_EAGAIN) return got;
    if (timeout_ms >= 0 && std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(timeout_ms))
      return got;
    if (round < kSpins) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

bool can_wait(fi_wait_obj wait) { return wait == FI_WAIT_NONE || wait == FI_WAIT_UNSPEC || wait == FI_WAIT_YIELD; }

const char* text(fid_cq*, int error, const void*, char* buffer, std::size_t length) {
  const char* const shown = fi_strerror(error);
  if (buffer != nullptr && length > 0) {
    std::strncpy(buffer, shown, length - 1);
    buffer[length - 1] = 0;
  }
  return shown;
}

fi_ops_cq& queue_calls() {
  static fi_ops_cq table = [] {
    fi_ops_cq ops{};
    ops.size = sizeof(ops);
    ops.read = [](fid_cq* cq, void* buffer, std::size_t count) { return queue_of(cq).read(buffer, count, nullptr); };
    ops.readfrom = [](fid_cq* cq, void* buffer, std::size_t count, fi_addr_t* sources) {
      return queue_of(cq).read(buffer, count, sources);
    };
    ops.readerr = [](fid_cq* cq, fi_cq_err_entry* entry, std::uint64_t) { return queue_of(cq).read_error(entry); };
    ops.sread = [](fid_cq* cq, void* buffer, std::size_t count, const void*, int timeout) {
      return queue_of(cq).wait(buffer, count, nullptr, timeout);
    };
    ops.sreadfrom = [](fid_cq* cq, void* buffer, std::size_t count, fi_addr_t* sources, const void*, int timeout) {
      return queue_of(cq).wait(buffer, count, sources, timeout);
    };
    ops.signal = [](fid_cq* cq) {
      queue_of(cq).signal();
      return 0;
    };
    ops.strerror = text;
    return ops;
  }();
  return table;
}

fi_ops_cntr& counter_calls() {
  static fi_ops_cntr table = [] {
    const auto change = [](fid_cntr* id, auto how) {
      const std::lock_guard lock(counter_of(id).drives().domain().mutex());
      how(counter_of(id));
      return 0;
    };
    static const auto changed = change;
    fi_ops_cntr ops{};
    ops.size = sizeof(ops);
    ops.read = [](fid_cntr* id) { return counter_of(id).value(); };
    ops.readerr = [](fid_cntr* id) { return counter_of(id).errors(); };
    ops.add = [](fid_cntr* id, std::uint64_t n) { return changed(id, [n](EventCounter& c) { c.value_ += n; }); };
    ops.set = [](fid_cntr* id, std::uint64_t n) { return changed(id, [n](EventCounter& c) { c.value_ = n; }); };
    ops.adderr = [](fid_cntr* id, std::uint64_t n) { return changed(id, [n](EventCounter& c) { c.errors_ += n; }); };
    ops.seterr = [](fid_cntr* id, std::uint64_t n) { return changed(id, [n](EventCounter& c) { c.errors_ = n; }); };
    ops.wait = [](fid_cntr* id, std::uint64_t threshold, int timeout) {
      return counter_of(id).wait(threshold, timeout);
    };
    return ops;
  }();
  return table;
}

}  // namespace

void Drives::add(Endpoint& endpoint) {
  if (std::find(endpoints_.begin(), endpoints_.end(), &endpoint) == endpoints_.end()) endpoints_.push_back(&endpoint);
}

void Drives::progress() {
  for (Endpoint* endpoint : endpoints_) endpoint->progress();
}

CompletionQueue::CompletionQueue(Domain& domain, fi_cq_format format, void* context)
    : fid_cq(), format_(format), drives_(domain) {
  static fi_ops table = fid_table([](struct fid* id) { return object_of<CompletionQueue, fid_cq>(id).close(); });
  set_id(fid, FI_CLASS_CQ, context, table);
  ops = &queue_calls();
  ++domain.children;
}

int CompletionQueue::open(fid_domain* domain, fi_cq_attr* attr, fid_cq** made, void* context) {
  return guarded([&]() -> int {
    if (attr != nullptr && !can_wait(attr->wait_obj)) return -FI_ENOSYS;
    const bool named = attr != nullptr && attr->format != FI_CQ_FORMAT_UNSPEC;
    const fi_cq_format format = named ? attr->format : FI_CQ_FORMAT_CONTEXT;
    *made = new CompletionQueue(*static_cast<Domain*>(domain), format, context);
    return 0;
  });
}

int CompletionQueue::close() {
  {
    const std::lock_guard lock(drives_.domain().mutex());
    if (!drives_.empty()) return -FI_EBUSY;
  }
  --drives_.domain().children;
  delete this;
  return 0;
}

void CompletionQueue::write(const Completion& completion, fi_addr_t source) {
  Entry& entry = entries_.emplace_back();
  entry.source = source;
  entry.what.op_context = completion.operation.context;
  entry.what.flags = completion.operation.flags | (completion.has_data ? FI_REMOTE_CQ_DATA : 0);
  entry.what.len = completion.bytes;
  entry.what.buf = completion.operation.buffer;
  entry.what.data = completion.data;
  entry.what.tag = completion.tag;
  entry.what.olen = completion.overflow;
  entry.what.err = completion.error;
  entry.what.prov_errno = completion.error;
}

// The formats are the beginnings of each other, and of the error's.
std::size_t CompletionQueue::put(const Entry& entry, void* at) const {
  std::size_t size = 0;
  switch (format_) {
    case FI_CQ_FORMAT_UNSPEC:
    case FI_CQ_FORMAT_CONTEXT: size = sizeof(fi_cq_entry); break;
    case FI_CQ_FORMAT_MSG: size = sizeof(fi_cq_msg_entry); break;
    case FI_CQ_FORMAT_DATA: size = sizeof(fi_cq_data_entry); break;
    case FI_CQ_FORMAT_TAGGED: size = sizeof(fi_cq_tagged_entry); break;
  }
  std::memcpy(at, &entry.what, size);
  return size;
}

ssize_t CompletionQueue::read(void* buffer, std::size_t count, fi_addr_t* sources) {
  const ssize_t got = guarded([&]() -> ssize_t {
    const std::lock_guard lock(drives_.domain().mutex());
    if (entries_.empty()) drives_.progress();
    auto* at = static_cast<std::byte*>(buffer);
    std::size_t done = 0;
    for (; done < count && !entries_.empty() && entries_.front().what.err == 0; ++done) {
      at += put(entries_.front(), at);
      if (sources != nullptr) sources[done] = entries_.front().source;
      entries_.pop_front();
    }
    if (done > 0) return static_cast<ssize_t>(done);
    if (!entries_.empty() && entries_.front().what.err != 0) return -FI_EAVAIL;
    return -FI_EAGAIN;
  });
  // Programs poll without a pause, and the answer may need the core: a peer on it, or a transport's own thread.
  if (got == -FI_EAGAIN) std::this_thread::yield();
  return got;
}

ssize_t CompletionQueue::wait(void* buffer, std::size_t count, fi_addr_t* sources, int timeout_ms) {
  // For a program a signal looks as if the time were over, which for wait_for() it is not.
  const ssize_t ended = wait_for(timeout_ms, [&]() -> ssize_t {
    const ssize_t got = read(buffer, count, sources);
    return got == -FI_EAGAIN && signalled_.exchange(false) ? -FI_EINTR : got;
  });
  return ended == -FI_EINTR ? -FI_EAGAIN : ended;
}

ssize_t CompletionQueue::read_error(fi_cq_err_entry* entry) {
  const std::lock_guard lock(drives_.domain().mutex());
  if (entries_.empty() || entries_.front().what.err == 0) return -FI_EAGAIN;
  *entry = entries_.front().what;
  entries_.pop_front();
  return 1;
}

EventCounter::EventCounter(Domain& domain, void* context) : fid_cntr(), drives_(domain) {
  static fi_ops table = fid_table([](struct fid* id) { return object_of<EventCounter, fid_cntr>(id).close(); });
  set_id(fid, FI_CLASS_CNTR, context, table);
  ops = &counter_calls();
  ++domain.children;
}

int EventCounter::open(fid_domain* domain, fi_cntr_attr* attr, fid_cntr** made, void* context) {
  return guarded([&]() -> int {
    if (attr != nullptr && !can_wait(attr->wait_obj)) return -FI_ENOSYS;
    *made = new EventCounter(*static_cast<Domain*>(domain), context);
    return 0;
  });
}

int EventCounter::close() {
  {
    const std::lock_guard lock(drives_.domain().mutex());
    if (!drives_.empty()) return -FI_EBUSY;
  }
  --drives_.domain().children;
  delete this;
  return 0;
}

std::uint64_t EventCounter::value() {
  const std::lock_guard lock(drives_.domain().mutex());
  drives_.progress();
  return value_;
}

std::uint64_t EventCounter::errors() {
  const std::lock_guard lock(drives_.domain().mutex());
  drives_.progress();
  return errors_;
}

int EventCounter::wait(std::uint64_t threshold, int timeout_ms) {
  const int got = wait_for(timeout_ms, [&]() -> int {
    const std::lock_guard lock(drives_.domain().mutex());
    drives_.progress();
    if (errors_ > 0) return -FI_EAVAIL;
    return value_ >= threshold ? 0 : -FI_EAGAIN;
  });
  return got == -FI_EAGAIN ? -FI_ETIMEDOUT : got;
}

}  // namespace clustar::libfabric_shim::provider
