// `clustar ab` on loopback, as a user runs it.
#include "tests/trainer/command.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace clustar::bench::ab {
namespace {

using trainer::Command;
using trainer::Outcome;
using trainer::TemporaryDirectory;
using Words = std::vector<std::string>;

Outcome run_ab(Words words) {
  words.insert(words.begin(), "ab");
  return trainer::run_clustar(words);
}

Words tiny(const Words& more = {}) {
  Words words{"--local", "--ranks", "2", "--rounds", "2", "--examples", "200", "--epochs", "1", "--batch", "16"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(AbCommand, MeasuresBothArmsAndTheCeiling) {
  const TemporaryDirectory folder;
  const Outcome outcome = run_ab(tiny({"--json", folder.file("ab.json"), "--report", folder.file("ab.html"),
                                       "--baseline-name", "one", "--candidate-name", "many"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  EXPECT_NE(outcome.err.find("warning: 2 of at least 5 rounds"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("[6/6] round 2/2"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.out.find("images/s"), std::string::npos);
  EXPECT_NE(outcome.out.find("Report with plots: " + folder.file("ab.html")), std::string::npos) << outcome.out;
  const nlohmann::json file = folder.read_json("ab.json");
  EXPECT_EQ(file["command"], "ab");
  const nlohmann::json& result = file["results"].at(0);
  EXPECT_EQ(result["model"], "mlp");
  EXPECT_EQ(result["baseline"], "one");
  EXPECT_EQ(result["candidate"], "many");
  for (const char* key :
       {"images_per_second_a", "images_per_second_b", "ratio", "ratio_low", "ratio_high", "ceiling_ratio"}) {
    EXPECT_GT(result[key].get<double>(), 0) << key;
  }
  EXPECT_TRUE(result["time_to_accuracy_ratio"].is_null());
  EXPECT_LE(result["ratio_low"], result["ratio"]);
  EXPECT_LE(result["ratio"], result["ratio_high"]);
  // The same arithmetic in both arms, so the same bits.
  EXPECT_EQ(result["max_loss_difference"], 0.0);
  EXPECT_TRUE(result["parameters_equal"].get<bool>());
  EXPECT_TRUE(result["replicas_identical"].get<bool>());
  std::vector<std::string> order;
  for (const auto& run : result["runs"]) {
    order.push_back(run["arm"]);
    EXPECT_EQ(run["arm"] == "no communication", run["bytes_sent"] == 0);
  }
  EXPECT_EQ(order, (Words{"baseline", "no communication", "candidate", "candidate", "no communication", "baseline"}));
  const std::string page = text_of(folder.file("ab.html"));
  EXPECT_NE(page.find("<svg "), std::string::npos);
  EXPECT_EQ(page.find("http"), std::string::npos);
  EXPECT_NE(page.find(" ab --local --ranks 2 --rounds 2"), std::string::npos) << "the command";
  const Outcome drawn = trainer::run_clustar({"report", folder.file("ab.json"), "-o", "-"});
  EXPECT_EQ(drawn.status, 0) << drawn.err;
  EXPECT_EQ(drawn.out, page);
}

TEST(AbCommand, AnArmMaySumByParaexpress) {
  const TemporaryDirectory folder;
  const Outcome outcome =
      run_ab(tiny({"--baseline", "CLUSTAR_TCP_SOCKETS=1", "--candidate", "collective=paraexpress,plan=direct", "--json",
                   folder.file("ab.json"), "--report", folder.file("ab.html")}));
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  EXPECT_NE(outcome.out.find("none: by ParaExpress"), std::string::npos) << outcome.out;
  const nlohmann::json result = folder.read_json("ab.json")["results"].at(0);
  EXPECT_EQ(result["candidate"], "collective=paraexpress plan=direct");
  EXPECT_EQ(result["arms"][1]["options"]["plan"], "direct");
  EXPECT_TRUE(result["replicas_identical"].get<bool>());
  EXPECT_LT(result["max_loss_difference"], 1e-4);
  for (const auto& run : result["runs"]) {
    const bool candidate = run["arm"] == "candidate";
    EXPECT_EQ(run["collective"], candidate ? "paraexpress" : "proxy");
    if (candidate) {
      EXPECT_EQ(run["plans"][0]["plan"], "direct");
    }
  }
  EXPECT_NE(text_of(folder.file("ab.html")).find("paraexpress"), std::string::npos);
}

TEST(AbCommand, AnArmMayHaveHelpers) {
  const TemporaryDirectory folder;
  const Outcome outcome = run_ab(tiny({"--baseline", "collective=paraexpress,plan=direct", "--candidate",
                                       "collective=paraexpress,plan=sharded,helpers=2", "--json",
                                       folder.file("ab.json"), "--report", folder.file("ab.html")}));
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  const nlohmann::json result = folder.read_json("ab.json")["results"].at(0);
  EXPECT_EQ(result["place"]["ranks"], 2);
  EXPECT_EQ(result["arms"][1]["options"]["helpers"], "2");
  EXPECT_TRUE(result["parameters_equal"].get<bool>()) << "both add from rank 0 on";
  for (const auto& run : result["runs"]) {
    if (run["arm"] != "candidate") {
      EXPECT_TRUE(run["helpers"].is_null());
      continue;
    }
    EXPECT_EQ(run["helpers"], (nlohmann::json{{"given", 2}, {"left", 2}}));
    EXPECT_EQ(run["plans"][0]["plan"], "sharded");
  }
  EXPECT_NE(text_of(folder.file("ab.html")).find("helpers"), std::string::npos);
}

TEST(AbCommand, AnArmMayBeTheParameterServerOf2018AndSaysSo) {
  const TemporaryDirectory folder;
  const Outcome outcome = run_ab(tiny({"--baseline", "collective=ps", "--candidate", "CLUSTAR_TCP_SOCKETS=1", "--json",
                                       folder.file("ab.json"), "--report", folder.file("ab.html")}));
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  const std::string label = "baseline of 2018: one parameter server, one TCP connection per worker";
  EXPECT_NE(outcome.out.find("none: the " + label), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("ps-2018, over kernel TCP; congestion control: "), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("as a parameter server of 2018 does"), std::string::npos) << outcome.out;
  const nlohmann::json result = folder.read_json("ab.json")["results"].at(0);
  EXPECT_EQ(result["baseline"], "ps-2018");
  EXPECT_EQ(result["arms"][0]["hidden_comm_ms_per_step"], 0.0);
  EXPECT_TRUE(result["replicas_identical"].get<bool>());
  EXPECT_TRUE(result["parameters_equal"].get<bool>()) << "two numbers have one sum";
  for (const auto& run : result["runs"]) {
    const bool baseline = run["arm"] == "baseline";
    EXPECT_EQ(run["collective"], baseline ? "ps" : "proxy");
    EXPECT_EQ(run["parameter_server"].is_null(), !baseline);
    if (baseline) {
      EXPECT_EQ(run["parameter_server"]["label"].get<std::string>().find(label), 0u);
    }
  }
  EXPECT_NE(text_of(folder.file("ab.html")).find("none: the " + label), std::string::npos);
}

TEST(AbCommand, AnArmMayRunOverLibfabric) {
#if defined(CLUSTAR_HAVE_OFI)
  const TemporaryDirectory folder;
  const Outcome outcome =
      run_ab(tiny({"--model", "mlp-small", "--baseline", "CLUSTAR_TRANSPORT=tcp,CLUSTAR_TCP_CONGESTION=reno",
                   "--candidate", "CLUSTAR_TRANSPORT=ofi,CLUSTAR_OFI_PROVIDER=tcp;ofi_rxm", "--candidate-name",
                   "libfabric", "--json", folder.file("ab.json")}));
  for (const char* absent : {"libfabric.so.1: cannot open", "no such provider here"}) {
    if (outcome.err.find(absent) != std::string::npos) GTEST_SKIP() << outcome.err;
  }
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  const nlohmann::json result = folder.read_json("ab.json")["results"].at(0);
  EXPECT_EQ(result["arms"][0]["transport"]["transport"], "tcp");
  EXPECT_EQ(result["arms"][1]["transport"]["transport"], "ofi");
  EXPECT_EQ(result["arms"][1]["congestion_control_explicit"], false);
  EXPECT_TRUE(result["parameters_equal"].get<bool>());
  EXPECT_TRUE(result["replicas_identical"].get<bool>());
  EXPECT_NE(outcome.out.find("'libfabric' leaves TCP's congestion control to the kernel"), std::string::npos);
  EXPECT_NE(outcome.out.find("as libfabric does; give the other arm"), std::string::npos) << outcome.out;
#else
  GTEST_SKIP() << "this build has no libclustar-ofi.so: CLUSTAR_WITH_LIBFABRIC is OFF, or libfabric-dev is missing";
#endif
}

TEST(AbCommand, ReportRefusesWhatIsNoResultOfAb) {
  const TemporaryDirectory folder;
  for (const char* text : {R"({"command":"ab","results":[]})", R"({"command":"ab","training":{}})"}) {
    folder.write("ab.json", text);
    const Outcome outcome = trainer::run_clustar({"report", folder.file("ab.json"), "-o", folder.file("ab.html")});
    EXPECT_EQ(outcome.status, 2) << text;
    EXPECT_NE(outcome.err.find("it is not as clustar ab --json writes it"), std::string::npos) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(folder.file("ab.html")));
  }
}

TEST(AbCommand, ReportNamesAMissingFileBeforeAMissingOption) {
  const TemporaryDirectory folder;
  folder.write("ab.json", "{}");
  for (const Words& words : {Words{"report", "/nowhere/ab.json"}, Words{"report", "/nowhere/ab.json", "-o", "-"}}) {
    const Outcome outcome = trainer::run_clustar(words);
    EXPECT_EQ(outcome.status, 2);
    EXPECT_NE(outcome.err.find("cannot read '/nowhere/ab.json': No such file"), std::string::npos) << outcome.err;
  }
  const Outcome outcome = trainer::run_clustar({"report", folder.file("ab.json")});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("--output is required"), std::string::npos) << outcome.err;
}

TEST(AbCommand, ComparesTheTimeToATarget) {
  const TemporaryDirectory folder;
  const Outcome outcome =
      run_ab({"--local", "--ranks", "2", "--rounds", "1", "--examples", "500", "--epochs", "30", "--batch", "64",
              "--model", "lr", "--target-accuracy", "0.5", "--json", folder.file("ab.json")});
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  const nlohmann::json result = folder.read_json("ab.json")["results"].at(0);
  EXPECT_GT(result["time_to_accuracy_ratio"].get<double>(), 0);
  EXPECT_EQ(result["time_to_accuracy"]["rounds_reached"], 1);
}

TEST(AbCommand, WrongUsageIsStatusTwoAndSaysWhatIsAllowed) {
  const std::vector<std::pair<Words, std::string>> cases{
      {tiny({"--nonsense"}), "--nonsense"},
      {tiny({"--rounds", "0"}), "--rounds"},
      {tiny({"--baseline", "nonsense"}), "NAME=VALUE"},
      {tiny({"--candidate", "CLUSTAR_TCP_SOCKETS=99"}), "--candidate: "},
      {tiny({"--candidate", "CLUSTAR_NO_SUCH=1"}), "NO_SUCH"},
      {tiny({"--candidate", "plugin=/nowhere/p.so"}), "/nowhere/p.so"},
      {tiny({"--plugin", "/nowhere/q.so"}), "/nowhere/q.so"},
      {tiny({"--candidate", "collective=paraexpress,plan=hierarchical"}), "--candidate: --plan hierarchical needs"},
      {tiny({"--candidate", "collective=ps,CLUSTAR_TRANSPORT=mlt"}),
       "--candidate: CLUSTAR_TRANSPORT=mlt has no effect"},
      {tiny({"--rate", "100M"}), "--local"},
      {tiny({"--batch", "1"}), "--batch"},
      {tiny({"--model", "transformer"}), "lr"},
      {tiny({"--data", "/nowhere"}), "/nowhere"},
      {tiny({"--json", "/nowhere/x.json"}), "--json"},
      {tiny({"--json", "-", "--report", "-"}), "would mix"},
      {tiny({"--json", "/tmp/x", "--report", "/tmp/x"}), "--json and --report both name '/tmp/x'"},
      {{"--rate", "fast"}, "--rate"},
      {{"--buffer", "0"}, "--buffer"},
      {{"--hosts", "1"}, "--hosts"}};
  for (const auto& [words, expected] : cases) {
    const Outcome outcome = run_ab(words);
    EXPECT_EQ(outcome.status, 2) << expected << ": " << outcome.err;
    EXPECT_NE(outcome.err.find(expected), std::string::npos) << outcome.err;
  }
}

TEST(AbCommand, AnArmThatCannotTrainIsNamed) {
  const Outcome outcome = run_ab(tiny({"--candidate", "CLUSTAR_TCP_CONGESTION=nosuch"}));
  EXPECT_EQ(outcome.status, 1) << outcome.out;
  EXPECT_NE(outcome.err.find("round 1 of 2, candidate: "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("nosuch"), std::string::npos) << outcome.err;
}

// Ranks of a comparison that is in its first run.
std::vector<trainer::Process> wait_for_ranks(const Command& command, std::size_t count) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::vector<trainer::Process> ranks;
  while (ranks.size() < count && std::chrono::steady_clock::now() < until) {
    ranks = trainer::children_of(command.pid());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return ranks;
}

// Many short rounds, into files.
Words many_rounds(const TemporaryDirectory& folder) {
  Words words = tiny({"--json", folder.file("ab.json"), "--report", folder.file("ab.html")});
  *(std::find(words.begin(), words.end(), "--rounds") + 1) = "500";
  words.insert(words.begin(), "ab");
  return words;
}

TEST(AbCommand, AnInterruptKeepsTheRoundsThatAreDone) {
  const TemporaryDirectory folder;
  Command command(many_rounds(folder));
  ASSERT_TRUE(command.wait_for_error_text("[7/1500] round 3/500"));
  kill(command.pid(), SIGINT);
  const Outcome outcome = command.wait();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("interrupted"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.out.find("images/s"), std::string::npos) << "the table of these rounds: " << outcome.out;
  const nlohmann::json result = folder.read_json("ab.json")["results"].at(0);
  EXPECT_GE(result["rounds"], 2);
  EXPECT_LT(result["rounds"], 500);
  EXPECT_EQ(result["planned_rounds"], 500);
  EXPECT_EQ(result["runs"].size(), 3 * result["rounds"].get<std::size_t>());
  EXPECT_NE(result["ended_by"].get<std::string>().find("interrupted"), std::string::npos) << result["ended_by"];
  const std::string page = text_of(folder.file("ab.html"));
  EXPECT_NE(page.find("of 500 rounds were done"), std::string::npos);
  EXPECT_TRUE(page.ends_with("</body></html>\n"));
}

TEST(AbCommand, WhatIsKilledLeavesTheRoundsBefore) {
  const TemporaryDirectory folder;
  Command command(many_rounds(folder));
  ASSERT_TRUE(command.wait_for_error_text("[7/1500] round 3/500"));
  kill(command.pid(), SIGKILL);
  (void)command.wait();
  EXPECT_GE(folder.read_json("ab.json")["results"].at(0)["rounds"], 2);
  EXPECT_TRUE(text_of(folder.file("ab.html")).ends_with("</body></html>\n"));
}

TEST(AbCommand, LeavesDamagedImagesOutWhereAskedTo) {
  const TemporaryDirectory folder;
  for (int i = 0; i < 24; ++i) {
    const std::string place = folder.path() + (i % 2 == 0 ? "/even" : "/odd");
    std::filesystem::create_directories(place);
    std::ofstream file(place + "/" + std::to_string(i) + ".ppm", std::ios::binary);
    file << (i == 7 ? "P6 40" : "P6 40 40 255\n" + std::string(3 * 40 * 40, static_cast<char>(9 * i)));
  }
  Words words{"--local", "--ranks",   "2",    "--rounds", "1",          "--epochs",     "1",  "--batch",
              "8",       "--lr",      "0.02", "--model",  "resnet50",   "--image-size", "32", "--width-divisor",
              "16",      "--classes", "2",    "--data",   folder.path()};
  const Outcome ended = run_ab(words);
  EXPECT_EQ(ended.status, 1);
  EXPECT_NE(ended.err.find("odd/7.ppm"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("--skip-damaged"), std::string::npos) << ended.err;
  const TemporaryDirectory results;
  words.insert(words.end(), {"--skip-damaged", "--json", results.file("ab.json")});
  const Outcome outcome = run_ab(words);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(results.read_json("ab.json")["results"].at(0)["damaged_files"]["count"], 1);
  const Outcome without = run_ab({"--local", "--skip-damaged"});
  EXPECT_EQ(without.status, 2);
  EXPECT_NE(without.err.find("with --data only"), std::string::npos) << without.err;
}

TEST(AbCommand, AnInterruptInTheFirstRoundLeavesNoEmptyFiles) {
  const TemporaryDirectory folder;
  Words words{"ab",       "--local",
              "--ranks",  "2",
              "--rounds", "5",
              "--epochs", "1000",
              "--json",   folder.file("ab.json"),
              "--report", folder.file("ab.html")};
  Command command(words);
  ASSERT_EQ(wait_for_ranks(command, 2).size(), 2u);
  kill(command.pid(), SIGINT);
  EXPECT_EQ(command.wait().status, 1);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

Words long_run() { return {"ab", "--local", "--ranks", "2", "--rounds", "5", "--epochs", "1000"}; }

bool gone(pid_t pid) { return kill(pid, 0) != 0; }

TEST(AbCommand, AKilledRankEndsItAndIsNamed) {
  Command command(long_run());
  const auto ranks = wait_for_ranks(command, 2);
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1].pid, SIGKILL);
  const Outcome outcome = command.wait();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("round 1 of 5, baseline: rank"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("killed by signal 9"), std::string::npos) << outcome.err;
  for (const auto& rank : ranks) EXPECT_TRUE(gone(rank.pid)) << rank.command_line;
}

TEST(AbCommand, AnInterruptEndsItsRanks) {
  Command command(long_run());
  const auto ranks = wait_for_ranks(command, 2);
  ASSERT_EQ(ranks.size(), 2u);
  kill(command.pid(), SIGINT);
  const Outcome outcome = command.wait();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("interrupted"), std::string::npos) << outcome.err;
  for (const auto& rank : ranks) EXPECT_TRUE(gone(rank.pid)) << rank.command_line;
}

TEST(TrainWithoutCommunication, SendsNothingAndSaysSo) {
  const TemporaryDirectory folder;
  const Outcome outcome =
      trainer::run_clustar({"train", "--ranks", "2", "--model", "lr", "--examples", "200", "--epochs", "1",
                            "--no-communication", "--json", folder.file("t.json")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("--no-communication"), std::string::npos) << outcome.out;
  const nlohmann::json results = folder.read_json("t.json")["results"];
  EXPECT_EQ(results["ranks"], 2);
  EXPECT_EQ(results["bytes_sent"], 0);
  EXPECT_EQ(results["exposed_comm_s"], 0.0);
  EXPECT_TRUE(results["replicas_identical"].is_null());
  EXPECT_TRUE(results["config"]["no_communication"].get<bool>());
  EXPECT_GT(results["images_per_second"].get<double>(), 0);
}

TEST(TrainWithoutCommunication, CannotCompareReplicas) {
  EXPECT_EQ(trainer::run_clustar({"train", "--ranks", "2", "--no-communication", "--check-equal", "every"}).status, 2);
}

// Before the minutes that its runs take.
TEST(AbTable, WrongUsageIsFoundOutAtOnce) {
  const std::vector<std::pair<Words, const char*>> wrong{
      {{"--json", "/nowhere/table.json"}, "--json: cannot write '/nowhere/table.replay.json'"},
      {{"--json", "t.json", "--report", "t.json"}, "both name 't.replay.json'; allowed: a file each"},
      {{"--table-models", "gpt"}, "allowed: lr, mlp, alexnet, vgg16, resnet50"},
      {{"--hosts", "4", "--rate", "5M", "--table-card", "h200", "--table-models", "lr"},
       "a replay takes 1e-06 to 1e+06"},
      {{"--batch", "64"}, "--batch is not for --table"},
      {{"--epochs", "3"}, "--epochs is not for --table"},
      {{"--lr", "0.1"}, "allowed beside it: --table-models, --table-card, --table-steps, --hosts, --rate"},
      {{"--time-limit", "5"}, "--time-limit is not for --table"},
      {{"--skip-damaged"}, "--skip-damaged is not for --table"},
      {{"--local"}, "--local is not for --table"},
      {{"--rate", "off"}, "the table needs a line"}};
  for (const auto& [more, message] : wrong) {
    Words words{"--table", "clustar"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = run_ab(words);
    EXPECT_EQ(outcome.status, 2) << message;
    EXPECT_NE(outcome.err.find(message), std::string::npos) << outcome.err;
  }
}

}  // namespace
}  // namespace clustar::bench::ab
