// gpu.*: memory of a GPU, played by host memory that has a descriptor. Only plugins that emulate can take it for one.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <numeric>

#include "bench/conform/process.h"
#include "bench/conform/raw_table.h"
#include "bench/conform/session.h"

namespace clustar::bench::conform {
namespace {

constexpr std::size_t kSlot = 64 * 1024;

std::string names_of(int types) {
  std::vector<const char*> names;
  if ((types & nccl_abi::kPtrCuda) != 0) names.push_back("NCCL_PTR_CUDA");
  if ((types & nccl_abi::kPtrDmaBuf) != 0) names.push_back("NCCL_PTR_DMABUF");
  return fmt::format("{}", fmt::join(names, " and "));
}

// None of these types is advertised: one would do.
void skip_without(const Session& session, int types) {
  const int support = session.properties().ptr_support;
  if ((support & types) == 0) {
    skip_check(fmt::format("ptrSupport {:#x} lacks {}: NCCL does not do it", support, names_of(types)));
  }
  if (!session.env().emulated_gpu) {
    skip_check("memory of a GPU cannot be had here; --emulated-gpu lets host memory play it, for plugins that emulate");
  }
}

// As NCCL chooses: a dma-buf where there may be one.
Memory preferred(const Session& session) {
  return (session.properties().ptr_support & nccl_abi::kPtrDmaBuf) != 0 ? Memory::kDmaBuf : Memory::kCuda;
}

std::string check_slot(const Env& env) {
  const RawTable table(env.plugin, env.version);
  Session session(env);
  int count = 0;
  session.must(session.net().devices(&count), "devices");
  int offering = 0;
  for (int dev = 0; dev < count; ++dev) {
    proxy::NetProperties props;
    session.must(session.net().get_properties(dev, &props), "getProperties");
    if ((props.ptr_support & nccl_abi::kPtrDmaBuf) == 0) continue;
    ++offering;
    if (table.slot(kRegMrDmaBuf) == nullptr) {
      fail_check(fmt::format("device {} advertises NCCL_PTR_DMABUF (ptrSupport {:#x}), and regMrDmaBuf is NULL", dev,
                             props.ptr_support));
    }
  }
  return fmt::format("{} of {} devices advertise it; regMrDmaBuf is {}", offering, count,
                     table.slot(kRegMrDmaBuf) == nullptr ? "NULL" : "there");
}

// All four ways between a buffer in host memory and one in a GPU's: NCCL chooses for each end by itself.
void exchange_all_ways(Session& session, Link& link, Place gpu) {
  std::uint64_t seed = 1;
  for (const std::size_t size : {std::size_t{1}, std::size_t{4096}, std::size_t{100'001}, std::size_t{4} << 20}) {
    exchange(session, link, size, seed++, gpu, gpu);
    exchange(session, link, size, seed++, gpu, {});
    exchange(session, link, size, seed++, {}, gpu);
  }
  exchange(session, link, 0, seed, gpu, gpu);
}

std::string check_cuda(const Env& env) {
  Session session(env);
  skip_without(session, nccl_abi::kPtrCuda);
  Link link = session.link();
  exchange_all_ways(session, link, {Memory::kCuda});
  return "messages of 0 B to 4 MiB from, to and between such buffers";
}

std::string check_dma_buf(const Env& env) {
  Session session(env);
  skip_without(session, nccl_abi::kPtrDmaBuf);
  Link link = session.link();
  exchange_all_ways(session, link, {Memory::kDmaBuf});
  return "messages of 0 B to 4 MiB; each descriptor was closed when regMrDmaBuf returned";
}

std::string check_dma_buf_offset(const Env& env) {
  Session session(env);
  skip_without(session, nccl_abi::kPtrDmaBuf);
  Link link = session.link();
  std::uint64_t seed = 1;
  for (const std::size_t offset : {std::size_t{4096}, std::size_t{65536}, (std::size_t{1} << 20) + 8192}) {
    const Place place{Memory::kDmaBuf, 0, offset};
    note_step(fmt::format("registering from offset {} of a dma-buf", offset));
    exchange(session, link, 70'001, seed++, place, {});
    exchange(session, link, 70'001, seed++, {}, place);
  }
  return "from offsets 4096, 65536 and 1056768, at either end";
}

std::string check_flush(const Env& env) {
  Session session(env);
  skip_without(session, nccl_abi::kPtrCuda | nccl_abi::kPtrDmaBuf);
  Link link = session.link();
  Region from(session, link.send_comm, kSlot);
  Region into(session, link.recv_comm, kSlot, {preferred(session)});
  int requests = 0;
  constexpr int kRounds = 50;
  for (int round = 1; round <= kRounds; ++round) {
    const std::size_t size = kSlot - static_cast<std::size_t>(round) * 17;
    from.fill(static_cast<std::uint64_t>(round), 0, size);
    into.clear();
    Transfer recv = link.recv(into, 0, kSlot);
    Transfer send = link.send(from, 0, size);
    session.complete({&recv, &send});
    note_step("flushing a receive into a GPU's memory; test has sizes NULL");
    requests += session.flush(recv) ? 1 : 0;
    into.expect(static_cast<std::uint64_t>(round), 0, size, "a message after its flush");
  }
  return fmt::format("{} receives; iflush gave {} requests, each was done by a test with sizes NULL", kRounds,
                     requests);
}

std::string check_flush_group(const Env& env) {
  Session session(env);
  skip_without(session, nccl_abi::kPtrCuda | nccl_abi::kPtrDmaBuf);
  const int most = session.properties().max_recvs;
  if (most < 2) skip_check("maxRecvs is 1: no grouped receives");
  Link link = session.link();
  const auto count = static_cast<std::size_t>(most);
  const auto size_of = [](std::size_t part) { return part % 2 == 0 ? std::size_t{0} : 1000 + part; };
  Region from(session, link.send_comm, count * kSlot);
  Region into(session, link.recv_comm, count * kSlot, {preferred(session)});
  into.clear();
  Transfer recv;
  recv.comm = link.recv_comm;
  std::vector<Transfer> sends;
  for (std::size_t i = 0; i < count; ++i) {
    const int tag = static_cast<int>(i) + 1;
    from.fill(i + 1, i * kSlot, size_of(i));
    recv.parts.push_back({&into, i * kSlot, kSlot, tag});
    sends.push_back(link.send(from, i * kSlot, size_of(i), tag));
  }
  std::vector<Transfer*> all{&recv};
  for (Transfer& send : sends) all.push_back(&send);
  session.complete(all);
  note_step(fmt::format("flushing {} receives, every other of size 0", most));
  const bool request = session.flush(recv);
  for (std::size_t i = 0; i < count; ++i) {
    into.expect(i + 1, i * kSlot, size_of(i), fmt::format("the message of tag {} after its flush", i + 1));
  }
  return fmt::format("{} receives, every other of size 0; {}", most, request ? "one request" : "a NULL request");
}

std::string check_descriptors(const Env& env) {
  constexpr int kCycles = 200;
  Session session(env);
  skip_without(session, nccl_abi::kPtrDmaBuf);
  Link link = session.link();
  const auto cycle = [&] {
    const Region send(session, link.send_comm, kSlot, {Memory::kDmaBuf});
    const Region recv(session, link.recv_comm, kSlot, {Memory::kDmaBuf});
  };
  for (int i = 0; i < 5; ++i) cycle();  // what a plugin opens once
  const auto before = open_descriptors();
  note_step(fmt::format("registering and deregistering {} dma-bufs", 2 * kCycles));
  const auto begin = Clock::now();
  for (int i = 0; i < kCycles; ++i) cycle();
  const double seconds = seconds_since(begin);
  const auto after = open_descriptors();
  if (after.size() > before.size()) {
    std::vector<std::string> more;
    for (const auto& [fd, target] : after) {
      if (before.count(fd) == 0 && more.size() < 3) more.push_back(target);
    }
    fail_check(fmt::format("{} descriptors more after {} registrations of dma-bufs, such as {}",
                           after.size() - before.size(), 2 * kCycles, fmt::join(more, ", ")));
  }
  exchange(session, link, kSlot, 1, {Memory::kDmaBuf}, {Memory::kDmaBuf});
  return fmt::format("{} descriptors before and {} after {} registrations, {:.0f} us each", before.size(), after.size(),
                     2 * kCycles, seconds * 1e6 / (2 * kCycles));
}

constexpr Check kChecks[] = {
    {"gpu.dma_buf_slot",
     "A plugin that advertises NCCL_PTR_DMABUF has regMrDmaBuf: without it NCCL takes no dma-buf in silence.",
     "init.cc:356; transport/net.cc:729, 954", true, check_slot},
    {"gpu.cuda",
     "A plugin that advertises NCCL_PTR_CUDA carries messages from, to and between GPUs' buffers and the host's.",
     "transport/net.cc:881, 959, 1048, 1114", false, check_cuda},
    {"gpu.dma_buf", "The descriptor is closed straight after regMrDmaBuf, and the memory stays registered.",
     "transport/net.cc:954-955, 1109-1110", false, check_dma_buf},
    {"gpu.dma_buf_offset", "A registration begins at an offset, of whole pages, of its dma-buf.",
     "include/plugin/net/net_v11.h:95; transport/net_ib.cc:1959", false, check_dma_buf_offset},
    {"gpu.flush", "After a receive into a GPU comes iflush: a NULL request or one whose test has sizes NULL.",
     "transport/net.cc:1563, 1578", false, check_flush},
    {"gpu.flush_group", "iflush names all parts of a grouped receive, those that got nothing with size 0.",
     "transport/net.cc:1529, 1540-1563", false, check_flush_group},
    {"gpu.descriptors", "Registering and deregistering dma-bufs leaves no descriptor: user buffers come and go.",
     "transport/net.cc:1792, 1851", false, check_descriptors},
};

}  // namespace

std::span<const Check> gpu_checks() { return kChecks; }

}  // namespace clustar::bench::conform
