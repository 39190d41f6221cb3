// What devices there are, and that nothing of what is made stays behind.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>

#include "tests/rdma/two_ends.h"
#include "transport/io/verbs/device_list.h"
#include "transport/io/verbs/path.h"

namespace clustar::tests {
namespace {

using ::testing::HasSubstr;

class VerbsDevices : public TwoEnds {};

TEST_F(VerbsDevices, AreListedWithTheirPorts) {
  const auto ports = must(verbs::list_ports(must(verbs::HcaFilter::parse("rxe"))));
  ASSERT_EQ(ports.size(), 2u);
  for (const verbs::PortInfo& port : ports) {
    EXPECT_TRUE(port.active) << port.problem;
    EXPECT_EQ(port.link_layer, verbs::LinkLayer::kEthernet);
    EXPECT_EQ(port.active_mtu, 4096);
    EXPECT_NE(port.node_guid, 0u);
    EXPECT_EQ(port.pci_path, "");
  }
  EXPECT_EQ(must(verbs::list_ports(must(verbs::HcaFilter::parse("=rxe_b:1")))).size(), 1u);
  EXPECT_TRUE(must(verbs::list_ports(must(verbs::HcaFilter::parse("^rxe")))).empty());
}

TEST_F(VerbsDevices, TheGidIsChosenFromTheRealTable) {
  const auto device = must(verbs::Device::open("rxe_a"));
  const auto choice = verbs::choose_gid(must(device.gids(1)), {});
  ASSERT_TRUE(choice.chosen) << choice.summary();
  EXPECT_EQ(choice.chosen->gid.to_string(), "10.9.0.1");
  EXPECT_EQ(choice.chosen->interface, "va");
  ASSERT_FALSE(choice.refused.empty());
  EXPECT_THAT(choice.refused.front().reason, HasSubstr("link-local"));
}

TEST_F(VerbsDevices, LimitsForTheRecord) {
  const auto device = must(verbs::Device::open("rxe_a"));
  const ibv_device_attr& limits = device.limits();
  std::printf("limits: max_qp_wr %d max_sge %d max_cqe %d max_srq_wr %d max_mw %d max_qp_rd_atom %d\n",
              limits.max_qp_wr, limits.max_sge, limits.max_cqe, limits.max_srq_wr, limits.max_mw,
              limits.max_qp_rd_atom);
  End end("rxe_a", {});
  std::uint32_t most = 0;
  for (const std::uint32_t bytes : {64u, 128u, 256u, 400u, 512u, 1024u, 2048u}) {
    const auto pair =
        verbs::QueuePair::make(end.domain, {.send_queue = &end.queue, .recv_queue = &end.queue, .inline_bytes = bytes});
    if (pair) most = std::max(most, pair->capacity().max_inline_data);
  }
  std::printf("limits: inline up to %u bytes\n", most);
  EXPECT_GE(most, 64u);
}

// Everything that a connection is made of, at one end.
struct Connected {
  verbs::ProtectionDomain domain;
  verbs::MemoryRegion region;
  verbs::MemoryWindow window;
  verbs::CompletionQueue queue;
  verbs::SharedReceiveQueue receives;
  verbs::AddressHandle address;
  verbs::QueuePair pair;

  Connected(const End& at, const verbs::Path& to, gdr::MemoryRef memory)
      : domain(must(verbs::ProtectionDomain::make(at.device))),
        region(must(verbs::MemoryRegion::make(domain, memory, kAllAccess))),
        window(must(verbs::MemoryWindow::make(domain))),
        queue(must(verbs::CompletionQueue::make(at.device, 64, true))),
        receives(must(verbs::SharedReceiveQueue::make(domain, 64))),
        address(must(verbs::AddressHandle::make(domain, to))),
        pair(must(verbs::QueuePair::make(domain,
                                         {.send_queue = &queue, .recv_queue = &queue, .shared_receives = &receives}))) {
    must(pair.to_init({.access = IBV_ACCESS_REMOTE_WRITE}));
    must(pair.to_rtr({.path = to, .peer_queue_pair = at.pair->number()}));
    must(pair.to_rts({}));
  }
};

TEST_F(VerbsDevices, AThousandConnectionsLeaveNothingBehind) {
  connect();
  std::vector<std::byte> memory(8192);
  const verbs::Path path{.peer = b->gid.gid, .gid_index = static_cast<int>(a->gid.index)};
  // What the kernel holds for libibverbs: "rxe_a: pd 1 cq 1 qp 1 cm_id 0 mr 0 ctx 0 srq 0".
  const std::string before = output_of("rdma resource show");
  for (int cycle = 0; cycle < 1000; ++cycle) {
    const Connected connected(*a, path, gdr::MemoryRef::host(memory.data(), memory.size()));
    if (cycle == 500) {
      EXPECT_NE(output_of("rdma resource show"), before) << "the count sees what is alive";
    }
  }
  EXPECT_EQ(output_of("rdma resource show"), before);
  EXPECT_EQ(verbs::refused_destructions(), 0u);
}

TEST_F(VerbsDevices, OpeningThemLeavesNothingBehind) {
  const std::string before = output_of("rdma resource show");
  for (int cycle = 0; cycle < 50; ++cycle) connect({.memory = 16384});
  EXPECT_NE(output_of("rdma resource show"), before);
  a.reset();
  b.reset();
  EXPECT_EQ(output_of("rdma resource show"), before);
  EXPECT_EQ(verbs::refused_destructions(), 0u);
}

}  // namespace
}  // namespace clustar::tests
