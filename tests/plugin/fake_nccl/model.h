// What NCCL's core would send for a collective, from the order of its primitives and not from any formula of ours: the
// truth that the plugin's answers are compared with. Sources: NCCL v2.28.9 src/device/{all_reduce,reduce_scatter,
// all_gather}.h runRing, src/device/prims_simple.h genericOp, src/enqueue.cc calcCollChunking, collTaskAppend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "nccl_plugin/abi/types.h"

namespace clustar::tests::fake_nccl {

struct Datatype {
  const char* name;  // ncclDatatypeToString
  int number;        // ncclDataType_t
  std::uint32_t bytes;
  bool floating;
};
const std::vector<Datatype>& datatypes();
const Datatype& datatype_named(const std::string& name);

// As NCCL's *ToString functions spell them.
const char* function_name(int function);
const char* algorithm_name(int algorithm);
const char* protocol_name(int protocol);

// One rank's communicator.
struct Communicator {
  std::uint64_t id = 0;
  std::string name;
  std::uint32_t ranks = 2;
  std::uint32_t nodes = 2;
  int rank = 0;
  int traffic_class = -1;
  std::uint32_t channels = 1;
  std::size_t buffer_bytes = std::size_t{4} << 20;  // NCCL_BUFFSIZE; Simple's, and LL's are derived from it
};

// What the kernel does when it sends a slice.
enum class Content : std::uint8_t {
  kOther,        // anything but a ring's steps
  kPartialSum,   // of stage + 1 ranks: "send" and "recvReduceSend"
  kFinalResult,  // "recvReduceCopySend", "recvCopySend", or an all-gather's data
};

struct Transfer {
  Content content = Content::kOther;
  std::uint32_t stage = 0;
  std::uint32_t loop = 0;
  std::uint32_t slice = 0;
  std::size_t bytes = 0;
};

// What one channel's proxy sends over one connection, in order.
struct ChannelPlan {
  std::uint8_t channel = 0;
  std::vector<Transfer> transfers;
};

// A collective or one direction of a p2p, as the application asks for it.
struct Task {
  int function = nccl_abi::kAllReduce;
  Datatype datatype{};
  std::uint64_t count = 0;  // as the application gives it: of the receive buffer for reduce-scatter
  int algorithm = nccl_abi::kRing;
  int protocol = nccl_abi::kSimple;
  int peer = -1;            // of p2p
  int collective_api = -1;  // what the application called, for setNetAttr; -1 = function
  bool captured = false;    // by a CUDA graph

  bool is_collective() const { return function <= nccl_abi::kAllReduce; }
  int api() const { return collective_api < 0 ? function : collective_api; }
};

// What NCCL's Coll or P2p event says of a task: all-gather and broadcast count bytes there.
std::uint64_t event_count(const Task& task);
const char* event_datatype(const Task& task);
// S: bytes of one rank's input; of the message for p2p.
std::uint64_t input_bytes(const Communicator& comm, const Task& task);

// Sends of `comm.rank` for the task, per channel; a channel without elements has no plan.
std::vector<ChannelPlan> plan(const Communicator& comm, const Task& task);

}  // namespace clustar::tests::fake_nccl
