#include "transport/message/receive_slots.h"

#include <gtest/gtest.h>

namespace clustar::transport {
namespace {

struct Kept {
  int value = 0;
};
using Slots = ReceiveSlots<Kept>;

const auto any = [](const Slots::Slot&) { return true; };

TEST(ReceiveSlots, NumbersTheReceivesOfEachTag) {
  Slots slots;
  EXPECT_EQ(slots.next_seq(7), 0u);
  EXPECT_EQ(slots.next_seq(7), 1u);
  EXPECT_EQ(slots.next_seq(-1), 0u);
  EXPECT_FALSE(slots.is_future(7, 1));
  EXPECT_TRUE(slots.is_future(7, 2));
  EXPECT_TRUE(slots.is_future(8, 0)) << "no receive had this tag";
}

TEST(ReceiveSlots, FindsTheOldestThatFits) {
  Slots slots;
  const auto first = slots.take(7, 3, 100, 0, 0);
  const auto second = slots.take(7, 4, 200, 0, 1);
  slots[second].value = 5;
  EXPECT_EQ(slots.find(7, 3, any), first);
  EXPECT_EQ(slots.find(7, 4, any), second);
  EXPECT_EQ(slots.find(8, 4, any), std::nullopt);
  EXPECT_EQ(slots.find(7, 4, [](const Slots::Slot& slot) { return slot.value == 0; }), std::nullopt);
  EXPECT_EQ(slots[second].length, 200u);
  EXPECT_EQ(slots[second].part, 1u);
  EXPECT_EQ(slots.used(), (std::vector<std::uint32_t>{first, second}));
}

TEST(ReceiveSlots, ASlotThatIsUsedAgainHasAnotherGenerationAndNothingOfTheOld) {
  Slots slots;
  const auto index = slots.take(7, 0, 100, 2, 3);
  const std::uint16_t before = slots[index].generation;
  slots[index].value = 9;
  slots.release(index);
  EXPECT_EQ(slots.find(7, 0, any), std::nullopt);
  EXPECT_FALSE(slots[index].used);
  ASSERT_EQ(slots.take(7, 1, 50, 0, 0), index);
  EXPECT_NE(slots[index].generation, before);
  EXPECT_EQ(slots[index].value, 0);
}

TEST(ReceiveSlots, HasRoomForAllPartsOfAllGroups) {
  Slots slots;
  for (std::uint32_t i = 0; i < Slots::kMost; ++i) {
    const auto index = slots.take(0, i, 1, i / kMaxRecvParts, i % kMaxRecvParts);
    EXPECT_LT(index, Slots::kMost);
    EXPECT_EQ(slots.index_of(slots[index]), index);
  }
  EXPECT_EQ(slots.used().size(), Slots::kMost);
}

}  // namespace
}  // namespace clustar::transport
