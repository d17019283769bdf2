#include "codec/xxh64.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "holdfast/key_codec.h"

namespace holdfast {

uint64_t Xxh64(const void* data, size_t length, uint64_t seed) { return Xxh64Inline(data, length, seed); }

void Xxh64Stream::Update(const char* data, size_t length) {
  total_ += length;
  if (pending_ > 0) {
    const size_t take = std::min(length, sizeof(tail_) - pending_);
    if (take > 0) std::memcpy(tail_ + pending_, data, take);
    pending_ += take;
    data += take;
    length -= take;
    if (pending_ < sizeof(tail_)) return;
    stripes_.Consume(tail_);
    pending_ = 0;
  }
  for (; length >= sizeof(tail_); data += sizeof(tail_), length -= sizeof(tail_)) stripes_.Consume(data);
  if (length > 0) std::memcpy(tail_, data, length);
  pending_ = length;
}

uint64_t Xxh64Stream::Digest() const {
  const uint64_t hash = total_ < sizeof(tail_) ? seed_ + xxh64_detail::kPrime5 : stripes_.Merge();
  return xxh64_detail::Finish(hash + total_, tail_, pending_);
}

Result<std::pair<uint64_t, uint64_t>> Xxh64File(const std::string& path) {
  constexpr size_t kBlockBytes = 1 << 17;  // stays in the cache between being read and being hashed
  const auto failed = [&path](const char* what) {
    return Status::Unavailable(std::string("cannot ") + what + " '" + path +
                               "' for its checksum: " + std::strerror(errno));
  };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return failed("open");
  std::vector<char> block(kBlockBytes);
  Xxh64Stream stream;
  for (;;) {
    const ssize_t got = ::read(file, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      Status status = failed("read");
      ::close(file);
      return status;
    }
    if (got == 0) break;
    stream.Update(block.data(), static_cast<size_t>(got));
  }
  ::close(file);
  return std::pair(stream.Digest(), stream.length());
}

}  // namespace holdfast
