// What NCCL hands a kernel, decoded and run: a thread per channel, and one per direction of send/receive.

#include <collectives.h>
#include <device.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <thread>
#include <vector>

#include "tests/nccl_host/binding/emulated_device.h"
#include "tests/nccl_host/binding/trace.h"
#include "tests/nccl_host/binding/unsupported.h"
#include "tests/nccl_host/kernels/chain.h"
#include "tests/nccl_host/kernels/ll.h"
#include "tests/nccl_host/kernels/reduction.h"
#include "tests/nccl_host/kernels/registered.h"
#include "tests/nccl_host/kernels/ring.h"
#include "tests/nccl_host/kernels/simple.h"

namespace nccl_host {
namespace {

static_assert(sizeof(FifoEntry) == sizeof(ncclConnFifo) && offsetof(FifoEntry, size) == offsetof(ncclConnFifo, size) &&
              offsetof(FifoEntry, offset) == offsetof(ncclConnFifo, offset) && kFifoOffsets == NCCL_MODE_OFFSET &&
              kSlots == NCCL_STEPS);
static_assert(int(Datatype::kBfloat16) == ncclBfloat16 && int(Datatype::kInt8) == ncclInt8);
static_assert(int(Operator::kSumPostDiv) == ncclDevSumPostDiv && int(Operator::kMinMax) == ncclDevMinMax);

// As it is called from 2.28 on.
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 28, 0)
using KernelComm = ncclDevComm;
using KernelCommAndChannels = ncclDevCommAndChannels;
#else
using KernelComm = ncclKernelComm;
using KernelCommAndChannels = ncclKernelCommAndChannels;
#endif

struct Function {
  int collective = 0;
  int op = 0;
  int type = 0;
  int protocol = 0;
  bool chain = false;  // CollNet's
};

// By funcId. Only rings and CollNet's chain are asked for, so what another algorithm runs under is not found.
std::map<int, Function> Functions() {
  std::map<int, Function> result;
  result[ncclDevFuncId_P2p()] = {ncclFuncSendRecv, ncclDevSum, ncclInt8, NCCL_PROTO_SIMPLE};
  for (const int protocol : {NCCL_PROTO_LL, NCCL_PROTO_SIMPLE}) {
    for (const int collective : {ncclFuncBroadcast, ncclFuncAllGather})
      result.emplace(ncclDevFuncId(collective, 0, 0, NCCL_ALGO_RING, protocol), Function{collective, 0, 0, protocol});
    for (const int collective : {ncclFuncAllReduce, ncclFuncReduceScatter, ncclFuncReduce}) {
      for (int op = 0; op < ncclNumDevRedOps; ++op) {
        for (int type = 0; type <= ncclBfloat16; ++type) {
          const int id = ncclDevFuncId(collective, op, type, NCCL_ALGO_RING, protocol);
          if (id >= 0) result.emplace(id, Function{collective, op, type, protocol});
        }
      }
    }
  }
  for (int op = 0; op < ncclNumDevRedOps; ++op) {
    for (int type = 0; type <= ncclBfloat16; ++type) {
      const int id = ncclDevFuncId(ncclFuncAllReduce, op, type, NCCL_ALGO_COLLNET_CHAIN, NCCL_PROTO_SIMPLE);
      if (id >= 0) result.emplace(id, Function{ncclFuncAllReduce, op, type, NCCL_PROTO_SIMPLE, true});
    }
  }
  return result;
}

const Function& FunctionOf(int id) {
  static const std::map<int, Function> functions = Functions();
  const auto found = functions.find(id);
  if (found == functions.end())
    NotEmulated("a tree, PAT, CollNet direct, NVLS, LL128 or fp8 kernel", "set NCCL_ALGO=Ring NCCL_PROTO=^LL128");
  return found->second;
}

// A connection for the life of a primitive, given back with its step.
class Borrowed {
 public:
  Borrowed(ncclConnInfo& from, int protocol, int buffer_size) : from_(from) {
    connection_.buffer = from.buffs[protocol];
    connection_.slot_size = protocol == NCCL_PROTO_SIMPLE ? from.stepSize : buffer_size / NCCL_STEPS;
    connection_.head = from.head;
    connection_.tail = from.tail;
    connection_.fifo = from.connFifo;
    connection_.step = from.step;
  }
  ~Borrowed() { from_.step = connection_.step; }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  Connection* get() { return &connection_; }

 private:
  ncclConnInfo& from_;
  Connection connection_;
};

struct Block {
  KernelComm& comm;
  ncclDevChannel& channel;
  int id;
  Poll poll() const { return Poll(const_cast<const uint32_t*>(comm.abortFlag)); }
};

// A test of the check of results: what arrives is passed on without this rank's share.
Operator OperatorOf(const Function& function) {
  static const bool broken = std::getenv("NCCL_HOST_WITHOUT_REDUCTION") != nullptr;
  return broken ? Operator::kNone : static_cast<Operator>(function.op);
}

uint64_t Argument(const ncclDevWorkColl& work, size_t size) {
  if (!work.redOpArgIsPtr) return work.redOpArg;
  uint64_t value = 0;
  std::memcpy(&value, reinterpret_cast<const void*>(work.redOpArg), size);
  return value;
}

// Whole ring steps are two slices of two slots where data is reduced or gathered, one of one elsewhere.
SimpleShape ShapeOf(int collective, size_t step_elements) {
  const bool pipelined =
      collective == ncclFuncAllReduce || collective == ncclFuncReduceScatter || collective == ncclFuncAllGather;
  return pipelined ? SimpleShape{2, 2, step_elements} : SimpleShape{1, 1, step_elements};
}

// Both halves wait for each other through the network, so each has a thread.
void RunChain(const Block& block, const Function& function, const ncclDevWorkColl& work) {
  const ncclTree& chain = block.channel.collnetChain;
  if (chain.up != block.comm.nRanks || chain.down[0] != -1)
    NotEmulated("CollNet's chain through several ranks of a node", "set an NCCL_HOSTID of its own for each rank");
  const auto type = static_cast<Datatype>(function.type);
  const size_t element = SizeOf(type);
  const Reduction reduction(OperatorOf(function), type, Argument(work, element));
  const ChainPart part{work.collnet.count, work.collnet.chunkCount,
                       static_cast<size_t>(work.channelHi - work.channelLo + 1),
                       static_cast<size_t>(block.id - work.channelLo)};
  const Buffers buffers{static_cast<const char*>(work.sendbuff), static_cast<char*>(work.recvbuff), element};
  const int size = block.comm.buffSizes[NCCL_PROTO_SIMPLE];
  const SimpleShape shape{1, 1, static_cast<size_t>(size) / NCCL_STEPS / element};
  ncclDevChannelPeer& network = *block.channel.peers[chain.up];
  std::atomic<bool> aborted = false;
  {
    std::jthread up([&] {
      try {
        Borrowed send(network.send[1], NCCL_PROTO_SIMPLE, size);
        Simple primitive(shape, reduction, nullptr, send.get(), block.poll());
        ChainUp(part, buffers, false, primitive);
      } catch (const Aborted&) {
        aborted = true;
      }
    });
    try {
      Borrowed receive(network.recv[0], NCCL_PROTO_SIMPLE, size);
      Simple primitive(shape, reduction, receive.get(), nullptr, block.poll());
      ChainDown(part, buffers, false, true, primitive);
    } catch (const Aborted&) {
      aborted = true;
    }
  }
  if (aborted) throw Aborted();
}

void RunCollective(const Block& block, const Function& function, ncclDevWorkColl& work) {
  if (work.regUsed || work.netRegUsed) NotEmulated("registered buffers", "set NCCL_LOCAL_REGISTER=0");
  if (function.chain) return RunChain(block, function, work);
  const bool reduces = function.collective != ncclFuncBroadcast && function.collective != ncclFuncAllGather;
  const auto type = reduces ? static_cast<Datatype>(function.type) : Datatype::kInt8;
  const size_t element = SizeOf(type);
  const Reduction reduction(OperatorOf(function), type, Argument(work, element));
  Part part;
  ncclCollCbdPart(&work, block.id, function.protocol, static_cast<int>(element), &part.total, &part.offset, &part.count,
                  &part.chunk);
  const ncclRing& links = block.channel.ring;
  const Ring ring{{links.userRanks, static_cast<size_t>(block.comm.nRanks)}, links.index};
  const Buffers buffers{static_cast<const char*>(work.sendbuff), static_cast<char*>(work.recvbuff), element};
  const int size = block.comm.buffSizes[function.protocol];
  Borrowed receive(block.channel.peers[links.prev]->recv[0], function.protocol, size);
  Borrowed send(block.channel.peers[links.next]->send[0], function.protocol, size);
  std::vector<int64_t> sizes;
  if (Traces()) send.get()->sizes = &sizes;
  const auto run = [&](Primitive& primitive) {
    const int root = static_cast<int>(work.root);
    switch (function.collective) {
      case ncclFuncAllReduce: return AllReduce(ring, part, buffers, primitive);
      case ncclFuncReduceScatter: return ReduceScatter(ring, part, buffers, primitive);
      case ncclFuncAllGather: return AllGather(ring, part, buffers, primitive);
      case ncclFuncBroadcast: return Broadcast(ring, part, buffers, root, primitive);
      default: return Reduce(ring, part, buffers, root, primitive);
    }
  };
  if (function.protocol == NCCL_PROTO_LL) {
    LowLatency primitive(reduction, receive.get(), send.get(), block.poll());
    run(primitive);
  } else {
    const size_t step = static_cast<size_t>(size) / NCCL_STEPS / element;
    Simple primitive(ShapeOf(function.collective, step), reduction, receive.get(), send.get(), block.poll());
    run(primitive);
  }
  if (Traces()) Trace(function.collective, function.protocol, block.id, sizes);
}

// Bytes of one direction that this channel carries.
struct Share {
  size_t begin = 0;
  size_t size = 0;
  bool any = false;
};

Share ShareOf(const Block& block, const ncclDevWorkP2p& work, int channels, size_t bytes) {
  const int index = ncclP2pChannelToPart(work.nP2pChannels, work.channelBase, block.id);
  if (index >= channels) return {};
  size_t begin = 0;
  size_t end = 0;
  ncclP2pPartBounds(channels, index, bytes, &begin, &end);
  return {begin, end - begin, true};
}

void RunDirection(const Block& block, const ncclDevWorkP2p& work, bool sends, const Share& share) {
  const bool ll = sends ? work.sendProtoLL : work.recvProtoLL;
  const int protocol = ll ? NCCL_PROTO_LL : NCCL_PROTO_SIMPLE;
  ncclDevChannelPeer& peer = *block.channel.peers[sends ? work.sendRank : work.recvRank];
  Borrowed connection(sends ? peer.send[1] : peer.recv[1], protocol, block.comm.buffSizes[protocol]);
  Connection* const receive = sends ? nullptr : connection.get();
  Connection* const send = sends ? connection.get() : nullptr;
  const Reduction bytes(Operator::kSum, Datatype::kInt8, 0);
  const bool registered = sends ? work.sendNetReg : work.recvNetReg;
  const size_t chunk =
      registered ? NCCL_MAX_NET_SIZE : u32fp8Decode(sends ? work.sendChunkSize_u32fp8 : work.recvChunkSize_u32fp8);
  const auto run = [&](Primitive& primitive) {
    if (sends)
      SendAll(static_cast<const char*>(work.sendAddr) + share.begin, share.size, chunk, primitive);
    else
      ReceiveAll(static_cast<char*>(work.recvAddr) + share.begin, share.size, chunk, primitive);
  };
  if (registered) {
    Registered primitive(receive, send, block.poll());
    run(primitive);
    primitive.Finish();
  } else if (ll) {
    LowLatency primitive(bytes, receive, send, block.poll());
    run(primitive);
  } else {
    Simple primitive({1, 1, static_cast<size_t>(block.comm.p2pChunkSize)}, bytes, receive, send, block.poll());
    run(primitive);
  }
}

// Directions wait for each other's peers, so each has a thread. False: aborted.
bool RunPointToPoint(const Block& block, const std::vector<ncclDevWorkP2p>& works) {
  std::atomic<bool> aborted = false;
  {
    std::vector<std::jthread> threads;
    for (const ncclDevWorkP2p& work : works) {
      if (work.sendIpcReg || work.recvIpcReg)
        NotEmulated("registered buffers within a node", "set NCCL_LOCAL_REGISTER=0");
      for (const bool sends : {false, true}) {
        const Share share = sends ? ShareOf(block, work, work.nSendChannels, work.sendBytes)
                                  : ShareOf(block, work, work.nRecvChannels, work.recvBytes);
        if (!share.any) continue;
        if (work.sendRank == block.comm.rank) {
          if (sends && work.sendAddr != work.recvAddr)
            std::memcpy(static_cast<char*>(work.recvAddr) + share.begin,
                        static_cast<const char*>(work.sendAddr) + share.begin, share.size);
          continue;
        }
        threads.emplace_back([&block, &work, &aborted, sends, share] {
          try {
            RunDirection(block, work, sends, share);
          } catch (const Aborted&) {
            aborted = true;
          }
        });
      }
    }
  }
  return !aborted;
}

template <class Work>
std::vector<Work> Works(const std::vector<char>& bytes) {
  std::vector<Work> result(bytes.size() / sizeof(Work));
  std::memcpy(static_cast<void*>(result.data()), bytes.data(), result.size() * sizeof(Work));
  return result;
}

// The profiler's thread polls the counter, and reads the time once it has changed.
template <class Work>
void Stamp(const Block& block, ncclDevProfiler* events, const std::vector<Work>& works) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  uint64_t counter = block.channel.workCounter;
  for (const Work& work : works) {
    ++counter;
    if (!work.profilerEnabled) continue;
    auto& event = events[block.id].data[counter % MAX_PROFILER_EVENTS_PER_CHANNEL];
    Release(event.timestamp, static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec));
    Release(event.counter, counter);
  }
}

template <class Work, class Run>
bool RunStamped(const Block& block, const std::vector<Work>& works, Run run) {
  Stamp(block, block.comm.workStarted, works);
  if (!run()) return false;
  Stamp(block, block.comm.workCompleted, works);
  block.channel.workCounter += works.size();
  return true;
}

bool RunBatch(const Block& block, const ncclDevWorkBatch& batch, const std::vector<char>& bytes) {
  const Function& function = FunctionOf(static_cast<int>(batch.funcId));
  if (batch.workType == ncclDevWorkTypeP2p) {
    const auto works = Works<ncclDevWorkP2p>(bytes);
    return RunStamped(block, works, [&] { return RunPointToPoint(block, works); });
  }
  if (batch.workType != ncclDevWorkTypeColl && batch.workType != ncclDevWorkTypeCollReg)
    NotEmulated("grouped broadcasts", "call each in a group of its own");
  if (batch.workType == ncclDevWorkTypeCollReg) NotEmulated("registered buffers", "set NCCL_LOCAL_REGISTER=0");
  auto works = Works<ncclDevWorkColl>(bytes);
  return RunStamped(block, works, [&] {
    try {
      for (ncclDevWorkColl& work : works) RunCollective(block, function, work);
      return true;
    } catch (const Aborted&) {
      return false;
    }
  });
}

void AppendWork(const ncclDevKernelArgs& args, const ncclDevWorkBatch& batch, std::vector<char>& bytes) {
  const size_t size = ncclDevWorkSize(static_cast<ncclDevWorkType>(batch.workType));
  for (uint64_t left = batch.offsetBitset; left != 0; left &= left - 1) {
    const size_t begin = batch.offsetBase + static_cast<size_t>(__builtin_ctzll(left)) * size;
    // A work may wrap around the end of the ring that it lies in, at a multiple of 16.
    for (size_t at = begin; at < begin + size; at += 16) {
      const char* from = args.workStorageType == ncclDevWorkStorageTypeArgs
                             ? reinterpret_cast<const char*>(&args) + at
                             : static_cast<const char*>(args.workBuf) + (at & args.workMask);
      bytes.insert(bytes.end(), from, from + 16);
    }
  }
}

void RunBlock(const ncclDevKernelArgs& args, int index, int channel) {
  auto& all = *reinterpret_cast<KernelCommAndChannels*>(args.comm);
  const Block block{all.comm, all.channels[channel], channel};
  const auto* batch = reinterpret_cast<const ncclDevWorkBatch*>(&args + 1) + index;
  for (;;) {
    std::vector<char> bytes;
    AppendWork(args, *batch, bytes);
    while (batch->nextExtends) {
      batch += batch->nextJump;
      AppendWork(args, *batch, bytes);
    }
    if (!RunBatch(block, *batch, bytes) || batch->nextJump == 0) return;
    batch += batch->nextJump;
  }
}

}  // namespace

void LaunchNcclKernel(const void* arguments, size_t size, const std::shared_ptr<Stream>& stream) {
  // NCCL reuses the arguments once the launch returns.
  auto copy =
      std::make_shared<std::vector<std::max_align_t>>((size + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
  std::memcpy(copy->data(), arguments, size);
  stream->Add([copy] {
    const auto& args = *reinterpret_cast<const ncclDevKernelArgs*>(copy->data());
    std::vector<std::jthread> blocks;
    int index = 0;
    for (uint64_t left = args.channelMask; left != 0; left &= left - 1)
      blocks.emplace_back(RunBlock, std::cref(args), index++, __builtin_ctzll(left));
  });
}

}  // namespace nccl_host
