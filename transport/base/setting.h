// What a setting is. Rooms declare theirs in tables of these, Config keeps what they are set to.
#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/time.h"

namespace clustar {

struct SettingInfo {
  std::string name;       // in a file; CLUSTAR_ and upper case in the environment
  std::string allowed;    // for a person, in errors
  std::string help;       // one line, Markdown
  std::string otherwise;  // what counts where nothing is set, for a person; empty: the default
  bool shared = false;    // all ranks need it alike

  std::string variable() const;  // CLUSTAR_...
};

// A variable of NCCL's that counts where ours is not set: what users have already told NCCL of their network.
struct NcclVariable {
  const char* name;
  const char* setting;  // ours; null: only checked
  const char* allowed;  // for a person
  // The same in our words; empty: it leaves the default. Nothing: it says what we cannot take.
  std::function<std::optional<std::string>(const std::string&)> translate;
};

// A value of Config by which a table's texts become its struct.
class SettingValues {
 public:
  virtual ~SettingValues() = default;
  virtual const std::string* find(const std::string& name) const = 0;  // null: not set
};

// One room's settings, for code that loads, checks and shows them without knowing the room.
class SettingTable {
 public:
  virtual ~SettingTable() = default;
  virtual std::size_t size() const = 0;
  virtual const SettingInfo& info(std::size_t i) const = 0;
  // Whether the text is a value of setting i.
  virtual bool allows(std::size_t i, const std::string& text) const = 0;
  // What counts for setting i, as text.
  virtual std::string counts(std::size_t i, const SettingValues& values) const = 0;
  // What is wrong with several of the table's settings together; empty: nothing.
  virtual std::string contradiction(const SettingValues& values) const = 0;
  virtual std::span<const NcclVariable> nccl() const = 0;
  // Of NCCL's variables whose names begin so, those of nccl() mean something; the others are named. Empty: none.
  virtual std::string nccl_prefix() const = 0;
};

// `S` holds the values: a plain struct with the defaults.
template <class S>
struct Setting {
  SettingInfo info;
  std::function<bool(S&, const std::string&)> read;  // false: not allowed
  std::function<std::string(const S&)> show;         // read() takes it back; empty where nothing need be set
  std::function<std::string(const S&)> counts = {};  // where that is more than show() says

  // What one may add to it in a table.
  Setting help(std::string text) && { return info.help = std::move(text), std::move(*this); }
  Setting otherwise(std::string text) && { return info.otherwise = std::move(text), std::move(*this); }
  Setting shared() && { return info.shared = true, std::move(*this); }
};

template <class S>
class TypedTable final : public SettingTable {
 public:
  struct Extras {
    std::function<std::string(const S&)> contradiction = {};
    std::vector<NcclVariable> nccl = {};
    std::string nccl_prefix = {};
  };
  explicit TypedTable(std::vector<Setting<S>> all, Extras extras = {})
      : all_(std::move(all)), extras_(std::move(extras)) {}

  // Values that allows() takes.
  S from(const SettingValues& values) const {
    S made;
    for (const Setting<S>& setting : all_) {
      if (const std::string* text = values.find(setting.info.name)) (void)setting.read(made, *text);
    }
    return made;
  }
  const std::vector<Setting<S>>& all() const { return all_; }

  std::size_t size() const override { return all_.size(); }
  const SettingInfo& info(std::size_t i) const override { return all_[i].info; }
  bool allows(std::size_t i, const std::string& text) const override {
    S scratch;
    return all_[i].read(scratch, text);
  }
  std::string counts(std::size_t i, const SettingValues& values) const override {
    const S now = from(values);
    return all_[i].counts ? all_[i].counts(now) : all_[i].show(now);
  }
  std::string contradiction(const SettingValues& values) const override {
    return extras_.contradiction ? extras_.contradiction(from(values)) : std::string();
  }
  std::span<const NcclVariable> nccl() const override { return extras_.nccl; }
  std::string nccl_prefix() const override { return extras_.nccl_prefix; }

 private:
  std::vector<Setting<S>> all_;
  Extras extras_;
};

namespace setting {

bool one_of(const std::string& value, const std::vector<std::string>& allowed);
std::string alternatives(const std::vector<std::string>& allowed);  // "a | b"
// The whole text as a number, without spaces or a plus sign.
template <class T>
std::optional<T> number(const std::string& text, T low, T high) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= low && value <= high)) return std::nullopt;
  return value;
}
// A count of bytes: 65536, 64K, 1M.
std::optional<std::uint32_t> byte_count(std::string text, std::uint32_t low, std::uint32_t high);
std::string bytes_allowed(std::uint32_t low, std::uint32_t high);
std::string bytes_text(std::uint32_t bytes);
// Seconds, as a fraction where need be.
std::optional<Duration> seconds(const std::string& text, double high);
std::string seconds_text(Duration duration);
// A share of 1 in parts per million.
std::optional<std::uint32_t> share_ppm(const std::string& text, double high);
std::string share_text(std::uint32_t ppm);

template <class S, class T>
Setting<S> make_number(const std::string& name, T S::*field, T low, T high, const std::string& meaning = {}) {
  return {{name, "a number from " + std::to_string(low) + " to " + std::to_string(high) + meaning, {}, {}, false},
          [=](S& values, const std::string& text) {
            const auto value = number<T>(text, low, high);
            if (value) values.*field = *value;
            return value.has_value();
          },
          [=](const S& values) { return std::to_string(values.*field); }};
}
template <class S>
Setting<S> make_bytes(const std::string& name, std::uint32_t S::*field, std::uint32_t low, std::uint32_t high) {
  return {{name, bytes_allowed(low, high), {}, {}, false},
          [=](S& values, const std::string& text) {
            const auto value = byte_count(text, low, high);
            if (value) values.*field = *value;
            return value.has_value();
          },
          [=](const S& values) { return std::to_string(values.*field); }};
}
template <class S>
Setting<S> make_switch(const std::string& name, bool S::*field) {
  return {{name, "0 | 1", {}, {}, false},
          [=](S& values, const std::string& text) {
            values.*field = text == "1";
            return text == "0" || text == "1";
          },
          [=](const S& values) { return values.*field ? "1" : "0"; }};
}
template <class S>
Setting<S> make_choice(const std::string& name, std::string S::*field, const std::vector<std::string>& allowed) {
  return {{name, alternatives(allowed), {}, {}, false},
          [=](S& values, const std::string& text) {
            values.*field = text;
            return one_of(text, allowed);
          },
          [=](const S& values) { return values.*field; }};
}
// Any text; what it means is its room's to say.
template <class S>
Setting<S> make_text(const std::string& name, std::string S::*field, const std::string& allowed) {
  return {{name, allowed, {}, {}, false},
          [=](S& values, const std::string& text) {
            values.*field = text;
            return true;
          },
          [=](const S& values) { return values.*field; }};
}
template <class S>
Setting<S> make_seconds(const std::string& name, Duration S::*field, int high) {
  return {{name, "seconds from 0 (never) to " + std::to_string(high), {}, {}, false},
          [=](S& values, const std::string& text) {
            const auto value = seconds(text, high);
            if (value) values.*field = *value;
            return value.has_value();
          },
          [=](const S& values) { return seconds_text(values.*field); }};
}

}  // namespace setting
}  // namespace clustar
