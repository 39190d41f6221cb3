#include "bench/doctor/dpdk_rights.h"

#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/if_ether.h>
#include <linux/if_xdp.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

#include "transport/base/file_descriptor.h"

namespace clustar::bench::doctor {
namespace {

// In this user namespace, which owns the network namespace or does not: nothing harmless tells.
bool has_network_admin() {
  std::ifstream status("/proc/self/status");
  std::uint64_t effective = 0;
  for (std::string word; status >> word;) {
    if (word == "CapEff:") status >> std::hex >> effective;
  }
  return (effective >> CAP_NET_ADMIN & 1) != 0;
}

// One that passes every packet, and that no interface gets.
bool loads_xdp() {
  // r0 = XDP_PASS; exit
  const bpf_insn pass[] = {{BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, XDP_PASS}, {BPF_JMP | BPF_EXIT, 0, 0, 0, 0}};
  bpf_attr load{};
  load.prog_type = BPF_PROG_TYPE_XDP;
  load.insns = reinterpret_cast<std::uintptr_t>(pass);
  load.insn_cnt = 2;
  load.license = reinterpret_cast<std::uintptr_t>("GPL");
  const FileDescriptor program(static_cast<int>(::syscall(SYS_bpf, BPF_PROG_LOAD, &load, sizeof load)));
  return program.fd() >= 0;
}

bool locks(std::size_t memory) {
  void* const area = ::mmap(nullptr, memory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == MAP_FAILED) return false;
  bool locked = false;
  {
    const FileDescriptor socket(::socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0));
    xdp_umem_reg frames{};
    frames.addr = reinterpret_cast<std::uintptr_t>(area);
    frames.len = memory;
    frames.chunk_size = 4096;
    locked = ::setsockopt(socket.fd(), SOL_XDP, XDP_UMEM_REG, &frames, sizeof frames) == 0;
  }
  ::munmap(area, memory);
  return locked;
}

}  // namespace

DpdkRights dpdk_rights_here(std::size_t memory) {
  const FileDescriptor packets(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL)));
  return {packets.fd() >= 0, has_network_admin(), loads_xdp(), locks(memory)};
}

}  // namespace clustar::bench::doctor
