// `clustar fabric` cut short: killed between any two of its steps, or interrupted by Ctrl-C.
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>

#include "tests/fabric/fabric_under_test.h"
#include "tests/trainer/command.h"

namespace clustar::bench::fabric {
namespace {

using namespace std::chrono_literals;
using trainer::Command;
using trainer::run_clustar;
using trainer::TemporaryDirectory;

constexpr int kSteps = 5;  // of `up` with 2 hosts: namespaces, cables, queues of the ports, of host 0, of host 1

// Puts itself before ip and tc: the n-th call does its first two lines or all of them, and then hangs.
class HeldTools {
 public:
  HeldTools(int step, bool whole) : old_path_(std::getenv("PATH") != nullptr ? std::getenv("PATH") : "/usr/bin:/bin") {
    for (const std::string tool : {"ip", "tc"}) {
      const std::string real = "PATH='" + old_path_ + ":/usr/sbin:/sbin' " + tool + " \"$@\"";
      folder_.write(tool, "#!/bin/sh\necho >> " + folder_.file("calls") + "\n[ $(wc -l < " + folder_.file("calls") +
                              ") -eq " + std::to_string(step) + " ] || { " + real + "; exit; }\n" +
                              (whole ? "" : "head -n 2 | ") + real + "\n: > " + held() + "\nexec sleep 30\n");
      chmod(folder_.file(tool).c_str(), 0755);
    }
    setenv("PATH", (folder_.path() + ":" + old_path_).c_str(), 1);
  }
  ~HeldTools() { setenv("PATH", old_path_.c_str(), 1); }
  std::string held() const { return folder_.file("held"); }

 private:
  std::string old_path_;
  TemporaryDirectory folder_;
};

class FabricCrash : public FabricTest {
 protected:
  std::vector<std::string> up() const { return {"fabric", "up", "--hosts", "2", "--rate", "200M", "--name", name_}; }
  std::vector<std::string> up_tiers() const {
    return {"fabric", "up", "--hosts", "2", "--spine", "2", "--rate", "200M", "--name", name_};
  }

  // Starts `up`, waits until it hangs in that step, and sends it the signal.
  int cut(int step, bool whole, int signal) const { return cut(up(), step, whole, signal); }
  int cut(const std::vector<std::string>& arguments, int step, bool whole, int signal) const {
    const HeldTools tools(step, whole);
    Command command(arguments);
    EXPECT_TRUE(eventually([&] { return std::filesystem::exists(tools.held()); })) << "step " << step;
    kill(command.pid(), signal);
    return command.wait(10s).status;
  }
};

TEST_F(FabricCrash, DownClearsUpAfterAKillInAnyStep) {
  for (int step = 1; step <= kSteps; ++step) {
    for (const bool whole : {false, true}) {
      SCOPED_TRACE("step " + std::to_string(step) + (whole ? ", at its end" : ", in its middle"));
      EXPECT_EQ(cut(step, whole, SIGKILL), 128 + SIGKILL);
      EXPECT_FALSE(namespaces_of(name_).empty());
      EXPECT_EQ(run_clustar({"fabric", "down", "--name", name_}).status, 0);
      EXPECT_TRUE(nothing_left());
    }
  }
}

// Of its 16 steps: namespaces, cables of a leaf and of a spine, routes of a host and of a switch, queues.
TEST_F(FabricCrash, SeveralSwitchesAreClearedUpAsOneIs) {
  for (const int step : {1, 2, 4, 6, 9, 12}) {
    SCOPED_TRACE("step " + std::to_string(step));
    EXPECT_EQ(cut(up_tiers(), step, false, SIGKILL), 128 + SIGKILL);
    EXPECT_FALSE(namespaces_of(name_).empty());
    if (step % 2 == 0) {
      const auto outcome = run_clustar(up_tiers());
      EXPECT_EQ(outcome.status, 0) << outcome.err;
      EXPECT_NE(outcome.out.find("repaired"), std::string::npos) << outcome.out;
    }
    EXPECT_EQ(run_clustar({"fabric", "down", "--name", name_}).status, 0);
    EXPECT_TRUE(nothing_left());
  }
  EXPECT_EQ(cut(up_tiers(), 5, true, SIGINT), 128 + SIGINT);
  EXPECT_TRUE(nothing_left());
}

TEST_F(FabricCrash, UpGoesOnAfterAKill) {
  cut(2, true, SIGKILL);
  const auto outcome = run_clustar(up());
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("repaired"), std::string::npos) << outcome.out;
  EXPECT_TRUE(Fabric::find(name_));
}

TEST_F(FabricCrash, DownClearsUpAfterAKillAtAnyTime) {
  for (int delay_ms = 2; delay_ms < 100; delay_ms += 12) {
    Command command(up());
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
    kill(command.pid(), SIGKILL);
    command.wait(10s);
    EXPECT_EQ(run_clustar({"fabric", "down", "--name", name_}).status, 0);
    EXPECT_TRUE(nothing_left()) << "killed after " << delay_ms << " ms";
  }
}

TEST_F(FabricCrash, CtrlCDuringUpLeavesNothing) {
  for (int step = 1; step <= kSteps; ++step) {
    for (const int signal : {SIGINT, SIGTERM}) {
      EXPECT_EQ(cut(step, step % 2 == 0, signal), 128 + signal) << "step " << step;
      EXPECT_TRUE(nothing_left()) << "step " << step;
    }
  }
}

TEST_F(FabricCrash, CtrlCDuringExecEndsTheCommandAndKeepsTheFabric) {
  must_up(spec(2, 0));
  Command command({"fabric", "exec", "--name", name_, "1", "--", "sleep", "40"});
  const std::vector<std::string> host{host_namespace(name_, 1)};
  ASSERT_TRUE(eventually([&] {
    const auto inside = inhabitants(host);
    return !inside.empty() && inside.front().command == "sleep";
  }));
  kill(command.pid(), SIGINT);
  EXPECT_EQ(command.wait(10s).status, 128 + SIGINT);
  EXPECT_TRUE(inhabitants(host).empty());
  EXPECT_TRUE(Fabric::find(name_));
}

TEST_F(FabricCrash, DownEndsWhatExecLeftBehind) {
  must_up(spec(2, 0));
  ASSERT_EQ(run_clustar({"fabric", "exec", "--name", name_, "0", "--", "sh", "-c",
                         "sleep 40 >/dev/null 2>&1 </dev/null & exit 0"})
                .status,
            0);
  const auto outcome = run_clustar({"fabric", "down", "--name", name_});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("ended sleep"), std::string::npos) << outcome.out;
}

}  // namespace
}  // namespace clustar::bench::fabric
