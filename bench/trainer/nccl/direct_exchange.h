// An all-reduce in a GPU's memory by NCCL's sends and receives: each rank adds up its part of what all others send it,
// by clustar's kernels, and the sums go round by all-gather. A lost packet costs one rank's contribution there and no
// partial sum, and the plugin's C API (nccl_plugin/clustar.h) says which: it is taken out, and what came is scaled up.
// Where CLUSTAR_LOSS_IMPORTANT is set, a kernel finds the largest gradients before, and they are marked, so that none
// of them is lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/proxy/communicator.h"
#include "bench/proxy/direct_blocks.h"
#include "bench/proxy/loss_reports.h"
#include "bench/proxy/plugin_library.h"
#include "bench/trainer/nccl/communicator.h"
#include "bench/trainer/nccl/losses.h"
#include "bench/trainer/nccl/options.h"
#include "gdr/launch/device.h"
#include "nccl_plugin/clustar.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

// All of it happens in the order of one stream, to which the calls only add: so one set of memory serves any number of
// exchanges that are under way. A call waits where NCCL connects the ranks, in the first exchange, and where a bucket
// is larger than all before it, for which memory is made; what was outgrown stays until the end. Of one thread.
class DirectExchange {
 public:
  // kUnavailable: there is no such GPU, or the plugin has no API for what was asked.
  // `comm_name`: of the communicator whose exchanges it makes, as the plugin knows it.
  static Result<std::unique_ptr<DirectExchange>> open(const DirectOptions& options, const std::string& comm_name,
                                                      int rank, int size);

  // The communicator's.
  void* stream() const { return device_->stream(); }

  // Gradients of the device, registered with NCCL so that it sends from them. They stay until it gives
  // that up.
  Result<void> adopt(NcclCommunicator& communicator, std::byte* memory, std::size_t bytes);

  // In place, of float32 in adopted memory, behind what the stream was given. `notes` is filled in before its end.
  Result<void> all_reduce(NcclCommunicator& communicator, float* values, std::size_t count,
                          const std::shared_ptr<ExchangeNotes>& notes);

  // Before the communicator ends; one that was aborted has forgotten them by itself.
  Result<void> give_up_registrations(NcclCommunicator& communicator);
  // Once the stream is done, and before it goes with this.
  Result<void> free_memory(const NcclCommunicator& communicator);

 private:
  // Memory of the device, perhaps with a side of pinned memory of the host.
  struct Room {
    std::byte* device = nullptr;
    std::unique_ptr<std::byte[]> host;
    std::size_t bytes = 0;
    bool pinned = false;
  };
  // Who has sent what to whom in one exchange: `number` counts the sends of that rank to this one.
  struct Arrival {
    int sender = 0;
    std::uint64_t number = 0;
  };
  struct Marking;
  struct Looking;

  DirectExchange(const DirectOptions& options, std::string comm_name, int rank, int size)
      : options_(options),
        comm_name_(std::move(comm_name)),
        rank_(rank),
        size_(size),
        receives_(static_cast<std::size_t>(size)) {}
  Result<void> open_plugin();
  Result<void> make_room(NcclCommunicator& communicator, std::size_t count);
  Result<void> grow(const NcclCommunicator& communicator, Room& room, std::size_t bytes, bool pinned);
  Result<void> registered(NcclCommunicator& communicator, std::byte* memory, std::size_t bytes);
  Result<void> mark_important(NcclCommunicator& communicator, const float* values, std::size_t count,
                              const std::shared_ptr<ExchangeNotes>& notes);
  Result<void> exchange(NcclCommunicator& communicator, const float* values, std::size_t count,
                        std::vector<Arrival>& arrivals);
  Result<void> look_for_losses(NcclCommunicator& communicator, std::vector<Arrival> arrivals, std::size_t elements,
                               const std::shared_ptr<ExchangeNotes>& notes);
  Result<void> add_up(const float* values, const proxy::Block& own, std::size_t share);
  float* contribution(int rank, const proxy::Block& own) const;
  Result<std::vector<proxy::ElementRange>> missing_of(const Arrival& arrival, std::size_t elements);
  std::uint64_t comm_id();
  // On a thread of the CUDA runtime, in the stream's order: no call of CUDA's is allowed there.
  static void mark(void* marking);
  static void look(void* looking);

  DirectOptions options_;
  std::string comm_name_;
  int rank_;
  int size_;
  std::unique_ptr<gdr::launch::Device> device_;
  proxy::Library library_;
  const clustarApi_v1_t* api_ = nullptr;     // null: the plugin has none, and nothing is ever missing
  const clustarApi_v2_t* marker_ = nullptr;  // null: nothing is marked
  std::unique_ptr<proxy::LossReports> reports_;
  std::vector<std::uint64_t> receives_;  // so far, by sender
  Room contributions_, sums_, tables_, weights_;
  std::vector<Room> outgrown_;  // the stream may still use them
  std::vector<void*> registrations_;
  std::vector<std::pair<std::byte*, std::size_t>> adopted_;
  std::uint64_t comm_id_ = 0;  // of the callbacks
  bool knows_comm_id_ = false;
};

}  // namespace clustar::bench::trainer
