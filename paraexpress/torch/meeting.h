// How ranks meet: by the store that c10d gives to a backend.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "paraexpress/engine/engine.h"

namespace clustar::torch_backend {

// Each call is one of its own, so all ranks call it the same number of times.
paraexpress::AllGather meet_at(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                               std::chrono::milliseconds timeout);

}  // namespace clustar::torch_backend
