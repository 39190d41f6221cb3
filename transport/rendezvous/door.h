// For ranks that come after the others have met: rank 0 keeps a door at its address, newcomers knock, and it lets them
// in when the others are ready.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"
#include "transport/rendezvous/socket_io.h"

namespace clustar::rendezvous {

// Messages between the door and a newcomer. All ranks are of one build: frames are in host byte order.
class DoorLine {
 public:
  explicit DoorLine(FileDescriptor fd) : fd_(std::move(fd)) {}

  Result<void> say(std::span<const std::byte> message, Deadline deadline) const;
  // A message of `most` bytes or less.
  Result<std::vector<std::byte>> hear(std::size_t most, Deadline deadline) const;
  // It has not closed, and said nothing.
  bool open() const;
  // Ends it for all processes that have the descriptor.
  void end();
  int descriptor() const { return fd_.fd(); }  // to wait for what it says

 private:
  FileDescriptor fd_;
};

// Thread rule: one thread at a time.
class Door {
 public:
  static constexpr std::size_t kMostWaiting = 256;
  // Who has not knocked by then is sent away.
  static constexpr std::chrono::seconds kSilence{5};

  // HOST:PORT. Where HOST is none of this machine: all its addresses.
  static Result<std::unique_ptr<Door>> at(const std::string& address);
  // Nobody is held by it, nor the port, even where a child of this process has the descriptors, too.
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;
  // Does not block. How many wait, in the order of their coming; those that have gone are left out.
  std::uint32_t waiting();
  const DoorLine& line(std::uint32_t number) const { return waiting_[number]; }
  // The first of them are dealt with: their lines close.
  void let_go(std::uint32_t count);

 private:
  struct Stranger {
    FileDescriptor fd{};
    Deadline until{};
    std::vector<std::byte> said{};
    std::size_t got = 0;
  };
  explicit Door(FileDescriptor listener) : listener_(std::move(listener)) {}
  // Strangers that have knocked wait; those that are silent for too long, or say something else, are sent away.
  void hear();

  FileDescriptor listener_;
  std::vector<Stranger> strangers_{};
  std::vector<DoorLine> waiting_{};
};

// Knocks once. An address that is none, or does not resolve, is kInvalidArgument.
Result<DoorLine> knock(const std::string& address, Deadline deadline);

struct Answered {
  DoorLine line;
  std::vector<std::byte> message{};
};
// Knocks at all these addresses, and again where a line was closed, until one says a message of `most` bytes or less;
// then it hangs up at the others. One that accepts and says nothing, swallows packets or does not resolve holds nobody
// up at the others.
Result<Answered> knock_at_all(const std::vector<std::string>& addresses, std::size_t most, Deadline deadline);

}  // namespace clustar::rendezvous
