// Sizes and offsets are asserted where the types are declared; here, that the tables are laid out slot by slot.
#include <gtest/gtest.h>

#include <cstddef>

#include "nccl_plugin/abi/collnet.h"
#include "nccl_plugin/abi/tables.h"

namespace clustar::nccl_abi {
namespace {

constexpr std::size_t slot(std::size_t index) { return index * sizeof(void*); }

TEST(Abi, SlotsAreWhereNcclReadsThem) {
  EXPECT_EQ(offsetof(TableV6, isend), slot(10));
  EXPECT_EQ(offsetof(TableV6, closeListen), slot(16));
  EXPECT_EQ(offsetof(TableV8, test), slot(13));
  EXPECT_EQ(offsetof(TableV8, irecvConsumed), slot(18));
  EXPECT_EQ(offsetof(TableV9, makeVDevice), slot(19));
  EXPECT_EQ(offsetof(TableV10, isend), slot(10));
  EXPECT_EQ(offsetof(TableV11, makeVDevice), slot(19));
  EXPECT_EQ(offsetof(TableV11, finalize), slot(20));
  EXPECT_EQ(offsetof(TableV11, setNetAttr), slot(21));
  EXPECT_EQ(offsetof(TableV12, setNetAttr), slot(21));
}

TEST(Abi, CollNetSlotsAreWhereNcclReadsThem) {
  EXPECT_EQ(offsetof(CollNetV8, iallreduce), slot(10));
  EXPECT_EQ(offsetof(CollNetV8, closeListen), slot(16));
  EXPECT_EQ(offsetof(CollNetV9, makeVDevice), slot(17));
  EXPECT_EQ(offsetof(CollNetV11, ireducescatter), slot(12));
  EXPECT_EQ(offsetof(CollNetV11, test), slot(14));
  EXPECT_EQ(offsetof(CollNetV11, finalize), slot(18));
  EXPECT_EQ(offsetof(CollNetV12, finalize), slot(18));
  EXPECT_EQ(offsetof(PartV8, size), 16u);
  EXPECT_EQ(offsetof(PartV9, size), 16u);
}

TEST(Abi, NetAttributesPutMaximaFirst) {
  EXPECT_EQ(offsetof(CommAttr, max_concurrent_peers), 0u);
  EXPECT_EQ(offsetof(CommAttr, min_concurrent_peers), 4u);
  EXPECT_EQ(offsetof(NetAttr, recv), 16u);
  EXPECT_EQ(offsetof(NetAttr, op), 32u);
  EXPECT_EQ(offsetof(NetAttr, proto), 40u);
}

}  // namespace
}  // namespace clustar::nccl_abi
