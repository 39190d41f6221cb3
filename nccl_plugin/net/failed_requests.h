// Requests of a connection that had failed already when they were posted: their test says so. NCCL's own transports
// queue what is posted to a peer that left, and programs written against them take an error of isend or irecv for a
// mistake of their own (v2.28.9 src/transport/net_socket.cc ncclNetSocketIsend).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "transport/api/transport.h"

namespace clustar::nccl_plugin {

// One connection's; its caller's only. They end with it.
class FailedRequests {
 public:
  // As many as a connection may have outstanding (NCCL_NET_MAX_REQUESTS, each of the parts of a grouped receive).
  static constexpr std::size_t kMost = 32 * transport::kMaxRecvParts;

  // Null: all are outstanding; test one. The first error stays that of all: a connection fails once.
  transport::Request* take(const Error& error) {
    if (!error_) {
      error_ = error;
      requests_ = std::make_unique<Failed[]>(kMost);
    }
    for (std::size_t i = 0; i < kMost; ++i) {
      Failed& request = requests_[i];
      if (request.error != nullptr) continue;
      request.error = &*error_;
      return &request;
    }
    return nullptr;
  }

 private:
  struct Failed final : transport::Request {
    Result<transport::Progress> test() override {
      if (error == nullptr) return fail(ErrorCode::kInvalidUsage, "a request that has failed was tested again");
      return tl::unexpected(*std::exchange(error, nullptr));
    }
    const Error* error = nullptr;  // null: free
  };

  std::optional<Error> error_;
  std::unique_ptr<Failed[]> requests_{};  // none before the first failure
};

}  // namespace clustar::nccl_plugin
