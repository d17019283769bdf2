#include "rocksdb/errors.h"

#include <initializer_list>

namespace holdfast::rocks {

namespace {

bool ContainsAny(Slice text, std::initializer_list<Slice> words) {
  for (const Slice word : words) {
    if (text.find(word) != Slice::npos) return true;
  }
  return false;
}

}  // namespace

Status FromText(Slice text, const std::string& action, const std::string& directory) {
  const std::string message = action + " failed in " + directory + ": " + std::string(text);
  if (ContainsAny(text, {"No space left on device", "Space limit reached", "Disk quota exceeded"})) {
    return Status::Unavailable(message + " (disk full: free space there, or have the local folder elsewhere)");
  }
  if (ContainsAny(text, {"Too many open files", "Cannot allocate memory", "Resource temporarily unavailable"})) {
    return Status::Unavailable(message + " (raise this process's limits, then try again)");
  }
  if (ContainsAny(text, {"Permission denied", "Read-only file system", "Operation not permitted"})) {
    return Status::Unavailable(message + " (the folder must be readable and, to make a base, writable)");
  }
  // A base is immutable: a file that its manifest names and that is not there, or not as long, is damage.
  if (text.starts_with("Corruption") || ContainsAny(text, {"No such file or directory", "Not a directory",
                                                           "does not exist", "block checksum mismatch"})) {
    return Status::Corrupt(message + " (restore this base from its snapshot)");
  }
  if (text.starts_with("IO error")) return Status::Unavailable(message);
  if (text.starts_with("Not implemented")) return Status::Incompatible(message);
  return Status::InternalError(message);
}

Status TakeError(const CApi& api, char* error, const std::string& action, const std::string& directory) {
  if (error == nullptr) return Status::Ok();
  Status status = FromText(error, action, directory);
  api.free(error);
  return status;
}

}  // namespace holdfast::rocks
