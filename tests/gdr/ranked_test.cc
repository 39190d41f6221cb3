// Which way memory is registered, by fixtures: what drivers are known to answer, each with its public source.
#include "gdr/core/ranked.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace clustar::gdr {
namespace {

using ::testing::HasSubstr;

const std::map<std::string, Way> kWayNames = {{"data-direct", Way::kDataDirect},
                                              {"dma-buf", Way::kDmaBuf},
                                              {"nvidia_peermem", Way::kPeermem},
                                              {"host", Way::kHost}};
const std::map<std::string, int> kErrors = {
    {"ok", 0},          {"-", 0},           {"EOPNOTSUPP", EOPNOTSUPP}, {"EPROTONOSUPPORT", EPROTONOSUPPORT},
    {"EFAULT", EFAULT}, {"EINVAL", EINVAL}, {"ENOMEM", ENOMEM},         {"EAGAIN", EAGAIN},
    {"EPERM", EPERM},   {"EBADF", EBADF}};
const std::map<std::string, Known> kKnown = {{"yes", Known::kYes}, {"no", Known::kNo}, {"unknown", Known::kUnknown}};
const std::map<std::string, MemoryKind> kKinds = {
    {"host", MemoryKind::kHost}, {"cuda", MemoryKind::kCuda}, {"dma-buf", MemoryKind::kDmaBuf}};

struct Answer {
  Way way;
  int error;
};
struct ExpectedRefusal {
  Way way;
  int error;
  std::string why;
};
struct ExpectedFix {
  Way way;
  std::string fix;
};

// One file of tests/gdr/registrations; its README has the lines.
struct Fixture {
  std::string source;
  WayFacts facts;
  MemoryRef memory = MemoryRef::host(reinterpret_cast<void*>(0x7f0000000000), 65536);
  bool relaxed = false;
  std::vector<Answer> answers;
  std::optional<Way> way;
  bool with_relaxed = false;
  bool stopped = false;
  std::vector<ExpectedRefusal> refused;
  std::vector<ExpectedFix> fixes;
  std::optional<std::uint32_t> kinds;
};

// The rest of the line between its quotation marks.
std::string quoted(std::istringstream& line) {
  std::string rest;
  std::getline(line, rest);
  const auto first = rest.find('"');
  const auto last = rest.rfind('"');
  if (first == std::string::npos || last == first) throw std::runtime_error("no \"...\" in" + rest);
  return rest.substr(first + 1, last - first - 1);
}

void read_nic(std::istringstream& line, WayFacts& facts) {
  facts.nic = "mlx5_0";
  facts.dma_buf_evidence = "ibv_reg_dmabuf_mr of a bad descriptor on mlx5_0";
  facts.data_direct_evidence = "mlx5dv_get_data_direct_sysfs_path";
  std::string word;
  while (line >> word) {
    const std::string value = word.substr(word.find('=') + 1);
    if (word == "software") {
      facts.software = true;
    } else if (word.starts_with("dma_buf=")) {
      facts.dma_buf = kKnown.at(value);
    } else if (word.starts_with("data_direct=")) {
      facts.data_direct = kKnown.at(value);
    } else if (word.starts_with("peermem=")) {
      facts.peermem = value == "yes" ? "/sys/module/nvidia_peermem/version" : "";
    } else {
      throw std::runtime_error(word);
    }
  }
}

void read_expected(std::istringstream& line, Fixture& fixture) {
  std::string what;
  std::string word;
  line >> what;
  if (what == "way") {
    line >> word;
    if (word != "none") fixture.way = kWayNames.at(word);
  } else if (what == "stopped") {
    fixture.stopped = true;
  } else if (what == "relaxed") {
    fixture.with_relaxed = true;
  } else if (what == "refused") {
    std::string error;
    line >> word >> error;
    fixture.refused.push_back({kWayNames.at(word), kErrors.at(error), quoted(line)});
  } else if (what == "fix") {
    line >> word;
    fixture.fixes.push_back({kWayNames.at(word), quoted(line)});
  } else if (what == "kinds") {
    fixture.kinds = 0;
    while (line >> word) *fixture.kinds |= bit(kKinds.at(word));
  } else {
    throw std::runtime_error(what);
  }
}

Fixture read_fixture(const std::string& path) {
  Fixture fixture;
  std::ifstream in(path);
  std::string text;
  while (std::getline(in, text)) {
    if (text.empty() || text[0] == '#') continue;
    std::istringstream line(text);
    std::string what;
    std::string word;
    line >> what;
    if (what == "source") {
      std::getline(line, fixture.source);
    } else if (what == "nic") {
      read_nic(line, fixture.facts);
    } else if (what == "memory") {
      line >> word;
      fixture.memory.kind = kKinds.at(word);
    } else if (what == "relaxed") {
      fixture.relaxed = true;
    } else if (what == "answer") {
      std::string error;
      line >> word >> error;
      fixture.answers.push_back({kWayNames.at(word), kErrors.at(error)});
    } else if (what == "expect") {
      read_expected(line, fixture);
    } else {
      throw std::runtime_error(text);
    }
  }
  return fixture;
}

std::vector<std::string> fixtures() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(CLUSTAR_REGISTRATIONS)) {
    if (entry.path().extension() == ".txt") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class RankedRegistration : public ::testing::TestWithParam<std::string> {};

TEST_P(RankedRegistration, TakesTheExpectedWayAndSaysWhyNoBetterOne) {
  const Fixture fixture = read_fixture(std::string(CLUSTAR_REGISTRATIONS) + "/" + GetParam() + ".txt");
  EXPECT_GT(fixture.source.size(), 10u) << "a fixture names its source";
  auto next = fixture.answers.begin();
  std::vector<bool> asked_relaxed;
  const Registered made =
      register_ranked(rank_ways(fixture.memory, fixture.facts), fixture.relaxed, [&](Way way, bool relaxed) {
        asked_relaxed.push_back(relaxed);
        if (next == fixture.answers.end() || next->way != way) {
          ADD_FAILURE() << "asked for " << to_string(way);
          return EIO;
        }
        return next++->error;
      });
  EXPECT_EQ(next, fixture.answers.end()) << "not all ways were tried";
  for (std::size_t i = 0; i < asked_relaxed.size() && i < fixture.answers.size(); ++i) {
    const bool again = i > 0 && fixture.answers[i - 1].way == fixture.answers[i].way;
    EXPECT_EQ(asked_relaxed[i], fixture.relaxed && !again) << "attempt " << i;
  }
  EXPECT_EQ(made.way, fixture.way);
  EXPECT_EQ(made.stopped, fixture.stopped);
  EXPECT_EQ(made.relaxed, fixture.with_relaxed);
  for (const ExpectedRefusal& expected : fixture.refused) {
    EXPECT_TRUE(std::any_of(made.refused.begin(), made.refused.end(),
                            [&](const Refusal& one) {
                              return one.way == expected.way && one.error == expected.error &&
                                     one.why.find(expected.why) != std::string::npos;
                            }))
        << to_string(expected.way) << " " << expected.why << " is not in "
        << explain("mlx5_0", fixture.memory.kind, made);
  }
  for (const ExpectedFix& expected : fixture.fixes) {
    EXPECT_TRUE(std::any_of(made.refused.begin(), made.refused.end(), [&](const Refusal& one) {
      return one.way == expected.way && one.fix.find(expected.fix) != std::string::npos;
    })) << expected.fix;
  }
  const auto by_way = [](const Refusal& a, const Refusal& b) { return a.way < b.way; };
  EXPECT_TRUE(std::is_sorted(made.refused.begin(), made.refused.end(), by_way));
  for (const Refusal& one : made.refused) {
    EXPECT_FALSE(one.why.empty());
    EXPECT_FALSE(one.fix.empty());
  }
  if (fixture.kinds) {
    EXPECT_EQ(offered_kinds(fixture.facts), *fixture.kinds);
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, RankedRegistration, ::testing::ValuesIn(fixtures()), [](const auto& tested) {
  std::string name = tested.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

MemoryRef device(MemoryKind kind) {
  return {kind, reinterpret_cast<std::byte*>(0x7f0000000000), 4096, kind == MemoryKind::kDmaBuf ? 3 : -1, 0};
}

TEST(RankedWays, EmulationIsTheOnlyWayAndOffWinsOverIt) {
  WayFacts facts{.nic = "rxe_a", .dma_buf = Known::kYes, .peermem = "x", .emulated = true};
  for (const MemoryKind kind : {MemoryKind::kCuda, MemoryKind::kDmaBuf}) {
    EXPECT_EQ(rank_ways(device(kind), facts).ways, std::vector<Way>{Way::kEmulated});
  }
  EXPECT_EQ(rank_ways(device(MemoryKind::kHost), facts).ways, std::vector<Way>{Way::kHost});
  EXPECT_EQ(offered_kinds(facts), kAnyKind);
  EXPECT_THAT(describe_ways(facts), HasSubstr("for tests only"));
  facts.offered = false;
  EXPECT_EQ(offered_kinds(facts), kHostOnly);
  EXPECT_EQ(describe_ways(facts), "off: CLUSTAR_GDR=off");
  const Ranking none = rank_ways(device(MemoryKind::kDmaBuf), facts);
  EXPECT_TRUE(none.ways.empty());
  EXPECT_EQ(none.refused.at(0).why, "CLUSTAR_GDR=off");
}

TEST(RankedWays, WithoutThePointerNothingGoesByIt) {
  const WayFacts facts{.nic = "mlx5_0", .dma_buf = Known::kYes, .peermem = "x"};
  MemoryRef memory = device(MemoryKind::kDmaBuf);
  memory.address = nullptr;
  EXPECT_EQ(rank_ways(memory, facts).ways, std::vector<Way>{Way::kDmaBuf});
}

TEST(RankedWays, WithoutRelaxedOrderingAWayIsTriedOnceMore) {
  Ranking only;
  only.ways = {Way::kDmaBuf};
  for (const int without : {0, EINVAL, ENOMEM}) {
    std::vector<bool> asked;
    const Registered made = register_ranked(only, true, [&](Way, bool relaxed) {
      asked.push_back(relaxed);
      return relaxed ? EINVAL : without;
    });
    EXPECT_EQ(asked, (std::vector<bool>{true, false}));
    EXPECT_EQ(made.way.has_value(), without == 0);
    EXPECT_FALSE(made.relaxed);
    // That it was the ordering is said only where it was.
    ASSERT_EQ(made.refused.size(), without == ENOMEM ? 2u : 1u);
    EXPECT_EQ(made.refused[0].error, EINVAL);
    EXPECT_EQ(made.refused[0].why.find("with relaxed ordering") != std::string::npos, without != EINVAL);
    EXPECT_EQ(made.refused.back().error, without == 0 ? EINVAL : without);
  }
  std::vector<bool> asked;
  register_ranked(only, true, [&](Way, bool relaxed) {
    asked.push_back(relaxed);
    return EOPNOTSUPP;
  });
  EXPECT_EQ(asked, std::vector<bool>{true}) << "only EINVAL can be the ordering";
}

TEST(RankedWays, OneLineSaysWhichWaysThereAreOrWhyNot) {
  WayFacts facts{.nic = "mlx5_0",
                 .dma_buf = Known::kNo,
                 .dma_buf_evidence = "ibv_reg_dmabuf_mr of a bad descriptor on mlx5_0: errno 95 (EOPNOTSUPP)"};
  EXPECT_EQ(describe_ways(facts),
            "off: ibv_reg_dmabuf_mr of a bad descriptor on mlx5_0: errno 95 (EOPNOTSUPP); nvidia_peermem is not "
            "loaded");
  facts.peermem = "/sys/module/nvidia_peermem/version";
  EXPECT_EQ(describe_ways(facts), "nvidia_peermem (/sys/module/nvidia_peermem/version)");
  facts.dma_buf = Known::kYes;
  facts.data_direct = Known::kYes;
  EXPECT_THAT(describe_ways(facts), HasSubstr("data direct ("));
  EXPECT_THAT(describe_ways(facts), HasSubstr(", dma-buf ("));
}

TEST(RankedWays, TheExplanationNamesWayAndRefusals) {
  const WayFacts facts{.nic = "mlx5_0", .dma_buf = Known::kYes, .data_direct = Known::kNo};
  const Registered made =
      register_ranked(rank_ways(device(MemoryKind::kDmaBuf), facts), false, [](Way, bool) { return 0; });
  const std::string text = explain("mlx5_0", MemoryKind::kDmaBuf, made);
  EXPECT_THAT(text, HasSubstr("mlx5_0 registers dma-buf memory by dma-buf; not by data direct: "));
  EXPECT_THAT(text, HasSubstr("(fix: "));
}

}  // namespace
}  // namespace clustar::gdr
