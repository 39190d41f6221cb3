// Memory that is registered once and used by one operation after the other: what is sent and received is copied through
// it, so that nothing reads or writes the caller's memory but the copies, whatever fails, and callers may free theirs.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "paraexpress/engine/mesh.h"
#include "transport/base/result.h"

namespace clustar::paraexpress {

class Staging {
 public:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  struct Block {
    std::unique_ptr<std::byte[], Free> memory{};
    std::size_t bytes = 0;
    std::unique_ptr<Registered> registered{};  // where it was registered with a mesh
  };
  using Register = std::function<Result<void>(Block&)>;

  explicit Staging(Register add) : register_(std::move(add)) {}
  // At least so many bytes. The block stays this pool's, and at its place, until the pool is gone.
  Result<Block*> take(std::size_t bytes);
  void give_back(Block* block) { free_.push_back(block); }

 private:
  const Register register_;
  std::vector<std::unique_ptr<Block>> all_{};
  std::vector<Block*> free_{};
};

}  // namespace clustar::paraexpress
