// The transport that the environment's settings choose, for what sends without a net plugin.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/base/result.h"
#include "transport/base/system_clock.h"
#include "transport/registry.h"

namespace clustar::paraexpress {

class OwnTransport {
 public:
  // Of the transport's devices it takes one by `number`, in turn.
  static Result<std::unique_ptr<OwnTransport>> choose(int number);

  transport::Transport& transport() const { return *selection_.transport; }
  int device() const { return device_; }
  const std::string& device_name() const { return transport().devices()[static_cast<std::size_t>(device_)].name; }
  std::uint32_t job() const { return job_; }
  // What it warned of since the call before. Any thread.
  std::vector<std::string> take_warnings();

 private:
  struct Warnings;
  OwnTransport();

  std::shared_ptr<Warnings> warnings_;
  SystemClock clock_;  // outlives the transport
  transport::Selection selection_;
  int device_ = 0;
  std::uint32_t job_ = 0;
};

}  // namespace clustar::paraexpress
