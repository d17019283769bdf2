#include "rocksdb/base_files.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "holdfast/bytes.h"
#include "rocksdb/expiry_filter.h"

namespace holdfast::rocks {

namespace {

namespace fs = std::filesystem;

Status FileError(const std::error_code& error, const std::string& action, const fs::path& path) {
  const std::string message = action + " " + path.string() + " failed: " + error.message();
  if (error == std::errc::no_space_on_device || error.value() == EDQUOT) {
    return Status::Unavailable(message + " (disk full: free space there, or have the local folder elsewhere)");
  }
  if (error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory) {
    return Status::Corrupt(message + " (restore this base from its snapshot)");
  }
  return Status::Unavailable(message);
}

// Links, or copies where the file system cannot link (another device, no links at all, too many links to one file).
Status LinkOrCopy(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::create_hard_link(from, to, error);
  if (!error) return Status::Ok();
  error.clear();
  fs::copy_file(from, to, error);
  return error ? FileError(error, "copying to " + to.string() + " from", from) : Status::Ok();
}

}  // namespace

Status CreateNewFolder(const std::string& directory) {
  const fs::path path(directory);
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  const bool created = !error && fs::create_directory(path, error);
  if (error) return FileError(error, "making the folder of a base", path);
  if (!created) {
    return Status::InvalidRequest("expected " + directory +
                                  " not to exist yet, found it; give each base a folder of its own");
  }
  return Status::Ok();
}

bool IsTable(const std::string& name) { return name.ends_with(".sst"); }

Result<std::string> CurrentManifest(const std::string& directory) {
  constexpr Slice kManifest = "MANIFEST-";
  HOLDFAST_ASSIGN_OR_RETURN(const std::string text, ReadFile(directory + "/CURRENT"));
  const std::string name = text.substr(0, text.find('\n'));
  const bool is_name = name.starts_with(kManifest) && name.size() > kManifest.size() &&
                       name.find_first_not_of("0123456789", kManifest.size()) == std::string::npos;
  if (!is_name || text.size() != name.size() + 1) {
    return Status::Corrupt("expected CURRENT in " + directory + " to be a manifest's name and a line feed, found " +
                           std::to_string(text.size()) + " other bytes (restore this base from its snapshot)");
  }
  HOLDFAST_RETURN_IF_ERROR(FileSize(directory + "/" + name).status());
  return name;
}

Status ShareFiles(const std::string& parent, const std::vector<std::string>& names, const std::string& directory) {
  for (const std::string& name : names) {
    const fs::path from = fs::path(parent) / name;
    const fs::path to = fs::path(directory) / name;
    if (IsTable(name)) {
      HOLDFAST_RETURN_IF_ERROR(LinkOrCopy(from, to));
      continue;
    }
    std::error_code error;
    fs::copy_file(from, to, error);
    if (error) return FileError(error, "copying to " + directory, from);
  }
  return Status::Ok();
}

Status RemoveObsoleteFiles(const std::string& directory, const std::set<std::string>& live_tables) {
  HOLDFAST_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFiles(directory));
  HOLDFAST_ASSIGN_OR_RETURN(const std::string manifest, CurrentManifest(directory));
  for (const std::string& name : names) {
    const bool keep = name == "CURRENT" || name == manifest || name == kExpiryName || live_tables.contains(name);
    if (keep) continue;
    std::error_code error;
    fs::remove(fs::path(directory) / name, error);
    if (error) return FileError(error, "removing the obsolete file", fs::path(directory) / name);
  }
  return Status::Ok();
}

Status RemoveFile(const std::string& path) {
  std::error_code error;
  fs::remove(path, error);
  return error ? FileError(error, "removing", path) : Status::Ok();
}

Result<bool> HasFile(const std::string& path) {
  std::error_code error;
  const bool found = fs::exists(path, error);
  if (error) return FileError(error, "looking for", path);
  return found;
}

Result<uint64_t> FileSize(const std::string& path) {
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error) return FileError(error, "asking for the size of", path);
  return size;
}

Result<std::string> ReadFile(const std::string& path) {
  HOLDFAST_ASSIGN_OR_RETURN(const uint64_t size, FileSize(path));
  std::string bytes(size, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), static_cast<std::streamsize>(size));
  if (!file) return FileError({errno, std::generic_category()}, "reading", path);
  return bytes;
}

Status WriteNewFile(const std::string& path, const std::string& bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wbx");
  if (file == nullptr) return FileError({errno, std::generic_category()}, "making the file", path);
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  const int write_error = errno;
  const bool closed = std::fclose(file) == 0;
  if (!written) return FileError({write_error, std::generic_category()}, "writing to", path);
  if (!closed) return FileError({errno, std::generic_category()}, "writing to", path);
  return Status::Ok();
}

Result<std::vector<std::string>> ListFiles(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entries(directory, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    names.push_back(entries->path().filename().string());
  }
  if (error) return FileError(error, "listing the folder of a base", directory);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace holdfast::rocks
