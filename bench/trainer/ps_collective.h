// The baseline of 2018: one parameter server, which rank 0's process runs, and a plain TCP connection to it from each
// worker, rank 0 included. Gradients are copied into a message and out of it again, as an RPC library's serialisation
// did, and nothing is sent before it is waited for, so that no communication overlaps with computing.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "bench/proxy/bootstrap.h"
#include "bench/proxy/socket_io.h"
#include "bench/trainer/collective.h"
#include "bench/trainer/ps_frames.h"
#include "bench/trainer/ps_server.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

// Sums in rank order, with the same bits on all ranks. What the kernel gives a TCP connection, this one has: its
// congestion control, its least retransmission time.
class PsCollective final : public Collective {
 public:
  struct Options {
    std::string root;         // HOST:PORT of rank 0's rendezvous: the server is on that host, at a port of its own
    std::uint64_t token = 0;  // the same on all ranks, and unknown elsewhere
    std::chrono::milliseconds join_timeout{60000};
    std::chrono::milliseconds stall_timeout{120000};  // the longest that nothing of a collective moves; 0: forever
  };
  // All ranks call it; `bootstrap` is used during the call only.
  static Result<std::unique_ptr<PsCollective>> create(proxy::Bootstrap& bootstrap, const Options& options);
  ~PsCollective() override { (void)close(); }

  int size() const override { return size_; }
  Buffer map(void* host, std::size_t) override { return {static_cast<std::byte*>(host)}; }
  // There is no device here, so an event or a buffer of one is a mistake of the caller. A Pending runs it, and those
  // before it, when it is waited for, or when it goes; the collective outlives it.
  // Of float32 only.
  std::unique_ptr<Pending> all_reduce(Buffer values, std::size_t count, Precision type, Event ready,
                                      float* lost) override;
  std::unique_ptr<Pending> all_gather(Buffer own, Buffer all, std::size_t bytes, Event ready) override;
  void abort() override;
  Result<void> close() override;
  // Between processes: what rank 0 says to its own server does not count.
  std::optional<Traffic> traffic() const override;

  const std::string& server() const { return server_address_; }
  // Of the connections between hosts.
  const std::string& congestion_control() const { return congestion_control_; }

 private:
  class Waiting;
  struct Operation {
    ps::Kind kind = ps::kSum;
    std::span<const std::byte> from{};
    std::span<std::byte> into{};
    std::optional<Result<CollectiveOutcome>> outcome{};  // nothing: it has not run
  };

  explicit PsCollective(proxy::Bootstrap& bootstrap) : rank_(bootstrap.rank()), size_(bootstrap.size()) {}
  Result<void> connect(proxy::Bootstrap& bootstrap, const Options& options);
  std::unique_ptr<Pending> add(Operation operation);
  void run_next();
  Result<void> exchange(const Operation& operation);
  Result<void> send(std::span<const std::byte> message);
  Result<void> receive(std::span<std::byte> into);
  Result<void> receive_header(ps::Kind kind, std::uint64_t length);
  tl::unexpected<Error> break_down(Error error);

  const int rank_;
  const int size_;
  std::chrono::milliseconds patience_{};
  std::unique_ptr<PsServer> server_;  // of rank 0
  std::string server_address_;
  std::string congestion_control_;
  FileDescriptor connection_;
  std::deque<std::shared_ptr<Operation>> waiting_;  // in the order of their starts
  std::uint64_t sequence_ = 0;
  ps::Message message_;
  Traffic traffic_;
  std::optional<Error> broken_;
};

}  // namespace clustar::bench::trainer
