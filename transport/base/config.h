// What the settings are set to: default < TOML file (CLUSTAR_CONFIG) < environment CLUSTAR_* < program.
// config.cc is the only file that reads the environment. Which settings there are, their rooms declare (setting.h).
#pragma once

#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/result.h"
#include "transport/base/setting.h"
#include "transport/base/shared_digest.h"

namespace clustar {

// `S` is a struct of settings with `static const TypedTable<S>& table()`. Knows texts only, so that its layout does not
// depend on which settings there are.
class Config final : public SettingValues {
 public:
  using Tables = std::span<const SettingTable* const>;

  // Defaults, then CLUSTAR_CONFIG's file, then the environment. `tables` outlives it: a setting of no table is an
  // error, as a bad value is, with what is allowed. CLUSTAR_TEST_* and CLUSTAR_NCCL_* are left to programs around it.
  static Result<Config> load(Tables tables) { return load(tables, {}); }
  // The same, with these variables in the environment's place where it has them, too.
  static Result<Config> load(Tables tables, const std::map<std::string, std::string>& variables);
  // The same from given variables.
  static Result<Config> load_from(Tables tables, const std::map<std::string, std::string>& environment);

  template <class S>
  S get() const {
    return S::table().from(*this);
  }
  // std::invalid_argument: a value that the table does not allow.
  template <class S>
  void put(const S& values) {
    const S now = get<S>();
    for (const Setting<S>& setting : S::table().all()) {
      const std::string text = setting.show(values);
      if (S scratch; text == setting.show(now)) {
        continue;
      } else if (text.empty()) {
        values_.erase(setting.info.name);
      } else if (!setting.read(scratch, text)) {
        throw std::invalid_argument(setting.info.name + " = '" + text + "'; allowed: " + setting.info.allowed);
      } else {
        values_[setting.info.name] = {text, "program"};
      }
    }
  }
  // config.edit<S>()->field = value;
  template <class S>
  class Edit {
   public:
    explicit Edit(Config& config) : config_(config), values_(config.get<S>()) {}
    ~Edit() noexcept(false) { config_.put(values_); }
    Edit(const Edit&) = delete;
    Edit& operator=(const Edit&) = delete;
    S* operator->() { return &values_; }

   private:
    Config& config_;
    S values_;
  };
  template <class S>
  Edit<S> edit() {
    return Edit<S>(*this);
  }

  const std::string* find(const std::string& name) const override;
  // "default", "CLUSTAR_CONFIG <path>", "environment", "NCCL_SOCKET_IFNAME", ...
  std::string source(const std::string& name) const;

  // Of a Config that was loaded, of all its settings.
  Tables tables() const { return tables_; }
  // One "key = value (source)" per setting, and what is unread.
  std::vector<std::string> describe() const;
  // Of the settings that all ranks need alike: equal for equal values, whatever their source.
  SharedDigest shared_digest() const;

  // A sentence for each variable of NCCL's that is set to what cannot be taken, and so does not count.
  const std::vector<std::string>& not_taken() const { return not_taken_; }

 private:
  struct Value {
    std::string text;
    std::string source;
  };
  Result<void> set_checked(const SettingTable& table, std::size_t i, const std::string& shown_name,
                           const std::string& text, const std::string& source);
  Result<void> apply_file(const std::string& path);
  Result<void> apply_environment(const std::map<std::string, std::string>& environment);
  void apply_nccl(const std::map<std::string, std::string>& environment);
  void set(const std::string& name, const std::string& text, const std::string& source);
  // Of a name that no table has: the nearest, or all.
  std::string allowed_instead(const std::string& name, bool is_variable) const;
  template <class Is>
  std::pair<const SettingTable*, std::size_t> table_of(Is is) const;

  Tables tables_;
  std::map<std::string, Value> values_;  // by name
  std::vector<std::string> not_taken_;
  std::vector<std::string> unread_;  // names of NCCL's variables that are set and mean nothing here
};

// CLUSTAR_ names of the settings that all ranks need alike.
std::vector<std::string> shared_names(Config::Tables tables);

}  // namespace clustar
