#include "rocksdb/expiry_filter.h"

#include <sstream>

#include "codec/store_key.h"
#include "codec/value_header.h"
#include "rocksdb/base_files.h"

namespace holdfast::rocks {

namespace {

constexpr const char* kFirstLine = "holdfast-expiry 1";

unsigned char Filter(void* filter, int /*level*/, const char* key, size_t key_size, const char* value,
                     size_t value_size, char** /*new_value*/, size_t* /*new_size*/, unsigned char* /*changed*/) {
  return static_cast<const ExpiryFilter*>(filter)->Drops({key, key_size}, {value, value_size}) ? 1 : 0;
}
const char* NameOfFilter(void* /*filter*/) { return "holdfast.expiry"; }
void KeepFilter(void* /*filter*/) {}

}  // namespace

ExpiryFilter::ExpiryFilter(std::span<const StateExpiry> states) {
  for (const StateExpiry& state : states) {
    if (state.expiry.any()) states_.emplace(state.state_id, state.expiry);
  }
}

bool ExpiryFilter::IsExpired(Slice key, Slice value) const {
  if (key.size() < store_key::kPrefixBytes || !value_header::IsWhole(value)) return false;
  const auto found = states_.find(store_key::StateId(key));
  if (found == states_.end()) return false;
  const bool stamped = value_header::IsStamped(value);
  return found->second.IsExpired(stamped, stamped ? value_header::StampOf(value) : 0);
}

Handle<CCompactionFilter> ExpiryFilter::ForCompaction(const CApi& api) const {
  return {api.compactionfilter_create(const_cast<ExpiryFilter*>(this), KeepFilter, Filter, NameOfFilter),
          api.compactionfilter_destroy};
}

Result<std::map<uint16_t, int64_t>> ReadMerged(const std::string& directory) {
  std::map<uint16_t, int64_t> merged;
  const std::string path = directory + "/" + kExpiryName;
  HOLDFAST_ASSIGN_OR_RETURN(const bool found, HasFile(path));
  if (!found) return merged;
  HOLDFAST_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  if (line != kFirstLine) {
    return Status::Incompatible("expected " + path + " to begin with '" + kFirstLine + "', found '" + line +
                                "': it was made by a later Holdfast; use that one");
  }
  uint16_t state_id;
  int64_t cutoff_ms;
  while (lines >> state_id >> cutoff_ms) merged.emplace(state_id, cutoff_ms);
  if (!lines.eof()) return Status::Corrupt(path + " is damaged (restore this base from its snapshot)");
  return merged;
}

Status WriteMerged(const std::string& directory, const std::map<uint16_t, int64_t>& merged) {
  std::string text = std::string(kFirstLine) + "\n";
  for (const auto& [state_id, cutoff_ms] : merged) {
    text += std::to_string(state_id) + " " + std::to_string(cutoff_ms) + "\n";
  }
  return WriteNewFile(directory + "/" + kExpiryName, text);
}

bool MoveMerged(std::span<const StateExpiry> states, std::map<uint16_t, int64_t>* merged) {
  bool due = false;
  for (const StateExpiry& state : states) {
    if (!state.expiry.any()) continue;
    // A state that was dropped has entries of any age below; one that just got a TTL has none that are expired.
    const bool dropped = state.expiry.cutoff_ms == std::numeric_limits<int64_t>::max();
    const int64_t first_ms = dropped ? kNoCutoff : state.expiry.cutoff_ms;
    const int64_t last_ms = merged->emplace(state.state_id, first_ms).first->second;
    // Unsigned: cutoffs may be far apart.
    const auto moved_ms = static_cast<uint64_t>(state.expiry.cutoff_ms) - static_cast<uint64_t>(last_ms);
    due = due || (state.merge_step_ms > 0 && state.expiry.cutoff_ms > last_ms &&
                  moved_ms >= static_cast<uint64_t>(state.merge_step_ms));
  }
  if (!due) return false;
  for (const StateExpiry& state : states) {
    if (state.expiry.any()) (*merged)[state.state_id] = state.expiry.cutoff_ms;
  }
  return true;
}

}  // namespace holdfast::rocks
