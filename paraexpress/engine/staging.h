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
  using Unregister = std::function<void(Block&)>;
  static constexpr std::size_t kMostKept = 256ull << 20;  // bytes that nobody uses

  Staging(Register add, Unregister remove) : register_(std::move(add)), unregister_(std::move(remove)) {}
  // At least so many bytes. The block stays this pool's, and at its place, until it is given back.
  Result<Block*> take(std::size_t bytes);
  // What nobody has used for longest goes, beyond kMostKept.
  void give_back(Block* block);
  // What a block of at least so many bytes has.
  static std::size_t rounded(std::size_t bytes);

 private:
  const Register register_;
  const Unregister unregister_;
  std::vector<std::unique_ptr<Block>> all_{};
  std::vector<Block*> free_{};  // the latest last
};

}  // namespace clustar::paraexpress
