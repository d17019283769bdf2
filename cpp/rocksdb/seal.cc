#include "rocksdb/seal.h"

#include <algorithm>
#include <cstdint>

#include "holdfast/bytes.h"
#include "holdfast/key_codec.h"
#include "rocksdb/base_files.h"

namespace holdfast::rocks {

namespace {

constexpr Slice kFirstLine = "holdfast-base 1\n";
constexpr size_t kChecksumLineBytes = 17;  // sixteen hexadecimal digits and a line feed

std::string Hex(uint64_t value) {
  std::string text(16, '0');
  for (size_t i = text.size(); value != 0; value >>= 4) text[--i] = "0123456789abcdef"[value & 15];
  return text;
}

// "<size> <checksum, or - for tables> <name>\n" of a file as it is now.
Result<std::string> LineOf(const std::string& directory, const std::string& name) {
  const std::string path = directory + "/" + name;
  if (IsTable(name)) {
    HOLDFAST_ASSIGN_OR_RETURN(const uint64_t size, FileSize(path));
    return std::to_string(size) + " - " + name + "\n";
  }
  HOLDFAST_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  return std::to_string(bytes.size()) + " " + Hex(Xxh64(bytes.data(), bytes.size())) + " " + name + "\n";
}

Status Broken(const std::string& directory, const std::string& what) {
  return Status::Corrupt("the base in " + directory + " is damaged: " + what +
                         " (restore this base from its snapshot)");
}

// The lines between the first and the checksum, after both are checked.
Result<std::string> ReadLines(const std::string& directory) {
  const Result<std::string> read = ReadFile(directory + "/" + kSealName);
  if (!read.ok()) return read.status();
  const std::string& text = read.value();
  const bool long_enough = text.size() >= kFirstLine.size() + kChecksumLineBytes;
  const size_t sealed = long_enough ? text.size() - kChecksumLineBytes : 0;
  if (!long_enough || text.substr(sealed) != Hex(Xxh64(text.data(), sealed)) + "\n") {
    return Broken(directory, std::string(kSealName) + " does not match its own checksum");
  }
  if (!text.starts_with(kFirstLine)) {
    return Status::Incompatible("expected the base in " + directory +
                                " to begin its seal with 'holdfast-base 1', found '" + text.substr(0, text.find('\n')) +
                                "': it was made by a later Holdfast; use that one");
  }
  return text.substr(kFirstLine.size(), sealed - kFirstLine.size());
}

}  // namespace

Status WriteSeal(const std::string& directory) {
  HOLDFAST_RETURN_IF_ERROR(CurrentManifest(directory).status());
  HOLDFAST_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListFiles(directory));
  std::string text(kFirstLine);
  for (const std::string& name : names) {
    HOLDFAST_ASSIGN_OR_RETURN(const std::string line, LineOf(directory, name));
    text += line;
  }
  text += Hex(Xxh64(text.data(), text.size())) + "\n";
  return WriteNewFile(directory + "/" + kSealName, text);
}

Result<std::vector<std::string>> CheckSeal(const std::string& directory) {
  HOLDFAST_ASSIGN_OR_RETURN(const std::string lines, ReadLines(directory));
  std::vector<std::string> names = {kSealName};
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\n', begin) + 1;
    const std::string line = lines.substr(begin, end - begin);
    begin = end;
    const std::string name = line.substr(line.rfind(' ') + 1, line.size() - line.rfind(' ') - 2);
    if (name.empty() || name.find('/') != std::string::npos) {
      return Broken(directory, "its seal names '" + name + "', which is no file of a base");
    }
    const Result<std::string> found = LineOf(directory, name);
    if (!found.ok() && found.status().code() != Code::kCorrupt) return found.status();
    if (!found.ok() || found.value() != line) {
      return Broken(directory, "expected the file " + name + " to be (size, checksum) " +
                                   line.substr(0, line.rfind(' ')) + ", found " +
                                   (found.ok() ? found.value().substr(0, found.value().rfind(' ')) : "none"));
    }
    names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace holdfast::rocks
