// What the conductor and an agent say to each other, over a pair of sockets.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "bench/coflow/live/lanes.h"
#include "bench/proxy/socket_io.h"
#include "transport/base/file_descriptor.h"

namespace clustar::bench::coflow::live {

enum class Word : std::uint8_t {
  kListen,   // to the agent that receives on the lane
  kHandle,   // its answer
  kConnect,  // to the lane's sender, with that handle
  kOpen,     // no more lanes come
  kReady,    // the answer: all of them are open
  kSend,     // a flow: the lane's sender is told of it, and
  kReceive,  // its receiver
  kArrived,  // the receiver: its last byte is here
  kFailed,   // the agent ends, with `text`
};

struct Message {
  Word word{};
  LaneId lane = 0;
  FlowToSend flow{};
  TimePoint at{};  // of kArrived
  LaneHandle handle{};
  std::array<char, 256> text{};
};
static_assert(std::is_trivially_copyable_v<Message>);

// One end. Messages arrive whole and in order.
class ControlEnd {
 public:
  static Result<std::pair<ControlEnd, ControlEnd>> pair();

  int fd() const { return fd_.fd(); }
  void close() { fd_.close(); }
  enum class Sent : std::uint8_t { kDone, kFull, kGone };
  Sent try_send(const Message& message) const;  // never blocks
  // False: the other end is gone, or has read nothing for so long.
  bool send(const Message& message, std::chrono::milliseconds patience) const;
  enum class State : std::uint8_t { kMessage, kNothing, kClosed };
  State receive(Message& message) const;  // never blocks

 private:
  explicit ControlEnd(FileDescriptor fd) : fd_(std::move(fd)) {}
  FileDescriptor fd_;
};

Message failed(const std::string& why);

}  // namespace clustar::bench::coflow::live
