#include "transport/base/toml_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace clustar {
namespace {

constexpr int kMaxDepth = 64;

// Follows texts and comments as the parser does, so that nothing in them counts and none of them hides what does.
// Texts of several lines would need the parser's own reading of a run of quotes, and no key here takes one.
class Scan {
 public:
  // The first line that must not reach the parser, which, with what it makes, calls itself for each bracket within
  // another and each dot of a key: a file could go on with those until the stack is gone.
  std::optional<std::string> refuse(const std::string& content, const std::string& what) {
    for (std::size_t i = 0; i < content.size(); ++i) {
      const char c = content[i];
      if (c == '\n') {
        ++line_;
        inside_ = kCode;
        dots_ = 0;
      } else if (inside_ == kCode) {
        if ((c == '"' || c == '\'') && content.compare(i, 3, std::string(3, c)) == 0) {
          return fmt::format("{}: a text of several lines ({}{}{}); no key takes one: write it in one line", line_, c,
                             c, c);
        }
        code(c);
      } else if (inside_ == '"' && c == '\\' && i + 1 < content.size() && content[i + 1] != '\n') {
        ++i;
      } else if (c == inside_ && c != '#') {
        inside_ = kCode;
      }
      if (brackets_ > kMaxDepth || dots_ > kMaxDepth) {
        return fmt::format("{}: more than {} levels of brackets or dots; {} needs 3 at most", line_, kMaxDepth, what);
      }
    }
    return std::nullopt;
  }

 private:
  static constexpr char kCode = 0;

  void code(char c) {
    if (c == '"' || c == '\'' || c == '#') inside_ = c;
    if (c == '[' || c == '{') ++brackets_;
    if (c == ']' || c == '}') brackets_ = std::max(0, brackets_ - 1);
    dots_ = c == '=' || c == ',' ? 0 : dots_ + (c == '.' ? 1 : 0);
  }

  std::size_t line_ = 1;
  char inside_ = kCode;  // or the character that began the text or comment
  int brackets_ = 0, dots_ = 0;
};

}  // namespace

Result<std::string> read_toml_text(const std::string& path) {
  errno = 0;
  std::ifstream in(path);
  std::string content(kMaxTomlBytes + 1, '\0');
  if (in) in.read(content.data(), static_cast<std::streamsize>(content.size()));
  if (!in.is_open() || in.bad() || errno != 0) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
  }
  content.resize(static_cast<std::size_t>(in.gcount()));
  return content;
}

std::optional<std::string> refuse_toml(const std::string& content, const std::string& what) {
  return Scan().refuse(content, what);
}

}  // namespace clustar
