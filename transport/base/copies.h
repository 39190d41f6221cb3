// How many bytes of payload our own code has copied since the process began, by reason: the measure of "zero copy".
// What the kernel or a NIC moves between the wire and registered memory does not count; headers do not, either.
// One set of counters for each shared object that links this, so a module has its own. Any thread may call.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace clustar {

enum class Copy : std::uint8_t {
  kSendBuffer,     // a message into a buffer of ours, so that its send is done at once
  kEager,          // came in one read with what was before it, then went to its place
  kEarly,          // waited in memory of ours for its receive
  kPlaced,         // from a packet or from staging to its place, or to where the NIC takes it there from
  kStaged,         // from a packet into staging: its receive is not known yet
  kMispredicted,   // a scatter read had put it into another packet's place; with the headers between
  kRetransmitted,  // repeated by other means than the first time, then went to its place
};
inline constexpr std::size_t kCopyKinds = 7;

struct CopyCounter {
  alignas(64) std::atomic<std::uint64_t> bytes{0};  // a cache line each: threads count different things
};
extern std::array<CopyCounter, kCopyKinds> g_copied;

inline void count_copy(Copy why, std::size_t bytes) {
  g_copied[static_cast<std::size_t>(why)].bytes.fetch_add(bytes, std::memory_order_relaxed);
}

std::uint64_t copied_bytes(Copy why);
std::uint64_t copied_bytes();  // of all kinds
// "0 bytes copied", or "4096 bytes copied (placed 4000, staged 96)".
std::string describe_copies();

}  // namespace clustar
