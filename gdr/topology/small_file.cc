#include "gdr/topology/small_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace clustar::gdr {
namespace {

tl::unexpected<Error> cannot(const std::string& path) {
  return fail(ErrorCode::kSystem, printable(path) + ": " + std::strerror(errno));
}

struct Close {
  void operator()(DIR* folder) const { closedir(folder); }
};

struct Free {
  void operator()(char* text) const { std::free(text); }
};

}  // namespace

std::string printable(std::string text) {
  for (char& character : text) {
    const auto code = static_cast<unsigned char>(character);
    if (code < 0x20 || code == 0x7f) character = '?';
  }
  return text;
}

Result<std::string> read_small_file(const std::string& path, std::size_t most) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return cannot(path);
  std::string content;
  struct stat status {};
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(file);
    return fail(ErrorCode::kSystem, printable(path) + ": not a plain file");
  }
  content.resize(most);
  std::size_t length = 0;
  while (length < most) {
    const ssize_t got = read(file, content.data() + length, most - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      auto error = cannot(path);
      close(file);
      return error;
    }
    if (got == 0) break;
    length += static_cast<std::size_t>(got);
  }
  close(file);
  content.resize(length);
  return content;
}

std::string first_line(const std::string& path) {
  const auto content = read_small_file(path);
  return content ? printable(content->substr(0, content->find('\n'))) : std::string();
}

Result<std::vector<std::string>> names_in(const std::string& folder) {
  const std::unique_ptr<DIR, Close> open_folder(opendir(folder.c_str()));
  if (!open_folder) return cannot(folder);
  std::vector<std::string> names;
  while (const dirent* const entry = readdir(open_folder.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::string> real_path(const std::string& path) {
  const std::unique_ptr<char, Free> real(realpath(path.c_str(), nullptr));
  if (!real) return cannot(path);
  return std::string(real.get());
}

bool is_there(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

bool is_link(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode);
}

}  // namespace clustar::gdr
