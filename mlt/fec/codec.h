// The code of parity as C++: finds libclustar-fec.so, checks it, and gives what it does. No ISA-L here: the plugin
// loads without it, and every failure is a reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mlt/fec/table.h"
#include "transport/base/result.h"

namespace clustar::mlt::fec {

class Codec {
 public:
  static constexpr std::size_t kMaxPackets = Table::kMaxPackets;  // of a block
  static constexpr std::size_t kMaxRows = Table::kMaxRows;

  // From module_folders() (transport/base/own_folder.h).
  static Result<std::unique_ptr<Codec>> open();
  // Errors, all kUnavailable with the fix: absent, cannot be opened, of another build.
  static Result<std::unique_ptr<Codec>> open(const std::vector<std::string>& folders);
  ~Codec();
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  std::string library() const { return table_.version(); }

  // By any thread. All packets are `bytes` long, 64 KiB at most.
  // One row of the parity of `packets`. False: out of range.
  bool encode(std::span<const std::byte* const> packets, std::uint8_t row, std::size_t bytes, std::byte* out) const;
  // What is missing, in `places`, comes to `out`; `packets` has there, in that order, the parity of `rows`. False: out
  // of range, or something is named twice.
  bool rebuild(std::span<const std::byte* const> packets, std::span<const std::uint8_t> places,
               std::span<const std::uint8_t> rows, std::size_t bytes, std::span<std::byte* const> out) const;

 private:
  Codec(void* module, const Table& table) : module_(module), table_(table) {}

  void* const module_;
  const Table& table_;
};

}  // namespace clustar::mlt::fec
