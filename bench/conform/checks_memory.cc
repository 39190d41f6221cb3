// memory.*: registrations of any range, in any order, and of what the plugin does not take.
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>

#include "bench/conform/session.h"

namespace clustar::bench::conform {
namespace {

constexpr std::size_t kKiB = 1024;

std::string check_unaligned(const Env& env) {
  struct Range {
    std::size_t shift, size;
  };
  constexpr std::array kRanges = {Range{1, 4095}, Range{4095, 2}, Range{100, 1}, Range{64, 70001},
                                  Range{2047, (1 << 20) + 3}};
  Session session(env);
  Link link = session.link();
  std::uint64_t seed = 1;
  for (const auto& from : kRanges) {
    const Range& into = kRanges[seed % kRanges.size()];
    // The whole registration is a message, of either end's length.
    exchange(session, link, from.size, seed++, {Memory::kHost, from.shift}, {Memory::kHost, into.shift});
  }
  return "5 ranges that begin and end within pages, each a message from its first to its last byte";
}

// Three registrations of one buffer: the first two overlap, the third lies within both.
struct Overlap {
  static constexpr std::size_t kBuffer = 1024 * kKiB;
  static constexpr std::array<std::size_t, 3> kOffset = {0, 300 * kKiB, 400 * kKiB};
  static constexpr std::array<std::size_t, 3> kSize = {600 * kKiB, 724 * kKiB, 100 * kKiB};
  // Where in the buffer each one's message is: within it, and beside the others'.
  static constexpr std::array<std::size_t, 3> kMessage = {100 * kKiB + 1, 700 * kKiB + 3, 430 * kKiB + 5};
  static constexpr std::size_t kBytes = 60 * kKiB + 7;
};

std::string check_overlapping(const Env& env) {
  Session session(env);
  Link link = session.link();
  Region from(session, link.send_comm, Overlap::kBuffer);
  Region into(session, link.recv_comm, Overlap::kBuffer);
  std::array<std::size_t, 3> order = {0, 1, 2};
  std::uint64_t seed = 1;
  int orders = 0;
  do {
    std::array<std::optional<Region>, 3> sends, recvs;
    for (std::size_t i = 0; i < 3; ++i) {
      sends[i].emplace(session, link.send_comm, from, Overlap::kOffset[i], Overlap::kSize[i]);
      recvs[i].emplace(session, link.recv_comm, into, Overlap::kOffset[i], Overlap::kSize[i]);
    }
    std::array<bool, 3> gone{};
    for (const std::size_t victim : order) {
      note_step(fmt::format("deregistering in the order {}, {}, {} while the others carry messages", order[0], order[1],
                            order[2]));
      gone[victim] = true;
      into.clear();
      std::vector<Transfer> transfers;
      for (std::size_t i = 0; i < 3; ++i) {
        if (gone[i]) continue;
        const std::size_t at = Overlap::kMessage[i] - Overlap::kOffset[i];
        from.fill(seed + i, Overlap::kMessage[i], Overlap::kBytes);
        transfers.push_back(link.recv(*recvs[i], at, Overlap::kBytes));
        transfers.push_back(link.send(*sends[i], at, Overlap::kBytes));
      }
      std::vector<Transfer*> all;
      for (Transfer& transfer : transfers) all.push_back(&transfer);
      session.advance_all(all);
      sends[victim].reset();
      recvs[victim].reset();
      session.complete(all);
      for (std::size_t i = 0; i < 3; ++i) {
        if (gone[i]) continue;
        into.expect(seed + i, Overlap::kMessage[i], Overlap::kBytes,
                    fmt::format("a message in registration {} after {} was deregistered", i, victim));
      }
      seed += 3;
    }
    ++orders;
  } while (std::next_permutation(order.begin(), order.end()));
  exchange(session, link, 65536, seed);
  return fmt::format("three that overlap, in all {} orders; the others' messages went on", orders);
}

std::string check_dereg_in_flight(const Env& env) {
  constexpr std::size_t kCount = 8;
  constexpr std::size_t kSize = 1024 * kKiB;
  Session session(env);
  std::size_t ended = 0, failed = 0;
  for (const bool sender_first : {true, false}) {
    Link link = session.link();
    Region from(session, link.send_comm, kCount * kSize);
    Region into(session, link.recv_comm, kCount * kSize);
    std::vector<Transfer> transfers;
    for (std::size_t i = 0; i < kCount; ++i) {
      transfers.push_back(link.recv(into, i * kSize, kSize));
      transfers.push_back(link.send(from, i * kSize, kSize));
    }
    note_step(fmt::format("deregistering with {} transfers in flight", transfers.size()));
    for (Transfer& transfer : transfers) session.must(session.advance(transfer), "isend or irecv");
    (sender_first ? from : into).deregister();
    (sender_first ? into : from).deregister();
    // A connection that failed is not asked again, as by NCCL; what waits for it ends with it.
    const auto begin = Clock::now();
    bool broken = false;
    std::size_t open = 1;
    while (open > 0 && !broken) {
      open = 0;
      std::array<bool, 2> older_open{};  // of the receives and of the sends: NCCL tests the oldest only
      for (Transfer& transfer : transfers) {
        if (transfer.request == nullptr || transfer.done || broken) continue;
        if (!older_open[transfer.is_send]) broken = session.advance(transfer) != nccl_abi::kSuccess;
        ended += transfer.done ? 1 : 0;
        open += transfer.done || broken ? 0 : 1;
        older_open[transfer.is_send] |= !transfer.done;
      }
      if (Clock::now() - begin > env.stuck_bound) {
        fail_check(fmt::format("{} of {} transfers neither ended nor failed within {:.0f} s of their deregMr{}", open,
                               transfers.size(), seconds_since(begin), session.warning()));
      }
      sched_yield();
    }
    failed += broken ? 1 : 0;
  }
  Link link = session.link();
  exchange(session, link, 4096, 1);
  return fmt::format("{} transfers ended, {} of 2 connections failed; a new one works", ended, failed);
}

// Like a GPU's to a CPU: an address at which there is nothing to be read or pinned.
class NoCpuMemory {
 public:
  static constexpr std::size_t kBytes = 1 << 20;
  NoCpuMemory() : data_(mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (data_ == MAP_FAILED) fail_check("no address range to be had");
  }
  ~NoCpuMemory() { munmap(data_, kBytes); }
  NoCpuMemory(const NoCpuMemory&) = delete;
  NoCpuMemory& operator=(const NoCpuMemory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_;
};

std::string check_unadvertised(const Env& env) {
  Session session(env);
  const int support = session.properties().ptr_support;
  const bool cuda = (support & nccl_abi::kPtrCuda) == 0;
  const bool dma_buf = (support & nccl_abi::kPtrDmaBuf) == 0 && session.net().has_reg_mr_dma_buf();
  if (!cuda && !dma_buf) skip_check(fmt::format("ptrSupport {:#x} leaves out nothing that could be called", support));
  Link link = session.link();
  const NoCpuMemory memory;
  std::string refused;
  void* mhandle = nullptr;
  const auto expect_error = [&](const char* call, int result) {
    if (result == nccl_abi::kSuccess) {
      fail_check(fmt::format("{} succeeds for memory that no CPU can read, and ptrSupport is {:#x}", call, support));
    }
    refused += fmt::format("{}{}: {}", refused.empty() ? "" : "; ", call, result_name(result));
  };
  for (void* comm : {link.send_comm, link.recv_comm}) {
    if (cuda) {
      note_step("registering memory of a GPU with a plugin that does not advertise it");
      note_call("regMr");
      expect_error("regMr of NCCL_PTR_CUDA",
                   session.net().reg_mr(comm, memory.data(), NoCpuMemory::kBytes, nccl_abi::kPtrCuda, &mhandle));
    }
    if (dma_buf) {
      const int fd = memfd_create("conform", MFD_CLOEXEC);
      note_step("registering a dma-buf with a plugin that does not advertise it");
      note_call("regMrDmaBuf");
      const int result =
          session.net().reg_mr_dma_buf(comm, memory.data(), NoCpuMemory::kBytes, nccl_abi::kPtrCuda, 0, fd, &mhandle);
      close(fd);
      expect_error("regMrDmaBuf", result);
    }
  }
  exchange(session, link, 4096, 1);
  return refused;
}

constexpr Check kChecks[] = {
    {"memory.unaligned", "A registration may begin and end anywhere: what users register is their own buffers.",
     "transport/net.cc:1799, 1833", false, check_unaligned},
    {"memory.overlapping",
     "Registrations overlap, and each lives until its own deregMr, in any order, while others carry messages.",
     "transport/net.cc:1799, 1851; register/register.cc:59", false, check_overlapping},
    {"memory.dereg_in_flight",
     "deregMr may come before the requests ended, as on abort: they end or fail, nothing crashes or hangs.",
     "transport/net.cc:1139, 1184", false, check_dereg_in_flight},
    {"memory.unadvertised", "Memory of a kind that ptrSupport lacks is an error of regMr, and the connection goes on.",
     "transport/net.cc:729, 768", false, check_unadvertised},
};

}  // namespace

std::span<const Check> memory_checks() { return kChecks; }

}  // namespace clustar::bench::conform
