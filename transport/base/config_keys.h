// What a setting is made of: its name, what it may be, how its text is read and shown. For config.cc and its tables.
#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/config.h"

namespace clustar::config_keys {

using Setter = std::function<bool(Config&, const std::string&)>;
using Getter = std::function<std::string(const Config&)>;

struct Key {
  std::string name;  // in the file; CLUSTAR_ + upper case in the environment
  std::string allowed;
  Setter set;
  Getter get;
};

bool one_of(const std::string& value, const std::vector<std::string>& allowed);

// The whole text as a number, without spaces or a plus sign.
template <class T>
std::optional<T> number(const std::string& text, T low, T high) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) return std::nullopt;
  return value;
}

// A count of bytes: 65536, 64K, 1M.
std::optional<std::uint32_t> byte_count(std::string text, std::uint32_t low, std::uint32_t high);

Key bytes_key(const std::string& name, std::uint32_t Config::*field, std::uint32_t low, std::uint32_t high);
Key number_key(const std::string& name, int Config::*field, int low, int high, const std::string& meaning = {});
Key switch_key(const std::string& name, bool Config::*field);
Key choice_key(const std::string& name, std::string Config::*field, const std::vector<std::string>& allowed);
Key text_key(const std::string& name, std::string Config::*field, const std::string& allowed);

}  // namespace clustar::config_keys
