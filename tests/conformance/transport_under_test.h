// What an implementation of waist 1 gives to the conformance suite, and the helpers that the suite is written in.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "transport/api/transport.h"
#include "transport/base/log.h"

namespace clustar::transport::conformance {

struct TransportUnderTest {
  std::string name;
  // A transport on its own, as one process has it. `log` outlives it.
  std::function<Result<std::unique_ptr<Transport>>(Log log)> create;
  // It has no thread of its own: who stops calling answers nobody, not even one whose last acknowledgement was lost.
  bool only_calls_move_bytes = false;
  // Of connecting, transferring and closing: the full count once per transport; its other configurations only need to
  // show that nothing grows.
  int cycles = 50;
  // Of the suite's buffers. What is no host memory is emulated (CLUSTAR_GDR_EMULATE): a host pointer all the same.
  gdr::MemoryKind memory = gdr::MemoryKind::kHost;
};
inline void PrintTo(const TransportUnderTest& under_test, std::ostream* out) { *out << under_test.name; }

// The list of the program: transport_list.cc's for what runs everywhere, tests/rdma has another for what needs RDMA
// devices. tcp_under_test.cc and its like add to it.
std::vector<TransportUnderTest> transports_under_test();
std::vector<TransportUnderTest> tcp_under_test();
std::vector<TransportUnderTest> mlt_under_test();
std::vector<TransportUnderTest> staged_under_test();
std::vector<TransportUnderTest> toy_transport_under_test();
// Not among them, for they need more libraries: MLT over transport/sim, and over UDP with faults.
std::vector<TransportUnderTest> mlt_elsewhere_under_test();

// Calls `step` until it answers true; fails the test after `limit`. The transports make progress only when called.
bool poll_until(const std::function<bool()>& step, std::chrono::milliseconds limit = std::chrono::seconds(20));

struct Connection {
  std::unique_ptr<SendChannel> send;
  std::unique_ptr<RecvChannel> recv;
};
// `from` connects to `to`; they may be the same transport. `device`: of both.
Connection connect(Transport& from, Transport& to, const ChannelOptions& options = {}, int device = 0);

// `bytes` as memory of the kind under test; until a suite says otherwise that is host memory.
gdr::MemoryRef memory_under_test(std::vector<std::byte>& bytes);
void set_memory_under_test(gdr::MemoryKind kind);

// Memory with a registration on each kind of channel.
struct SendBuffer {
  SendBuffer(SendChannel& channel, std::size_t size, unsigned seed);
  std::vector<std::byte> bytes;
  std::unique_ptr<Mr> mr;
};
struct RecvBuffer {
  RecvBuffer(RecvChannel& channel, std::size_t size);
  std::vector<std::byte> bytes;  // filled with 0xEE
  std::unique_ptr<Mr> mr;
};

// Posts until the channel takes it.
Request* must_send(SendChannel& channel, const Mr& mr, std::size_t offset, std::size_t length, int tag = 0,
                   const FlowTag& flow = {});
Request* must_recv(RecvChannel& channel, const std::vector<RecvPart>& parts);
// Tests all until all are done; answers the sizes of each. `meanwhile` is called between.
std::vector<std::vector<std::size_t>> finish(const std::vector<Request*>& requests,
                                             const std::function<void()>& meanwhile = {});
// A receive at `to` that nothing comes for: a process that waits, and so answers who repeats what it has got already.
// Where only_calls_move_bytes and packets are lost, a send may not end without it.
class Waiting {
 public:
  Waiting(Transport& from, Transport& to);
  void test();

 private:
  Connection connection_;
  RecvBuffer buffer_;
  Request* request_;
};
// Tests until the request fails; the error, or an internal error if it completes or nothing happens in time.
Error await_error(Request& request, std::chrono::milliseconds limit = std::chrono::seconds(20));

}  // namespace clustar::transport::conformance
