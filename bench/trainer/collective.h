// How a rank sums its gradients with the other ranks: the trainer's own interface, whatever does it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "bench/trainer/precision/precision.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

// Memory that a collective reads and writes. Opaque: only the implementation follows the pointers. `host` alone or
// with `device`, its mirror: Collective::map() made it. `device` alone: a trainer that computes there owns it.
struct Buffer {
  std::byte* host = nullptr;
  std::byte* device = nullptr;

  bool on_host_alone() const { return host != nullptr && device == nullptr; }
  Buffer at(std::size_t bytes) const {
    return {host != nullptr ? host + bytes : nullptr, device != nullptr ? device + bytes : nullptr};
  }
};

// Work in order on a device (a cudaStream_t), and a point in it (a cudaEvent_t). Null: of the calling thread, which has
// done its work when it calls.
struct Stream {
  void* handle = nullptr;
};
struct Event {
  void* handle = nullptr;
};

// What one collective did on this rank.
struct CollectiveOutcome {
  double seconds = 0;  // from its start to its end
  // Of what may lose contributions and knows which: elements of one rank that this rank did not receive, of those that
  // it expected; of a tolerant collective, elements of this rank's that are not in the sums yet, of those that it gave.
  std::uint64_t missing_contributions = 0;
  std::uint64_t expected_contributions = 0;
};

// A started collective. Its buffers stay valid and untouched until wait() returned, or, on a device, by work that
// hold_back() held back.
class Pending {
 public:
  virtual ~Pending() = default;
  virtual Result<CollectiveOutcome> wait() = 0;  // blocks; the error says what failed
  // What `stream` is given from now on begins after this collective. Blocks where the host does the work.
  virtual Result<void> hold_back(Stream stream) = 0;
};

// Payload of one rank since creation.
struct Traffic {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t send_retries = 0;  // the plugin answered "try again"
  std::uint64_t idle_yields = 0;

  Traffic& operator+=(const Traffic& more) {
    bytes_sent += more.bytes_sent;
    bytes_received += more.bytes_received;
    messages_sent += more.messages_sent;
    messages_received += more.messages_received;
    send_retries += more.send_retries;
    idle_yields += more.idle_yields;
    return *this;
  }
};

// Thread rule: calls from one thread at a time. Collectives run in the order of their starts, the same on all ranks.
class Collective {
 public:
  virtual ~Collective() = default;  // as close()

  virtual int size() const = 0;
  // Prepares `bytes` of host memory for collectives, and for parts of it by Buffer::at(). It stays valid until close().
  // What fails here, the first collective that uses it reports.
  virtual Buffer map(void* host, std::size_t bytes) = 0;

  // Whether it takes a buffer with a `device` side alone, which map() did not make.
  virtual bool takes_device_memory() const { return false; }
  // Such memory, of which collectives will be given parts: it may be made known to a NIC, and stays valid until
  // close(). What fails here, the first collective reports.
  virtual void adopt(Buffer /*device*/, std::size_t /*bytes*/) {}

  // Before a step's first all_reduce(), and before its gradients are computed. False: they would come too late. Then
  // the all-reduces of this step take nothing from their buffers, but bring the sums all the same.
  virtual bool begin_step() { return true; }
  // In place: the sum over the ranks, the same bits on all of them. `count` elements of `type`; of 16 bits every sum of
  // two, or each once for all ranks, is rounded to it. `ready`: when the buffer holds what it shall send. `lost`: null,
  // or `count` elements that receive what was lost of this rank's own, and 0 elsewhere; only where tells_lost(), and
  // only of float32.
  virtual std::unique_ptr<Pending> all_reduce(Buffer values, std::size_t count, Precision type, Event ready,
                                              float* lost) = 0;
  // `all` holds size() times `bytes`, in rank order.
  virtual std::unique_ptr<Pending> all_gather(Buffer own, Buffer all, std::size_t bytes, Event ready) = 0;
  virtual bool tells_lost() const { return false; }
  // In place: of size() blocks of `count` elements the one of this rank's number becomes its sum over the ranks. The
  // others' contents are of no use then.
  virtual std::unique_ptr<Pending> reduce_scatter(Buffer values, std::size_t count, Precision type, Event ready);
  // `send` and `recv` hold a block for each rank and from each, in rank order, of these bytes: what rank a sends to b
  // is what b expects of a. Host memory. Never lossy.
  struct BlockSizes {
    std::vector<std::size_t> send, recv;
  };
  virtual std::unique_ptr<Pending> all_to_all(Buffer send, Buffer recv, const BlockSizes& bytes);

  // Fails every pending and future collective, without closing anything yet.
  virtual void abort() = 0;
  // With the first error of closing. Idempotent.
  virtual Result<void> close() = 0;
  // Nothing: it does not tell.
  virtual std::optional<Traffic> traffic() const = 0;
};

}  // namespace clustar::bench::trainer
