// `clustar fabric` as a user runs it: output, exit status, JSON, and what it says when it cannot run.
#include "tests/trainer/command.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "tests/fabric/command_under_test.h"
#include "tests/fabric/fabric_under_test.h"

namespace clustar::bench::fabric {
namespace {

using trainer::Outcome;
using trainer::run_clustar;
using trainer::TemporaryDirectory;

class FabricCommand : public FabricTest {
 protected:
  Outcome run(std::vector<std::string> arguments) const { return run_fabric(name_, std::move(arguments)); }
};

// Exit status, and both outputs together.
Outcome in_shell(const std::string& script) {
  Outcome outcome;
  FILE* pipe = popen(("exec 2>&1; " + script).c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> block{};
  for (std::size_t n = 0; (n = fread(block.data(), 1, block.size(), pipe)) > 0;) outcome.out.append(block.data(), n);
  outcome.status = WEXITSTATUS(pclose(pipe));
  return outcome;
}

// What `sudo` says of who asked it.
class AskedBy {
 public:
  explicit AskedBy(const char* uid) { setenv("SUDO_UID", uid, 1); }
  ~AskedBy() { unsetenv("SUDO_UID"); }
  AskedBy(const AskedBy&) = delete;
  AskedBy& operator=(const AskedBy&) = delete;
};

TEST_F(FabricCommand, AFabricOfAnotherUserIsNeitherReplacedNorRemoved) {
  const std::vector<std::string> two{"up", "--hosts", "2"};
  {
    const AskedBy first("50001");
    ASSERT_EQ(run(two).status, 0);
    EXPECT_EQ(run(two).status, 0) << "one's own";
  }
  {
    const AskedBy second("50002");
    const std::vector<std::vector<std::string>> all{two, {"up", "--hosts", "3"}, {"down"}};
    for (const std::vector<std::string>& words : all) {
      const Outcome outcome = run(words);
      EXPECT_EQ(outcome.status, 1) << words.front();
      EXPECT_TRUE(contains(outcome.err, "is user 50001's, and you are user 50002")) << outcome.err;
      EXPECT_TRUE(contains(outcome.err, "another --name")) << outcome.err;
    }
    const auto kept = Fabric::find(name_);
    ASSERT_TRUE(kept) << kept.error().message;
    EXPECT_EQ(kept->hosts(), 2);
    ASSERT_EQ(run({"up", "--hosts", "3", "--force"}).status, 0);
  }
  {
    const AskedBy third("50003");
    ASSERT_EQ(run({"up", "--hosts", "3", "--force"}).status, 0) << "just as it is";
    EXPECT_EQ(run({"up", "--hosts", "3"}).status, 0) << "now one's own";
    const AskedBy second("50002");
    ASSERT_EQ(run({"up", "--hosts", "3", "--force"}).status, 0);
  }
  // Now it is the second user's, and a change of its rules does not alter that.
  const Outcome changed = run({"set", "--loss", "1%"});
  EXPECT_TRUE(changed.status == 0 || contains(changed.err, "has no switch program")) << changed.err;
  const AskedBy first("50001");
  EXPECT_EQ(run({"down"}).status, 1);
  EXPECT_EQ(run({"down", "--force"}).status, 0);
}

TEST_F(FabricCommand, UpStatusExecDown) {
  const TemporaryDirectory folder;
  Outcome outcome = run({"up", "--hosts", "2", "--rate", "200M", "--json", folder.file("up.json")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "made in")) << outcome.out;
  const auto up = folder.read_json("up.json");
  EXPECT_EQ(up["command"], "fabric");
  EXPECT_TRUE(up.contains("version") && up.contains("machine"));
  EXPECT_EQ(up["results"]["rate_bps"], 200'000'000);
  EXPECT_EQ(up["results"]["change"], "made");
  EXPECT_EQ(up["results"]["addresses"][1], "10.88.0.2");

  outcome = run({"up", "--hosts", "2", "--rate", "200M"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "unchanged")) << outcome.out;

  outcome = run({"status", "--json", folder.file("status.json")});
  ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "per packet, proved; largest packet at the switch 1514 B")) << outcome.out;
  const auto document = folder.read_json("status.json");
  const auto& status = document["results"];
  EXPECT_EQ(status["buffer_bytes"], 125'000);
  EXPECT_EQ(status["mtu"], 1500);
  EXPECT_EQ(status["shaping"], "htb+bfifo");
  ASSERT_EQ(status["ports"].size(), 2U);
  for (const char* key : {"host", "namespace", "address", "mtu", "rate_bps", "buffer_bytes"}) {
    EXPECT_TRUE(status["ports"][0].contains(key)) << key;
  }
  for (const char* key : {"packets", "bytes", "drops", "waiting_bytes"}) {
    EXPECT_TRUE(status["ports"][1]["to_host"][key].is_number()) << key;
    EXPECT_TRUE(status["ports"][1]["from_host"][key].is_number()) << key;
  }
  EXPECT_TRUE(status["queues"]["per_packet"]);
  EXPECT_LE(status["queues"]["largest_packet_bytes"], 1518);

  outcome = run({"up", "--hosts", "2", "--rate", "1G"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "rebuilt") && contains(outcome.out, "200Mbit/s")) << outcome.out;

  outcome = run({"down", "--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out)["results"][0]["removed_namespaces"].size(), 3U);
  EXPECT_TRUE(nothing_left());
  outcome = run({"down"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_TRUE(contains(outcome.out, "nothing to remove")) << outcome.out;
}

TEST_F(FabricCommand, StatusShowsEveryPortOfEverySwitch) {
  const TemporaryDirectory folder;
  ASSERT_EQ(run({"up", "--hosts", "4", "--spine", "2", "--rate", "100M", "--json", folder.file("up.json")}).status, 0);
  EXPECT_EQ(folder.read_json("up.json")["results"]["switches"].size(), 4U);
  const Outcome outcome = run({"status", "--json", folder.file("status.json")});
  ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "spine1   to-leaf0")) << outcome.out;
  const auto document = folder.read_json("status.json");
  const auto& status = document["results"];
  EXPECT_EQ(status["topology"], "leaf-spine");
  EXPECT_EQ(status["uplink_rate_bps"], 100'000'000);
  EXPECT_TRUE(status["queues"]["per_packet"]);
  ASSERT_EQ(status["switches"].size(), 4U);
  EXPECT_EQ(status["switches"][3]["name"], "spine1");
  const auto& port = status["switches"][0]["ports"][2];
  EXPECT_EQ(port["interface"], "to-spine0");
  EXPECT_EQ(port["peer"], "spine0");
  EXPECT_EQ(port["rate_bps"], 100'000'000);
  EXPECT_TRUE(port["sent"]["drops"].is_number() && port["received"]["packets"].is_number());
}

TEST_F(FabricCommand, ExecRunsOnTheHostAndPassesEverythingThrough) {
  must_up(spec(2, 0));
  Outcome outcome = run({"exec", "h1", "--", "ip", "-o", "-4", "addr", "show", "dev", "eth0"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "10.88.0.2/24")) << outcome.out;
  outcome = run({"exec", "0", "--", "sh", "-c", "ls /sys/class/net; echo out; echo err >&2; exit 37"});
  EXPECT_EQ(outcome.status, 37);
  EXPECT_EQ(outcome.out, "eth0\nlo\nout\n");
  EXPECT_EQ(outcome.err, "err\n");
  outcome = run({"exec", "0", "--", "printf", "%s|", "[a,b]", "", "--", "--help", "a b"});
  EXPECT_EQ(outcome.out, "[a,b]||--|--help|a b|");
  outcome =
      in_shell("echo hello | " + std::string(CLUSTAR_EXECUTABLE) + " fabric exec --name " + name_ + " 0 -- tr a-z A-Z");
  EXPECT_EQ(outcome.out, "HELLO\n");
  EXPECT_EQ(run({"exec", "0", "--", "no-such-command"}).status, 127);
  EXPECT_EQ(run({"exec", "0", "--", "/"}).status, 126);
  EXPECT_TRUE(std::filesystem::exists("/sys/kernel")) << "the command's own /sys stays its own";
}

TEST_F(FabricCommand, AHostThatIsNotThereIsWrongUsage) {
  Outcome outcome = run({"exec", "0", "--", "true"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(contains(outcome.err, "there is no fabric") && contains(outcome.err, "clustar fabric up")) << outcome.err;
  outcome = run({"status"});
  EXPECT_EQ(outcome.status, 1);
  must_up(spec(2, 0));
  for (const char* host : {"2", "h7", "x", "-1", "h", "0x"}) {
    outcome = run({"exec", host, "--", "true"});
    EXPECT_EQ(outcome.status, 2) << host;
  }
  EXPECT_TRUE(contains(run({"exec", "2", "--", "true"}).err, "allowed: 0 to 1"));
  EXPECT_EQ(run({"exec", "0"}).status, 2);
}

TEST_F(FabricCommand, SaysWhatTheKernelLacksAndLeavesNothing) {
  const TemporaryDirectory folder;
  folder.write("tc", "#!/bin/sh\necho 'Error: Specified qdisc kind is unknown.' >&2\nexit 2\n");
  ASSERT_EQ(chmod(folder.file("tc").c_str(), 0755), 0);
  const std::string up = std::string(CLUSTAR_EXECUTABLE) + " fabric up --name " + name_ + " --hosts 2 --rate 200M";
  Outcome outcome = in_shell("PATH=" + folder.path() + ":$PATH " + up);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(contains(outcome.out, "qdisc kind is unknown") && contains(outcome.out, "modprobe sch_htb"))
      << outcome.out;
  EXPECT_TRUE(nothing_left());

  folder.write("hidden", "not executable");
  outcome = in_shell("tc=$(PATH=$PATH:/usr/sbin:/sbin command -v tc) && unshare -m sh -c 'mount --bind " +
                     folder.file("hidden") + " '$(readlink -f $tc)' && " + up + "'");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(contains(outcome.out, "apt-get install iproute2")) << outcome.out;
  EXPECT_TRUE(nothing_left());
}

// On a file system of its own that has no room, under /run/clustar, in a mount namespace. A file outside of it keeps
// that folder: otherwise a process that removes the last fabric meanwhile removes the folder too, and with it the
// mount.
TEST_F(FabricCommand, AFullDiskIsAnErrorAndLeavesNothing) {
  const std::string up = std::string(CLUSTAR_EXECUTABLE) + " fabric up --name " + name_ + " --hosts 2 ";
  const std::string keep = "/run/clustar/" + name_ + ".keep";
  const std::string full = "for i in 1 2 3 4 5 6 7 8 9; do mkdir -p /run/clustar && touch " + keep +
                           " && break; done; mount -t tmpfs -o size=16k tmpfs /run/clustar || exit 77; "
                           "head -c 100000 /dev/zero > /run/clustar/fill 2>/dev/null; ";
  for (const std::string& more : {std::string(), std::string("--delay 10us --delay-by forwarder")}) {
    const Outcome outcome = in_shell("unshare -m sh -c '" + full + up + more + "; s=$?; ls /run/clustar; exit $s'");
    in_shell("rm -f " + keep);
    if (outcome.status == 77) GTEST_SKIP() << "needs unshare (util-linux) and tmpfs";
    EXPECT_EQ(outcome.status, 1) << outcome.out;
    EXPECT_TRUE(contains(outcome.out, "is /run full?): No space left on device\nfill\n")) << outcome.out;
    EXPECT_TRUE(namespaces_of(name_).empty());
  }
}

TEST_F(FabricCommand, SaysThatItNeedsRoot) {
  if (in_shell("setpriv --reuid 65534 --regid 65534 --clear-groups true").status != 0) {
    GTEST_SKIP() << "needs setpriv (util-linux), to be somebody else than root";
  }
  const TemporaryDirectory folder;  // the build folder may be closed to others
  ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
  std::filesystem::copy_file(CLUSTAR_EXECUTABLE, folder.file("clustar"));
  for (const char* what : {"up", "down", "status", "exec 0 -- true"}) {
    const Outcome outcome =
        in_shell("setpriv --reuid 65534 --regid 65534 --clear-groups " + folder.file("clustar") + " fabric " + what);
    EXPECT_EQ(outcome.status, 1) << what;
    EXPECT_TRUE(contains(outcome.out, "needs root") && contains(outcome.out, "sudo")) << what << ": " << outcome.out;
  }
}

// Wrong usage needs no root, and is found before anything is made.
TEST(FabricUsage, WrongFlagsAreNamedWithWhatIsAllowed) {
  const std::pair<std::vector<std::string>, const char*> wrong[] = {
      {{"up", "--rate", "fast"}, "allowed: 1M to 400G"},
      {{"up", "--rate", "200"}, "allowed: 1M to 400G"},
      {{"up", "--hosts", "1"}, "2 to 250"},
      {{"up", "--hosts", "many"}, "--hosts"},
      {{"up", "--mtu", "65000"}, "1280 to 9216"},
      {{"up", "--buffer", "10x"}, "allowed: bytes"},
      {{"up", "--buffer", "1000"}, "allowed: 1514"},
      {{"up", "--buffer", "0"}, "default"},
      {{"up", "--rate", "off", "--buffer", "1M"}, "a buffer needs a rate"},
      {{"up", "--name", "A/B"}, "a-z"},
      {{"up", "--delay", "1"}, "--delay"},
      {{"up", "--json", "/no/such/folder/x.json"}, "cannot write"},
      {{"up", "--spine", "0"}, "allowed: 1 to 64"},
      {{"up", "--spine", "2", "--leaves", "5"}, "allowed: 2 to 4"},
      {{"up", "--leaves", "2"}, "--spine"},
      {{"up", "--spine", "--uplink-rate", "off"}, "--rate off"},
      {{"up", "--delay", "2s"}, "allowed: 0 to 100ms"},
      {{"up", "--delay", "1ms", "--delay-by", "magic"}, "allowed: netem, forwarder, auto"},
      {{"up", "--delay-by", "netem"}, "without a delay"},
      {{"up", "--topology", "/no/such.toml"}, "cannot read"},
      {{"up", "--topology", "x.toml", "--hosts", "3"}, "--hosts"},
      {{"sideways"}, "clustar fabric: there is no command 'sideways'; allowed: up, down, set, status, exec, selftest"},
      {{"exec", "0", "true"}, "--"},
      {{}, "allowed: up, down, set, status, exec, selftest"},
  };
  for (const auto& [arguments, expected] : wrong) {
    std::vector<std::string> all{"fabric"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Outcome outcome = run_clustar(all);
    EXPECT_EQ(outcome.status, 2) << expected;
    EXPECT_TRUE(contains(outcome.err + outcome.out, expected)) << outcome.err << outcome.out;
  }
  EXPECT_EQ(run_clustar({"fabric", "up", "--help"}).status, 0);
}

}  // namespace
}  // namespace clustar::bench::fabric
