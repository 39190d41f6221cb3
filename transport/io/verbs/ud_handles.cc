#include "transport/io/verbs/ud_handles.h"

#include <algorithm>
#include <utility>

#include "transport/io/verbs/ud_wire.h"

namespace clustar::transport::io::verbs {
namespace {

constexpr auto kRetry = std::chrono::seconds(1);

}  // namespace

Error UdHandles::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

UdHandleMaker::UdHandleMaker(const ProtectionDomain& domain, std::uint8_t port, int gid_index, const FixedMarks& marks)
    : domain_(domain), port_(port), gid_index_(gid_index), marks_(marks), thread_([this] { run(); }) {}

UdHandleMaker::~UdHandleMaker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void UdHandleMaker::make(std::shared_ptr<UdHandles> handles, std::size_t group, std::uint8_t tos) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({std::move(handles), group, tos});
  }
  changed_.notify_one();
}

void UdHandleMaker::give_back(std::shared_ptr<UdHandles> handles) {
  handles->given_up_ = true;
  {
    const std::lock_guard lock(mutex_);
    given_back_.push_back(std::move(handles));
  }
  changed_.notify_one();
}

// Returns with the lock held; nothing: the end.
std::optional<UdHandleMaker::Job> UdHandleMaker::next(std::unique_lock<std::mutex>& lock) {
  while (!stop_) {
    if (!given_back_.empty()) {
      std::erase_if(jobs_, [](const Job& job) { return job.handles->given_up_.load(); });
      auto gone = std::exchange(given_back_, {});
      lock.unlock();
      gone.clear();  // a call of the kernel for each
      lock.lock();
      continue;
    }
    const auto now = Clock::now();
    auto best = jobs_.end();
    auto wake = Clock::time_point::max();
    for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
      wake = std::min(wake, job->due);
      if (job->due <= now && (best == jobs_.end() || job->tries < best->tries)) best = job;
    }
    if (best != jobs_.end()) {
      Job job = std::move(*best);
      jobs_.erase(best);
      return job;
    }
    if (wake == Clock::time_point::max()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, wake);
    }
  }
  return std::nullopt;
}

Result<void> UdHandleMaker::make_group(const Job& job) const {
  const UdAddress& address = job.handles->address_;
  std::vector<AddressHandle> made;
  for (std::size_t path = 0; path < address.queue_pairs.size(); ++path) {
    auto one = AddressHandle::make(
        domain_, {.peer = address.gid,
                  .port = port_,
                  .gid_index = gid_index_,
                  .traffic_class = marks_.tos(job.tos),
                  .service_level = marks_.level(job.tos),
                  .flow_label = flow_label_of(address.queue_pairs[path], static_cast<std::uint8_t>(path))});
    if (!one) return tl::unexpected(one.error());
    made.push_back(std::move(*one));
  }
  UdHandles::Group& group = job.handles->groups_[job.group];
  group.handles = std::move(made);
  group.ready.store(true, std::memory_order_release);
  return {};
}

void UdHandleMaker::run() {
  std::unique_lock lock(mutex_);
  while (auto job = next(lock)) {
    if (job->handles->given_up_) continue;
    lock.unlock();
    const auto done = make_group(*job);
    if (!done) {
      const std::lock_guard of_error(job->handles->mutex_);
      job->handles->error_ = done.error();
    }
    job->handles->failed_.store(!done, std::memory_order_release);
    lock.lock();
    if (!done && !job->handles->given_up_) {
      job->due = Clock::now() + kRetry;
      ++job->tries;
      jobs_.push_back(std::move(*job));
    }
  }
}

}  // namespace clustar::transport::io::verbs
