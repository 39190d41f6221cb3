#include "transport/base/own_folder.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>

namespace clustar {

std::string own_folder() {
  static const char anchor = 0;
  Dl_info info{};
  link_map* object = nullptr;
  if (dladdr1(&anchor, &info, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) == 0 || object == nullptr) return ".";
  // The program itself has no name here, and argv[0] is not a path when the shell found it by PATH.
  const std::string name = object->l_name == nullptr || *object->l_name == '\0' ? "/proc/self/exe" : object->l_name;
  std::error_code ignored;
  const auto path = std::filesystem::canonical(name, ignored);
  return path.empty() ? "." : path.parent_path().string();
}

std::vector<std::string> module_folders() {
  const std::string folder = own_folder();
  return {folder, folder + "/../lib", folder + "/" CLUSTAR_LIBRARY_FOLDER};
}

std::string installed_library(const std::string& file) {
  const auto folders = module_folders();
  for (const std::string& folder : folders) {
    std::error_code ignored;
    if (std::filesystem::exists(folder + "/" + file, ignored)) {
      return (std::filesystem::path(folder) / file).lexically_normal().string();
    }
  }
  return (std::filesystem::path(folders[1]) / file).lexically_normal().string();
}

}  // namespace clustar
