// The page, its JSON and the health of the daemon over HTTP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/coordinator/daemon_process.h"
#include "tests/coordinator/test_agent.h"

namespace clustar::tests {
namespace {

using namespace coflow::control;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CoordinatorPage : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(daemon_.listens()) << daemon_.log(); }
  DaemonProcess daemon_;
};

TEST_F(CoordinatorPage, TheStateIsJson) {
  TestAgent agent(daemon_.port());
  Hello hello = hello_of(1, 7, "<script>alert(1)</script>");
  hello.tenant = "'\"&\\";
  agent.send(hello);
  Report report = report_of(7, 0x2a, 1000);
  report.classes[0].left = 750;
  report.classes[0].peers = {{1, 750}};
  report.classes[0].period_us = 1500;
  report.classes[0].deadline_us = 40'000;
  agent.send(report);
  ASSERT_TRUE(agent.next_of<Order>());
  const HttpAnswer answer = http_get(daemon_.http_port(), "/state.json");
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.head, HasSubstr("Content-Type: application/json"));
  EXPECT_THAT(answer.head, HasSubstr("X-Content-Type-Options: nosniff"));
  const auto state = nlohmann::json::parse(answer.body, nullptr, false);
  ASSERT_TRUE(state.is_object()) << answer.body;
  EXPECT_EQ(state["in_charge"], true);
  EXPECT_EQ(state["policy"], "turns");
  ASSERT_EQ(state["classes"].size(), 1u);
  const auto& one = state["classes"][0];
  EXPECT_EQ(one["job"], 7);
  EXPECT_EQ(one["communicator"], "000000000000002a");
  EXPECT_EQ(one["function"], "all_reduce");
  EXPECT_EQ(one["urgency"], "gradient");
  EXPECT_EQ(one["left"], 750);
  EXPECT_EQ(one["in_all"], 1000);
  EXPECT_EQ(one["period_ms"], 1.5);
  EXPECT_EQ(one["waiting"], 1);
  EXPECT_EQ(one["deadline_ms"], 40);
  EXPECT_EQ(one["promise"], "given");
  ASSERT_EQ(state["agents"].size(), 1u);
  EXPECT_EQ(state["agents"][0]["host"], "<script>alert(1)</script>");
  EXPECT_EQ(state["agents"][0]["tenant"], "'\"&\\");
}

TEST_F(CoordinatorPage, ThePageNeedsNothingElse) {
  const HttpAnswer page = http_get(daemon_.http_port(), "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.head, AllOf(HasSubstr("Content-Type: text/html"), HasSubstr("default-src 'none'")));
  EXPECT_THAT(page.body, AllOf(HasSubstr("/state.json"), HasSubstr("prefers-color-scheme: dark")));
  for (const char* outside : {"http://", "https://", "src=", "@import", "url("})
    EXPECT_THAT(page.body, Not(HasSubstr(outside)));
  // What came over the wire is text.
  for (const char* unsafe : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("}) {
    EXPECT_THAT(page.body, Not(HasSubstr(unsafe)));
  }
}

TEST_F(CoordinatorPage, HealthIsOneLine) {
  const HttpAnswer health = http_get(daemon_.http_port(), "/healthz");
  EXPECT_EQ(health.status, 200);
  EXPECT_THAT(health.body, ::testing::StartsWith("in charge, term "));
}

TEST_F(CoordinatorPage, WhatIsNotThereOrNotAllowedIsSaid) {
  const std::uint16_t port = daemon_.http_port();
  const HttpAnswer unknown = http_get(port, "/metrics");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(unknown.body, HasSubstr("/healthz"));
  const std::string host = "Host: 127.0.0.1\r\nConnection: close\r\n";
  for (const std::string& request : {"POST / HTTP/1.1\r\n" + host + "Content-Length: 5\r\n\r\nhello",
                                     "POST /state.json HTTP/1.1\r\n" + host + "Content-Length: 0\r\n\r\n",
                                     "DELETE / HTTP/1.1\r\n" + host + "\r\n"}) {
    const HttpAnswer refused = http_raw(port, request);
    EXPECT_EQ(refused.status, 405) << request;
    EXPECT_THAT(refused.head, HasSubstr("Allow: GET, HEAD"));
  }
  EXPECT_EQ(http_raw(port, "GET / HTTP/1.1\r\n" + host + "Content-Length: 5\r\n\r\nhello").status, 400);
  EXPECT_EQ(http_raw(port, "hello\r\n\r\n").status, 400);
  const HttpAnswer head = http_raw(port, "HEAD /healthz HTTP/1.1\r\n" + host + "\r\n");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
  EXPECT_THAT(head.head, HasSubstr("Content-Length: "));
}

TEST_F(CoordinatorPage, AHeaderIsOf8KiBAtMost) {
  const std::string begin = "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nX: ";
  EXPECT_EQ(http_raw(daemon_.http_port(), begin + std::string(7000, 'x') + "\r\n\r\n").status, 200);
  EXPECT_EQ(http_raw(daemon_.http_port(), begin + std::string(9000, 'x') + "\r\n\r\n").status, 431);
  // One that never ends is not read to its end.
  EXPECT_EQ(http_raw(daemon_.http_port(), begin + std::string(60'000, 'x')).status, 431);
}

// A web site whose name leads to this host must not read the page in its visitor's browser.
TEST_F(CoordinatorPage, ItIsAskedForByAddress) {
  const std::uint16_t port = daemon_.http_port();
  EXPECT_EQ(http_get(port, "/state.json", "example.org").status, 421);
  EXPECT_EQ(http_get(port, "/state.json", "localhost:8480").status, 200);
  EXPECT_EQ(http_get(port, "/state.json", "[::1]:8480").status, 200);
  DaemonProcess open({"--http-anyone"});
  ASSERT_TRUE(open.listens()) << open.log();
  EXPECT_EQ(http_get(open.http_port(), "/state.json", "example.org").status, 200);
}

TEST_F(CoordinatorPage, AConnectionServesMoreThanOneRequest) {
  const std::string one = "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
  const std::string last = "GET /none HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
  const int fd = connect_to(daemon_.http_port());
  ASSERT_TRUE(write_all(fd, one + one + last));
  bool closed = false;
  const std::string all = read_to_end(fd, closed);
  close(fd);
  EXPECT_TRUE(closed);
  std::size_t answers = 0;
  for (std::size_t at = all.find("HTTP/1.1 200"); at != std::string::npos; at = all.find("HTTP/1.1 200", at + 1))
    ++answers;
  EXPECT_EQ(answers, 2u) << all;
  EXPECT_THAT(all, HasSubstr("HTTP/1.1 404"));
}

TEST_F(CoordinatorPage, ConnectionsAreFewAndShort) {
  std::vector<int> held;
  for (int i = 0; i < 64; ++i) held.push_back(connect_to(daemon_.http_port()));
  // One that says nothing gives way; of the others the time is 5 s, whether they say nothing or half a request.
  EXPECT_EQ(http_get(daemon_.http_port(), "/healthz").status, 200);
  ASSERT_TRUE(write_all(held[1], "GET /healthz HT"));
  for (const int fd : held) {
    bool closed = false;
    EXPECT_EQ(read_to_end(fd, closed), "");
    EXPECT_TRUE(closed);
    close(fd);
  }
  EXPECT_EQ(http_get(daemon_.http_port(), "/healthz").status, 200);
}

}  // namespace
}  // namespace clustar::tests
