// Any transport with GPU memory, emulated, staged around it.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "gdr/emulated_copy.h"
#include "transport/api/transport.h"
#include "transport/base/system_clock.h"
#include "transport/staged/staged_transport.h"

namespace clustar::transport::conformance {

std::unique_ptr<Transport> emulated_stage(std::unique_ptr<Transport> inner, Log log,
                                          const std::function<void(staged::Options&)>& change = {},
                                          const Clock* clock = nullptr);

// What the copies of all channels did, and what is to go wrong with them.
struct CopyProbe {
  std::atomic<std::size_t> objects{0};
  std::atomic<std::size_t> under_way{0};
  std::atomic<std::size_t> ended{0};
  std::atomic<std::size_t> left_under_way{0};  // when the object ended
  std::atomic<std::size_t> made{0};            // host buffers
  std::atomic<std::size_t> host_bytes{0};
  std::atomic<std::size_t> most_host_bytes{0};
  std::atomic<bool> stuck{false};         // no copy ends
  std::atomic<bool> fails{false};         // the next question for a copy is an error
  std::atomic<bool> dead{false};          // all questions are
  std::atomic<bool> refuses_more{false};  // no more host memory
};

// Of staged::Options: EmulatedCopy under a probe, which outlives the transport.
gdr::MakeCopy probed_copies(CopyProbe& probe, const gdr::EmulatedCopy::Options& options = {});

}  // namespace clustar::transport::conformance
