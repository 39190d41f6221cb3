// What all calls of the C API share: errors, handles, where ranks meet. No exception passes a call.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "paraexpress/api/own_transport.h"
#include "transport/base/result.h"
#include "transport/rendezvous/bootstrap.h"

namespace clustar::paraexpress {

// Of the calling thread: of its last call that failed.
std::string& last_error();
// CLUSTARPX_OK, or the error's number, whose text is the last error then.
int report(const Result<void>& result);
// Of an exception that is none of ours.
int report_exception(bool no_memory) noexcept;

template <class Body>
int guarded(Body&& body) noexcept {
  try {
    return report(std::forward<Body>(body)());
  } catch (const std::bad_alloc&) {
    return report_exception(true);
  } catch (...) {
    return report_exception(false);
  }
}

inline tl::unexpected<Error> wrong(std::string text) { return fail(ErrorCode::kInvalidArgument, std::move(text)); }

// Handles of this process. Any thread.
template <class T>
class Handles {
 public:
  std::uint64_t add(std::shared_ptr<T> one) {
    const std::lock_guard lock(mutex_);
    all_.emplace(++last_, std::move(one));
    return last_;
  }
  std::shared_ptr<T> find(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    const auto at = all_.find(handle);
    return at == all_.end() ? nullptr : at->second;
  }
  std::shared_ptr<T> take(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    const auto at = all_.find(handle);
    if (at == all_.end()) return nullptr;
    auto one = std::move(at->second);
    all_.erase(at);
    return one;
  }

 private:
  std::mutex mutex_{};
  std::map<std::uint64_t, std::shared_ptr<T>> all_{};
  std::uint64_t last_ = 0;
};
// Where rank 0 may be, each HOST:PORT: `root`, or of `hosts`, "HOST[:PORT],HOST,...", each with the first one's port.
// One of them is null. `ranks`: how many hosts there must be; 0: a newcomer does not know.
Result<std::vector<std::string>> addresses_of(const char* root, const char* hosts, int ranks);

// What a group of ranks is made of, and outlives it.
struct Met {
  std::string root{};  // where they met; empty: there is one rank alone
  std::unique_ptr<OwnTransport> transport{};
  std::unique_ptr<rendezvous::Bootstrap> bootstrap{};
};
// Blocks until all `ranks` have met, and `helpers`, that may stay away.
Result<Met> meet(const char* root, const char* hosts, int rank, int ranks, int helpers = 0);

}  // namespace clustar::paraexpress
