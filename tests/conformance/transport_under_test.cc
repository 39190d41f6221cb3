#include "tests/conformance/transport_under_test.h"

#include <sched.h>

#include <random>

namespace clustar::transport::conformance {
namespace {

gdr::MemoryKind g_memory_under_test = gdr::MemoryKind::kHost;

}  // namespace

gdr::MemoryRef memory_under_test(std::vector<std::byte>& bytes) {
  gdr::MemoryRef memory = gdr::MemoryRef::host(bytes.data(), bytes.size());
  memory.kind = g_memory_under_test;
  return memory;
}

void set_memory_under_test(gdr::MemoryKind kind) { g_memory_under_test = kind; }

bool poll_until(const std::function<bool()>& step, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!step()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    sched_yield();
  }
  return true;
}

Connection connect(Transport& from, Transport& to, const ChannelOptions& options, int device) {
  Connection connection;
  auto listener = to.listen(device, options);
  EXPECT_TRUE(listener) << listener.error().message;
  if (!listener) return connection;
  auto pending = from.connect(device, (*listener)->handle(), options);
  EXPECT_TRUE(pending) << pending.error().message;
  if (!pending) return connection;
  const bool connected = poll_until([&] {
    if (!connection.send) {
      auto polled = (*pending)->poll();
      EXPECT_TRUE(polled) << polled.error().message;
      if (!polled) return true;
      connection.send = std::move(*polled);
    }
    if (!connection.recv) {
      auto polled = (*listener)->poll_accept();
      EXPECT_TRUE(polled) << polled.error().message;
      if (!polled) return true;
      connection.recv = std::move(*polled);
    }
    return connection.send && connection.recv;
  });
  EXPECT_TRUE(connected) << "no connection within the limit";
  const auto again = (*pending)->poll();
  EXPECT_TRUE(again && !*again) << "a channel is given once";
  return connection;
}

SendBuffer::SendBuffer(SendChannel& channel, std::size_t size, unsigned seed) : bytes(size) {
  std::mt19937 random(seed);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  mr = std::move(channel.reg_mr(memory_under_test(bytes)).value());
}

RecvBuffer::RecvBuffer(RecvChannel& channel, std::size_t size) : bytes(size, std::byte{0xee}) {
  mr = std::move(channel.reg_mr(memory_under_test(bytes)).value());
}

Request* must_send(SendChannel& channel, const Mr& mr, std::size_t offset, std::size_t length, int tag,
                   const FlowTag& flow) {
  Request* request = nullptr;
  EXPECT_TRUE(poll_until([&] {
    const auto sent = channel.send(mr, offset, length, tag, flow);
    EXPECT_TRUE(sent) << sent.error().message;
    if (!sent) return true;
    request = *sent;
    return request != nullptr;
  }));
  return request;
}

Request* must_recv(RecvChannel& channel, const std::vector<RecvPart>& parts) {
  Request* request = nullptr;
  EXPECT_TRUE(poll_until([&] {
    const auto posted = channel.recv(parts);
    EXPECT_TRUE(posted) << posted.error().message;
    if (!posted) return true;
    request = *posted;
    return request != nullptr;
  }));
  return request;
}

std::vector<std::vector<std::size_t>> finish(const std::vector<Request*>& requests,
                                             const std::function<void()>& meanwhile) {
  std::vector<std::vector<std::size_t>> sizes(requests.size());
  std::vector<bool> done(requests.size(), false);
  std::size_t open = requests.size();
  EXPECT_TRUE(poll_until(
      [&] {
        if (meanwhile) meanwhile();
        for (std::size_t i = 0; i < requests.size(); ++i) {
          if (done[i]) continue;
          if (requests[i] == nullptr) return true;  // reported where it was posted
          const auto progress = requests[i]->test();
          EXPECT_TRUE(progress) << progress.error().message;
          if (!progress) return true;
          if (!progress->done) continue;
          sizes[i].assign(progress->sizes.begin(), progress->sizes.end());
          EXPECT_TRUE(progress->missing.empty());
          done[i] = true;
          --open;
        }
        return open == 0;
      },
      std::chrono::seconds(60)))  // a gibibyte, under ThreadSanitizer, beside other tests
      << open << " of " << requests.size() << " requests are not done";
  return sizes;
}

Waiting::Waiting(Transport& from, Transport& to)
    : connection_(connect(from, to)),
      buffer_(*connection_.recv, 1),
      request_(must_recv(*connection_.recv, {{buffer_.mr.get(), 0, 1, 0}})) {}

void Waiting::test() {
  const auto progress = request_->test();
  EXPECT_TRUE(progress) << progress.error().message;
}

Error await_error(Request& request, std::chrono::milliseconds limit) {
  Error error{ErrorCode::kInternal, "nothing happened within the limit"};
  poll_until(
      [&] {
        const auto progress = request.test();
        if (!progress) {
          error = progress.error();
          return true;
        }
        if (progress->done) error.message = "the request completed";
        return progress->done;
      },
      limit);
  return error;
}

}  // namespace clustar::transport::conformance
