// Entries of one state to Arrow columns and back, without a Store. Format: docs/formats/value.md.
#include "holdfast/state_codec.h"

#include <algorithm>
#include <array>
#include <deque>
#include <utility>
#include <vector>

#include "codec/array_builder.h"
#include "codec/array_view.h"
#include "codec/key_encoder.h"
#include "codec/store_key.h"
#include "codec/value_header.h"
#include "codec/xxh64.h"
#include "holdfast/key_codec.h"
#include "holdfast/row_codec.h"
#include "overlay/layout.h"
#include "overlay/stored_value.h"
#include "state/delta_array.h"
#include "state/key_reader.h"
#include "state/resolved_rows.h"
#include "state/timer_key.h"

namespace holdfast {

namespace {

Type Int64Type() { return Type::Field(TypeId::kInt64, "", sizeof(int64_t), true); }
Type IndexType() { return Type::Field(TypeId::kUInt64, "", sizeof(uint64_t), true); }
Type TextType() { return Type::Field(TypeId::kString, "", 0, true); }

uint64_t SwappedIndex(const char* bytes) {
  uint64_t index;
  std::memcpy(&index, bytes, sizeof(index));
  return __builtin_bswap64(index);
}

// The state's entries of one batch, apart into their parts.
struct Parts {
  std::vector<uint16_t> key_groups;
  std::vector<int64_t> times;
  std::vector<Slice> keys;
  std::vector<Slice> suffixes;
  std::vector<uint8_t> begins;  // of lists: the element is the first of its key here
  std::vector<Slice> rows;
  std::deque<std::string> resolved;  // rows that an earlier schema wrote, as the newest has them
  std::vector<int64_t> stamps;
  std::vector<bool> unstamped;
};

// A column that a caller gave, or its absence, as the state wants it.
Status CheckGiven(const char* name, const OwnedArray* given, bool wanted) {
  if ((given != nullptr) == wanted) return Status::Ok();
  return Status::InvalidRequest(std::string("the state has ") + (wanted ? "" : "no ") + name +
                                (wanted ? ", and none were given" : ", and some were given"));
}

Status CheckNotNull(const char* name, const ArrayView& view) {
  if (!view.has_nulls() || view.FirstNull() == view.length()) return Status::Ok();
  return Status::InvalidRequest("row " + std::to_string(view.FirstNull()) + ": " + name +
                                " is null; every entry has one");
}

class EntryCodec final : public StateCodec {
 public:
  EntryCodec(StateCodecOptions options, std::optional<KeyCodec> keys, std::optional<KeyCodec> map_keys,
             std::optional<RowCodec> values, std::unique_ptr<EarlierRows> earlier)
      : id_(static_cast<uint16_t>(options.state_id)),
        kind_(options.kind),
        max_parallelism_(options.max_parallelism),
        keys_(std::move(keys)),
        map_keys_(std::move(map_keys)),
        values_(std::move(values)),
        earlier_(std::move(earlier)) {}

  Result<OwnedArray> Decode(const OwnedArray& entries, const Expiry& expiry) const override {
    static const Type kEntries = [] {
      Type type = Type::Field(TypeId::kStruct, "", 0, true);
      type.children = {Type::Field(TypeId::kBinary, "key", 0, true), Type::Field(TypeId::kBinary, "value", 0, true)};
      return type;
    }();
    HOLDFAST_ASSIGN_OR_RETURN(const ArrayView view, ArrayView::Make(kEntries, entries.schema(), entries.array()));
    if (view.has_nulls() || view.child(0).has_nulls() || view.child(1).has_nulls()) {
      return Status::InvalidRequest("expected entries of a store, found nulls among them");
    }
    Parts parts;
    parts.keys.reserve(static_cast<size_t>(view.length()));
    parts.rows.reserve(static_cast<size_t>(view.length()));
    for (int64_t i = 0; i < view.length(); ++i) {
      const Slice key = view.child(0).Bytes(i);
      if (key.size() < store_key::kPrefixBytes)
        return Status::Corrupt("an entry has no state; restore another version");
      if (store_key::StateId(key) != id_) continue;
      HOLDFAST_RETURN_IF_ERROR(Take(key, view.child(1).Bytes(i), expiry, &parts));
    }
    return ToColumns(std::move(parts));
  }

  Result<OwnedArray> Encode(const Columns& columns) const override {
    HOLDFAST_RETURN_IF_ERROR(CheckGiven("keys", columns.keys, keys_.has_value()));
    HOLDFAST_RETURN_IF_ERROR(CheckGiven("times", columns.times, HasTime()));
    HOLDFAST_RETURN_IF_ERROR(CheckGiven("suffixes", columns.suffixes, HasSuffix()));
    HOLDFAST_RETURN_IF_ERROR(CheckGiven("values", columns.values, values_.has_value()));
    int64_t length = -1;
    for (const OwnedArray* column : {columns.keys, columns.times, columns.suffixes, columns.values, columns.stamps}) {
      if (column == nullptr) continue;
      if (length >= 0 && column->length() != length) {
        return Status::InvalidRequest("columns of one state have " + std::to_string(length) + " and " +
                                      std::to_string(column->length()) + " rows");
      }
      length = column->length();
    }
    DeltaPiece piece;
    piece.states.assign(static_cast<size_t>(length), id_);
    HOLDFAST_RETURN_IF_ERROR(EncodeKeys(columns, length, &piece));
    HOLDFAST_RETURN_IF_ERROR(EncodeValues(columns, length, &piece));
    return DeltaArray(std::move(piece));
  }

 private:
  bool HasTime() const { return layout::IsOrderedId(id_); }
  bool HasSuffix() const { return kind_ != EntryKind::kValue; }
  uint8_t version() const { return earlier_ == nullptr ? value_header::kFirstVersion : earlier_->version(); }

  Status Damaged(uint16_t key_group, const std::string& what) const {
    return Status::Corrupt("state " + std::to_string(id_) + ", key group " + std::to_string(key_group) + ": " + what +
                           "; read another version");
  }

  // One entry into its parts, unless it is expired.
  Status Take(Slice stored_key, Slice value, const Expiry& expiry, Parts* parts) const {
    const uint16_t key_group = store_key::KeyGroup(stored_key);
    if (!value_header::IsWhole(value) || value_header::VersionOf(value) > version()) {
      return StoredValueError(value, version(), id_, key_group);
    }
    const bool stamped = value_header::IsStamped(value);
    const int64_t stamp = stamped ? value_header::StampOf(value) : 0;
    if (expiry.any() && expiry.IsExpired(stamped, stamp)) return Status::Ok();
    Slice row = value_header::StoredRow(value);
    if (value_header::VersionOf(value) < version() && row.data() != nullptr) {
      const Result<Slice> newest =
          earlier_->ToNewest(value_header::VersionOf(value), row, &parts->resolved.emplace_back());
      if (!newest.ok()) return Damaged(key_group, newest.status().message());
      row = newest.value();
    }
    if (row.data() == nullptr && kind_ == EntryKind::kValue) return Damaged(key_group, "a value is null");
    if (!values_.has_value() && (row.data() == nullptr || !row.empty()))
      return Damaged(key_group, "a timer has a value");
    Slice rest = stored_key.substr(store_key::kPrefixBytes);
    if (HasTime()) {
      if (rest.size() < layout::kTimeBytes) return Damaged(key_group, "a timer has no time");
      parts->times.push_back(timer_key::Time(rest));
      rest.remove_prefix(layout::kTimeBytes);
    }
    HOLDFAST_RETURN_IF_ERROR(TakeKey(key_group, rest, parts));
    parts->key_groups.push_back(key_group);
    parts->rows.push_back(row);
    parts->stamps.push_back(stamp);
    parts->unstamped.push_back(!stamped);
    return Status::Ok();
  }

  // The key and what follows it.
  Status TakeKey(uint16_t key_group, Slice rest, Parts* parts) const {
    size_t key_bytes = 0;
    if (keys_.has_value()) {
      key_bytes = rest.size();
      if (kind_ == EntryKind::kList) {
        key_bytes = rest.size() >= sizeof(uint64_t) ? rest.size() - sizeof(uint64_t) : rest.size();
      } else if (HasSuffix()) {
        const Result<size_t> length = keys_->EncodedLength(rest);
        if (!length.ok()) return Damaged(key_group, length.status().message());
        key_bytes = length.value();
      }
      const Slice key = rest.substr(0, key_bytes);
      if (KeyGroup(Xxh64Inline(key.data(), key.size()), max_parallelism_) != key_group) {
        return Damaged(key_group, "a key is of another key group");
      }
      parts->keys.push_back(key);
    } else if (key_group != layout::kNoKeyGroup) {
      return Damaged(key_group, "an entry of no key is in a key group");
    }
    const Slice suffix = rest.substr(key_bytes);
    if (kind_ == EntryKind::kList && suffix.size() != sizeof(uint64_t)) {
      return Damaged(key_group, "an element of a list has no index");
    }
    if (kind_ == EntryKind::kList) {
      const size_t count = parts->keys.size();
      const bool same =
          keys_.has_value() ? count > 1 && parts->keys[count - 1] == parts->keys[count - 2] : !parts->suffixes.empty();
      parts->begins.push_back(same ? 0 : 1);
    }
    if (HasSuffix()) parts->suffixes.push_back(suffix);
    return Status::Ok();
  }

  Result<OwnedArray> ToColumns(Parts parts) const {
    const auto length = static_cast<int64_t>(parts.key_groups.size());
    Type type = Type::Field(TypeId::kStruct, "", 0, true);
    std::vector<OwnedArray> columns;
    const auto add = [&](const char* name, Type field, OwnedArray column) {
      field.name = name;
      field.nullable = true;
      type.children.push_back(std::move(field));
      columns.push_back(std::move(column));
    };
    if (keys_.has_value()) {
      HOLDFAST_ASSIGN_OR_RETURN(OwnedArray keys, Located(parts, keys_->Decode(parts.keys)));
      add("key", keys_->type(), std::move(keys));
    }
    if (HasTime()) add("time", Int64Type(), MakeFixedWidth(Int64Type(), std::move(parts.times)));
    HOLDFAST_RETURN_IF_ERROR(AddSuffixes(parts, add));
    if (values_.has_value()) {
      HOLDFAST_ASSIGN_OR_RETURN(OwnedArray values, Located(parts, values_->Decode(parts.rows)));
      add("value", values_->type(), std::move(values));
      add("stamp", Int64Type(), MakeFixedWidth(Int64Type(), std::move(parts.stamps), ValidityOf(parts.unstamped)));
    }
    const Type groups = Type::Field(TypeId::kUInt16, "", 2, true);
    add("key_group", groups, MakeFixedWidth(groups, std::move(parts.key_groups)));
    return MakeStruct(type, length, std::move(columns));
  }

  template <typename Add>
  Status AddSuffixes(const Parts& parts, Add add) const {
    if (map_keys_.has_value()) {
      HOLDFAST_ASSIGN_OR_RETURN(OwnedArray map_keys, Located(parts, map_keys_->Decode(parts.suffixes)));
      add("suffix", map_keys_->type(), std::move(map_keys));
    } else if (kind_ == EntryKind::kList) {
      std::vector<uint64_t> indexes;
      indexes.reserve(parts.suffixes.size());
      for (const Slice suffix : parts.suffixes) indexes.push_back(SwappedIndex(suffix.data()));
      add("suffix", IndexType(), MakeFixedWidth(IndexType(), std::move(indexes)));
      add("begins", Type::Field(TypeId::kBool, "", 1, true), MakeBool(parts.begins));
    } else if (kind_ == EntryKind::kTimers) {
      ArrayBuilder builder(TextType());
      builder.Reserve(static_cast<int64_t>(parts.suffixes.size()));
      for (const Slice suffix : parts.suffixes) builder.AppendBytes(suffix);
      HOLDFAST_ASSIGN_OR_RETURN(OwnedArray namespaces, builder.Finish());
      add("suffix", TextType(), std::move(namespaces));
    }
    return Status::Ok();
  }

  // What a codec says of a batch, with the place.
  Result<OwnedArray> Located(const Parts& parts, Result<OwnedArray> column) const {
    if (column.ok() || column.status().code() != Code::kCorrupt) return column;
    return Status::Corrupt("state " + std::to_string(id_) + ", key groups " + std::to_string(parts.key_groups.front()) +
                           " to " + std::to_string(parts.key_groups.back()) + ": " + column.status().message() +
                           "; read another version");
  }

  Status EncodeKeys(const Columns& columns, int64_t length, DeltaPiece* piece) const {
    const Type int64 = Int64Type();
    std::optional<KeyEncoder> keys;
    std::optional<ArrayView> times;
    ByteColumn suffixes;
    if (keys_.has_value()) {
      HOLDFAST_ASSIGN_OR_RETURN(
          keys, KeyEncoder::Make(keys_->type(), keys_->allow_null(), columns.keys->schema(), columns.keys->array()));
    }
    if (HasTime()) {
      HOLDFAST_ASSIGN_OR_RETURN(times, ArrayView::Make(int64, columns.times->schema(), columns.times->array()));
      HOLDFAST_RETURN_IF_ERROR(CheckNotNull("the time", *times));
    }
    if (HasSuffix()) HOLDFAST_RETURN_IF_ERROR(EncodeSuffixes(*columns.suffixes, &suffixes));
    ByteColumn encoded;
    if (keys.has_value()) keys->Append(0, length, &encoded);
    piece->key_groups.reserve(static_cast<size_t>(length));
    for (int64_t i = 0; i < length; ++i) {
      const Slice key = keys.has_value() ? encoded[i] : Slice();
      const uint64_t hash = keys.has_value() ? Xxh64Inline(key.data(), key.size()) : 0;
      piece->key_groups.push_back(keys.has_value() ? KeyGroup(hash, max_parallelism_) : layout::kNoKeyGroup);
    }
    if (keys.has_value() && !HasTime() && !HasSuffix()) {  // the keys are all of it
      piece->keys = std::move(encoded);
      return CheckSizes(piece->keys, 0, "key");
    }
    std::vector<char>& bytes = piece->keys.bytes;
    const size_t times_bytes = times.has_value() ? static_cast<size_t>(length) * layout::kTimeBytes : 0;
    bytes.reserve(times_bytes + encoded.bytes.size() + suffixes.bytes.size());
    piece->keys.offsets.reserve(static_cast<size_t>(length) + 1);
    for (int64_t i = 0; i < length; ++i) {
      const Slice key = keys.has_value() ? encoded[i] : Slice();
      if (times.has_value()) {
        std::array<char, layout::kTimeBytes> time;
        timer_key::PutTime(times->Value<int64_t>(i), time.data());
        bytes.insert(bytes.end(), time.begin(), time.end());
      }
      bytes.insert(bytes.end(), key.begin(), key.end());
      if (HasSuffix()) bytes.insert(bytes.end(), suffixes[i].begin(), suffixes[i].end());
      piece->keys.offsets.push_back(static_cast<int64_t>(bytes.size()));
    }
    return CheckSizes(piece->keys, 0, "key");
  }

  Status EncodeSuffixes(const OwnedArray& given, ByteColumn* out) const {
    if (map_keys_.has_value()) return map_keys_->Encode(given.schema(), given.array(), out);
    const Type type = kind_ == EntryKind::kList ? IndexType() : TextType();
    HOLDFAST_ASSIGN_OR_RETURN(const ArrayView view, ArrayView::Make(type, given.schema(), given.array()));
    HOLDFAST_RETURN_IF_ERROR(CheckNotNull(kind_ == EntryKind::kList ? "the list index" : "the namespace", view));
    for (int64_t i = 0; i < view.length(); ++i) {
      if (kind_ == EntryKind::kList) {
        const uint64_t index = __builtin_bswap64(view.Value<uint64_t>(i));
        const auto* bytes = reinterpret_cast<const char*>(&index);
        out->bytes.insert(out->bytes.end(), bytes, bytes + sizeof(index));
      } else {
        out->bytes.insert(out->bytes.end(), view.Bytes(i).begin(), view.Bytes(i).end());
      }
      out->offsets.push_back(static_cast<int64_t>(out->bytes.size()));
    }
    return Status::Ok();
  }

  // Values without stamps and nulls have one header, which is written with them; false: there are such.
  Result<bool> EncodePlain(const Columns& columns, DeltaPiece* piece) const {
    if (!values_.has_value() || columns.stamps != nullptr) return false;
    const OwnedArray& values = *columns.values;
    const char header = value_header::WithVersion(value_header::kRow, version());
    ByteColumn rows;
    std::vector<bool> nulls;
    HOLDFAST_RETURN_IF_ERROR(values_->Encode(values.schema(), values.array(), Slice(&header, 1), &rows, &nulls));
    if (std::find(nulls.begin(), nulls.end(), true) != nulls.end()) return false;
    HOLDFAST_RETURN_IF_ERROR(CheckSizes(rows, 0, "value"));
    piece->values = std::move(rows);
    return true;
  }

  Status EncodeValues(const Columns& columns, int64_t length, DeltaPiece* piece) const {
    piece->valid.assign(static_cast<size_t>(length + 7) / 8, 0xFF);
    HOLDFAST_ASSIGN_OR_RETURN(const bool done, EncodePlain(columns, piece));
    if (done) return Status::Ok();
    ByteColumn rows;
    std::vector<bool> nulls(static_cast<size_t>(length), false);
    if (values_.has_value()) {
      const OwnedArray& values = *columns.values;
      // With a header, which is counted: what is read again has no more bytes with it than are possible.
      HOLDFAST_RETURN_IF_ERROR(
          values_->Encode(values.schema(), values.array(), value_header::kRowPrefix, &rows, &nulls));
      HOLDFAST_RETURN_IF_ERROR(CheckSizes(rows, 0, "value"));
    }
    const Type int64 = Int64Type();
    std::optional<ArrayView> stamps;
    if (columns.stamps != nullptr) {
      HOLDFAST_ASSIGN_OR_RETURN(stamps, ArrayView::Make(int64, columns.stamps->schema(), columns.stamps->array()));
    }
    std::vector<char>& bytes = piece->values.bytes;
    const size_t stamp_bytes = stamps.has_value() ? value_header::kStampBytes : 0;
    bytes.reserve(rows.bytes.size() + static_cast<size_t>(length) * (value_header::kBytes + stamp_bytes));
    piece->values.offsets.reserve(static_cast<size_t>(length) + 1);
    for (int64_t i = 0; i < length; ++i) {
      const bool null = nulls[static_cast<size_t>(i)];
      if (null && kind_ == EntryKind::kValue) {
        return Status::InvalidRequest("row " + std::to_string(i) + ": the value is null; a key without one has no row");
      }
      const char plain = value_header::WithVersion(null ? value_header::kNull : value_header::kRow, version());
      if (stamps.has_value() && !stamps->IsNull(i)) {
        std::array<char, value_header::kStampBytes> stamp;
        value_header::PutStamp(stamps->Value<int64_t>(i), stamp.data());
        bytes.push_back(value_header::StampedHeader(plain));
        bytes.insert(bytes.end(), stamp.begin(), stamp.end());
      } else {
        bytes.push_back(plain);
      }
      if (!null && values_.has_value())
        bytes.insert(bytes.end(), rows[i].begin() + value_header::kBytes, rows[i].end());
      piece->values.offsets.push_back(static_cast<int64_t>(bytes.size()));
    }
    return Status::Ok();
  }

  uint16_t id_;
  EntryKind kind_;
  int32_t max_parallelism_;
  std::optional<KeyCodec> keys_;  // none: the state is of no key
  std::optional<KeyCodec> map_keys_;
  std::optional<RowCodec> values_;
  std::unique_ptr<EarlierRows> earlier_;  // none: the state has one schema
};

}  // namespace

Result<std::unique_ptr<StateCodec>> StateCodec::Make(const Type& key_type, StateCodecOptions options) {
  if (options.state_id < 0 || options.state_id > UINT16_MAX) {
    return Status::InvalidRequest("state_id: expected 0 to 65535, found " + std::to_string(options.state_id));
  }
  if (options.max_parallelism < 1 || options.max_parallelism > kMaxParallelismLimit) {
    return Status::InvalidRequest("max_parallelism: expected 1 to " + std::to_string(kMaxParallelismLimit) +
                                  ", found " + std::to_string(options.max_parallelism));
  }
  const auto id = static_cast<uint16_t>(options.state_id);
  const bool timers = options.kind == EntryKind::kTimers;
  const bool of_no_key = layout::IsOperatorId(id);
  const bool has_elements = options.kind == EntryKind::kList || options.kind == EntryKind::kMap;
  if (timers != layout::IsOrderedId(id) || (of_no_key && !has_elements)) {
    return Status::InvalidRequest("a state of this kind has no id " + std::to_string(id));
  }
  if (options.map_key.has_value() != (options.kind == EntryKind::kMap) || options.value.has_value() == timers) {
    return Status::InvalidRequest("map_key is for maps, and value for all but timers");
  }
  std::optional<KeyCodec> keys;
  std::optional<KeyCodec> map_keys;
  std::optional<RowCodec> values;
  if (!of_no_key) {
    HOLDFAST_ASSIGN_OR_RETURN(keys, KeyCodec::Make(key_type, options.null_keys));
  }
  if (options.map_key.has_value()) {
    HOLDFAST_ASSIGN_OR_RETURN(map_keys, KeyCodec::Make(*options.map_key, /*allow_null=*/false));
  }
  if (options.value.has_value()) {
    HOLDFAST_ASSIGN_OR_RETURN(values, RowCodec::Make(*options.value));
  }
  std::unique_ptr<EarlierRows> earlier;
  if (options.schemas.has_value()) {
    if (timers) return Status::InvalidRequest("timers have no values, nor schemas");
    HOLDFAST_ASSIGN_OR_RETURN(earlier, MakeResolvedRows(*options.schemas));
  }
  return std::unique_ptr<StateCodec>(std::make_unique<EntryCodec>(
      std::move(options), std::move(keys), std::move(map_keys), std::move(values), std::move(earlier)));
}

}  // namespace holdfast
