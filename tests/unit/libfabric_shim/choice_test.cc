#include "libfabric_shim/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace clustar::transport::ofi {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

const std::vector<std::string> kPlain{"shm", "tcp;ofi_rxm", "net", "udp;ofi_rxd", "sockets"};

TEST(OfiChoice, TheBestIsTakenAndTheOthersHaveReasons) {
  const auto plain = choose(kPlain, "").value();
  EXPECT_EQ(plain.provider, "tcp;ofi_rxm");
  EXPECT_THAT(plain.refused, Contains(HasSubstr("shm: reaches this host only")));
  EXPECT_EQ(plain.refused.size(), kPlain.size() - 1);
  EXPECT_EQ(choose({"tcp;ofi_rxm", "efa"}, "").value().provider, "efa");
  EXPECT_EQ(choose({"tcp;ofi_rxm", "cxi"}, "").value().provider, "cxi");
  const auto nic = choose({"tcp;ofi_rxm", "verbs;ofi_rxd", "verbs;ofi_rxm"}, "").value();
  EXPECT_EQ(nic.provider, "verbs;ofi_rxm");
  EXPECT_THAT(nic.refused, Contains("tcp;ofi_rxm: comes after verbs;ofi_rxm"));
  EXPECT_THAT(nic.refused, Contains(HasSubstr("verbs;ofi_rxd: resends by itself")));
}

TEST(OfiChoice, AnotherIsTakenByItsNameOrItsFront) {
  EXPECT_EQ(choose(kPlain, "udp").value().provider, "udp;ofi_rxd");
  EXPECT_EQ(choose(kPlain, "udp;ofi_rxd").value().provider, "udp;ofi_rxd");
  EXPECT_EQ(choose(kPlain, "shm").value().provider, "shm");
  EXPECT_EQ(choose({"verbs;ofi_rxm", "verbs;ofi_rxd"}, "verbs;ofi_rxd").value().provider, "verbs;ofi_rxd");
}

TEST(OfiChoice, AWrongNameListsWhatIsThere) {
  for (const char* const wrong : {"tcpp", "ofi_rxm", "TCP", "t"}) {
    const auto refused = choose(kPlain, wrong);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(refused.error().message, HasSubstr("shm, tcp;ofi_rxm, net, udp;ofi_rxd, sockets"));
  }
  EXPECT_THAT(choose({}, "efa").error().message, HasSubstr("there are none"));
}

TEST(OfiChoice, WhereNoneOfTheUsualIsTheErrorSaysHowToTakeAnother) {
  const auto refused = choose({"shm", "psm3"}, "");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("CLUSTAR_OFI_PROVIDER takes another of shm, psm3"));
}

TEST(OfiChoice, WhereOnlyProgressIsInTheWayTheErrorSaysSo) {
  const std::string said = no_such_progress("auto", "shm", {"tcp;ofi_rxm", "clustar", "net"});
  EXPECT_EQ(said,
            "CLUSTAR_OFI_PROGRESS=auto: shm makes no such progress here; unset it, or set CLUSTAR_OFI_PROVIDER to "
            "one that does: tcp;ofi_rxm, net");
  EXPECT_THAT(no_such_progress("manual", "efa", {}), testing::EndsWith("here; unset it"));
}

// It would ask us for a transport, and so on.
TEST(OfiChoice, OurOwnProviderIsNotThere) {
  EXPECT_EQ(choose({"clustar", "tcp;ofi_rxm"}, "").value().provider, "tcp;ofi_rxm");
  EXPECT_FALSE(choose({"clustar", "clustar;ofi_rxd"}, ""));
  EXPECT_NE(choose({"clustar", "tcp;ofi_rxm"}, "clustar").error().message.find("no such provider here"),
            std::string::npos);
}

}  // namespace
}  // namespace clustar::transport::ofi
