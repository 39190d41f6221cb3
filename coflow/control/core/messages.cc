#include "coflow/control/core/messages.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "transport/base/bytes.h"

namespace clustar::coflow::control {
namespace {

constexpr std::uint32_t kMostWeight = 1000;
constexpr std::uint8_t kUrgencies = 4;
constexpr std::uint8_t kMostLevel = 15;
constexpr Duration kLongest = std::chrono::hours(1);

class Writer {
 public:
  template <class T>
  void number(T value) {
    std::array<std::byte, sizeof(T)> bytes;
    WireWriter<sizeof(T)>(bytes).template store<0>(value);
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }
  void flag(bool value) { number<std::uint8_t>(value ? 1 : 0); }
  void text(const std::string& value, std::size_t most) {
    const std::size_t size = std::min(value.size(), most);
    number(static_cast<std::uint8_t>(size));
    const auto* bytes = reinterpret_cast<const std::byte*>(value.data());
    out_.insert(out_.end(), bytes, bytes + size);
  }
  void time(Duration value) {
    number(static_cast<std::uint32_t>(std::clamp(value, Duration(0), kLongest) / std::chrono::microseconds(1)));
  }
  void key(const ClassKey& key) {
    number(key.job);
    number(key.group);
    number(key.function);
  }
  void version(const Version& version) {
    number(version.term);
    number(version.number);
  }
  std::vector<std::byte> take() { return std::move(out_); }

 private:
  std::vector<std::byte> out_;
};

// Reads on, with zeroes, behind the end: `good` tells at last.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}

  template <class T>
  T number() {
    std::array<std::byte, sizeof(T)> bytes{};
    if (in_.size() < sizeof(T)) {
      good_ = false;
      in_ = {};
      return T{};
    }
    std::memcpy(bytes.data(), in_.data(), sizeof(T));
    in_ = in_.subspan(sizeof(T));
    return WireReader<sizeof(T)>(bytes).template load<T, 0>();
  }
  template <class T>
  T number(T least, T most) {
    const T value = number<T>();
    good_ = good_ && least <= value && value <= most;
    return good_ ? value : least;
  }
  bool flag() { return number<std::uint8_t>(0, 1) == 1; }
  std::string text(std::size_t most) {
    const std::size_t size = number<std::uint8_t>();
    if (size > most || size > in_.size()) {
      good_ = false;
      return {};
    }
    std::string value(reinterpret_cast<const char*>(in_.data()), size);
    in_ = in_.subspan(size);
    // Names are printed: what a terminal would obey is no name.
    good_ = good_ && std::none_of(value.begin(), value.end(), [](char c) {
              return static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f;
            });
    return value;
  }
  Duration time() {
    const auto most = static_cast<std::uint32_t>(kLongest / std::chrono::microseconds(1));
    return std::chrono::microseconds(number<std::uint32_t>(0, most));
  }
  ClassKey key() {
    ClassKey key;
    key.job = number<std::uint32_t>();
    key.group = number<std::uint64_t>();
    key.function = number<std::uint8_t>();
    return key;
  }
  Version version() {
    Version version;
    version.term = number<std::uint64_t>();
    version.number = number<std::uint64_t>();
    return version;
  }
  bool good() const { return good_; }
  bool all_read() const { return good_ && in_.empty(); }

 private:
  std::span<const std::byte> in_;
  bool good_ = true;
};

enum class Type : std::uint8_t { kHello = 1, kReport = 2, kWelcome = 3, kOrder = 4, kRefusal = 5, kBye = 6 };

void write(Writer& out, const Hello& hello) {
  out.number(Type::kHello);
  out.number(static_cast<std::uint8_t>(hello.role));
  out.number(hello.agent);
  out.number(hello.job);
  out.number(std::clamp<std::uint32_t>(hello.weight, 1, kMostWeight));
  out.number(hello.bytes_per_second);
  out.version(hello.seen);
  out.text(hello.tenant, kMostName);
  out.text(hello.host, kMostName);
  out.text(hello.nic, kMostName);
  const std::size_t addresses = std::min(hello.addresses.size(), kMostAddresses);
  out.number(static_cast<std::uint8_t>(addresses));
  for (std::size_t i = 0; i < addresses; ++i) out.number(hello.addresses[i]);
}

void write(Writer& out, const ClassReport& one) {
  out.key(one.key);
  out.number(std::min<std::uint8_t>(one.urgency, kUrgencies - 1));
  out.flag(one.waits);
  out.flag(one.gone);
  out.flag(one.repeats);
  out.number(one.in_all);
  out.number(one.left);
  out.number(one.attained);
  out.number(one.period_us);
  out.number(one.since_us);
  out.number(one.deadline_us);
  const std::size_t peers = std::min(one.peers.size(), kMostPeers);
  out.number(static_cast<std::uint8_t>(peers));
  for (std::size_t i = 0; i < peers; ++i) {
    out.number(one.peers[i].peer);
    out.number(one.peers[i].bytes);
  }
}

void write(Writer& out, const Report& report) {
  out.number(Type::kReport);
  const std::size_t classes = std::min(report.classes.size(), kMostReported);
  out.number(static_cast<std::uint16_t>(classes));
  for (std::size_t i = 0; i < classes; ++i) write(out, report.classes[i]);
}

void write(Writer& out, const Welcome& welcome) {
  out.number(Type::kWelcome);
  out.number(welcome.term);
  out.time(welcome.interval);
  out.time(welcome.lease);
}

void write(Writer& out, const Order& order) {
  out.number(Type::kOrder);
  out.version(order.version);
  out.time(order.lease);
  out.flag(order.all);
  const std::size_t classes = std::min(order.classes.size(), kMostClasses);
  out.number(static_cast<std::uint16_t>(classes));
  for (std::size_t i = 0; i < classes; ++i) {
    const Placed& one = order.classes[i];
    out.key(one.key);
    out.number(one.place);
    out.number(std::min(one.level, kMostLevel));
    out.number(one.hold_us);
    out.number(one.cap);
    out.number(static_cast<std::uint8_t>(one.promise));
  }
}

void write(Writer& out, const Refusal& refusal) {
  out.number(Type::kRefusal);
  out.number(static_cast<std::uint8_t>(refusal.reason));
  out.text(refusal.text, kMostText);
  out.text(refusal.address, kMostName);
}

void write(Writer& out, const Bye&) { out.number(Type::kBye); }

Hello read_hello(Reader& in) {
  Hello hello;
  hello.role = static_cast<Role>(in.number<std::uint8_t>(0, 1));
  hello.agent = in.number<std::uint64_t>();
  hello.job = in.number<std::uint32_t>();
  hello.weight = in.number<std::uint32_t>(1, kMostWeight);
  hello.bytes_per_second = in.number<std::uint64_t>();
  hello.seen = in.version();
  hello.tenant = in.text(kMostName);
  hello.host = in.text(kMostName);
  hello.nic = in.text(kMostName);
  hello.addresses.resize(in.number<std::uint8_t>(0, kMostAddresses));
  for (std::uint32_t& address : hello.addresses) address = in.number<std::uint32_t>();
  return hello;
}

ClassReport read_class(Reader& in) {
  ClassReport one;
  one.key = in.key();
  one.urgency = in.number<std::uint8_t>(0, kUrgencies - 1);
  one.waits = in.flag();
  one.gone = in.flag();
  one.repeats = in.flag();
  one.in_all = in.number<std::uint64_t>();
  one.left = in.number<std::uint64_t>();
  one.attained = in.number<std::uint64_t>();
  one.period_us = in.number<std::uint32_t>();
  one.since_us = in.number<std::uint32_t>();
  one.deadline_us = in.number<std::uint32_t>();
  one.peers.resize(in.number<std::uint8_t>(0, kMostPeers));
  for (PeerLoad& load : one.peers) {
    load.peer = in.number<std::uint32_t>();
    load.bytes = in.number<std::uint64_t>();
  }
  return one;
}

Report read_report(Reader& in) {
  Report report;
  const std::size_t classes = in.number<std::uint16_t>(0, kMostReported);
  for (std::size_t i = 0; i < classes && in.good(); ++i) report.classes.push_back(read_class(in));
  return report;
}

Welcome read_welcome(Reader& in) {
  Welcome welcome;
  welcome.term = in.number<std::uint64_t>();
  welcome.interval = in.time();
  welcome.lease = in.time();
  return welcome;
}

Order read_order(Reader& in) {
  Order order;
  order.version = in.version();
  order.lease = in.time();
  order.all = in.flag();
  const std::size_t classes = in.number<std::uint16_t>(0, kMostClasses);
  for (std::size_t i = 0; i < classes && in.good(); ++i) {
    Placed one;
    one.key = in.key();
    one.place = in.number<std::uint32_t>();
    one.level = in.number<std::uint8_t>(0, kMostLevel);
    one.hold_us = in.number<std::uint32_t>();
    one.cap = in.number<std::uint64_t>();
    one.promise = static_cast<Promise>(in.number<std::uint8_t>(0, static_cast<std::uint8_t>(Promise::kRefused)));
    order.classes.push_back(one);
  }
  return order;
}

Refusal read_refusal(Reader& in) {
  Refusal refusal;
  refusal.reason =
      static_cast<RefusalReason>(in.number<std::uint8_t>(0, static_cast<std::uint8_t>(RefusalReason::kSilent)));
  refusal.text = in.text(kMostText);
  refusal.address = in.text(kMostName);
  return refusal;
}

}  // namespace

const char* to_string(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::kStandby: return "another coordinator is in charge";
    case RefusalReason::kFull: return "it has as many agents as it may";
    case RefusalReason::kTooFast: return "reports come too fast";
    case RefusalReason::kNonsense: return "a message made no sense";
    case RefusalReason::kStopping: return "it ends";
    case RefusalReason::kSilent: return "nothing was heard of this agent for long";
    case RefusalReason::kSameName: return "another connection has the same agent's number";
  }
  return "?";
}

const char* to_string(Promise promise) {
  switch (promise) {
    case Promise::kNone: return "none";
    case Promise::kGiven: return "given";
    case Promise::kRefused: return "refused";
  }
  return "?";
}

std::vector<std::byte> serialize(const Message& message) {
  Writer out;
  std::visit([&](const auto& one) { write(out, one); }, message);
  return out.take();
}

std::optional<Message> parse(std::span<const std::byte> frame) {
  Reader in(frame);
  const auto type = static_cast<Type>(in.number<std::uint8_t>());
  std::optional<Message> message;
  switch (type) {
    case Type::kHello: message = read_hello(in); break;
    case Type::kReport: message = read_report(in); break;
    case Type::kWelcome: message = read_welcome(in); break;
    case Type::kOrder: message = read_order(in); break;
    case Type::kRefusal: message = read_refusal(in); break;
    case Type::kBye: message = Bye{}; break;
  }
  if (!message || !in.all_read()) return std::nullopt;
  return message;
}

}  // namespace clustar::coflow::control
