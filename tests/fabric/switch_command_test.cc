// The switch's rules and counters as a user gives and reads them; every command here is a process of its own, so what
// it knows of the switch it found in the kernel.
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "tests/fabric/command_under_test.h"
#include "tests/fabric/switch_under_test.h"

namespace clustar::bench::fabric {
namespace {

using nlohmann::json;
using trainer::Outcome;

class SwitchCommand : public SwitchTest {
 protected:
  Outcome command(std::vector<std::string> arguments) const { return run_fabric(name_, std::move(arguments)); }
  json results(const std::vector<std::string>& arguments) const {
    const Outcome outcome = command(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return json::parse(outcome.out, nullptr, false)["results"];
  }
};

TEST_F(SwitchCommand, UpSetStatus) {
  const std::vector<std::string> up{"up",
                                    "--hosts",
                                    "2",
                                    "--rate",
                                    "200M",
                                    "--loss",
                                    "1%",
                                    "--bursts",
                                    "every=200ms,length=20ms,loss=75%",
                                    "--ecn",
                                    "30k:90k:10%",
                                    "--drop-above",
                                    "1=20k",
                                    "--trim",
                                    "1,2",
                                    "--loss-model",
                                    "ge:1%,25%,0,50%",
                                    "--direction",
                                    "both",
                                    "--seed",
                                    "7"};
  Outcome outcome = command(up);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "loss 1%")) << outcome.out;
  outcome = command(up);
  EXPECT_TRUE(contains(outcome.out, "unchanged")) << outcome.out;

  json status = results({"status", "--no-probe", "--json", "-"});
  EXPECT_EQ(status["buffer"], "switch program, virtual queue");
  const json rules = status["ports"][1]["switch_program"]["rules"];
  EXPECT_NEAR(rules["from_host"]["random"].get<double>(), 0.01, 1e-9);
  EXPECT_EQ(rules["to_host"]["bursts"]["every_ns"], 200'000'000);
  EXPECT_EQ(rules["classes"][1]["drop_above_bytes"], 20'000);
  EXPECT_EQ(rules["classes"][2]["trim"], true);
  EXPECT_EQ(rules["seed"], 7);

  outcome = command({"set", "--clear"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  outcome = command({"set", "h1", "--dead", "on"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "h0: no rules\nh1: dead\n")) << outcome.out;
  EXPECT_EQ(results({"set", "1", "--dead", "off", "--reset-counters", "--json", "-"})["problems"].size(), 0U);
  const Receiver receiver(*Fabric::find(name_));
  send(*Fabric::find(name_), receiver, tos_of(3), 20, 1514);
  ASSERT_EQ(receiver.take(20).size(), 20U);
  status = results({"status", "--json", "-"});
  const json port = status["ports"][0]["switch_program"];
  EXPECT_EQ(port["classes"][3]["packets"], 20);
  EXPECT_EQ(port["classes"][3]["bytes"], 20 * 1514);
  EXPECT_EQ(port["classes"][3]["largest_packet_bytes"], 1514);
  EXPECT_EQ(port["backstop_drops"], 0);
  EXPECT_EQ(status["super_packets"], 0);
  EXPECT_EQ(status["queues"]["per_packet"], true);
  // What the proof itself sent has passed the program by now.
  outcome = command({"status", "--no-probe"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_TRUE(contains(outcome.out, "switch program: 0 super-packets among")) << outcome.out;
  EXPECT_TRUE(contains(outcome.out, "largest 1514 B")) << outcome.out;
}

TEST_F(SwitchCommand, SetByTheNameOfASwitch) {
  Outcome outcome = command({"up", "--hosts", "2", "--spine", "2", "--loss", "1%"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "loss 1% at every port")) << outcome.out;
  outcome = command({"set", "spine1", "--dead", "on", "--direction", "in"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "leaf0:spine0: loss 1%\nleaf0:spine1: loss 1%, dead inwards\n")) << outcome.out;
  const json status = results({"set", "leaf1-spine0", "--clear", "--json", "-"});
  ASSERT_EQ(status["switches"].size(), 4U);
  int dead = 0, lossy = 0;
  for (const json& one : status["switches"]) {
    for (const json& port : one["ports"]) {
      dead += port["switch_program"]["rules"]["from_host"]["dead"].get<bool>() ? 1 : 0;
      lossy += port["switch_program"]["rules"]["to_host"]["random"] > 0.0 ? 1 : 0;
    }
  }
  EXPECT_EQ(dead, 4);
  EXPECT_EQ(lossy, 8) << "ten ports, less two";
  outcome = command({"set", "spine2", "--loss", "1%"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_TRUE(contains(outcome.err, "allowed: a host, h0 to h1; a switch: leaf0, leaf1, spine0, spine1"))
      << outcome.err;
}

TEST_F(SwitchCommand, WrongRulesAreWrongUsage) {
  must_up(spec(2, 200'000'000));
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong{
      {{"set"}, "--clear"},
      {{"set", "--loss", "101%"}, "--loss: '101%' is not a probability"},
      {{"set", "--loss-model", "x"}, "ge:P,R,G,B"},
      {{"set", "--ecn", "200k:300k:1"}, "Kmin <= Kmax <= the buffer, 125000"},
      {{"set", "2", "--loss", "1%"}, "h0 to h1"},
      {{"set", "--seed", "-1"}, "18446744073709551615"},
      {{"set", "--seed", "99999999999999999999"}, "--seed"},
      {{"set", "--direction", "up", "--loss", "1%"}, "--direction"},
      {{"up", "--rate", "off", "--trim", "1"}, "need a rate"},
      {{"status", "--watch", "1", "--json", "/no/such/folder/x"}, "--json"},
  };
  for (const auto& [arguments, message] : wrong) {
    const Outcome outcome = command(arguments);
    EXPECT_EQ(outcome.status, 2) << message;
    EXPECT_TRUE(contains(outcome.err, message)) << outcome.err;
  }
  EXPECT_EQ(Fabric::status_of(name_)->spec.rules, SwitchRules());
}

TEST_F(SwitchCommand, WatchEndsAtCtrlC) {
  must_up(spec(2, 0));
  trainer::Command watch({"fabric", "status", "--name", name_, "--watch", "0.1"});
  ASSERT_TRUE(watch.wait_for_error_text("Ctrl-C ends this"));
  kill(watch.pid(), SIGINT);
  const Outcome outcome = watch.wait(std::chrono::seconds(20));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "fabric " + name_ + ": 2 hosts")) << outcome.out;
}

TEST_F(SwitchCommand, WatchWritesAnObjectPerLine) {
  must_up(spec(2, 0));
  const trainer::TemporaryDirectory folder;
  const std::string path = folder.file("status.json");
  for (const std::string& to : {std::string("-"), path}) {
    trainer::Command watch({"fabric", "status", "--name", name_, "--watch", "0.1", "--json", to});
    ASSERT_TRUE(watch.wait_for_error_text("Ctrl-C ends this"));
    const auto lines = [&] {
      std::ifstream in(path);
      return std::count(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>(), '\n');
    };
    if (to == path) {
      EXPECT_TRUE(eventually([&] { return lines() >= 2; }));
    }
    kill(watch.pid(), SIGINT);
    const Outcome outcome = watch.wait(std::chrono::seconds(20));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(contains(outcome.out, "2 hosts"), to == path) << "text, or JSON alone";
    std::ifstream file(path);
    std::istringstream out(outcome.out);
    std::istream& in = to == path ? static_cast<std::istream&>(file) : out;
    double before = -1;
    int count = 0;
    for (std::string line; std::getline(in, line); ++count) {
      const json object = json::parse(line, nullptr, false);
      ASSERT_TRUE(object.is_object()) << line;
      EXPECT_EQ(object["name"], name_);
      EXPECT_GT(object["seconds"].get<double>(), before);
      before = object["seconds"];
    }
    EXPECT_GE(count, 1);
  }
}

}  // namespace
}  // namespace clustar::bench::fabric
