#include "tests/plugin/fake_nccl/model.h"

#include <algorithm>
#include <stdexcept>

namespace clustar::tests::fake_nccl {
namespace {

using namespace nccl_abi;

constexpr std::uint32_t kSteps = 8;  // NCCL_STEPS
// Data of one transfer of a long send: NCCL_P2P_NET_CHUNKSIZE, and half of an LL step (v2.28.9 src/enqueue.cc
// addP2pToPlan).
constexpr std::uint64_t kSendChunk = 128 * 1024;
constexpr std::uint64_t kSendChunkLL = 32 * 1024;

std::uint64_t div_up(std::uint64_t value, std::uint64_t by) { return (value + by - 1) / by; }
std::uint64_t align_up(std::uint64_t value, std::uint64_t to) { return div_up(value, to) * to; }

// One send of the kernel's program: what it carries, and which chunk of the ring.
struct Primitive {
  Content content;
  std::uint32_t chunk_back;  // chunk = ring index + ranks - chunk_back
};

// The sends of one loop of runRing, in program order.
std::vector<Primitive> ring_program(int function, std::uint32_t ranks) {
  std::vector<Primitive> sends;
  if (function == kAllReduce || function == kReduceScatter) {
    sends.push_back({Content::kPartialSum, 1});                                            // send
    for (std::uint32_t j = 2; j < ranks; ++j) sends.push_back({Content::kPartialSum, j});  // recvReduceSend
  }
  if (function == kAllReduce) {
    sends.push_back({Content::kFinalResult, ranks});                                            // recvReduceCopySend
    for (std::uint32_t j = 1; j + 1 < ranks; ++j) sends.push_back({Content::kFinalResult, j});  // recvCopySend
  }
  if (function == kAllGather) {
    sends.push_back({Content::kFinalResult, ranks});                                            // send or copySend
    for (std::uint32_t j = 1; j + 1 < ranks; ++j) sends.push_back({Content::kFinalResult, j});  // recvCopySend
  }
  return sends;
}

// Slices of one Simple primitive over `elements`; always `slices` of them, the last ones may be empty.
void add_slices(std::vector<Transfer>& out, Transfer like, std::int64_t elements, std::uint32_t slices,
                std::uint64_t slice_elements, std::uint32_t element_bytes) {
  const std::uint64_t all = elements < 0 ? 0 : static_cast<std::uint64_t>(elements);
  const std::uint64_t each = std::max(div_up(all, 16 * slices) * 16, slice_elements / 32);
  std::uint64_t offset = 0;
  for (std::uint32_t slice = 0; slice < slices; ++slice) {
    const std::uint64_t size = std::min(each, all - offset);
    like.slice = slice;
    like.bytes = size * element_bytes;
    out.push_back(like);
    offset += size;
  }
}

struct Chunking {
  std::uint64_t chunk_elements;
  std::uint64_t slice_elements;
  std::uint32_t slices;
};

Chunking chunking(const Communicator& comm, const Task& task, std::uint32_t element_bytes) {
  const bool simple_ring =
      task.protocol == kSimple && task.algorithm == kRing &&
      (task.function == kAllReduce || task.function == kAllGather || task.function == kReduceScatter);
  const std::uint64_t step_bytes = comm.buffer_bytes / kSteps;
  const std::uint32_t chunk_steps = simple_ring ? 4 : 1;
  const std::uint32_t slice_steps = simple_ring ? 2 : 1;
  std::uint64_t chunk_bytes = step_bytes * chunk_steps;
  if (task.protocol == kLL) chunk_bytes /= 16;  // LL's buffer is small and half of it flags
  if (task.protocol == kLL128) chunk_bytes = chunk_bytes / 16 * 15;
  chunk_bytes = std::max<std::uint64_t>(chunk_bytes / 512 * 512, 512);
  return {chunk_bytes / element_bytes, step_bytes * slice_steps / element_bytes, chunk_steps / slice_steps};
}

// All-reduce: each loop covers `ranks` chunks, which shrink in the last one.
void plan_all_reduce(const Communicator& comm, const Task& task, const Chunking& chunks, std::uint64_t elements,
                     std::uint32_t element_bytes, std::vector<Transfer>& out) {
  const std::uint32_t n = comm.ranks;
  const std::uint64_t per_loop = chunks.chunk_elements * n;
  const std::uint32_t index = static_cast<std::uint32_t>(comm.rank) % n;
  std::uint32_t loop = 0;
  for (std::uint64_t begin = 0; begin < elements; begin += per_loop, ++loop) {
    const std::uint64_t rest = elements - begin;
    const std::uint64_t chunk = rest < per_loop
                                    ? align_up(div_up(rest, n), std::max<std::uint64_t>(16 / element_bytes, 1))
                                    : chunks.chunk_elements;
    std::uint32_t sums = 0;
    std::uint32_t results = 0;
    for (const Primitive& send : ring_program(task.function, n)) {
      const std::uint64_t at = ((index + n - send.chunk_back) % n) * chunk;
      const auto size = std::min(static_cast<std::int64_t>(chunk), static_cast<std::int64_t>(rest - at));
      const std::uint32_t stage = send.content == Content::kPartialSum ? sums++ : results++;
      add_slices(out, {send.content, stage, loop, 0, 0}, size, chunks.slices, chunks.slice_elements, element_bytes);
    }
  }
}

// Reduce-scatter and all-gather: each loop covers one chunk of every rank's part.
void plan_part(const Communicator& comm, const Task& task, const Chunking& chunks, std::uint64_t elements,
               std::uint32_t element_bytes, std::vector<Transfer>& out) {
  std::uint32_t loop = 0;
  for (std::uint64_t begin = 0; begin < elements; begin += chunks.chunk_elements, ++loop) {
    const std::uint64_t size = std::min(chunks.chunk_elements, elements - begin);
    std::uint32_t stage = 0;
    for (const Primitive& send : ring_program(task.function, comm.ranks)) {
      add_slices(out, {send.content, stage++, loop, 0, 0}, static_cast<std::int64_t>(size), chunks.slices,
                 chunks.slice_elements, element_bytes);
    }
  }
}

// Trees, pipelines (broadcast, reduce), PAT, p2p: one transfer for each chunk of the channel's part.
void plan_pipeline(std::uint64_t elements, std::uint64_t chunk_elements, std::uint32_t element_bytes,
                   std::vector<Transfer>& out) {
  std::uint64_t begin = 0;
  do {
    const std::uint64_t size = std::min(chunk_elements, elements - begin);
    out.push_back({Content::kOther, 0, static_cast<std::uint32_t>(out.size()), 0, size * element_bytes});
    begin += chunk_elements;
  } while (begin < elements);
}

}  // namespace

const std::vector<Datatype>& datatypes() {
  // ncclDatatypeToString knows no ncclUint8 (v2.28.9 src/collectives.cc).
  static const std::vector<Datatype> all{
      {"ncclInt8", 0, 1, false},    {"Unknown", 1, 1, false},        {"ncclInt32", 2, 4, false},
      {"ncclUint32", 3, 4, false},  {"ncclInt64", 4, 8, false},      {"ncclUint64", 5, 8, false},
      {"ncclFloat16", 6, 2, true},  {"ncclFloat32", 7, 4, true},     {"ncclFloat64", 8, 8, true},
      {"ncclBfloat16", 9, 2, true}, {"ncclFloat8e4m3", 10, 1, true}, {"ncclFloat8e5m2", 11, 1, true},
  };
  return all;
}

const Datatype& datatype_named(const std::string& name) {
  for (const Datatype& datatype : datatypes()) {
    if (name == datatype.name) return datatype;
  }
  throw std::invalid_argument("no datatype of NCCL: " + name);
}

const char* function_name(int function) {
  static constexpr const char* kNames[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv",
                                           "Send",      "Recv",   "AlltoAll",  "Scatter",       "Gather"};
  return kNames[function];
}
const char* algorithm_name(int algorithm) {
  static constexpr const char* kNames[] = {"TREE",      "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS",
                                           "NVLS_TREE", "PAT"};
  return kNames[algorithm];
}
const char* protocol_name(int protocol) {
  static constexpr const char* kNames[] = {"LL", "LL128", "SIMPLE"};
  return kNames[protocol];
}

std::uint64_t event_count(const Task& task) {
  const bool in_bytes = task.function == kAllGather || task.function == kBroadcast;
  return in_bytes ? task.count * task.datatype.bytes : task.count;
}
const char* event_datatype(const Task& task) {
  const bool in_bytes = task.function == kAllGather || task.function == kBroadcast;
  return in_bytes ? "ncclInt8" : task.datatype.name;
}
std::uint64_t input_bytes(const Communicator& comm, const Task& task) {
  const std::uint64_t bytes = task.count * task.datatype.bytes;
  return task.function == kReduceScatter ? bytes * comm.ranks : bytes;
}

std::vector<ChannelPlan> plan(const Communicator& comm, const Task& task) {
  const std::uint64_t elements = event_count(task);
  const std::uint32_t element_bytes = task.is_collective() ? datatype_named(event_datatype(task)).bytes : 1;
  const std::uint64_t all = task.is_collective() ? elements : elements * task.datatype.bytes;
  const Chunking chunks = chunking(comm, task, element_bytes);
  // Of a send: ncclP2pPartBounds.
  const std::uint64_t unit = task.is_collective() ? std::max<std::uint64_t>(512 / element_bytes, 1) : 4096;
  const std::uint64_t per_channel = align_up(div_up(all, comm.channels), unit);
  std::vector<ChannelPlan> plans;
  for (std::uint32_t c = 0; c < comm.channels; ++c) {
    const std::uint64_t begin = std::min(all, c * per_channel);
    const std::uint64_t part = std::min(per_channel, all - begin);
    if (part == 0 && !(c == 0 && !task.is_collective())) continue;  // a p2p of 0 bytes sends an empty message
    ChannelPlan made{static_cast<std::uint8_t>(c), {}};
    const bool ring = task.algorithm == kRing && task.is_collective();
    if (ring && task.function == kAllReduce) {
      plan_all_reduce(comm, task, chunks, part, element_bytes, made.transfers);
    } else if (ring && (task.function == kReduceScatter || task.function == kAllGather)) {
      plan_part(comm, task, chunks, part, element_bytes, made.transfers);
    } else {
      const bool flagged = !task.is_collective() && task.protocol == kLL;
      const std::uint64_t sent = flagged ? kSendChunkLL : kSendChunk;
      plan_pipeline(part, task.is_collective() ? chunks.chunk_elements : sent, element_bytes, made.transfers);
      // A line of 16 bytes holds 8 of data.
      for (Transfer& transfer : made.transfers)
        transfer.bytes = flagged ? align_up(2 * transfer.bytes, 16) : transfer.bytes;
    }
    plans.push_back(std::move(made));
  }
  return plans;
}

}  // namespace clustar::tests::fake_nccl
