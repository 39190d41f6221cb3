// The board of one NIC in shared memory: a file in /dev/shm for each user, network namespace and NIC. Processes that do
// not share /dev/shm (containers, as a rule) have boards of their own and do not hear of each other.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "coflow/enforce/board.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"

namespace clustar::coflow::enforce {

// A place on a board, until it is destroyed: it is locked in the file, so that the kernel gives it back when the
// process dies. The last to leave removes the file.
class BoardPlace {
 public:
  // Error kSystem: no shared memory, a file of that name that is not ours alone, or all places are taken.
  static Result<std::unique_ptr<BoardPlace>> claim(const std::string& nic, const std::string& folder = "/dev/shm");
  // Of this process alone.
  static std::unique_ptr<BoardPlace> alone();
  ~BoardPlace();
  BoardPlace(const BoardPlace&) = delete;
  BoardPlace& operator=(const BoardPlace&) = delete;

  BoardState& state() { return *state_; }
  std::size_t slot() const { return slot_; }
  const std::string& path() const { return path_; }  // empty: alone

 private:
  BoardPlace() = default;
  Result<bool> try_claim();

  std::string path_;
  FileDescriptor file_;
  BoardState* state_ = nullptr;
  std::unique_ptr<BoardState> own_;
  std::size_t slot_ = 0;
  int owner_ = 0;  // process
};

}  // namespace clustar::coflow::enforce
